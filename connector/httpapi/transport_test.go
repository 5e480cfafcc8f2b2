package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/keep-run/keep/connector/httpapi"
)

// What ended a connection is said as a person would say it.
func TestWhy(t *testing.T) {
	on := func(op string, err error) error {
		return fmt.Errorf("round trip: %w", &net.OpError{Op: op, Net: "tcp", Err: err})
	}
	for want, errs := range map[string][]error{
		"the connection ended in the middle":             {io.EOF, io.ErrUnexpectedEOF, on("write", net.ErrClosed)},
		"the time for the call was over":                 {context.DeadlineExceeded},
		"the call was cancelled":                         {context.Canceled},
		"the name of the service could not be looked up": {&net.DNSError{Name: "crm.invalid", IsNotFound: true}},
		"read: connection reset by peer":                 {on("read", syscall.ECONNRESET)},
		"dial: connection refused":                       {on("dial", syscall.ECONNREFUSED)},
	} {
		for _, err := range errs {
			if got := httpapi.Why(t.Context(), err); got != want {
				t.Errorf("%v: %q, want %q", err, got, want)
			}
		}
	}
}
