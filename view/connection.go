package view

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/limit"
	"github.com/keep-run/keep/store"
)

// A ConnectionState says whether a connection is used.
type ConnectionState string

const (
	Up   ConnectionState = "up"   // it is, as fast as its limits allow
	Slow ConnectionState = "slow" // the service named a time before which it wants no calls
	Down ConnectionState = "down" // the service does not answer
)

// A Connection is a connection that is limited, or that was shut once.
type Connection struct {
	Name      string
	State     ConnectionState
	Since     time.Time // that it is shut; zero: it is not
	NextProbe time.Time // when one call is tried; zero: it is not shut
	Why       string    // that it is shut
	Question  keep.EscalationID
	Waiting   []keep.RunID // open runs that wait for it, oldest first
}

// Limits is what the users of connections share about their limits, by connection.
type Limits map[string]limit.State

// ReadLimits reads what the runs may wait for. It reads nothing if none waits for a service.
func ReadLimits(ctx context.Context, s store.Limits, runs ...keep.Run) (Limits, error) {
	waits := func(r keep.Run) bool {
		return !r.Closed && (r.Status == keep.StatusTransient || r.Status == keep.StatusReconciliation)
	}
	if !slices.ContainsFunc(runs, waits) {
		return nil, nil
	}
	return readLimits(ctx, s)
}

func readLimits(ctx context.Context, s store.Limits) (Limits, error) {
	gates, err := s.Gates(ctx)
	if err != nil {
		return nil, err
	}
	l := make(Limits, len(gates))
	for _, g := range gates {
		if !g.OfConnection() {
			continue
		}
		var state limit.State
		if err := json.Unmarshal(g.State, &state); err != nil {
			return nil, fmt.Errorf("limits of connection %s: %w", g.Connection, err)
		}
		l[g.Connection] = state
	}
	return l, nil
}

// WaitOf returns what r waits for: what it says itself, or that its connection is not used
// now, which it knew of only as it was when it stopped.
func (l Limits) WaitOf(r keep.Run, m keep.Mutation) lifecycle.Wait {
	w := lifecycle.WaitOf(r, m)
	switch {
	case w.Kind == lifecycle.WaitsForLookup && m.Key != "":
		return l.held(w, m.Tool)
	case r.Status == keep.StatusTransient && r.Error != nil && !lifecycle.Interrupted(r):
		return l.held(w, r.Error.Tool)
	}
	return w
}

// WaitOfDoubt is lifecycle.WaitOfDoubt with what is known of the connection.
func (l Limits) WaitOfDoubt(m keep.Mutation) lifecycle.Wait {
	return l.held(lifecycle.WaitOfDoubt(m), m.Tool)
}

// held returns w as the connection of t holds it up.
func (l Limits) held(w lifecycle.Wait, t keep.ToolName) lifecycle.Wait {
	name := t.Connection()
	s, known := l[name]
	if !known {
		return w
	}
	at, shut := s.NextCall()
	if !shut || w.Kind != lifecycle.WaitsForLimit && !at.Until.After(w.Until) {
		return w
	}
	return w.Held(at.Sentence(name), at.Until)
}

// LimitedRuns are runs, and what they may wait for: both interfaces of the store, because who
// waits is known only from the two together.
type LimitedRuns interface {
	store.Runs
	store.Limits
}

// ReadConnections returns the connections that are limited or were shut once, by name.
func ReadConnections(ctx context.Context, s LimitedRuns) ([]Connection, error) {
	limits, err := readLimits(ctx, s)
	if err != nil || len(limits) == 0 {
		return nil, err
	}
	open, _, err := s.Runs(ctx, keep.RunFilter{Open: true}, keep.Page{Limit: keep.MaxPage, Bare: true})
	return connectionsOf(limits, open), err
}

// connectionsOf returns the connections that have limits, by name.
func connectionsOf(limits Limits, open []keep.Run) []Connection {
	waiting := limits.waitingFor(open)
	var out []Connection
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		state := limits[name]
		c := Connection{Name: name, State: Up, Waiting: waiting[name]}
		if at, shut := state.NextCall(); shut {
			c.Since, c.NextProbe, c.Why, c.Question, c.State = at.Since, at.Until, at.Why, state.Shut.Asked, Slow
			if state.IsDown() {
				c.State = Down
			}
		}
		out = append(out, c)
	}
	return out
}

// waitingFor returns the open runs that wait for connections, by connection: for its limits, or
// to try again while nobody uses it.
func (l Limits) waitingFor(open []keep.Run) map[string][]keep.RunID {
	out := make(map[string][]keep.RunID)
	for _, r := range open {
		if r.Error == nil || r.Error.Tool == "" || r.Closed {
			continue
		}
		name := r.Error.Tool.Connection()
		_, shut := l[name].NextCall()
		again := r.Status == keep.StatusTransient && !lifecycle.Interrupted(r) || r.Status == keep.StatusReconciliation
		if lifecycle.Limited(r) || shut && again {
			out[name] = append(out[name], r.ID)
		}
	}
	for _, ids := range out {
		slices.SortFunc(ids, cmp.Compare[keep.RunID])
	}
	return out
}

// WaitingFor returns the open runs that wait for connections, by connection: those that a
// question about one is about.
func WaitingFor(ctx context.Context, s LimitedRuns) (map[string][]keep.RunID, error) {
	limits, err := readLimits(ctx, s)
	if err != nil {
		return nil, err
	}
	open, _, err := s.Runs(ctx, keep.RunFilter{Open: true}, keep.Page{Limit: keep.MaxPage, Bare: true})
	return limits.waitingFor(open), err
}
