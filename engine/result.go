package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/schema"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/store"
)

// A person who says that a call happened says with which result, since next and items go
// on with it.

// resultNeed says whether that answer must carry the result. It need not if nothing comes after the call that could
// look at it, if the service can be read for it, or if null is a result and the script does not look at it.
func (x *execution) resultNeed() keep.ResultNeed {
	if x.def.DropsResult(x.a.name) {
		return keep.ResultOptional
	}
	if t := x.e.tools.known(x.mut.Tool); t != nil && t.readsResultOf(x.mut) {
		return keep.ResultOptional
	}
	return x.saidNeed(x.mut.Tool)
}

// saidNeed is resultNeed of a tool whose result is not read from the service.
func (x *execution) saidNeed(name keep.ToolName) keep.ResultNeed {
	t := x.e.tools.known(name)
	switch {
	case !x.def.IgnoresResult:
		return keep.ResultRequired
	case t != nil && t.fits(json.RawMessage("null")) != "":
		return keep.ResultRequired
	}
	return keep.ResultOptional
}

// fits returns why a result does not have the declared shape; empty: it has.
func (t *tool) fits(result json.RawMessage) string {
	if t.result == nil {
		return ""
	}
	doc, err := schema.Value(result)
	if err == nil {
		err = t.result.Validate(doc)
	}
	if err != nil {
		return schema.Reasons(err)
	}
	return ""
}

// ResultSchema returns the JSON Schema of what a tool brings; nil: anything.
func (ts *Tools) ResultSchema(name keep.ToolName) json.RawMessage {
	if t := ts.known(name); t != nil {
		return t.spec.Result
	}
	return nil
}

// CheckResult returns why a person's result of a tool is refused. Nothing is known about
// the results of a tool that is not configured any more.
func (ts *Tools) CheckResult(name keep.ToolName, result json.RawMessage) error {
	switch {
	case !json.Valid(result):
		return errors.New("the result is not JSON")
	case len(result) > maxResult:
		return fmt.Errorf("the result has %d bytes, want at most %d", len(result), maxResult)
	}
	if err := connector.CheckNumbers(result); err != nil {
		return fmt.Errorf("the result: %w", err)
	}
	if t := ts.known(name); t != nil {
		if why := t.fits(result); why != "" {
			return fmt.Errorf("the result does not have the shape that %s declares: %s", name, why)
		}
	}
	return nil
}

// ReadsResult reports whether the service can be read for what a tool brought.
func (ts *Tools) ReadsResult(name keep.ToolName) bool {
	t := ts.known(name)
	return t != nil && t.spec.ResultFrom != ""
}

// readsResultOf reports whether the service can be read for what m brought. Where m was not sent, and as another user, the same
// identity may be something else (law: bound-to-its-world).
func (t *tool) readsResultOf(m keep.Mutation) bool {
	return t.spec.ResultFrom != "" && !t.moved(m) && !ledger.OfAnotherUser(m.Error)
}

// Results knows what calls bring, for the answers of persons.
type Results struct {
	*Tools
	users
}

// NewResults returns the Results of tools on a store, with Config.SecretKey of its engines.
func NewResults(ts *Tools, s store.Escalations, key []byte) Results {
	return Results{ts, users{s, key}}
}

// ReadResult reads from the service what m brought, if its tool says by which get tool
// (result_from). Known is false if it does not say, or sends elsewhere or perhaps as another user now.
func (r Results) ReadResult(ctx context.Context, m keep.Mutation) (result json.RawMessage, known bool, err error) {
	ts, t := r.Tools, r.known(m.Tool)
	if t == nil || !t.readsResultOf(m) {
		return nil, false, nil
	}
	changed, as, err := r.userSince(ctx, t, m)
	switch {
	case err != nil:
		return nil, true, fmt.Errorf("whose credentials would read the result is not known: %w", err)
	case len(changed) > 0:
		return nil, false, nil
	}
	ctx = connector.SendAs(ctx, as)
	from := ts.known(siblingOf(m.Tool, t.spec.ResultFrom))
	if from == nil {
		return nil, true, fmt.Errorf("%s reads its result with %s, which is not configured", m.Tool, t.spec.ResultFrom)
	}
	result, f := from.read(ctx, HostCall{Name: string(from.name)}, m.Identity)
	switch {
	case f != nil:
		return nil, true, fmt.Errorf("%s could not read the result: %w", from.name, f)
	case result == nil || string(result) == "null":
		return nil, true, fmt.Errorf("%s finds nothing for %s", from.name, m.Identity)
	}
	return result, true, nil
}

// checkResultFrom returns why what a tool names cannot be read as it says, or be shown.
func (ts *toolSet) checkResultFrom(t *tool) error {
	if from := ts.byName[siblingOf(t.name, t.spec.Now)]; from != nil && from.spec.Effect != connector.Get {
		return fmt.Errorf("tool %s: now is %q, want a get tool of the same connection", t.name, t.spec.Now)
	}
	if err := t.spec.View.Validate(); err != nil {
		return fmt.Errorf("tool %s: %w", t.name, err)
	}
	if t.spec.ResultFrom == "" {
		return nil
	}
	from := ts.byName[siblingOf(t.name, t.spec.ResultFrom)]
	if t.spec.Effect != connector.Mutate || from == nil || from.spec.Effect != connector.Get {
		return fmt.Errorf("tool %s: result_from is %q, want a get tool of the same connection", t.name, t.spec.ResultFrom)
	}
	return nil
}

// siblingOf returns the full name of another tool of the same connection.
func siblingOf(name keep.ToolName, tool string) keep.ToolName {
	connection, _, _ := strings.Cut(string(name), ".")
	return keep.ToolName(connection + "." + tool)
}
