package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/canonical"
)

// A ResultError is returned when a person says that a call happened, and the result that
// goes with it is missing or does not have the shape that the tool declares.
type ResultError struct {
	ID     keep.EscalationID
	Action keep.Action
	Tool   keep.ToolName
	Why    string
	Schema json.RawMessage // of what is wanted; nil: any JSON
}

// Error says what is wrong, and which JSON is wanted.
func (e *ResultError) Error() string {
	want := "any JSON, or null if what follows can do without"
	if e.Schema != nil {
		want = "JSON that fits " + string(e.Schema)
	}
	return fmt.Sprintf("question %s: %s: %s; wanted is what %s would have answered: %s", e.ID, e.Action, e.Why, e.Tool, want)
}

// resultOf returns the result of a call that a person says happened: as given, or as the
// service has it, or null.
func (o *Operator) resultOf(ctx context.Context, q keep.Escalation, m keep.Mutation, d keep.Decision) (json.RawMessage, error) {
	results := o.cfg.Results
	if d.Result != nil {
		if err := o.checkGiven(m.Tool, d.Result); err != nil {
			return nil, &ResultError{q.ID, d.Action, m.Tool, err.Error(), results.ResultSchema(m.Tool)}
		}
		return d.Result, nil
	}
	result, known, err := results.ReadResult(ctx, m)
	if known && err == nil {
		err = results.CheckResult(m.Tool, result)
	}
	switch {
	case err != nil:
		return nil, &ActionError{q.ID, d.Action, err.Error() + "; nothing was changed, and a result may be given by hand"}
	case known:
		return result, nil
	}
	need, err := o.needsResult(ctx, q, m)
	if err != nil {
		return nil, err
	}
	if need {
		return nil, &ResultError{q.ID, d.Action, m.Tool, "what follows reads the result, and none was given", results.ResultSchema(m.Tool)}
	}
	return nil, nil
}

// checkGiven returns why what a person gave is no result of a tool.
func (o *Operator) checkGiven(tool keep.ToolName, result json.RawMessage) error {
	if err := canonical.Unambiguous(result); err != nil {
		return fmt.Errorf("the result: %w", err)
	}
	return o.cfg.Results.CheckResult(tool, result)
}

// checkSaid returns why an answer may not say of the call of an approval that it was done: the
// result is missing, or is none of its tool.
func (o *Operator) checkSaid(q keep.Escalation, d keep.Decision) error {
	result, why := d.Result, ""
	if result == nil {
		result = json.RawMessage("null")
		if slices.ContainsFunc(q.Choices, func(c keep.Choice) bool { return c.Action == d.Action && c.Result == keep.ResultRequired }) {
			why = "what follows reads the result, and none was given"
		}
	}
	if q.Approval == nil {
		return &ActionError{q.ID, d.Action, "it does not say which call it is about"}
	}
	if err := o.checkGiven(q.Approval.Tool, result); err != nil {
		why = cmp.Or(why, err.Error())
	}
	if why != "" {
		return &ResultError{q.ID, d.Action, q.Approval.Tool, why, o.cfg.Results.ResultSchema(q.Approval.Tool)}
	}
	return nil
}

// needsResult reports whether the call that q is about cannot have null as its result: the script looks at it, as the question
// was asked or as the current version does, or its tool declares another shape and something comes after it.
func (o *Operator) needsResult(ctx context.Context, q keep.Escalation, m keep.Mutation) (bool, error) {
	for _, c := range q.Choices {
		if c.Action == keep.Happened && c.Result == keep.ResultRequired {
			return true, nil
		}
	}
	run, err := o.store.Run(ctx, q.Run)
	if err != nil {
		return false, err
	}
	def, err := o.definition(ctx, q.Workflow)
	if err != nil {
		return false, err
	}
	h, declared := def.Handler(run.Handler)
	switch {
	case declared && !h.IgnoresResult:
		return true, nil
	case declared && h.DropsResult(q.Workflow):
		return false, nil
	}
	return o.cfg.Results.CheckResult(m.Tool, json.RawMessage("null")) != nil, nil
}

// anything is the Results of who knows no tools.
type anything struct{}

func (anything) ResultSchema(keep.ToolName) json.RawMessage { return nil }

func (anything) CheckResult(_ keep.ToolName, result json.RawMessage) error {
	if !json.Valid(result) {
		return errors.New("the result is not JSON")
	}
	return nil
}

func (anything) ReadResult(context.Context, keep.Mutation) (json.RawMessage, bool, error) {
	return nil, false, nil
}
