package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/ledger"
	"github.com/keep-run/keep/lifecycle"
)

// An approval is bound to one ledger key and one payload: it lets this very
// change be made once, over as many attempts as that takes. A payload that
// differs by a byte asks again (DESIGN section 8).

// approvalHash is what an approval is about.
func approvalHash(c ledger.Call) string {
	return ledger.Hash([]byte(string(c.Key) + ":" + c.PayloadHash))
}

// An unapprovedError ends a phase at a call that a person has not agreed to.
type unapprovedError struct{ call ledger.Call }

// Error names the call that waits.
func (e *unapprovedError) Error() string {
	return fmt.Sprintf("%s on %s waits for a person's approval", e.call.Tool, e.call.Target)
}

// admit returns c as it may now be recorded and made: a person agreed where the
// tool wants that, the tool has what it needs in the service, and the deadline
// counts from here. It is never after the end of the lease.
func (x *execution) admit(ctx context.Context, t *tool, c ledger.Call) (ledger.Call, time.Time, error) {
	if err := x.checkApproval(ctx, t, c); err != nil {
		return c, time.Time{}, err
	}
	if f := t.start(ctx, x.callAt); ctx.Err() != nil {
		return c, time.Time{}, errStopping
	} else if f != nil {
		return c, time.Time{}, f
	}
	limit := t.spec.Timeout
	if lease := x.a.tenure; lease != nil {
		var err error
		if limit, err = lease.callTime(ctx, limit); err != nil {
			return c, time.Time{}, err
		}
	}
	now := x.e.now()
	c.Deadline = now.Add(limit)
	return c, now, nil
}

// checkApproval returns *unapprovedError if t wants a person's agreement and this
// chain of runs has none for c. It is asked right before the record is written.
func (x *execution) checkApproval(ctx context.Context, t *tool, c ledger.Call) error {
	if !t.spec.Approve {
		return nil
	}
	want := approvalHash(c)
	for id := x.run.RetryOf; id != ""; {
		r, err := x.e.store.Run(ctx, id)
		if err != nil {
			return &storeError{err}
		}
		if r.Chain != x.run.Chain {
			break
		}
		qs, _, err := x.e.store.Escalations(ctx, keep.EscalationFilter{Workflow: x.a.name, Run: id}, keep.Page{})
		if err != nil {
			return &storeError{err}
		}
		for _, q := range qs {
			if q.Kind == keep.AskApproval && q.PayloadHash == want && q.Decision != nil && q.Decision.Action == keep.Approve {
				return nil
			}
		}
		id = r.RetryOf
	}
	return &unapprovedError{c}
}

// askApproval pauses the run at a call until a person has decided. Nothing was
// sent and the ledger has no record of it.
func (x *execution) askApproval(ctx context.Context, e *unapprovedError) error {
	now := x.e.now()
	f := &keep.Failure{Class: keep.ClassPermission, Code: "approval-needed", Tool: e.call.Tool, At: x.callAt, Message: e.Error()}
	q := keep.Escalation{
		ID: keep.EscalationID(x.e.newID("esc", now)), Kind: keep.AskApproval, Workflow: x.a.name, Run: x.run.ID,
		Item: e.call.Item, Title: e.call.Title,
		Question:    fmt.Sprintf("May %s of workflow %s call %s on %s?", x.run.Handler, x.a.name, e.call.Tool, e.call.Target),
		Attempted:   fmt.Sprintf("%s on %s with %s", e.call.Tool, e.call.Target, cut(string(e.call.Payload), maxShown)),
		Why:         "the connection asks for a person's approval before each call of this tool",
		PayloadHash: approvalHash(e.call), CreatedAt: now,
		Choices: []keep.Choice{
			{Action: keep.Approve, Label: "Approve", Effect: "makes this very call once; a call that differs asks again"},
			{Action: keep.Reject, Label: "Reject", Effect: x.rejectEffect()},
		},
	}
	return x.stop(ctx, f, lifecycle.Verdict{Status: keep.StatusApproval}, now, keep.OpenEscalation{Escalation: q})
}

func (x *execution) rejectEffect() string {
	if x.run.Kind == keep.Consumer {
		return "ends this run without the call; its events are marked skipped"
	}
	return "marks the item skipped; the job goes on with the others"
}

// unapproved returns the unapprovedError within err, nil if there is none.
func unapproved(err error) *unapprovedError {
	e, _ := errors.AsType[*unapprovedError](err)
	return e
}
