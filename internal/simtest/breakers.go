package simtest

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/breaker"
	"github.com/keep-run/keep/operator"
)

// In every third world whose configuration stays, calls of a tool that fail alike stop it for all
// workflows. Failures are counted here a second time, from the commits of runs that stopped and of
// questions about them.

// A stopping is what is known of one tool from outside.
type stopping struct {
	failed map[string][]time.Time // by cause, since a person let calls through, by the clock of the host
	since  time.Duration          // when calls were stopped, by the clock of the services; 0: they are made
	closed time.Duration          // when a person let calls through last
}

// late is how long after a failure was counted its run may say that it failed: its host may have been
// frozen, or the commit slow.
const late = 5 * time.Minute

// breaker draws when calls of a tool stop. The draws are its own: see orders.
func (w *world) breaker() {
	w.policy.Breaker = keep.Breaker{Within: time.Hour} // off
	rng := rand.New(rand.NewPCG(w.seed, 11))
	if w.edited || rng.IntN(3) > 0 {
		return
	}
	w.policy.Breaker = keep.Breaker{Failures: 1 + rng.IntN(3), Within: []time.Duration{time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}[rng.IntN(3)]}
}

// stoppingOf returns what is known of a tool.
func (w *world) stoppingOf(t keep.ToolName) *stopping {
	s := w.stops[t]
	if s == nil {
		s = &stopping{failed: make(map[string][]time.Time)}
		w.stops[t] = s
	}
	return s
}

// watchGate notes from when on calls of a tool are stopped, and from when on they are made again.
func (w *world) watchGate(g keep.Gate) {
	t := g.OfTool()
	if t == "" {
		return
	}
	var state breaker.State
	w.must("read a breaker", json.Unmarshal(g.State, &state))
	switch s := w.stoppingOf(t); {
	case state.Open != nil && s.since == 0:
		w.saw("breaker: opened")
		s.since = w.now()
	case state.Open == nil && s.since != 0:
		s.since, s.closed, s.failed = 0, w.now(), make(map[string][]time.Time)
	}
}

// watchStopped looks whether a call that is about to be recorded is one of a tool whose calls
// were stopped before. Another host than the one that stopped them learns of it at its next poll.
func (w *world) watchStopped(p *process, c keep.Commit) {
	var grace time.Duration
	if w.group != nil {
		if grace = onItsWay + 2*w.policy.Lease.TTL; !p.isWell(grace) {
			return
		}
	}
	for _, change := range c.Changes {
		put, ok := change.(keep.PutMutation)
		if !ok || !slices.ContainsFunc(put.Moves, func(v keep.Move) bool { return v.To == keep.InFlight }) {
			continue
		}
		if s := w.stoppingOf(put.Mutation.Tool); s.since != 0 && w.now() > s.since+grace {
			w.broken("bounded", "%s is to be recorded, and calls of %s are stopped since %s (now %s)", put.Mutation.Key, put.Mutation.Tool, s.since, w.now())
		}
	}
}

// watchFailures counts the runs that stopped with a question because of a call, and looks whether calls of
// its tool are stopped when there were too many.
func (w *world) watchFailures(p *process, c keep.Commit) {
	rule := w.policy.Breaker
	asks := slices.ContainsFunc(c.Changes, func(change keep.Change) bool {
		q, ok := change.(keep.OpenEscalation)
		return ok && slices.Contains([]keep.EscalationKind{keep.AskUnknownOutcome, keep.AskPermission, keep.AskPrecondition,
			keep.AskRetries, keep.AskLogic, keep.AskInternal}, q.Escalation.Kind)
	})
	if rule.Failures == 0 || !asks || p.tools == w.tools[2] { // which has not all tools: what is gone is not counted
		return
	}
	for _, change := range c.Changes {
		put, ok := change.(keep.PutRun)
		if !ok || put.Run.Closed || put.Run.Error == nil || !slices.Contains(mutators, plainTool(put.Run.Error.Tool)) {
			continue
		}
		f, at := put.Run.Error, put.Run.UpdatedAt
		if slices.Contains([]string{keep.CodeNotGranted, keep.CodeSetSince, keep.CodeSentAgain, keep.CodeSameUser, keep.CodeAnotherUser}, f.Code) {
			continue // that is a matter of the workflow, or of the connection
		}
		if slices.Contains([]string{"bad-params", "two-mutations", "other-tool", "item-done", "call-unmatched", "not-a-read", "params-too-large"}, f.Code) {
			continue // or of the script: nothing reached the tool
		}
		s := w.stoppingOf(f.Tool)
		if s.closed != 0 && w.now() < s.closed+late {
			continue // it may have been counted before a person let calls through
		}
		cause := string(f.Class) + " " + f.Code
		s.failed[cause] = append(s.failed[cause], at)
		n := 0
		for _, other := range s.failed[cause] {
			if other.After(at.Add(late - rule.Within)) {
				n++
			}
		}
		if n >= rule.Failures && s.since == 0 {
			w.broken("bounded", "%d calls of %s failed by %q within %s, and calls are not stopped", n, f.Tool, cause, rule.Within)
		}
	}
}

// forgetFailures is called when the clock of the host is set back: what was too long ago then may be so no more.
func (w *world) forgetFailures() {
	for _, s := range w.stops {
		clear(s.failed)
	}
}

// settleWaiting is what a host does each few seconds: runs whose budget has room, or whose tool may be called
// again, continue.
func (w *world) settleWaiting(o *operator.Operator) (string, error) {
	var what []string
	var errs []error
	if w.budgets != nil {
		what, errs = append(what, "budgets"), append(errs, o.SettleBudgets(person))
	}
	if w.policy.Breaker.Failures > 0 {
		what, errs = append(what, "breakers"), append(errs, o.SettleBreakers(person))
	}
	return "settle " + strings.Join(what, " and "), errors.Join(errs...)
}

// noteStopped notes whether calls of a tool are still stopped at the end: then nobody waits for them.
func (w *world) noteStopped() {
	for _, t := range sorted(w.stops) {
		if w.stops[t].since != 0 {
			w.saw("breaker: open at the end")
		}
	}
}
