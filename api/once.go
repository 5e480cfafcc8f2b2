package api

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/idempotency"
)

// keyLease is how long after its process died a request that cannot be repeated is said to be in progress. It is short,
// since an owner that was only slow completes its record later all the same.
const keyLease = 10 * time.Second

// nothingDone are the statuses of answers that say so: the key is free, and the same request is executed once it can be.
var nothingDone = []int{
	http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusConflict, http.StatusPreconditionFailed, http.StatusRequestEntityTooLarge,
	http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusNotImplemented,
}

// keyRules say what idempotency keys do, by route. Of what is not repeatable nobody knows after a crash whether it was done.
func keyRules() []idempotency.Rule {
	rule := func(path string, repeatable func(*http.Request, []byte) bool) idempotency.Rule {
		return idempotency.Rule{Path: Prefix + path, Methods: []string{http.MethodPost}, Caller: caller, Holder: holder,
			Repeatable: repeatable, NotExecuted: nothingDone}
	}
	account := rule("/accounts/", nil)
	account.NotExecuted = nil // a service was asked, and what it refused may be half done
	return []idempotency.Rule{
		account,
		rule("/workflows/{workflow}/topics/{topic}/events", namesMessage),
		rule("/escalations/{escalation}/decision", closesQuestion), // a question is answered once, and says who did
		rule("/runs/{run}/cancel", always),                         // a run that ended never begins again
		rule("/tokens/{token}/revoke", always),
		rule("/", isPreview),
	}
}

// holder says whose token or session it is. Its keys are its own, but who renews it repeats nothing unawares.
func holder(r *http.Request) string {
	id, _ := access.From(r.Context())
	if id.ID == "" {
		return ""
	}
	return id.Name
}

// always is of routes that end what their path names.
func always(*http.Request, []byte) bool { return true }

// closesQuestion reports whether a body closes its question: to stop does not, and pauses a workflow that may have been resumed since.
func closesQuestion(_ *http.Request, body []byte) bool {
	var in struct {
		Action keep.Action `json:"action"`
	}
	return json.Unmarshal(body, &in) == nil && in.Action != keep.Stop
}

// namesMessage reports whether a body names the event that it publishes: a topic never forgets a message id.
func namesMessage(_ *http.Request, body []byte) bool {
	var in struct {
		ID keep.MessageID `json:"message_id"`
	}
	return json.Unmarshal(body, &in) == nil && in.ID != ""
}

// isPreview reports whether a body asks what would be done.
func isPreview(_ *http.Request, body []byte) bool {
	var in struct {
		Preview bool `json:"preview"`
	}
	return json.Unmarshal(body, &in) == nil && in.Preview
}
