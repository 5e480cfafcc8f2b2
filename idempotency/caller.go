package idempotency

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
)

// ErrCallerUnknown is returned by a Caller function that cannot tell who sends a
// request. The request gets 400: it must not share answers with others.
var ErrCallerUnknown = errors.New("nothing in the request says who sends it")

// ByAuthorization takes the Authorization header as the caller, else X-API-Key,
// else nobody. A request with a cookie and neither is refused: cookie sessions
// are not one anonymous caller.
func ByAuthorization(r *http.Request) (string, error) {
	for _, name := range []string{"Authorization", "X-Api-Key"} {
		if lines := r.Header[name]; len(lines) > 0 {
			return fmt.Sprintf("%s %q", name, lines), nil
		}
	}
	if len(r.Header["Cookie"]) > 0 {
		return "", fmt.Errorf("%w but a cookie; configure the caller", ErrCallerUnknown)
	}
	return "", nil
}

// ByHeader takes a header that somebody trusted has set as the caller. A request
// without it is refused.
func ByHeader(name string) func(*http.Request) (string, error) {
	name = textproto.CanonicalMIMEHeaderKey(name)
	return func(r *http.Request) (string, error) {
		lines := r.Header[name]
		if len(lines) == 0 || lines[0] == "" {
			return "", fmt.Errorf("%w: %s is missing", ErrCallerUnknown, name)
		}
		return fmt.Sprintf("%s %q", name, lines), nil
	}
}

// Anyone makes all requests one caller's. It is right only where every client
// may see every answer.
func Anyone(*http.Request) (string, error) { return "", nil }
