package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
)

// A tool may say that its calls name what is to be (connector.Spec.Sets): the same call again changes nothing more, and so one in
// doubt is asked about by sending it again. But it undoes what another call set since. So it is sent again only if none did, as far
// as the ledger knows: if a call of the same tool and identity that says something else was recorded or made again later, and
// may have happened, a person is asked.
//
// Of a call that is sent again and a later one that is recorded at the same moment the order of their commits decides (keep.Setting).
// To be sent again is recorded first, until when. A later call that comes first keeps it from that. One that comes second is not
// recorded, nor sent, before the first is not being sent any more: its run, or its agent, tries again then. A later call does not wait for a
// doubt otherwise: it is what is wanted now, and the one in doubt is never sent again.
//
// What remains possible: the request of a first attempt that was lost on its way arrives after a later call, as may one that is sent again
// and arrives after its time, or by a connector that ignores the end of it; calls that differ in their identity, or are of another
// tool, and set the same thing; and what somebody set without Keep. A call of which nothing was in doubt is retried as ever.

// settingOf returns what must hold for a call of the tool to be recorded or sent again.
func settingOf(t *tool, key keep.MutationKey, name keep.ToolName, identity []byte, hash string) keep.Setting {
	return keep.Setting{Key: key, Tools: t.namesWith(name), Identity: identity, PayloadHash: hash}
}

// checkSetting returns what the commit of a call must not come into; nil: its tool sets nothing. The error is a *rivalError
// if a call before it was in doubt and another one set something else since, a *treatedError if a person treats it as done by that,
// or a failure while one in doubt is being sent again.
func (x *execution) checkSetting(ctx context.Context, call *takenCall, c ledger.Call, before keep.Mutation, now time.Time) (*keep.Setting, error) {
	if !call.tool.spec.Sets {
		return nil, nil
	}
	s := settingOf(call.tool, c.Key, c.Tool, c.Identity, c.PayloadHash)
	if lifecycle.Resends(before) && before.Doubted {
		moves, err := x.e.store.History(ctx, before.Key)
		if err != nil {
			return nil, &storeError{err}
		}
		if at, doubted := ledger.LastAttempt(moves); doubted {
			s.Since = at
			if _, s.Except, err = x.saidOfEqual(ctx, call, c); err != nil {
				return nil, err
			}
		}
	}
	other, found, err := x.e.store.Barring(ctx, s, now)
	switch {
	case err != nil:
		return nil, &storeError{err}
	case !found:
		return &s, nil
	case s.IsUndone(other):
		return nil, &rivalError{call: c, rival: other, later: true}
	}
	is := "is in doubt and being sent again"
	if !other.SentAgainUntil().After(now) {
		is = "may be sent again after a doubt, and was made later than it is now by the clock, which was set back"
	}
	f := keep.Failf(keep.ClassTransient, keep.CodeSentAgain, "%s on %s, of %s (%s), %s; nothing was sent", other.Tool, other.Target, ofWhom(other), other.Key, is)
	f.Tool, f.At, f.RetryAfter = call.tool.name, call.at, max(other.SentAgainUntil().Sub(now), time.Second)
	return nil, f
}

// toSendAgain records that m, which is in doubt, is about to be sent again, by a tool that sets something or while another process may
// look for the call, and returns it as it is then on disk but for that, with a context that ends when it may not be sent any more. Or it returns why it is not sent.
func (a *actor) toSendAgain(ctx context.Context, t *tool, m keep.Mutation) (within context.Context, cancel func(), recorded keep.Mutation, not *ledger.Fact) {
	e, limit := a.e, a.e.policy.Reconcile.Inline
	unsure := func(why string) *ledger.Fact {
		return &ledger.Fact{Evidence: ledger.Unsure, By: "reconcile", Detail: ledger.NotAsked + "; " + why}
	}
	s := settingOf(t, m.Key, m.Tool, m.Identity, m.PayloadHash)
	var holds []keep.Change
	if t.spec.Sets {
		moves, err := e.store.History(ctx, m.Key)
		if err != nil {
			return ctx, func() {}, m, unsure(err.Error())
		}
		s.Since, _ = ledger.LastAttempt(moves)
		holds = append(holds, s)
	}
	within, cancel = withTime(ctx, limit, &keep.TimeoutError{Op: "asking " + string(t.name), After: limit}) // it begins before what is recorded
	now := e.Now()
	err := a.commit(ctx, now, append(holds, keep.PutMutation{Mutation: ledger.SendAgain(m, now.Add(limit+overtime), now)})...)
	if err == nil {
		m.Rev++
		return within, cancel, m, nil
	}
	cancel()
	if _, barred := errors.AsType[*keep.RivalError](err); !barred {
		return ctx, func() {}, m, unsure(err.Error())
	}
	other, found, err := e.store.Barring(ctx, s, now)
	switch {
	case err != nil:
		not = unsure(err.Error())
	case found && s.IsUndone(other):
		not = setSince(m, other)
	default:
		not = unsure("another call of its identity is in doubt and being sent again")
	}
	return ctx, func() {}, m, not
}

// setSince is what it means for m, which is in doubt, that another call set something else since.
func setSince(m, other keep.Mutation) *ledger.Fact {
	was := "was applied"
	if !other.State.Happened() {
		was = "may have happened (" + string(other.State) + ")"
	}
	why := fmt.Sprintf("%s of %s (%s) set the same thing at %s with %s, and %s: to send this call again would undo that, so it is not sent again",
		other.Tool, ofWhom(other), other.Key, other.CreatedAt.UTC().Format(time.DateTime+" UTC"), cut(string(other.Payload), maxSetting), was)
	f := keep.Failf(keep.ClassUnknown, keep.CodeSetSince, "%s. Look at what is there: if that is right, skip this call, or say that it happened; "+
		"if this call is to hold, say that it did not happen, and it is asked about once more before it is sent", why)
	f.Tool = m.Tool
	if was := m.Error; was != nil && !ledger.SetSince(was) {
		f.Message, f.At = was.Message+"; "+f.Message, was.At
	} else if was != nil {
		f.At = was.At
	}
	return &ledger.Fact{Evidence: ledger.CannotAsk, By: "reconcile", Detail: why, Failure: f}
}

// maxSetting is how much of what a later call set the reason of a doubt shows, in bytes.
const maxSetting = 300

// ofWhom names who made the call of a record.
func ofWhom(m keep.Mutation) string {
	of := fmt.Sprintf("run %s of workflow %s", m.Run, m.Workflow)
	if m.Item != "" {
		of = fmt.Sprintf("item %q (attempt %d) of workflow %s", m.Item, m.Attempt, m.Workflow)
	}
	return cmp.Or(agentOf(m.Pin), of)
}
