package engine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/outcome"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
)

// A tool may say that its identity is unique: whichever run, item or workflow asks for it,
// it is to be applied once. A key protects one call from being made twice; this protects
// from the same call under another key. Before a second call a person is asked. What the
// engine reads here serves the question; that nobody else comes in between is decided by
// the commit that records the call (keep.Unlike).

// A rivalError ends a phase at a call that another record made, or may have made.
type rivalError struct {
	call  ledger.Call
	rival keep.Mutation
	shown bool // the service shows an effect that may be of either; else the tool says that its identity is unique
	later bool // the call was in doubt, and the other one set something else since
}

// Error names both.
func (e *rivalError) Error() string {
	return fmt.Sprintf("%s on %s was already done, or may have been: %s", e.call.Tool, e.call.Target, e.rival.Key)
}

// A treatedError ends the way of a call that a person treats as done, by another record or
// outside of what the ledger knows.
type treatedError struct{ result []byte }

// Error says so.
func (e *treatedError) Error() string { return "a person treats the call as done" }

// outcome returns what the run then knows of its call, of which there is no record.
func (e *treatedError) outcome() keep.Mutation {
	return lifecycle.TreatedAsDone(e.result)
}

// uniqueHash is what an answer to such a question is about: this very call, and no other.
func uniqueHash(c ledger.Call) string {
	return ledger.Hash([]byte(string(c.Key) + ":" + c.PayloadHash))
}

// checkUnique returns what the commit of a call must not repeat, nil if anything may be
// repeated. The error is a *rivalError if a person must decide first, or a *treatedError.
func (x *execution) checkUnique(ctx context.Context, call *takenCall, c ledger.Call) (*keep.Unlike, error) {
	if !call.tool.spec.Unique {
		return nil, nil
	}
	u, rival, err := x.rival(ctx, call, c)
	switch {
	case err != nil:
		return nil, err
	case rival.Key != "":
		return nil, &rivalError{call: c, rival: rival}
	}
	return &u, nil
}

// rival returns the oldest other record of the identity of a call that may have happened, zero if there is none. Those
// beside which a person wants the call made again are excepted. The error is a *treatedError if a person treats
// the call as done by one of them. In an item it does not matter which run asked.
func (x *execution) rival(ctx context.Context, call *takenCall, c ledger.Call) (u keep.Unlike, rival keep.Mutation, err error) {
	u = keep.Unlike{Key: c.Key, Tools: call.tool.namesWith(c.Tool), Identity: c.Identity, Subkey: c.Subkey}
	answers, except, err := x.saidOfEqual(ctx, call, c)
	if err != nil {
		return u, rival, err
	}
	u.Except = except
	if rival, _, err = x.e.store.Rival(ctx, u); err != nil {
		return u, rival, &storeError{err}
	}
	for _, q := range answers {
		if q.Kind == keep.AskAlreadyDone && q.Decision.Action == keep.TreatAsDone && q.Mutation == rival.Key { // with another content
			call.ask = fmt.Sprintf("%s said at %s that this call is done by %s, and what would be sent now differs", q.Decision.By,
				q.Decision.At.UTC().Format(time.DateTime+" UTC"), rival.Key)
			break
		}
	}
	return u, rival, nil
}

// saidOfEqual returns what persons said of a call beside others of its identity, and which of those it is to be made beside. The error is a
// *treatedError if a person treats the call as done by one of them.
func (x *execution) saidOfEqual(ctx context.Context, call *takenCall, c ledger.Call) (answers []keep.Escalation, except []keep.MutationKey, err error) {
	answers = call.answers
	if c.Item == "" && !x.direct {
		if answers, err = x.answers(ctx, keep.AskAlreadyDone); err != nil {
			return nil, nil, &storeError{err}
		}
	}
	for _, q := range answers {
		switch {
		case q.Kind != keep.AskAlreadyDone || q.PayloadHash != uniqueHash(c):
		case q.Decision.Action == keep.DoAgain:
			except = append(except, q.Mutation)
		case q.Decision.Action == keep.TreatAsDone:
			return nil, nil, x.treated(ctx, q.Mutation)
		}
	}
	return answers, except, nil
}

// treated returns the *treatedError of a decision that names the record key.
func (x *execution) treated(ctx context.Context, key keep.MutationKey) error {
	m, err := outcome.ByRecord(ctx, x.e.store, key)
	if err != nil {
		return &storeError{err}
	}
	return &treatedError{m.Result}
}

// askAlreadyDone pauses the run at a call until a person has decided. Nothing was sent,
// and the ledger has no record of it.
func (x *execution) askAlreadyDone(ctx context.Context, e *rivalError) error {
	now, c, m := x.e.Now(), e.call, e.rival
	f := &keep.Failure{Class: keep.ClassPrecondition, Code: keep.CodeAlreadyDone, Tool: c.Tool, At: x.callAt, Message: e.Error()}
	was, when := "was already done", "applied at "+m.UpdatedAt.UTC().Format("2006-01-02 15:04:05 UTC")
	if !m.State.Happened() {
		was, when = "may have been done already", "of which it is not known whether it happened ("+string(m.State)+")"
	}
	of := ofWhom(m)
	why := "the tool says that its identity is applied once (unique), and another record has the same; nothing was sent"
	if e.shown {
		why = "a person said that this call did not happen; its service shows one by now, which has no mark of who made it, and another record is of the same; nothing was sent"
	}
	question, before := fmt.Sprintf("%s on %s %s, by %s. Should %s do it again, or treat it as done?", c.Tool, c.Target, was, of, cmp.Or(agentOf(c.Pin), string(x.run.Handler))), "the same before"
	again := "makes this very call, beside the one that was made; a call that differs asks again"
	if e.later {
		why = "it was not known whether this call happened, and another one set something else since; nothing was sent"
		before = "set later"
		question = fmt.Sprintf("%s on %s was set to something else by a later call, of %s. Should %s do this call again, over that one, or leave it at that?", c.Tool, c.Target, of, cmp.Or(agentOf(c.Pin), string(x.run.Handler)))
		again = "makes this very call, over the later one; a call that differs asks again"
	}
	q := keep.Escalation{
		ID: keep.EscalationID(x.e.newID("esc", now)), Kind: keep.AskAlreadyDone, Workflow: x.a.name, Run: x.run.ID,
		Mutation: m.Key, Item: c.Item, Title: c.Title, PayloadHash: uniqueHash(c), CreatedAt: now,
		Question: question,
		// Whole: nothing is sent again that a person cannot see all of.
		Attempted: fmt.Sprintf("%s on %s with %s\n%s: %s, %s, with %s", c.Tool, c.Target, c.Payload,
			before, m.Key, when, cut(string(m.Payload), maxShown)),
		Why: why,
		Choices: []keep.Choice{
			{Action: keep.TreatAsDone, Label: "Treat it as done", Effect: x.treatEffect()},
			{Action: keep.DoAgain, Label: "Do it again", Effect: again},
			{Action: keep.Skip, Label: "Skip", Effect: x.rejectEffect()},
		},
	}
	return x.stop(ctx, f, lifecycle.Consequence{Status: keep.StatusPerson}, now, keep.OpenEscalation{Escalation: q})
}

func (x *execution) treatEffect() string {
	if x.run.Kind == keep.Consumer {
		return "sends nothing; next is told that the call was applied, with the result of the earlier one"
	}
	return "sends nothing; the item's handler gets the result of the earlier call"
}
