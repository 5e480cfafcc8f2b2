package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/operator"
)

// A ScriptError is returned for a script that cannot be deployed.
type ScriptError struct{ Mistakes []Mistake }

// A Mistake is one thing that is wrong with a script.
type Mistake struct {
	File    string `json:"file"`
	Line    int    `json:"line"`   // from 1; 0: none
	Column  int    `json:"column"` // from 1; 0: none
	Message string `json:"message"`
}

// Error names the first mistake, and how many there are.
func (e *ScriptError) Error() string {
	if len(e.Mistakes) == 0 {
		return "the script is wrong"
	}
	m := e.Mistakes[0]
	text := fmt.Sprintf("%s:%d:%d: %s", m.File, m.Line, m.Column, m.Message)
	if more := len(e.Mistakes) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// A Kind is the last part of a problem's type: what a client can branch on.
type Kind string

// The kinds of problems. Those of requests with an Idempotency-Key are in package
// idempotency.
const (
	KindNotFound      Kind = "not-found"           // there is no such thing
	KindNoRoute       Kind = "no-route"            // the server knows no such request: it may be an older Keep
	KindMethod        Kind = "method"              // the path is known, and takes other methods
	KindUnauthorized  Kind = "unauthorized"        // the request has no valid credential
	KindForbidden     Kind = "forbidden"           // the role is too low
	KindBadBody       Kind = "bad-body"            // the body is missing, or no JSON that all readers read alike
	KindBadRequest    Kind = "bad-request"         // a member of the body, or a parameter, is not as the document describes it
	KindMediaType     Kind = "media-type"          // the body is not sent as JSON, or encoded
	KindBadCursor     Kind = "bad-cursor"          // the list did not make the cursor
	KindBadTime       Kind = "bad-time"            // the time of a filter cannot be read
	KindAmbiguous     Kind = "ambiguous"           // it does not say which one
	KindTooMany       Kind = "too-many"            // more than one request may change
	KindConsumer      Kind = "consumer"            // only producers and jobs can be started
	KindNotOffered    Kind = "not-offered"         // the question has no such action
	KindAccount       Kind = "account"             // the account does not do what was asked of it
	KindDecided       Kind = "decided"             // the question was already answered
	KindConfirm       Kind = "confirmation-needed" // it may send something again, and was not confirmed
	KindLimit         Kind = "limit-needed"        // raise without a limit that is higher, or something else with one
	KindResult        Kind = "result-needed"       // the result of a call is missing, or has another shape
	KindRefused       Kind = "refused"             // its state does not allow it
	KindRunOpen       Kind = "run-open"            // the workflow has an unfinished run
	KindStale         Kind = "stale"               // it changed meanwhile
	KindScript        Kind = "script"              // the script is wrong
	KindNoVersion     Kind = "no-version"          // a deploy that does not say what it replaces
	KindBadVersion    Kind = "bad-version"         // a version that cannot be compared
	KindBadCheckpoint Kind = "bad-checkpoint"      // the value of a checkpoint cannot be set
	KindBadGrant      Kind = "bad-grant"           // the grant cannot be used as it is
	KindBadEvent      Kind = "bad-event"           // the event cannot be published as it is
	KindTooLarge      Kind = "too-large"           // more bytes than one event may have
	KindUnsupported   Kind = "not-supported"       // this server does not do it
	KindStopped       Kind = "stopped"             // the request ended before its answer was known
	KindInternal      Kind = "internal"            // Keep failed
)

// problemOf returns a problem of RFC 9457.
func problemOf(status int, kind Kind, detail string) *huma.ErrorModel {
	return &huma.ErrorModel{Type: idempotency.ProblemBase + string(kind), Title: http.StatusText(status), Status: status, Detail: detail}
}

// typed gives a problem that was found before an operation began its type, and names in the detail what is wrong. What was sent
// is not repeated: it may hold a secret, and who reads a log of answers has no right to it.
func typed(_ huma.Context, _ string, v any) (any, error) {
	p, ok := v.(*huma.ErrorModel)
	if !ok || p.Type != "" {
		return v, nil
	}
	for _, e := range p.Errors {
		e.Value = nil
	}
	detail, found := placesOf(p), p.Errors
	switch p.Status {
	case http.StatusBadRequest:
		p = problemOf(http.StatusBadRequest, KindBadBody, detail)
	case http.StatusRequestEntityTooLarge:
		p = problemOf(http.StatusRequestEntityTooLarge, KindTooLarge, detail)
	case http.StatusUnsupportedMediaType:
		p = problemOf(http.StatusUnsupportedMediaType, KindMediaType, detail+"; send JSON, as Content-Type: application/json")
	case http.StatusUnprocessableEntity:
		p = problemOf(http.StatusUnprocessableEntity, KindBadRequest, detail)
	}
	p.Errors = found
	return p, nil
}

// maxPlaces is how many places the detail of a problem names.
const maxPlaces = 5

// placesOf returns what is wrong in a request, each with its place.
func placesOf(p *huma.ErrorModel) string {
	var places []string
	for _, e := range p.Errors[:min(len(p.Errors), maxPlaces)] {
		places = append(places, e.Location+": "+e.Message)
	}
	if more := len(p.Errors) - maxPlaces; more > 0 {
		places = append(places, fmt.Sprintf("and %d more", more))
	}
	return cmp.Or(strings.Join(places, "; "), p.Detail)
}

// writeProblem answers with a problem.
func writeProblem(w http.ResponseWriter, p *huma.ErrorModel) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client is gone
}

// problem maps an error to the problem that the client gets. No other place does.
func (s *Server) problem(ctx context.Context, err error) *huma.ErrorModel {
	if ready, ok := errors.AsType[*huma.ErrorModel](err); ok {
		return ready
	}
	if script, ok := errors.AsType[*ScriptError](err); ok {
		p := problemOf(http.StatusUnprocessableEntity, KindScript, err.Error())
		for _, m := range script.Mistakes {
			p.Errors = append(p.Errors, &huma.ErrorDetail{Message: m.Message, Location: fmt.Sprintf("%s:%d:%d", m.File, m.Line, m.Column)})
		}
		return p
	}
	_, refused := errors.AsType[*operator.ActionError](err)
	_, item := errors.AsType[*operator.ItemError](err)
	_, kept := errors.AsType[*operator.UnskipError](err)
	_, run := errors.AsType[*operator.RunError](err)
	_, redo := errors.AsType[*operator.RedoError](err)
	_, crowded := errors.AsType[*operator.CrowdedError](err)
	_, record := errors.AsType[*RecordError](err)
	_, result := errors.AsType[*operator.ResultError](err)
	_, limit := errors.AsType[*operator.LimitError](err)
	switch {
	case limit:
		return problemOf(http.StatusUnprocessableEntity, KindLimit, err.Error())
	case result:
		return problemOf(http.StatusUnprocessableEntity, KindResult, err.Error())
	case errors.Is(err, keep.ErrNotFound):
		return problemOf(http.StatusNotFound, KindNotFound, err.Error())
	case errors.Is(err, keep.ErrBadCursor):
		return problemOf(http.StatusBadRequest, KindBadCursor, err.Error()+"; take it from the page before")
	case errors.Is(err, keep.ErrDecided):
		return problemOf(http.StatusConflict, KindDecided, err.Error())
	case errors.Is(err, keep.ErrRunOpen):
		return problemOf(http.StatusConflict, KindRunOpen, err.Error())
	case errors.Is(err, keep.ErrStale):
		return problemOf(http.StatusConflict, KindStale, err.Error())
	case refused || item || kept, run, redo, record, crowded:
		return problemOf(http.StatusConflict, KindRefused, err.Error())
	case ctx.Err() != nil:
		return problemOf(http.StatusServiceUnavailable, KindStopped, "the request ended before its answer was known")
	}
	if id, _ := access.From(ctx); id.Via == access.ViaSocket {
		return problemOf(http.StatusInternalServerError, KindInternal, err.Error()) // the owner may see all
	}
	s.log.ErrorContext(ctx, "answer a request", "err", err)
	return problemOf(http.StatusInternalServerError, KindInternal, "Keep failed; its log says why")
}
