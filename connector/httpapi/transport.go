package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/once"
)

// rewindable is the body of a request, for the one of a read that is sent again with other credentials.
type rewindable struct{ *bytes.Reader }

// Close does nothing: the bytes are in memory.
func (rewindable) Close() error { return nil }

// roundTrip sends req and returns the answer. An error is once.ErrNotSent if nothing left.
//
// It calls the transport without an http.Client, so there is nothing that
// follows redirects or keeps cookies.
func roundTrip(ctx context.Context, t *once.Transport, req *http.Request) (*http.Response, error) {
	if err := connector.Admit(ctx); err != nil {
		return nil, errors.Join(once.ErrNotSent, err)
	}
	return t.RoundTrip(req.WithContext(ctx))
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
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}
