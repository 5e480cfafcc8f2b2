package idempotency

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/keep-run/keep/law/key"
)

// A Kind is the last part of a problem's type: what a client can branch on.
type Kind string

// ProblemBase and a Kind make the type of a problem (RFC 9457).
const ProblemBase = "https://keep-run.github.io/keep/problems/"

const (
	// KindKeyMissing: the route needs a key.
	KindKeyMissing Kind = "key-missing"

	// KindKeyInvalid: the headers name no key, or two.
	KindKeyInvalid Kind = "key-invalid"

	// KindCallerUnknown: nothing says who sends the request, or that cannot be found out now.
	KindCallerUnknown Kind = "caller-unknown"

	// KindCallerChanged: the same request was made under the key with another
	// credential.
	KindCallerChanged Kind = "caller-changed"

	// KindBodyUnreadable: the request did not arrive whole.
	KindBodyUnreadable Kind = "body-unreadable"

	// KindUnknownReference: no request of the caller has the reference.
	KindUnknownReference Kind = "unknown-reference"

	// KindBodyTimeout: the request took too long to arrive.
	KindBodyTimeout Kind = "body-timeout"

	// KindBusy: too much is under way; nothing was done. Try again.
	KindBusy Kind = "busy"

	// KindBodyTooLarge: the request is over the limit.
	KindBodyTooLarge Kind = "body-too-large"

	// KindInProgress: the first request is being processed. Ask again.
	KindInProgress Kind = "in-progress"

	// KindKeyReused: the key was used for another request. Use a new one.
	KindKeyReused Kind = "key-reused"

	// KindOutcomeUnknown: nobody knows whether it happened. Do not repeat it
	// under another key; ask, with the reference.
	KindOutcomeUnknown Kind = "outcome-unknown"

	// KindBodyNotStored: it happened, and the answer was too long to keep, a stream, or without an end of its own.
	KindBodyNotStored Kind = "body-not-stored"

	// KindStoreUnavailable: it was not executed, since that could not be
	// recorded. Try again.
	KindStoreUnavailable Kind = "store-unavailable"

	// KindNotSent: the upstream could not be reached; nothing was done. Try
	// again.
	KindNotSent Kind = "not-sent"

	// KindUpstreamFailed: the upstream gave no whole answer to a request without
	// a key.
	KindUpstreamFailed Kind = "upstream-failed"
)

// titles has the one short sentence of each kind.
var titles = map[Kind]string{
	KindKeyMissing:       "Idempotency-Key required",
	KindKeyInvalid:       "Idempotency-Key not valid",
	KindCallerUnknown:    "Caller unknown",
	KindCallerChanged:    "Caller changed",
	KindBodyUnreadable:   "Request did not arrive whole",
	KindUnknownReference: "Reference unknown",
	KindBodyTimeout:      "Request took too long",
	KindBusy:             "Too busy",
	KindBodyTooLarge:     "Request too large",
	KindInProgress:       "Request is being processed",
	KindKeyReused:        "Idempotency-Key was used for another request",
	KindOutcomeUnknown:   "Outcome unknown",
	KindBodyNotStored:    "Answer not stored",
	KindStoreUnavailable: "Idempotency store unavailable",
	KindNotSent:          "Upstream not reached",
	KindUpstreamFailed:   "Upstream failed",
}

// Kinds returns every kind, sorted.
func Kinds() []Kind { return slices.Sorted(maps.Keys(titles)) }

// A Problem is a refusal as clients see it (RFC 9457).
type Problem struct {
	Kind   Kind
	Status int
	Detail string

	// Reference names the record, for `keep keys` and for support. It is no
	// secret.
	Reference string

	// Instance is where its caller asks what became of the request. If empty, InstancePath and
	// the reference.
	Instance string

	// OriginalStatus is the status of an answer whose body was not stored.
	OriginalStatus int

	// RetryAfter is when it makes sense to ask again; zero: not said.
	RetryAfter time.Duration
}

// MarshalJSON returns the members of RFC 9457 and our own.
func (p Problem) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type           string `json:"type"`
		Title          string `json:"title"`
		Status         int    `json:"status"`
		Detail         string `json:"detail"`
		Instance       string `json:"instance,omitempty"`
		Reference      string `json:"reference,omitempty"`
		OriginalStatus int    `json:"original_status,omitempty"`
	}{ProblemBase + string(p.Kind), titles[p.Kind], p.Status, p.Detail, p.instance(), p.Reference, p.OriginalStatus})
}

// instance returns where the caller asks what became of the request.
func (p Problem) instance() string {
	if p.Reference == "" || p.Instance != "" {
		return p.Instance
	}
	return InstancePath + p.Reference
}

// ServeHTTP answers a request with the problem.
func (p Problem) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	body, err := json.Marshal(p)
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if p.RetryAfter > 0 {
		seconds := (p.RetryAfter + time.Second - 1) / time.Second
		h.Set("Retry-After", strconv.Itoa(int(seconds)))
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client may be gone
}

// problemOfKey returns the refusal of headers that name no key.
func problemOfKey(err error) Problem {
	if errors.Is(err, key.ErrMissing) {
		return Problem{Kind: KindKeyMissing, Status: http.StatusBadRequest,
			Detail: "This operation needs an Idempotency-Key header: one new value for each logical request, the same for its retries."}
	}
	return Problem{Kind: KindKeyInvalid, Status: http.StatusBadRequest,
		Detail: sentence(err) + " A key has 1 to 255 printable ASCII characters, bare or as a quoted string, in one header line."}
}

// problemOfCaller returns the refusal of a request whose caller is not known. A
// credential that is not valid gets what tells clients to renew it.
func problemOfCaller(w http.ResponseWriter, err error) Problem {
	if errors.Is(err, ErrCallerUnavailable) { // why is for the log: it names the issuer's address
		return Problem{Kind: KindCallerUnknown, Status: http.StatusServiceUnavailable, RetryAfter: time.Second,
			Detail: "Who sends the request cannot be found out now. Nothing was done; send it again with the same key."}
	}
	p := Problem{Kind: KindCallerUnknown, Status: http.StatusBadRequest, Detail: sentence(err)}
	if errors.Is(err, ErrCredential) {
		p.Status = http.StatusUnauthorized
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
	}
	return p
}

// sentence makes an error's text one.
func sentence(err error) string {
	text := []byte(err.Error())
	if len(text) > 0 && 'a' <= text[0] && text[0] <= 'z' {
		text[0] -= 'a' - 'A'
	}
	return string(text) + "."
}
