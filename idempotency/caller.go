package idempotency

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// ErrCallerUnknown is returned by a Caller function that cannot tell who sends a
// request. The request gets 400: it must not share answers with others.
var ErrCallerUnknown = errors.New("nothing in the request says who sends it")

// ErrCredential is returned by a Caller function for a credential that is not
// valid, such as a token that has expired. The request gets 401.
var ErrCredential = errors.New("the credential is not valid")

// ErrCallerUnavailable is returned by a Caller function that cannot find out now who sends a
// request, such as when the issuer of its token does not answer. The request gets 503, and the log says why.
var ErrCallerUnavailable = errors.New("who sends the request cannot be found out now")

// stableSchemes are schemes of Authorization whose value a client sends unchanged
// with each request, until he renews it.
var stableSchemes = []string{"apikey", "api-key", "basic", "bearer", "bot", "dpop", "key", "token"}

// byCredential takes the Authorization header as the caller, else X-API-Key, else
// nobody. It refuses what would make each retry another caller, or different people
// the same one: schemes that sign each request, several credentials, cookies, and headers that seem to
// hold a credential.
func byCredential(r *http.Request) (string, error) {
	if lines := r.Header["Authorization"]; slices.ContainsFunc(lines, isCredentials) {
		if scheme, _, ok := strings.Cut(strings.TrimSpace(lines[0]), " "); ok && !isOneOf(scheme, stableSchemes) {
			return "", fmt.Errorf("%w: the scheme of its Authorization may sign each request; configure the caller", ErrCallerUnknown)
		}
		return fmt.Sprintf("Authorization %q", lines), isThereOnce("Authorization", lines)
	}
	if lines := r.Header["X-Api-Key"]; slices.ContainsFunc(lines, isNotBlank) {
		return fmt.Sprintf("X-Api-Key %q", lines), isThereOnce("X-Api-Key", lines)
	}
	for name, lines := range r.Header {
		if isCredential(name) && slices.ContainsFunc(lines, isCredentials) {
			return "", fmt.Errorf("%w but perhaps %s; configure the caller", ErrCallerUnknown, name)
		}
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return "", fmt.Errorf("%w but perhaps the certificate of the client; configure the caller", ErrCallerUnknown)
	}
	return "", nil
}

// isThereOnce returns an error if a header has several lines: who authenticates may read another one than we do, and a retry that has one of
// them would be another caller.
func isThereOnce(name string, lines []string) error {
	if len(lines) > 1 {
		return fmt.Errorf("%w: %s is there %d times", ErrCallerUnknown, name, len(lines))
	}
	return nil
}

func isNotBlank(line string) bool { return strings.TrimSpace(line) != "" }

// isCredentials reports whether a line of a header is more than nothing, or than a scheme that is followed by nothing:
// a client whose token is empty is nobody, and not whoever else sends none.
func isCredentials(line string) bool {
	return isNotBlank(line) && !isOneOf(strings.TrimSpace(line), stableSchemes)
}

func isOneOf(word string, list []string) bool {
	for _, w := range list {
		if strings.EqualFold(word, w) {
			return true
		}
	}
	return false
}

// isCredential reports whether a header may say who sends the request, as its name
// has it. Sec-… are set by browsers, and never credentials.
func isCredential(name string) bool {
	switch name = strings.ToLower(name); {
	case name == "cookie", name == "signature", name == "signature-input":
		return true
	case name == "idempotency-key", name == "x-idempotency-key", strings.HasSuffix(name, "user-agent"), strings.HasPrefix(name, "sec-"):
		return false
	}
	for _, part := range []string{"auth", "token", "session", "key", "user"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// ByHeader takes a header that somebody trusted has set as the caller. A request
// without it, or with two lines of it, is refused.
func ByHeader(name string) func(*http.Request) (string, error) {
	name = textproto.CanonicalMIMEHeaderKey(name)
	return func(r *http.Request) (string, error) {
		lines := r.Header[name]
		if len(lines) == 0 || !isNotBlank(lines[0]) {
			return "", fmt.Errorf("%w: %s is missing", ErrCallerUnknown, name)
		}
		// As a backend gets it: by HTTP/2 it comes as it was sent.
		return fmt.Sprintf("%s %q", name, []string{strings.Trim(lines[0], " \t")}), isThereOnce(name, lines)
	}
}

// ByBasic takes the user of HTTP Basic authentication as the caller, whatever the
// password. It does not check that: something between the client and the guard
// must, or who knows a user, a key and a whole request can see its answer. Who does not
// know the request sees at InstancePath only what state it is in.
func ByBasic(r *http.Request) (string, error) {
	if err := isThereOnce("Authorization", r.Header["Authorization"]); err != nil {
		return "", err
	}
	user, _, ok := r.BasicAuth()
	if !ok || user == "" {
		return "", fmt.Errorf("%w: no user of Basic authentication", ErrCallerUnknown)
	}
	return fmt.Sprintf("basic %q", user), nil
}

// Anyone makes all requests one caller's. It is right only where every client
// may see every answer.
func Anyone(*http.Request) (string, error) { return "", nil }
