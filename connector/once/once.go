// Package once sends an HTTP request at most once, as a connector has to: Keep's record of a call says that it was sent
// once, and only Keep decides whether it is sent again.
//
// The client of net/http does not. It sends a POST again, by itself, when a connection that was used before ends
// without an answer and the request has the header Idempotency-Key, or no body: the service may have acted on the first.
//
//	var client = once.NewClient()
//
//	Do: func(ctx context.Context, key string, p payment) (receipt, error) {
//		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
//		…
//		req.Header.Set("Idempotency-Key", key)
//		resp, err := client.Do(req)
package once

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/internal/ontime"
)

// idle is how long a connection of reads is kept for the next read. It is
// shorter than the idle timeout of common servers (Node: 5 s), so that a read
// seldom meets a connection that the server is just closing.
const idle = time.Second

// maxHeader bounds the header of an answer.
const maxHeader = 256 << 10

// ErrNotSent marks the error of a request of which nothing was sent.
var ErrNotSent = errors.New("nothing was sent")

// NewClient returns a client for changes. It sends each request at most once, on a connection of its own and not after
// the end of its context, follows no redirect, and keeps no cookies. An error that is ErrNotSent is a *keep.Failure, which a
// tool may return as it is: the call failed, and may be made again. After any other error it may have happened.
func NewClient() *http.Client {
	return &http.Client{
		Transport:     classified{NewTransport(false)},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// classified says the class of errors.
type classified struct{ *Transport }

// RoundTrip implements http.RoundTripper.
func (c classified) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.Transport.RoundTrip(req)
	if errors.Is(err, ErrNotSent) {
		err = errors.Join(keep.Failf(keep.ClassTransient, "not-sent", "%v", err), err)
	}
	return resp, err
}

// A Transport is an http.RoundTripper that cannot send a request twice.
type Transport struct{ http *http.Transport }

// NewTransport returns a transport whose requests have a connection each, or, for reads, one that may have been used
// before. HTTP/2 is off: its transport repeats requests that a server's GOAWAY overtook.
func NewTransport(shared bool) *Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &Transport{&http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            new(ontime.Dialer).DialContext,
		DisableCompression:     true,
		DisableKeepAlives:      !shared,
		IdleConnTimeout:        idle,
		MaxIdleConnsPerHost:    8,
		MaxResponseHeaderBytes: maxHeader,
		Protocols:              protocols,
	}}
}

// RoundTrip sends req and returns the answer. An error is ErrNotSent if no connection was made; after that anything may
// have reached the service. On a connection of its own nothing is sent after the end of the context of req.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	begun := false
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { begun = true }})
	if t.alone() {
		ctx = ontime.WithEnd(ctx)
	}
	resp, err := t.http.RoundTrip(t.unrepeatable(ctx, req))
	if err != nil && !begun {
		return nil, errors.Join(ErrNotSent, err)
	}
	return resp, err
}

// CloseIdleConnections closes those that wait for another request.
func (t *Transport) CloseIdleConnections() { t.http.CloseIdleConnections() }

func (t *Transport) alone() bool { return t.http.DisableKeepAlives }

// unrepeatable returns req with a body that net/http cannot rewind. A request with a body and without GetBody is never
// sent again, not even if it is a GET or has an Idempotency-Key; an empty body of a read sends none.
func (t *Transport) unrepeatable(ctx context.Context, req *http.Request) *http.Request {
	req = req.WithContext(ctx)
	req.GetBody = nil
	if (req.Body == nil || req.Body == http.NoBody) && !t.alone() {
		req.Body = struct{ io.ReadCloser }{http.NoBody}
	}
	return req
}
