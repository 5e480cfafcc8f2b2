package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/breaker"
	"github.com/keep-run/keep/law/lifecycle"
)

// Calls of a tool that fail alike again and again are stopped in all workflows (law/breaker), with
// one question. What is known of it is one value in one row, as of a connection that does not
// answer; who finds that calls are stopped reads the row again before a call is refused, and
// who does not know of it yet makes a call more.

// breakers is what this host knows of the tools whose calls are stopped.
type breakers struct {
	mu    sync.Mutex // protects all below
	rule  keep.Breaker
	known map[keep.ToolName]breakerRow
}

// A breakerRow is what the row of a tool said. Open means that it must be read before a call.
type breakerRow struct {
	rev  int
	open bool
}

// SetBreaker replaces when calls of a tool stop. Those that are stopped stay so until a person answers.
func (e *Engine) SetBreaker(rule keep.Breaker) {
	e.breakers.mu.Lock()
	defer e.breakers.mu.Unlock()
	e.breakers.rule = rule
}

// now returns when calls of a tool stop.
func (b *breakers) now() keep.Breaker {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rule
}

// mayBeOpen reports whether the row of a tool must be read before a call of it.
func (b *breakers) mayBeOpen(t keep.ToolName) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.known[t].open
}

// learn takes what a row says, unless this host knows a later one.
func (b *breakers) learn(t keep.ToolName, rev int, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if row, known := b.known[t]; known && row.rev > rev {
		return
	}
	if b.known == nil {
		b.known = make(map[keep.ToolName]breakerRow)
	}
	b.known[t] = breakerRow{rev, open}
}

// acceptBreaker takes what the row of a tool says.
func (e *Engine) acceptBreaker(t keep.ToolName, row keep.Gate) (s breaker.State, err error) {
	if len(row.State) > 0 {
		if err := json.Unmarshal(row.State, &s); err != nil {
			return s, fmt.Errorf("breaker of %s: %w", t, err)
		}
	}
	e.breakers.learn(t, row.Rev, s.Open != nil)
	return s, nil
}

// readBreaker reads the row of a tool.
func (e *Engine) readBreaker(ctx context.Context, t keep.ToolName) (s breaker.State, row keep.Gate, err error) {
	if row, err = e.store.Gate(ctx, keep.ToolGate(t)); err == nil {
		s, err = e.acceptBreaker(t, row)
	}
	return s, row, err
}

// checkBreaker refuses a call of a tool whose calls are stopped, under this name or one that it
// had before: the question and what waits for its answer have the name of their time.
func (x *execution) checkBreaker(ctx context.Context, call *takenCall) error {
	for _, t := range call.tool.names {
		if !x.e.breakers.mayBeOpen(t) {
			continue
		}
		s, _, err := x.e.readBreaker(ctx, t)
		switch {
		case err != nil:
			return &storeError{err}
		case s.Open != nil:
			return &keep.Failure{Class: keep.ClassPermission, Code: keep.CodeBreaker, Tool: t, At: call.at,
				Message: s.Open.Sentence(t) + "; nothing was sent"}
		}
	}
	return nil
}

// waitForBreaker pauses the run until a person lets calls of its tool through. It asks only if nobody
// did: a process may have died before.
func (x *execution) waitForBreaker(ctx context.Context, f *keep.Failure) error {
	s, _, err := x.e.readBreaker(ctx, f.Tool)
	if err != nil {
		return err
	}
	var more []keep.Change
	if s.Open != nil {
		switch _, err := x.e.store.Escalation(ctx, breaker.QuestionID(f.Tool, s)); {
		case isNotFound(err):
			more = append(more, keep.OpenEscalation{Escalation: breaker.Question(f.Tool, s, x.a.name, x.run.ID, x.e.Now())})
		case err != nil:
			return err
		}
	}
	return x.stop(ctx, f, lifecycle.Consequence{Status: keep.StatusPerson}, x.e.Now(), more...)
}

// trip counts a failure of a call, and returns the question if calls of its tool are stopped
// from now on. The count comes before the run says that it failed: a process that dies in between
// counts once more.
func (x *execution) trip(ctx context.Context, f *keep.Failure, asks bool) ([]keep.Change, error) {
	rule, t := x.e.breakers.now(), x.e.tools.known(f.Tool)
	if rule.Failures <= 0 || t == nil || t.spec.Effect != connector.Mutate || !breaker.Counts(f, asks) || f.Code == badParams && !x.made() {
		return nil, nil
	}
	for {
		s, row, err := x.e.readBreaker(ctx, t.name)
		if err != nil {
			return nil, err
		}
		if s.Open != nil {
			return nil, nil
		}
		next := breaker.Report(s, rule, f, x.e.Now())
		row.State = marshal(next)
		opens := next.Open != nil
		x.e.breakers.learn(t.name, row.Rev, opens) // before: whoever calls meanwhile reads the row
		err = x.e.store.PutGate(ctx, row)
		switch {
		case errors.Is(err, keep.ErrStale):
			continue
		case err != nil:
			x.e.breakers.learn(t.name, row.Rev, opens) // it may be in the store all the same
			return nil, err
		}
		if x.e.breakers.learn(t.name, row.Rev+1, opens); !opens {
			return nil, nil
		}
		return []keep.Change{keep.OpenEscalation{Escalation: breaker.Question(t.name, next, x.a.name, x.run.ID, x.e.Now())}}, nil
	}
}

// badParams is the code of params that do not fit. Those that the schema of a tool refuses reach no connector; it may refuse others.
const badParams = "bad-params"

// made reports whether this run recorded its call, so that the connector had it.
func (x *execution) made() bool { return x.mut.Key != "" && x.mut.Run == x.run.ID }
