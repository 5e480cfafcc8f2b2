package httpapi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/ontime"
)

// idle is how long a connection of reads is kept for the next read. It is
// shorter than the idle timeout of common servers (Node: 5 s), so that a read
// seldom meets a connection that the server is just closing.
const idle = time.Second

// maxHeader bounds the header of an answer.
const maxHeader = 256 << 10

// newTransport returns a transport that can't send a request twice. HTTP/2 is
// off: its transport repeats requests that a server's GOAWAY overtook.
func newTransport(keepAlive bool) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            new(ontime.Dialer).DialContext,
		DisableCompression:     true,
		DisableKeepAlives:      !keepAlive,
		IdleConnTimeout:        idle,
		MaxIdleConnsPerHost:    8,
		MaxResponseHeaderBytes: maxHeader,
		Protocols:              protocols,
	}
}

// once is a body that net/http can't rewind. A request with a body and without
// GetBody is never sent again, not even if it is a GET or has an
// Idempotency-Key; an empty once sends no body.
type once struct{ r io.Reader }

// Read reads the body.
func (o once) Read(p []byte) (int, error) { return o.r.Read(p) }

// Close does nothing: the bytes are in memory.
func (o once) Close() error { return nil }

// errNotSent marks errors of requests that never left.
var errNotSent = errors.New("nothing was sent")

// roundTrip sends req and returns the answer. An error is errNotSent if no
// connection was made; after that anything may have reached the service.
//
// It calls the transport without an http.Client, so there is nothing that
// follows redirects or keeps cookies. On a connection of its own nothing is sent after
// the end of ctx.
func roundTrip(ctx context.Context, t *http.Transport, req *http.Request) (*http.Response, error) {
	if err := connector.Admit(ctx); err != nil {
		return nil, errors.Join(errNotSent, err)
	}
	begun := false
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { begun = true }}
	ctx = httptrace.WithClientTrace(ctx, trace)
	if t.DisableKeepAlives { // the connection is this request's alone
		ctx = ontime.WithEnd(ctx)
	}
	resp, err := t.RoundTrip(req.WithContext(ctx))
	if err != nil && !begun {
		return nil, errors.Join(errNotSent, err)
	}
	return resp, err
}

// why says in a few words for a person what a transport error was.
func why(ctx context.Context, err error) string {
	var timeout net.Error
	var dns *net.DNSError
	var named *keep.TimeoutError
	switch {
	case errors.As(context.Cause(ctx), &named):
		return named.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "the time for the call was over"
	case errors.Is(err, context.Canceled):
		return "the call was cancelled"
	case errors.As(err, &dns):
		return "the name of the service could not be looked up"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "the connection timed out"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		return "the connection ended in the middle"
	}
	// The chain may quote addresses but holds no header.
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}
