package view

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
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

// ConnectionStates returns every state.
func ConnectionStates() []ConnectionState { return []ConnectionState{Up, Slow, Down} }

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

// readConnections returns the connections that have a gate, by name.
func readConnections(ctx context.Context, s store.Limits, open []keep.Run) ([]Connection, error) {
	gates, err := s.Gates(ctx)
	if err != nil {
		return nil, err
	}
	waiting := waitingFor(open)
	var out []Connection
	for _, g := range gates {
		var state limit.State
		if err := json.Unmarshal(g.State, &state); err != nil {
			return nil, fmt.Errorf("limits of connection %s: %w", g.Connection, err)
		}
		c := Connection{Name: g.Connection, State: Up, Waiting: waiting[g.Connection]}
		if shut := state.Shut; shut != nil {
			c.Since, c.NextProbe, c.Why, c.Question, c.State = shut.Since, shut.Until, shut.Why, shut.Asked, Slow
			if state.IsDown() {
				c.State = Down
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// waitingFor returns the open runs that wait for connections, by connection.
func waitingFor(open []keep.Run) map[string][]keep.RunID {
	out := make(map[string][]keep.RunID)
	for _, r := range open {
		if r.Error == nil || r.Error.Tool == "" || r.Closed {
			continue
		}
		waits := lifecycle.Limited(r) || r.Status == keep.StatusTransient && !lifecycle.Interrupted(r) || r.Status == keep.StatusReconciliation
		if name := r.Error.Tool.Connection(); waits {
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
func WaitingFor(ctx context.Context, s store.Runs) (map[string][]keep.RunID, error) {
	open, _, err := s.Runs(ctx, keep.RunFilter{Open: true}, keep.Page{Limit: keep.MaxPage, Bare: true})
	return waitingFor(open), err
}
