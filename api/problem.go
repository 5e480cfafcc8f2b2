package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/idempotency"
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

// problemOf returns a problem of RFC 9457; kind is the last part of its type.
func problemOf(status int, kind, detail string) *huma.ErrorModel {
	return &huma.ErrorModel{Type: idempotency.ProblemBase + kind, Title: http.StatusText(status), Status: status, Detail: detail}
}

// writeProblem answers with a problem.
func writeProblem(w http.ResponseWriter, p *huma.ErrorModel) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client is gone
}

// problem maps an error to what the client is told. This is the one place that
// does.
func (s *Server) problem(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ready, ok := errors.AsType[*huma.ErrorModel](err); ok {
		return ready
	}
	if script, ok := errors.AsType[*ScriptError](err); ok {
		p := problemOf(http.StatusUnprocessableEntity, "script", err.Error())
		for _, m := range script.Mistakes {
			p.Errors = append(p.Errors, &huma.ErrorDetail{Message: m.Message, Location: fmt.Sprintf("%s:%d:%d", m.File, m.Line, m.Column)})
		}
		return p
	}
	_, refused := errors.AsType[*engine.ActionError](err)
	_, item := errors.AsType[*engine.ItemError](err)
	switch {
	case errors.Is(err, keep.ErrNotFound):
		return problemOf(http.StatusNotFound, "not-found", err.Error())
	case errors.Is(err, keep.ErrBadCursor):
		return problemOf(http.StatusBadRequest, "bad-cursor", err.Error()+"; take it from the page before")
	case errors.Is(err, keep.ErrDecided):
		return problemOf(http.StatusConflict, "decided", err.Error())
	case errors.Is(err, keep.ErrRunOpen):
		return problemOf(http.StatusConflict, "run-open", err.Error())
	case errors.Is(err, keep.ErrStale):
		return problemOf(http.StatusConflict, "stale", err.Error())
	case refused || item:
		return problemOf(http.StatusConflict, "refused", err.Error())
	case ctx.Err() != nil:
		return problemOf(http.StatusServiceUnavailable, "stopped", "the request ended before its answer was known")
	}
	s.log.ErrorContext(ctx, "answer a request", "err", err)
	return problemOf(http.StatusInternalServerError, "internal", "Keep failed; its log says why")
}
