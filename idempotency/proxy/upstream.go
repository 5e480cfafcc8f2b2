package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
)

// An upstreamCall is one request to the backend.
//
// The timer runs while the backend is waited for, and only then: not while the
// client sends the next part of his request or takes a part of the answer.
type upstreamCall struct {
	timeout  time.Duration
	timer    *time.Timer // fires when the backend was silent for too long
	cancel   context.CancelCauseFunc
	p        *Proxy
	over     func() bool // forgets that the end of the proxy ends the call
	guarded  bool
	sent     atomic.Bool // a connection was there: something may have left
	answered atomic.Bool // the answer began
}

type callKey struct{}

func callOf(r *http.Request) *upstreamCall {
	return r.Context().Value(callKey{}).(*upstreamCall)
}

// trace returns a context in which the transport tells when it has a connection.
// Before that, with a dial, a lookup or a handshake that failed, nothing was sent.
func (c *upstreamCall) trace(ctx context.Context) context.Context {
	ctx = context.WithValue(ctx, callKey{}, c)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { c.sent.Store(true) },
	})
}

func (c *upstreamCall) late() {
	c.cancel(&keep.TimeoutError{Op: "upstream", After: c.timeout})
}

// begin watches the body of an answer that began. An event stream may be silent for
// as long as it likes, but not hold up the end of the proxy longer than requests may.
func (c *upstreamCall) begin(resp *http.Response) error {
	if resp.StatusCode < 100 { // of which net/http writes none
		return fmt.Errorf("the upstream answered with the status %03d, which is none", resp.StatusCode)
	}
	c.answered.Store(true)
	c.timer.Stop()
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	stream := resp.StatusCode == http.StatusSwitchingProtocols || media == "text/event-stream"
	if stream {
		ended := c.p.streams
		if c.guarded && resp.StatusCode != http.StatusSwitchingProtocols {
			ended = c.p.guarded
		}
		c.over = context.AfterFunc(ended, func() { c.cancel(errDraining) })
	}
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
		return nil // its body is the connection
	case !stream && resp.ProtoMajor == 1 && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0:
		idempotency.EndsWithConnection(resp.Request.Context())
	}
	resp.Body = &watched{resp.Body, c, resp.Request.Context(), !stream}
	return nil
}

// errDraining is why event streams end when the proxy does.
var errDraining = errors.New("the proxy is being stopped")

// watched is the body of an answer. If it ends too early nobody knows what
// happened.
type watched struct {
	io.ReadCloser
	call  *upstreamCall
	ctx   context.Context
	timed bool
}

// Read reads on, and gives the backend new time for each part.
func (w *watched) Read(p []byte) (int, error) {
	if w.timed {
		w.call.timer.Reset(w.call.timeout)
		defer w.call.timer.Stop()
	}
	n, err := w.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		idempotency.Doubt(w.ctx, statusOf(w.ctx))
	}
	return n, err
}

// uploaded is the body of a request on its way to the backend. The time in which
// the client is waited for is not the backend's.
type uploaded struct {
	io.ReadCloser
	call *upstreamCall
}

// Read reads what the client sends next.
func (u *uploaded) Read(p []byte) (int, error) {
	if u.call.answered.Load() {
		return u.ReadCloser.Read(p)
	}
	u.call.timer.Stop()
	n, err := u.ReadCloser.Read(p)
	if !u.call.answered.Load() {
		u.call.timer.Reset(u.call.timeout)
	}
	return n, err
}

// A plainWriter sends an answer with the headers that it was given: net/http would
// guess the type of one that has none.
type plainWriter struct{ http.ResponseWriter }

// Unwrap gives http.ResponseController the writer below.
func (w plainWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader sends the headers.
func (w plainWriter) WriteHeader(status int) {
	if h := w.Header(); status >= 200 && h["Content-Type"] == nil {
		h["Content-Type"] = nil
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write sends a part of the body.
func (w plainWriter) Write(b []byte) (int, error) { return w.ResponseWriter.Write(b) }

// statusOf returns 504 if the backend took too long, else 502.
func statusOf(ctx context.Context) int {
	if late := new(keep.TimeoutError); errors.As(context.Cause(ctx), &late) {
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway
}

// failed answers a request that got no answer.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	c, ctx := callOf(r), r.Context()
	if !c.guarded && ctx.Err() != nil && statusOf(ctx) == http.StatusBadGateway {
		return // the client left
	}
	p.cfg.Logger.WarnContext(ctx, "upstream gave no answer", "sent", c.sent.Load(), "err", err)
	switch {
	case !c.sent.Load():
		idempotency.Release(ctx)
		detail := "The upstream could not be reached, so nothing was done. Send the request again with the same key."
		if idempotency.Repeated(ctx) {
			detail = "The upstream could not be reached, so nothing was done now. Nobody knows whether an attempt before was. Send the request again with the same key."
		}
		idempotency.Problem{Kind: idempotency.KindNotSent, Status: http.StatusBadGateway, RetryAfter: time.Second, Detail: detail}.ServeHTTP(w, r)
	case c.guarded:
		idempotency.Doubt(ctx, statusOf(ctx)) // the guard answers
	default:
		idempotency.Problem{Kind: idempotency.KindUpstreamFailed, Status: statusOf(ctx),
			Detail: "The upstream gave no whole answer. Without an Idempotency-Key nothing is known about the request."}.ServeHTTP(w, r)
	}
}
