package repeat_test

import (
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/repeat"
)

var at = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func TestDecide(t *testing.T) {
	ran := func(status keep.RunStatus, closed bool) keep.Run {
		return keep.Run{ID: "run_1", Status: status, Closed: closed, UpdatedAt: at}
	}
	answered := ran(keep.StatusApproval, false)
	answered.RetryAt = at
	expires := ran(keep.StatusApproval, false)
	expires.RetryAt = at.Add(time.Hour)
	state := func(s keep.MutationState) keep.Mutation { return keep.Mutation{Key: "mut_1", State: s} }
	refused := ran(keep.StatusAborted, true)
	refused.Error = keep.Failf(keep.ClassPermission, "approval-needed", "a person must agree")
	rules := repeat.DefaultRules()
	ask, replay := rules, rules
	ask.Repeat, replay.Repeat = repeat.Ask, repeat.Replay
	for _, c := range []struct {
		name  string
		last  *repeat.Last
		rules repeat.Rules
		now   time.Time
		want  repeat.Verdict
	}{
		{"first", nil, rules, at, repeat.New},
		{"in flight", &repeat.Last{Run: ran(keep.StatusActive, false), Mutation: state(keep.InFlight)}, rules, at, repeat.Join},
		{"in doubt", &repeat.Last{Run: ran(keep.StatusReconciliation, false), Mutation: state(keep.Indeterminate)}, rules, at, repeat.Answer},
		{"in doubt for long", &repeat.Last{Run: ran(keep.StatusReconciliation, false), Mutation: state(keep.NeedsReconcile)}, rules, at.Add(1000 * time.Hour), repeat.Answer},
		{"waits for a person", &repeat.Last{Run: expires}, rules, at, repeat.Answer},
		{"approved", &repeat.Last{Run: answered}, rules, at, repeat.Again},
		{"failed", &repeat.Last{Run: ran(keep.StatusAborted, true), Mutation: state(keep.Failed)}, rules, at, repeat.Again},
		{"a person says it did not happen", &repeat.Last{Run: answered, Mutation: state(keep.Failed)}, rules, at, repeat.Again},
		{"applied, not delivered", &repeat.Last{Run: ran(keep.StatusCommitted, true), Mutation: state(keep.Applied)}, rules, at.Add(23 * time.Hour), repeat.Answer},
		{"applied, not delivered for long", &repeat.Last{Run: ran(keep.StatusCommitted, true), Mutation: state(keep.Applied)}, ask, at.Add(24*time.Hour + time.Minute), repeat.Confirm},
		{"applied, not delivered for longer", &repeat.Last{Run: ran(keep.StatusCommitted, true), Mutation: state(keep.Applied)}, replay, at.Add(26 * time.Hour), repeat.New},
		{"delivered", &repeat.Last{Run: ran(keep.StatusCommitted, true), Mutation: state(keep.Applied), Delivered: at}, rules, at.Add(time.Second), repeat.New},
		{"delivered, ask", &repeat.Last{Run: ran(keep.StatusCommitted, true), Mutation: state(keep.Applied), Delivered: at}, ask, at.Add(time.Second), repeat.Confirm},
		{"delivered, replay", &repeat.Last{Run: ran(keep.StatusCommitted, true), Mutation: state(keep.Applied), Delivered: at}, replay, at.Add(time.Second), repeat.Answer},
		{"delivered long ago, replay", &repeat.Last{Run: ran(keep.StatusCommitted, true), Mutation: state(keep.Applied), Delivered: at}, replay, at.Add(2 * time.Hour), repeat.New},
		{"skipped, not delivered", &repeat.Last{Run: ran(keep.StatusCommitted, true), Mutation: state(keep.Skipped)}, rules, at, repeat.Answer},
		{"rejected, not delivered", &repeat.Last{Run: ran(keep.StatusAborted, true)}, rules, at, repeat.Answer},
		{"rejected after it failed", &repeat.Last{Run: refused, Mutation: state(keep.Failed)}, rules, at, repeat.Answer},
		{"rejected after it failed, delivered", &repeat.Last{Run: refused, Mutation: state(keep.Failed), Delivered: at}, rules, at.Add(time.Second), repeat.Again},
		{"rejected after it failed, delivered, ask", &repeat.Last{Run: refused, Mutation: state(keep.Failed), Delivered: at}, ask, at.Add(time.Second), repeat.Again},
		{"rejected after it failed, delivered, replay", &repeat.Last{Run: refused, Mutation: state(keep.Failed), Delivered: at}, replay, at.Add(time.Second), repeat.Answer},
	} {
		if got := repeat.Decide(c.last, c.rules, c.now); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestIdentity(t *testing.T) {
	one := repeat.Identity{Agent: "a", Tool: "up.x", Identity: []byte(`{"n":1}`)}
	for _, other := range []repeat.Identity{
		{Agent: "au", Tool: "p.x", Identity: one.Identity},
		{Agent: "b", Tool: one.Tool, Identity: one.Identity},
		{Agent: one.Agent, Tool: one.Tool, Identity: []byte(`{"n":2}`)},
		{Agent: one.Agent, Tool: one.Tool, Identity: one.Identity, Intent: "2"},
	} {
		if one.Hash() == other.Hash() {
			t.Errorf("%+v and %+v are one call", one, other)
		}
	}
}

func TestFinal(t *testing.T) {
	if repeat.Final(keep.Run{Closed: false}, keep.Mutation{Key: "mut_1", State: keep.Applied}) {
		t.Error("a run that is open has no last answer")
	}
	if repeat.Final(keep.Run{Closed: true}, keep.Mutation{Key: "mut_1", State: keep.Failed}) {
		t.Error("a failed call may be made again")
	}
	if !repeat.Final(keep.Run{Closed: true}, keep.Mutation{Key: "mut_1", State: keep.Applied}) {
		t.Error("an applied call has its last answer")
	}
}
