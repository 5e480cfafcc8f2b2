package idempotency

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"crypto/sha256"

	"github.com/keep-run/keep/idempotency/key"
)

// A Guard puts idempotency keys in front of handlers. It is safe for concurrent
// use. Make one with New.
type Guard struct {
	store   Store
	cfg     Config
	routes  []*route
	waiting waiting
}

// New returns a guard that keeps its records in store. It starts nothing; its
// error says what is wrong with cfg.
func New(store Store, cfg Config) (*Guard, error) {
	if store == nil {
		return nil, errors.New("idempotency: a store is required")
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	g := &Guard{store: store, cfg: cfg}
	for _, r := range cfg.Rules {
		rt, err := compile(r)
		if err != nil {
			return nil, err
		}
		g.routes = append(g.routes, rt)
	}
	return g, nil
}

// Handler returns next behind the guard.
//
// A handler that is executed has the whole request body in memory, and a context
// that does not end when the client leaves. It ends with ErrFenced as its cause
// when another owner took the key. The client sees nothing of its answer before
// that is recorded, except informational (1xx) answers.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
}

// serve decides whether a request is guarded, and reads what a guarded one says.
func (g *Guard) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	rt := g.route(r)
	if rt == nil || !rt.guards(r) {
		next.ServeHTTP(w, r)
		return
	}
	c := &call{g: g, rt: rt, w: w, r: r, next: next, started: time.Now()}
	name, err := key.FromHeader(r.Header)
	switch {
	case errors.Is(err, key.ErrMissing) && !rt.Require:
		next.ServeHTTP(w, r)
		return
	case err != nil:
		c.refuse(problemOfKey(err))
		return
	}
	caller, err := rt.Caller(r)
	if err != nil {
		c.refuse(Problem{Kind: KindCallerUnknown, Status: http.StatusBadRequest, Detail: sentence(err)})
		return
	}
	if problem := c.readBody(); problem != nil {
		c.refuse(*problem)
		return
	}
	c.claim = key.Claim{
		ID: key.NewID(caller, name), Key: name, Caller: hashCaller(caller), Method: r.Method, Path: shownPath(r),
		Fingerprint: key.NewFingerprint(r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Get("Content-Type"), c.body, rt.Form),
		Atomic:      rt.Atomic, TTL: rt.TTL,
	}
	c.serve()
}

// shownPath returns what a record keeps of a path, for people: ASCII, and bounded.
func shownPath(r *http.Request) string {
	path := r.URL.EscapedPath()
	return path[:min(len(path), 512)]
}

// route returns the first rule that matches the request's path; nil if none does.
func (g *Guard) route(r *http.Request) *route {
	for _, rt := range g.routes {
		if rt.matches(r) {
			return rt
		}
	}
	return nil
}

// hashCaller returns what a record keeps of a caller.
func hashCaller(caller string) string {
	if caller == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("keep caller 1 " + caller))
	return hex.EncodeToString(sum[:8])
}

// newToken returns a token that nobody else has.
func newToken() key.Token {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // it never fails
		if t := key.Token(binary.BigEndian.Uint64(b[:])); t != 0 && t != -1 {
			return t
		}
	}
}

// readBody takes the whole body, or says why not. Nothing is recorded before it
// is here: half an upload holds nothing.
func (c *call) readBody() *Problem {
	limit := c.rt.BodyLimit
	if c.r.ContentLength > limit {
		c.w.Header().Set("Connection", "close") // what follows is not read
		return tooLarge(limit)
	}
	if c.r.Body == nil || c.r.Body == http.NoBody {
		return nil
	}
	buf := bytes.NewBuffer(make([]byte, 0, max(c.r.ContentLength, 0)+bytes.MinRead))
	_, err := buf.ReadFrom(http.MaxBytesReader(c.w, c.r.Body, limit))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return tooLarge(limit)
	case err != nil:
		return &Problem{Kind: KindBodyUnreadable, Status: http.StatusBadRequest,
			Detail: "The request body did not arrive whole. Nothing was done; send it again."}
	case c.r.ContentLength >= 0 && int64(buf.Len()) != c.r.ContentLength:
		return &Problem{Kind: KindBodyUnreadable, Status: http.StatusBadRequest,
			Detail: fmt.Sprintf("The request announced %d bytes and has %d. Nothing was done; send it again.", c.r.ContentLength, buf.Len())}
	}
	c.body = buf.Bytes()
	return nil
}

func tooLarge(limit int64) *Problem {
	return &Problem{Kind: KindBodyTooLarge, Status: http.StatusRequestEntityTooLarge,
		Detail: fmt.Sprintf("A request with an Idempotency-Key may have %d bytes here. Nothing was done.", limit)}
}

// request returns the request as the handler gets it.
func (c *call) request(ctx context.Context) *http.Request {
	r := c.r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = io.NopCloser(bytes.NewReader(c.body))
		r.ContentLength, r.TransferEncoding = int64(len(c.body)), nil
	}
	return r
}
