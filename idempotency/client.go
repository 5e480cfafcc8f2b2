package idempotency

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keep-run/keep/law/key"
)

// A Client is an http.RoundTripper that gives each POST, PUT and PATCH a key and
// retries it safely under that key. The zero Client is ready.
//
// It retries when no answer came, on 425, 429, 502, 503 and 504, and on 409 with
// a Retry-After, which a server sends while the first request is being processed.
// A problem outcome-unknown is never retried: nobody but a person may decide
// about it. A request that carries a key already keeps it; give the same logical
// request the same key when your own program starts again:
//
//	r.Header.Set("Idempotency-Key", orderID)
type Client struct {
	// Base sends requests. If nil, http.DefaultTransport.
	Base http.RoundTripper

	// Attempts is how often a request is sent at most. If zero, 5.
	Attempts int

	// FirstWait is the time before the second attempt; it doubles, with jitter.
	// A Retry-After that asks for more counts. If zero, 200 ms.
	FirstWait time.Duration

	// MaxWait is the longest wait; a server that asks for more gets no retry. If
	// zero, 10 seconds.
	MaxWait time.Duration

	// MaxBody is the longest body that is kept for retries. A longer one is sent
	// once. If zero, 1 MiB.
	MaxBody int64

	// NewKey returns the key of a request. If nil, 26 random characters. One without a key ("")
	// is sent once.
	NewKey func(*http.Request) string
}

// RoundTrip sends a request, again and again under one key if need be.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	base := c.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if r.Method != http.MethodPost && r.Method != http.MethodPut && r.Method != http.MethodPatch {
		return base.RoundTrip(r)
	}
	body, whole, err := c.body(r)
	if err != nil {
		return nil, err
	}
	name := c.keyOf(r)
	attempts, keyless := cmp.Or(c.Attempts, 5), name == "" && !hasKey(r.Header)
	if !whole || keyless {
		attempts = 1
	}
	for n := 1; ; n++ {
		// The transport must not repeat the request under our feet: with a body
		// that can't be read again it does not.
		try := r.Clone(r.Context())
		try.GetBody = nil
		if try.Header == nil {
			try.Header = make(http.Header)
		}
		switch {
		case name != "":
			try.Header.Set(key.Header, name)
		case keyless:
			hideBlank(try.Header)
		}
		if try.Body = body(); try.Body == http.NoBody {
			try.Body = nil
		}
		resp, err := base.RoundTrip(try)
		wait, again := c.again(resp, err, n)
		if !again || n >= attempts || r.Context().Err() != nil {
			return resp, err
		}
		if resp != nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // the connection may serve again
			_ = resp.Body.Close()
		}
		if !rest(r.Context(), wait) {
			return nil, context.Cause(r.Context())
		}
	}
}

// hasKey reports whether a request names a key: what has none may be executed each time that it is sent.
func hasKey(h http.Header) bool {
	return slices.ContainsFunc(slices.Concat(h[key.Header], h[key.LegacyHeader]), isNotBlank)
}

// hideBlank writes headers that name no key in lower case, which means the same to every server: Go's transport takes those that are
// there for leave to send a request without a body again.
func hideBlank(h http.Header) {
	for _, name := range []string{key.Header, key.LegacyHeader} {
		if lines, ok := h[name]; ok {
			delete(h, name)
			h[strings.ToLower(name)] = lines
		}
	}
}

// keyOf returns the key that the request is to get; "" if it has one.
func (c *Client) keyOf(r *http.Request) string {
	switch {
	case len(r.Header[key.Header]) > 0, len(r.Header[key.LegacyHeader]) > 0:
		return ""
	case c.NewKey != nil:
		return c.NewKey(r)
	}
	return rand.Text()
}

// body returns a function that makes the request's body once more, and whether
// the whole of it can be made twice.
func (c *Client) body(r *http.Request) (again func() io.ReadCloser, whole bool, err error) {
	if r.Body == nil || r.Body == http.NoBody {
		return func() io.ReadCloser { return http.NoBody }, true, nil
	}
	limit := cmp.Or(c.MaxBody, 1<<20)
	head, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err != nil {
		return nil, false, errors.Join(fmt.Errorf("read request body: %w", err), r.Body.Close())
	}
	if int64(len(head)) > limit {
		rest := r.Body
		return func() io.ReadCloser {
			return struct {
				io.Reader
				io.Closer
			}{io.MultiReader(bytes.NewReader(head), rest), rest}
		}, false, nil
	}
	if err := r.Body.Close(); err != nil {
		return nil, false, fmt.Errorf("close request body: %w", err)
	}
	return func() io.ReadCloser { return io.NopCloser(bytes.NewReader(head)) }, true, nil
}

// again reports whether a request is to be sent once more, and after which wait.
func (c *Client) again(resp *http.Response, err error, n int) (wait time.Duration, again bool) {
	longest := cmp.Or(c.MaxWait, 10*time.Second)
	wait = longest
	if first := cmp.Or(c.FirstWait, 200*time.Millisecond); first <= longest>>(n-1) {
		wait = first << (n - 1)
	}
	wait = wait/2 + mathrand.N(wait/2+1)
	if err != nil {
		return wait, true // with the same key it is safe, whatever happened
	}
	asked, said := retryAfter(resp)
	switch resp.StatusCode {
	case http.StatusTooEarly, http.StatusTooManyRequests:
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if isUnknown(resp) {
			return 0, false
		}
	case http.StatusConflict:
		if !said || isUnknown(resp) {
			return 0, false
		}
	default:
		return 0, false
	}
	return max(wait, asked), asked <= longest
}

// retryAfter returns what the answer's Retry-After asks for.
func retryAfter(resp *http.Response) (wait time.Duration, said bool) {
	v := resp.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(v, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, math.MaxInt32)) * time.Second, true
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(time.Until(at), 0), true
	}
	return 0, false
}

// isUnknown reports whether an answer says that nobody knows the outcome. What it
// read of the body is still there for the caller.
func isUnknown(resp *http.Response) bool {
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") {
		return false
	}
	head, err := io.ReadAll(io.LimitReader(resp.Body, 16<<10))
	if err != nil {
		return false
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), resp.Body), resp.Body}
	return bytes.Contains(head, []byte("/"+string(KindOutcomeUnknown)+`"`))
}
