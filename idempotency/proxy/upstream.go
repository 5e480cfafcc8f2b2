package proxy

import (
	"context"
	"errors"
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
type upstreamCall struct {
	timeout time.Duration
	timer   *time.Timer // fires when the backend was silent for too long
	cancel  context.CancelCauseFunc
	guarded bool
	sent    atomic.Bool // a connection was there: something may have left
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

// answered watches the body of an answer that began. An event stream may be
// silent for as long as it likes.
func (c *upstreamCall) answered(resp *http.Response) error {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusSwitchingProtocols || media == "text/event-stream" {
		c.timer.Stop()
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return nil // its body is the connection
		}
		resp.Body = &watched{resp.Body, c, resp.Request.Context(), false}
		return nil
	}
	resp.Body = &watched{resp.Body, c, resp.Request.Context(), true}
	return nil
}

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
	n, err := w.ReadCloser.Read(p)
	if err == nil && n > 0 && w.timed {
		w.call.timer.Reset(w.call.timeout)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		idempotency.Doubt(w.ctx, statusOf(w.ctx))
	}
	return n, err
}

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
		idempotency.Problem{Kind: idempotency.KindNotSent, Status: http.StatusBadGateway, RetryAfter: time.Second,
			Detail: "The upstream could not be reached, so nothing was done. Send the request again with the same key."}.ServeHTTP(w, r)
	case c.guarded:
		idempotency.Doubt(ctx, statusOf(ctx)) // the guard answers
	default:
		idempotency.Problem{Kind: idempotency.KindUpstreamFailed, Status: statusOf(ctx),
			Detail: "The upstream gave no whole answer. Without an Idempotency-Key nothing is known about the request."}.ServeHTTP(w, r)
	}
}
