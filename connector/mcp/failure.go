package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/keep-run/keep"
)

// Codes of failures.
const (
	// CodeToolError is that of a result with isError.
	CodeToolError = "tool-error"

	codeNeedsInput = "needs-input" // the server needs more before it completes the call, and nobody gave it

	codeUnsent   = "not-sent"
	codeNoAnswer = "no-answer"
)

// refusals are the errors that say that a request cannot be executed as it is. They are no proof that it was not: a
// server may give any error after the effect, as SDKs do for a result that does not fit its schema.
var refusals = []int{-32700, -32600, -32601, -32602, -32020, -32021, -32022}

// refusing are the statuses of HTTP that say that a request was not executed, and what they mean. With 400 and 422,
// servers answer errors of tools too.
var refusing = map[int]keep.Class{
	401: keep.ClassPermission, 403: keep.ClassPermission, 404: keep.ClassLogic,
	405: keep.ClassLogic, 413: keep.ClassLogic, 415: keep.ClassLogic, 429: keep.ClassTransient,
}

// refusedBy reports whether a status says that a request was not executed, whatever the error in its answer says. With
// 404 outside of a session, servers answer that a method is unknown: there the error decides. A result shows that the
// request was executed.
func refusedBy(status int, m Message, inSession bool) bool {
	_, refused := refusing[status]
	if m.Error != nil && status == http.StatusNotFound && !inSession {
		return !slices.Contains(refusals, m.Error.Code)
	}
	return refused && m.Result == nil
}

// ofTransport reports whether an error is one that a server gives before it reads which tool is called: to a request
// that it cannot assign to a session, with an id that is not the request's, or, in the version of 2026-07-28, to headers that do not fit.
func ofTransport(status int, m Message, ours, modern bool) bool {
	if status != http.StatusBadRequest || m.Error == nil {
		return false
	}
	return !ours && strings.HasPrefix(m.Error.Message, "Bad Request: ") || modern && slices.Contains([]int{-32020, -32022}, m.Error.Code)
}

// refusedTool reports whether a text is one that SDKs give before they execute a tool, and no tool does: it names the tool.
func refusedTool(tool, text string) bool {
	if tool == "" {
		return false
	}
	for _, form := range []string{"Tool %s not found", "Tool %s disabled", "Tool not found: %s", "Unknown tool: %s", "Unknown tool: '%s'", "unknown tool %q"} {
		if text == fmt.Sprintf(form, tool) {
			return true
		}
	}
	return strings.HasPrefix(strings.TrimPrefix(text, "Input validation error: "), "Invalid arguments for tool "+tool+": ")
}

// codeText is how the TypeScript SDK begins the text of an error of the protocol.
const codeText = "MCP error -32602: "

// Classify returns what the end of a call of a tool proves; nil: it succeeded.
func Classify(tool string, ans Message, err error) *keep.Failure {
	if _, unsent := errors.AsType[*UnsentError](err); unsent {
		if f, ok := errors.AsType[*keep.Failure](err); ok { // of the account
			own := *f
			return &own
		}
		return keep.Failf(keep.ClassTransient, codeUnsent, "nothing was sent: %v", err)
	}
	if s, ok := errors.AsType[*StatusError](err); ok {
		return ofStatus(s)
	}
	if err != nil {
		return keep.Failf(keep.ClassUnknown, codeNoAnswer, "%v", err)
	}
	if ans.Error != nil {
		class := keep.ClassUnknown
		if slices.Contains(refusals, ans.Error.Code) && refusedTool(tool, strings.TrimPrefix(ans.Error.Message, codeText)) && ans.lacksResult() {
			class = keep.ClassLogic
		}
		return keep.Failf(class, fmt.Sprintf("mcp%d", ans.Error.Code), "%s", shorten(ans.Error.Message, 2000))
	}
	var r struct {
		IsError bool            `json:"isError"`
		Content json.RawMessage `json:"content"`
	}
	if len(ans.Result) == 0 || ans.Result[0] != '{' || json.Unmarshal(ans.Result, &r) != nil {
		return keep.Failf(keep.ClassUnknown, codeNoAnswer, "the answer is no result of a tool")
	}
	if NeedsInput(ans.Result) {
		return keep.Failf(keep.ClassUnknown, codeNeedsInput, "the server needs more before it completes the call, and there was nobody to ask for it")
	}
	if r.IsError {
		class, text := keep.ClassUnknown, TextOf(ans.Result)
		if said, coded := strings.CutPrefix(text, codeText); coded && refusedTool(tool, said) {
			class = keep.ClassLogic
		}
		return keep.Failf(class, CodeToolError, "%s", shorten(text, 2000))
	}
	return nil
}

// ofStatus returns what an answer proves that is none of the protocol.
func ofStatus(s *StatusError) *keep.Failure {
	class, refused := refusing[s.Status]
	switch {
	case s.over:
		class = keep.ClassTransient
	case s.unread:
		class = keep.ClassLogic
	case !refused:
		class = keep.ClassUnknown
	case s.Status == http.StatusUnauthorized && s.renewed:
		class = keep.ClassTransient // there is another credential now
	}
	f := keep.Failf(class, fmt.Sprintf("http-%d", s.Status), "%v", s)
	f.RetryAfter = s.retryAfter
	if len(s.scopes) > 0 {
		f.Code = keep.CodeForbidden
	}
	if s.account != "" {
		f.Account, f.Generation = s.account, s.generation
	}
	return f
}

// A hiddenError is an error whose text had secrets in it.
type hiddenError struct {
	text string // without them
	err  error
}

// Error is the text without secrets.
func (e *hiddenError) Error() string { return e.text }

// Unwrap returns the error as it was.
func (e *hiddenError) Unwrap() error { return e.err }

// hidden returns err with no secret in its text. An error of a server may quote what it was sent.
func (s *Server) hidden(err error) error {
	if err == nil {
		return nil
	}
	if text := s.cfg.hide.Text(err.Error()); text != err.Error() {
		return &hiddenError{text, err}
	}
	return err
}

// failure is Classify, without secrets.
func (s *Server) failure(tool string, ans Message, err error) *keep.Failure {
	f := Classify(tool, ans, err)
	if f != nil {
		f.Message = s.cfg.hide.Text(f.Message)
	}
	return f
}
