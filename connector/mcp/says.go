package mcp

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/internal/echo"
	"github.com/keep-run/keep/connector/internal/jsonval"
	"github.com/keep-run/keep/connector/internal/match"
)

// outputError is how SDKs say that what a tool made of a call does not fit its schema: the call was executed.
const outputError = "Output validation error"

// A Matcher recognises a result by a value in its JSON, that of its structuredContent or else of its one text.
type Matcher struct {
	path  match.Path
	value match.Value
	class keep.Class // of a refusal
}

// says returns what the result of a call proves, by the words of its owner; nil: it was executed. failed is what isError says of it; nil: it has none.
//
// Many servers answer an error as they answer all else. A script would continue as if the call had been made, so a result that says
// itself that it failed shows nothing, unless the owner says what it means; an agent reads it.
func (t *tool) says(result json.RawMessage, failed *keep.Failure) *keep.Failure {
	body, err := bodyOf(result)
	fits := func(s Matcher) bool { return err == nil && s.value.At(s.path, body) }
	fail := func(class keep.Class, why string) *keep.Failure {
		return keep.Failf(class, CodeToolError, "%s: %s", why, t.server.cfg.hide.Text(shorten(cmp.Or(TextOf(result), string(body)), 2000)))
	}
	if i := slices.IndexFunc(t.p.Refused, fits); i >= 0 {
		s := t.p.Refused[i]
		return fail(s.class, "the server refused it, as "+s.path.String()+" says")
	}
	if failed != nil {
		if t.p.ErrorsRefused && !strings.Contains(failed.Message, outputError) {
			failed.Class = keep.ClassLogic
		}
		return failed
	}
	if len(t.p.Applied) > 0 {
		if slices.ContainsFunc(t.p.Applied, fits) {
			return nil
		}
		return fail(keep.ClassUnknown, "nothing in the answer that applied_if names says that it happened")
	}
	if fields, err := jsonval.Fields(body); err == nil && !t.whole && echo.Fails(fields) {
		return fail(keep.ClassUnknown, "the answer says that it failed; say with refused_if what was not done then, or with applied_if what was")
	}
	return nil
}
