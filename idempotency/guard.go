package idempotency

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"crypto/sha256"

	"github.com/keep-run/keep/internal/room"
	"github.com/keep-run/keep/law/key"
)

// A Guard puts idempotency keys in front of handlers. It is safe for concurrent
// use. Make one with New.
type Guard struct {
	store   Store
	clock   *clock
	cfg     Config
	routes  []*route
	waiting waiting
	memory  *room.Room // a unit is a byte
	warned  warned     // of keys that no rule is about
	loss    loss

	sweeping sync.Mutex           // held while leases are looked at
	watched  map[key.ID]watchedAt // protected by sweeping; the records in progress that the last sweep saw

	executing sync.Map // the key.Fence of each key that this process holds, and the presence of each key.ID that it knows of
}

// A presence is what a process knows of a request, whether it has a store or not.
type presence int

const (
	executes  presence = iota // its handler runs
	bare                      // its handler runs, and it has no record
	unsettled                 // its handler has run, and what came of it is not recorded
)

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
	g := &Guard{store: store, clock: newClock(store, time.Now), cfg: cfg, memory: room.New(cfg.Memory), loss: loss{noticed: make(chan struct{})}}
	var mistakes []error
	for _, r := range cfg.Rules {
		rt, err := compile(r)
		if err == nil {
			err = rt.reached(g.routes)
			g.routes = append(g.routes, rt)
		}
		mistakes = append(mistakes, err)
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	return g, nil
}

// follow makes sure that the clock of the guard is the store's.
func (g *Guard) follow(ctx context.Context) error {
	every := g.cfg.Lease / 3
	if g.clock.follows(every) {
		return nil
	}
	ctx, done := g.inTime(ctx, "read the clock of the idempotency store")
	defer done()
	return g.clock.follow(ctx, every)
}

// Handler returns next behind the guard.
//
// A handler that is executed has the whole request body in memory, and a context
// that does not end when the client leaves. It ends with ErrFenced as its cause
// when another owner took the key, and a minute after the client of a stream left. The client sees nothing of its answer before
// that is recorded, except informational (1xx) answers.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
}

// serve decides whether a request is guarded, and reads what a guarded one says.
func (g *Guard) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if reference, ok := asksInstance(r); ok {
		g.instance(w, r, reference)
		return
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		defer g.learn(origin, w.Header(), r)
	}
	rt := g.route(r)
	if rt == nil {
		g.unmatched(r)
		next.ServeHTTP(w, r)
		return
	}
	c := g.newExchange(w, r, rt)
	c.next = next
	defer c.memory.Leave()
	if rt.Key.Field != "" {
		if problem := c.readBody(); problem != nil {
			c.refuse(*problem)
			return
		}
	}
	name, err := rt.Key.of(r, c.body)
	switch {
	case errors.Is(err, key.ErrMissing) && !rt.Require:
		g.keyless(r, rt)
		next.ServeHTTP(w, c.request(r.Context()))
		return
	case err != nil:
		c.refuse(problemOfKey(err))
		return
	case c.isInside(name):
		next.ServeHTTP(w, c.request(r.Context()))
		return
	}
	c.named(name)
}

// isInside reports whether this is the request that the same guard has let in: a handler
// was wrapped twice.
func (c *exchange) isInside(name string) bool {
	outer, ok := c.r.Context().Value(callKey{}).(*exchange)
	return ok && outer.g == c.g && outer.claim.Key == name && outer.r.Method == c.r.Method && outer.r.URL.Path == c.r.URL.Path
}

// named continues with a request whose key is known.
func (c *exchange) named(name string) {
	caller, err := c.rt.Caller(c.r)
	if err != nil {
		c.g.callerUnavailable(c.r.Context(), c.rt, err)
		c.refuse(problemOfCaller(c.w, err))
		return
	}
	if !c.bodyRead {
		if problem := c.readBody(); problem != nil {
			c.refuse(*problem)
			return
		}
	}
	c.claim = c.rt.claim(c.r, key.Host(c.g.hostOf(c.r)), name, caller, c.body)
	c.serve()
}

// callerUnavailable logs why nobody can say now who sends a request.
func (g *Guard) callerUnavailable(ctx context.Context, rt *route, err error) {
	if errors.Is(err, ErrCallerUnavailable) {
		g.cfg.Logger.WarnContext(ctx, "idempotency key: the caller cannot be found out", "route", rt.name, "err", err)
	}
}

// hostOf returns the host that a request is for.
func (g *Guard) hostOf(r *http.Request) string { return cmp.Or(g.cfg.Host, r.Host) }

// claim returns what a request with a body takes a key for.
func (rt *route) claim(r *http.Request, host, name, caller string, body []byte) key.Claim {
	f := fingerprint(r, body, rt.Form)
	c := key.Claim{
		ID: key.NewID(host, caller, name), Former: key.FormerID(caller, name), Host: shownHost(host),
		Key: name, Caller: hashCaller(caller), Method: r.Method, Path: shownPath(r), Fingerprint: f, Atomic: rt.Atomic, TTL: rt.TTL,
		Repeatable: rt.Repeatable != nil && rt.Repeatable(r, body),
	}
	holder := ""
	if rt.Holder != nil {
		holder = rt.Holder(r)
	}
	if (rt.callerMayChange || holder != "") && !c.Repeatable {
		c.Alias = key.NewAlias(host, holder, name, f)
	}
	return c
}

// fingerprint returns the hash of what a request asks for.
func fingerprint(r *http.Request, body []byte, form key.Form) key.Fingerprint {
	return key.NewFingerprint(r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Get("Content-Type"), body, form)
}

// shownHost returns what a record keeps of a host, for people: text that every store takes, and bounded.
func shownHost(host string) string {
	if !utf8.ValidString(host) {
		host = url.PathEscape(host)
	}
	return strings.ToValidUTF8(host[:min(len(host), 255)], "") // without half a letter at its end
}

// shownPath returns what a record keeps of a path, for people: ASCII, and bounded.
func shownPath(r *http.Request) string {
	path := r.URL.EscapedPath()
	return path[:min(len(path), 512)]
}

// hashCaller returns what a record keeps of a caller.
func hashCaller(caller string) string {
	if caller == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("keep caller 1 " + caller))
	return hex.EncodeToString(sum[:8])
}

// newFence returns a token that nobody else has.
func newFence() key.Fence {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // it never fails
		if t := key.Fence(binary.BigEndian.Uint64(b[:])); t != 0 && t != -1 {
			return t
		}
	}
}

// readBody takes the whole body, or says why not. Nothing is recorded before it
// is here: half an upload holds nothing.
func (c *exchange) readBody() *Problem {
	c.bodyRead = true
	limit := c.rt.BodyLimit
	if c.r.ContentLength > limit {
		c.endReading()
		return tooLarge(limit)
	}
	if n := beyond(c.r.Header); n > 0 && !c.hold(n) {
		return c.busy()
	}
	if c.r.Body != nil && c.r.Body != http.NoBody {
		timed := &timedBody{r: c.r.Body, conn: http.NewResponseController(c.w), silence: c.g.cfg.BodySilence, end: c.started.Add(c.g.cfg.BodyTimeout), memory: c.memory}
		body, err := c.readAll(http.MaxBytesReader(c.w, timed, limit), c.r.ContentLength)
		if problem := c.checkBody(body, err); problem != nil {
			return problem // what is late is late for the server, too, which reads a bit of the rest
		}
		_ = timed.conn.SetReadDeadline(time.Time{}) // where there are none, none was set
		c.body = body
	}
	if !c.memory.Keep() {
		return c.busy()
	}
	return nil
}

// checkBody returns what is wrong with a body that was read.
func (c *exchange) checkBody(body []byte, err error) *Problem {
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return tooLarge(over.Limit) // of this route, or of a handler before the guard
	case errors.Is(err, errBusy):
		return c.busy()
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.w.Header().Set("Connection", "close")
		return &Problem{Kind: KindBodyTimeout, Status: http.StatusRequestTimeout,
			Detail: fmt.Sprintf("The request body did not arrive in time: its next part within %s, the whole within %s. Nothing was done; send it again.",
				c.g.cfg.BodySilence, c.g.cfg.BodyTimeout)}
	case err != nil:
		return &Problem{Kind: KindBodyUnreadable, Status: http.StatusBadRequest,
			Detail: "The request body did not arrive whole. Nothing was done; send it again."}
	case c.r.ContentLength >= 0 && int64(len(body)) != c.r.ContentLength:
		return &Problem{Kind: KindBodyUnreadable, Status: http.StatusBadRequest,
			Detail: fmt.Sprintf("The request announced %d bytes and has %d. Nothing was done; send it again.", c.r.ContentLength, len(body))}
	}
	return nil
}

func tooLarge(limit int64) *Problem {
	return &Problem{Kind: KindBodyTooLarge, Status: http.StatusRequestEntityTooLarge,
		Detail: fmt.Sprintf("A request with an Idempotency-Key may have %d bytes here. Nothing was done.", limit)}
}

// request returns the request as the handler gets it.
func (c *exchange) request(ctx context.Context) *http.Request {
	r := c.r.WithContext(ctx)
	if !c.bodyRead {
		return r
	}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = io.NopCloser(bytes.NewReader(c.body))
		r.ContentLength, r.TransferEncoding = int64(len(c.body)), nil
	}
	return r
}
