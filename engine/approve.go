package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/grant"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
)

// An approval is bound to one ledger key and one payload: it lets this very
// change be made once, over as many attempts as that takes. A payload that
// differs by a byte asks again.

// approvalHash is what an approval is about. One of a call that may have happened
// before, and would be sent in another way now, is about that way too.
func approvalHash(c ledger.Call, before keep.Mutation) string {
	text := string(c.Key) + ":" + c.PayloadHash
	if before.Doubted && before.PinHash != c.PinHash {
		text += ":" + c.PinHash
	}
	return ledger.Hash([]byte(text))
}

// differs reports whether a call would be another one than the one before it under the
// same key, which was in doubt: what is sent, or where and how, has changed. Then the
// service would not know that both are one, and only a person may say that they are.
func differs(call *takenCall, c ledger.Call, before keep.Mutation) bool {
	if !before.Doubted {
		return false
	}
	return before.PinHash != "" && before.PinHash != c.PinHash ||
		before.PayloadHash != c.PayloadHash && call.difference(before.Payload) == connector.Significant
}

// An unapprovedError ends a phase at a call that a person has not agreed to.
type unapprovedError struct {
	call   ledger.Call
	why    string        // a person must agree
	before keep.Mutation // that was in doubt, and differs from call; zero: none
}

// Error names the call that waits.
func (e *unapprovedError) Error() string {
	return fmt.Sprintf("%s on %s waits for a person's approval", e.call.Tool, e.call.Target)
}

// checkApproval returns *unapprovedError if a person must agree to the call and this
// chain of runs has no agreement to it. It is asked right before the record is written.
func (x *execution) checkApproval(ctx context.Context, call *takenCall, c ledger.Call, before keep.Mutation, may grant.Verdict) error {
	t, why := call.tool, "the connection asks for a person's approval before each call of this tool"
	if !differs(call, c, before) {
		switch {
		case t.spec.Approve:
		case may.Ask:
			why = may.Why
		default:
			return nil
		}
		before = keep.Mutation{}
	}
	want := approvalHash(c, before)
	answers, err := x.answers(ctx, keep.AskApproval)
	if err != nil {
		return &storeError{err}
	}
	for _, q := range answers {
		if q.PayloadHash == want && q.Decision.Action == keep.Approve {
			return nil
		}
	}
	return &unapprovedError{c, why, before}
}

// answers returns the questions of a kind that persons answered about earlier attempts of
// this chain, newest first.
func (x *execution) answers(ctx context.Context, kind keep.EscalationKind) ([]keep.Escalation, error) {
	return x.a.answers(ctx, x.run, kind)
}

// answers returns those about the attempts before run.
func (a *actor) answers(ctx context.Context, run keep.Run, kind keep.EscalationKind) (list []keep.Escalation, err error) {
	for id := run.RetryOf; id != ""; {
		r, err := a.e.store.Run(ctx, id)
		if err != nil {
			return nil, err
		}
		if r.Chain != run.Chain {
			break
		}
		qs, _, err := a.e.store.Escalations(ctx, keep.EscalationFilter{Workflow: a.name, Run: id}, keep.Page{})
		if err != nil {
			return nil, err
		}
		for _, q := range qs {
			if q.Kind == kind && q.Decision != nil {
				list = append(list, q)
			}
		}
		id = r.RetryOf
	}
	return list, nil
}

// askApproval pauses the run at a call until a person has decided. Nothing was
// sent and the ledger has no record of it.
func (x *execution) askApproval(ctx context.Context, e *unapprovedError) error {
	now := x.e.Now()
	f := &keep.Failure{Class: keep.ClassPermission, Code: "approval-needed", Tool: e.call.Tool, At: x.callAt, Message: e.Error()}
	q := keep.Escalation{
		ID: keep.EscalationID(x.e.newID("esc", now)), Kind: keep.AskApproval, Workflow: x.a.name, Run: x.run.ID,
		Item: e.call.Item, Title: e.call.Title,
		Question: fmt.Sprintf("May %s of workflow %s call %s on %s?", x.run.Handler, x.a.name, e.call.Tool, e.call.Target),
		// Whole: nothing is approved that a person cannot see all of.
		Attempted:   fmt.Sprintf("%s on %s with %s", e.call.Tool, e.call.Target, e.call.Payload),
		Why:         e.why,
		PayloadHash: approvalHash(e.call, e.before), CreatedAt: now,
		Choices: []keep.Choice{
			{Action: keep.Approve, Label: "Approve", Effect: "makes this very call once; a call that differs asks again"},
			{Action: keep.Reject, Label: "Reject", Effect: x.rejectEffect()},
		},
	}
	if m := e.before; m.Key != "" {
		q.Attempted = fmt.Sprintf("an earlier call may have happened: %s on %s with %s\nnow it would be sent with %s", m.Tool, m.Target,
			cut(string(m.Payload), maxShown), cut(string(e.call.Payload), maxShown))
		q.Why = "the outcome of an earlier call under the same key was in doubt, and what would be sent now differs from it"
		if diff := differences(m.Payload, e.call.Payload, "\n", 20); diff != "" {
			q.Why += "\n" + diff
		}
		if m.PinHash != "" && m.PinHash != e.call.PinHash {
			q.Why += "\n" + x.e.tools.howItDiffers(m)
		}
	}
	return x.stop(ctx, f, lifecycle.Consequence{Status: keep.StatusApproval}, now, keep.OpenEscalation{Escalation: q})
}

func (x *execution) rejectEffect() string {
	if x.run.Kind == keep.Consumer {
		return "ends this run without the call; its events are marked skipped"
	}
	return "marks the item skipped; the job continues with the others"
}

// unapproved returns the unapprovedError within err, nil if there is none.
func unapproved(err error) *unapprovedError {
	e, _ := errors.AsType[*unapprovedError](err)
	return e
}
