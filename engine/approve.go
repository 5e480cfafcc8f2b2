package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/outcome"
	"github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/law/approval"
	"github.com/keep-run/keep/law/grant"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
)

// An approval is bound to one tool, one ledger key, one payload, and where and how it is sent: it lets
// this very change be made once, over as many attempts as that takes before it ends. A payload
// that differs by a byte asks again, and so does another tool, another place, another way of sending, and
// another version of the workflow. After a doubt that a person ended, so do credentials that may be
// another user's.
//
// A person may also say that the call was done already, outside of what the ledger knows, such as
// before it was restored from a backup. Nothing is sent and no record is made then: the run has its
// outcome by that word, as by the record of another run (see unique.go).

// approvalHash is what an approval is about. Whose credentials the call is sent with is part of it if
// they are perhaps another user's than those of the call before.
func approvalHash(c ledger.Call, another bool) string {
	about := string(c.Key) + ":" + c.PayloadHash + ":" + c.PinHash
	if another {
		about += ":" + string(marshal(keep.Mutation{Pin: c.Pin}.SentAs().As))
	}
	return ledger.Hash([]byte(about))
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
	call    ledger.Call
	spec    connector.Spec
	why     string           // a person must agree
	lapsed  string           // an approval that was given does not cover it; empty: none was given
	before  keep.Mutation    // that was in doubt, and differs from call; zero: none
	changed []account.Change // of the credentials of before
}

// Error names the call that waits.
func (e *unapprovedError) Error() string {
	return fmt.Sprintf("%s on %s waits for a person's approval", e.call.Tool, e.call.Target)
}

// checkApproval returns *unapprovedError if a person must agree to the call and this
// chain of runs has no agreement to it. It is asked right before the record is written,
// which under then binds to the version that the agreement was for.
func (x *execution) checkApproval(ctx context.Context, call *takenCall, c ledger.Call, before keep.Mutation, may grant.Verdict, under *keep.UnderGrant) error {
	x.approvedUntil = time.Time{}
	t := call.tool
	why := t.approvals.Why(call.params)
	if why == "" && may.Ask {
		why = may.Why
	}
	why = cmp.Or(why, call.ask)
	changed, err := x.asAnother(ctx, call, before)
	if err != nil {
		return err
	}
	if !differs(call, c, before) && len(changed) == 0 {
		if why == "" {
			return nil
		}
		before = keep.Mutation{}
	}
	want := approvalHash(c, len(changed) > 0)
	answers, err := x.answers(ctx, keep.AskApproval)
	if err != nil {
		return &storeError{err}
	}
	lapsed := ""
	for _, q := range answers {
		if q.Decision.Action != keep.Approve {
			continue
		}
		covers, why := x.covers(q, c, want)
		if covers {
			under.Version = x.a.current.Version
			x.approvedUntil = q.ExpiresAt
			return nil
		}
		lapsed = cmp.Or(lapsed, why) // of the newest
	}
	return &unapprovedError{c, t.spec, why, lapsed, before, changed}
}

// covers reports whether an approval that a person gave covers the call c, and if it was one
// of this call, why it does not. One that was given for these very credentials covers it also when the call before had
// them already, such as an attempt under it that the service refused.
func (x *execution) covers(q keep.Escalation, c ledger.Call, want string) (yes bool, why string) {
	if q.PayloadHash == want || q.PayloadHash == approvalHash(c, true) {
		if !x.ofTool(q, c.Tool) {
			return false, fmt.Sprintf("what %s approved at %s is %s, and not %s", q.Decision.By, q.Decision.At.UTC().Format(time.DateTime+" UTC"), q.Approval.Tool, c.Tool)
		}
		why = approval.Lapsed(q, x.a.current.Version, x.e.Now())
		return why == "", why
	}
	if a := q.Approval; a != nil && a.Key == c.Key {
		how := "it was approved before Keep recorded where and how a call is sent: look at it once more"
		if len(a.Pin) > 0 {
			how = "it would be sent with other credentials"
			if diff := howDiffers(a.Pin, c.Pin, "; "); diff != "" {
				how = "it would be sent another way: " + diff
			}
		}
		why = fmt.Sprintf("what %s approved at %s is not what would be sent now: %s", q.Decision.By, q.Decision.At.UTC().Format(time.DateTime+" UTC"),
			cmp.Or(differences(a.Payload, c.Payload, "; ", 20), how))
	}
	return false, why
}

// ofTool reports whether a question asked about a tool, under the name that it has or had. How a call is sent does not tell: write and
// append of a file, or insert and upsert of a row, may have the same params, place and key. Questions that an older version of
// Keep asked do not say it.
func (x *execution) ofTool(q keep.Escalation, name keep.ToolName) bool {
	if q.Approval == nil {
		return true
	}
	t := x.e.tools.known(q.Approval.Tool)
	return q.Approval.Tool == name || t != nil && t.name == name
}

// answers returns the questions of a kind that persons answered about earlier attempts of
// this chain, newest first. They are read once: their questions are closed since this attempt is stored.
func (x *execution) answers(ctx context.Context, kind keep.EscalationKind) (list []keep.Escalation, err error) {
	if x.answered == nil {
		all, err := outcome.Answers(ctx, x.e.store, x.run.Chain, x.before(), keep.AskApproval, keep.AskAlreadyDone)
		if err != nil {
			return nil, err
		}
		x.answered = &all
	}
	for _, q := range *x.answered {
		if q.Kind == kind {
			list = append(list, q)
		}
	}
	return list, nil
}

// caller names who makes a call, for the question whether it may be made.
func (x *execution) caller(c ledger.Call) string {
	return cmp.Or(agentOf(c.Pin), fmt.Sprintf("%s of workflow %s", x.run.Handler, x.a.name))
}

// agentOf names the agent that made a call; empty: a script did.
func agentOf(pin json.RawMessage) string {
	var sent keep.SentAs
	if json.Unmarshal(pin, &sent) != nil || sent.Agent == "" {
		return ""
	}
	return "the agent " + sent.Agent
}

// askApproval pauses the run at a call until a person has decided. Nothing was
// sent and the ledger has no record of it.
func (x *execution) askApproval(ctx context.Context, e *unapprovedError) error {
	now := x.e.Now()
	f := &keep.Failure{Class: keep.ClassPermission, Code: "approval-needed", Tool: e.call.Tool, At: x.callAt, Message: e.Error()}
	q := keep.Escalation{
		ID: keep.EscalationID(x.e.newID("esc", now)), Kind: keep.AskApproval, Workflow: x.a.name, Run: x.run.ID,
		Item: e.call.Item, Title: e.call.Title,
		Question: fmt.Sprintf("May %s call %s on %s?", x.caller(e.call), e.call.Tool, e.call.Target),
		// Whole: nothing is approved that a person cannot see all of.
		Attempted:   fmt.Sprintf("%s on %s with %s", e.call.Tool, e.call.Target, e.call.Payload),
		Why:         e.why,
		PayloadHash: approvalHash(e.call, len(e.changed) > 0), Approval: x.shown(ctx, e.call, e.spec), ExpiresAt: now.Add(x.e.policy.Approval.Expires), CreatedAt: now,
		Choices: []keep.Choice{
			{Action: keep.Approve, Label: "Approve", Effect: x.approveEffect()},
			{Action: keep.Reject, Label: "Reject", Effect: x.rejectEffect()},
			{Action: keep.TreatAsDone, Label: "It was done already", Effect: x.doneEffect(), Result: x.saidNeed(e.call.Tool)},
		},
	}
	if e.before.Key != "" {
		x.sayBefore(&q, e)
	}
	if e.lapsed != "" {
		q.Why = e.lapsed + "\n" + q.Why
	}
	// The end of the question is the time of the next attempt, which asks again.
	return x.stop(ctx, f, lifecycle.Consequence{Status: keep.StatusApproval, Retry: true}, q.ExpiresAt, keep.OpenEscalation{Escalation: q})
}

// sayBefore says in q how the call differs from one before it that was in doubt: what is sent, how, or
// with whose credentials. What is the same is said once.
func (x *execution) sayBefore(q *keep.Escalation, e *unapprovedError) {
	m, payload := e.before, cut(string(e.call.Payload), maxShown)
	q.Why = "the outcome of an earlier call under the same key was in doubt, and "
	moved := m.PinHash != "" && m.PinHash != e.call.PinHash
	if same := bytes.Equal(m.Payload, e.call.Payload); same && !moved && len(e.changed) > 0 {
		q.Attempted = fmt.Sprintf("an earlier call may have happened: %s on %s with %s\nthe same would be sent now, with other credentials", m.Tool, m.Target, payload)
		q.Why += "it would be sent with other credentials now"
	} else {
		q.Attempted = fmt.Sprintf("an earlier call may have happened: %s on %s with %s\n", m.Tool, m.Target, cut(string(m.Payload), maxShown))
		if q.Attempted += "now it would be sent with " + payload; same {
			q.Attempted = strings.TrimSuffix(q.Attempted, payload) + "the same, in another way"
		}
		q.Why += "what would be sent now differs from it"
	}
	for _, c := range e.changed {
		q.Why += fmt.Sprintf("\nit was sent with %s; %s", c.Before(), c.After())
	}
	if diff := differences(m.Payload, e.call.Payload, "\n", 20); diff != "" {
		q.Why += "\n" + diff
	}
	if moved {
		q.Why += "\n" + x.e.tools.howItDiffers(m)
	}
	if len(e.changed) > 0 {
		q.Why += "\n" + map[bool]string{true: "for another user it is a new call: "}[m.Level == keep.LevelKey] + "if the earlier one happened, it happens twice"
	}
}

// maxClaim bounds what a script says of its call, in bytes.
const maxClaim = 64 << 10

// shown returns the call as a person reads it, beside what the script says of it and what
// is there now. That is read for the person, by the host: no grant of a workflow is about it.
func (x *execution) shown(ctx context.Context, c ledger.Call, spec connector.Spec) *keep.Approval {
	a := &keep.Approval{Tool: c.Tool, Target: c.Target, Key: c.Key, Payload: c.Payload, Pin: c.Pin, Version: x.a.current.Version, View: spec.View}
	var prepared struct {
		UI json.RawMessage `json:"ui"`
	}
	if json.Unmarshal(x.run.Prepared, &prepared) == nil && len(prepared.UI) <= maxClaim {
		a.Claim = prepared.UI
	}
	if spec.Now == "" {
		return a
	}
	from := x.e.tools.known(siblingOf(c.Tool, spec.Now))
	if from == nil {
		return a
	}
	ctx, cancel := context.WithTimeout(x.within(ctx), x.e.policy.Reconcile.Inline)
	defer cancel()
	switch now, f := x.a.readWithin(ctx, from, nil, HostCall{Name: string(from.name)}, c.Identity); {
	case f != nil:
		a.NowWhy = cut(f.Message, maxShown)
	case len(now) > maxClaim:
		a.NowWhy = fmt.Sprintf("it has %d bytes, too many to be shown", len(now))
	default:
		a.Now = now
	}
	return a
}

func (x *execution) approveEffect() string {
	if x.direct {
		return "lets the agent make this very call once; a call that differs asks again"
	}
	return "makes this very call once; a call that differs asks again"
}

func (x *execution) rejectEffect() string {
	if x.direct {
		return "ends this call; the agent is told so, and nothing is sent"
	}
	if x.run.Kind == keep.Consumer {
		return "ends this run without the call; its events are marked skipped"
	}
	return "marks the item skipped; the job continues with the others"
}

func (x *execution) doneEffect() string {
	switch {
	case x.direct:
		return "sends nothing; the agent is told that its call was applied"
	case x.run.Kind == keep.Consumer:
		return "sends nothing; next is told that the call was applied, by your word"
	}
	return "sends nothing; the item's handler continues as after the call, by your word"
}

// checkDone returns a *treatedError if a person said that this call was done, outside of what the ledger knows or by the
// call of another record, whatever its tool is by now. If what would be sent has become something else since, a person must
// agree to it.
func (x *execution) checkDone(ctx context.Context, call *takenCall, c ledger.Call) error {
	for _, q := range call.answers {
		if q.Kind == keep.AskAlreadyDone && q.Decision.Action == keep.TreatAsDone && q.PayloadHash == uniqueHash(c) {
			return x.treated(ctx, q.Mutation)
		}
	}
	q := call.said
	if q == nil {
		return nil
	}
	if ledger.Hash(q.Approval.Payload) != c.PayloadHash && call.difference(q.Approval.Payload) == connector.Significant {
		call.ask = fmt.Sprintf("%s said at %s that this call was done already, and what would be sent now differs: %s", q.Decision.By,
			q.Decision.At.UTC().Format(time.DateTime+" UTC"), differences(q.Approval.Payload, c.Payload, "; ", 20))
		return nil
	}
	return &treatedError{q.Decision.Result}
}

// saidDone returns the newest answer of a person who says that a call of the item was done outside of what the
// ledger knows, whichever run asked, and whatever the configuration called its tool and identity then; nil: there is
// none. Where only a person can tell whether it is this call, one must agree to it. An item that no run had before has
// none.
func (h *scriptHost) saidDone(ctx context.Context, call *takenCall, key, record keep.MutationKey) (*keep.Escalation, error) {
	s := h.item
	if !s.saidRead && !s.fresh {
		var err error
		if s.said, err = h.x.e.store.SaidDone(ctx, h.x.a.name, s.item.ID); err != nil {
			return nil, &storeError{err}
		}
		s.saidRead = true
	}
	call.answers = s.said
	for i, q := range s.said {
		a := q.Approval
		if a == nil {
			continue
		}
		fits := otherCall
		if m, yes := h.ofThen(*a, call); yes {
			fits = h.matches(m, call, key)
		}
		switch {
		case a.Key == key || a.Key == cmp.Or(record, key) || fits == sameCall:
			s.claim(a.Key)
			call.ask = ""
			return &s.said[i], nil
		case fits == perhapsSame && record == "" && call.ask == "" && !s.claimed[a.Key]:
			call.ask = fmt.Sprintf("%s said at %s that %s on %s was done already with %s: the configuration has changed since, and it may be this call", q.Decision.By,
				q.Decision.At.UTC().Format(time.DateTime+" UTC"), a.Tool, a.Target, cut(string(a.Payload), maxShown))
		}
	}
	return nil, nil
}

// ofThen returns the call that an approval is about as a record of it would be, and reports whether it is of this
// attempt at the item and has the subkey of call: by its tool and identity of then its key is that of the approval.
func (h *scriptHost) ofThen(a keep.Approval, call *takenCall) (m keep.Mutation, yes bool) {
	m = keep.Mutation{Key: a.Key, Tool: a.Tool, Connector: call.tool.connector, Target: a.Target, Identity: call.identity, Subkey: call.subkey, Payload: a.Payload, Pin: a.Pin}
	if sent := m.SentAs(); sent.Connector != "" { // an approval of an older version does not say it
		identity, _, _, err := ledger.Identify(a.Payload, sent.Identity)
		if err != nil {
			return m, false
		}
		m.Connector, m.Identity = sent.Connector, identity
	}
	return m, a.Key == ledger.ItemKey(ledger.ItemCall{
		Workflow: h.x.a.name, Item: h.item.item.ID, Attempt: h.item.item.Attempt,
		Tool: a.Tool, Target: a.Target, Identity: m.Identity, Subkey: m.Subkey,
	})
}

// unapproved returns the unapprovedError within err, nil if there is none.
func unapproved(err error) *unapprovedError {
	e, _ := errors.AsType[*unapprovedError](err)
	return e
}
