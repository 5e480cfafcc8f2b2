package api

import (
	"context"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/view"
)

// A Connection is a configured account that has limits, or whose service was down once.
type Connection struct {
	Name        string               `json:"name"`
	State       view.ConnectionState `json:"state"`
	Since       *Time                `json:"since" doc:"that it is slow or down"`
	NextProbeAt *Time                `json:"next_probe_at" doc:"when one call is tried; null: it is up"`
	Why         *string              `json:"why" doc:"what the service said, or did"`
	Waiting     int                  `json:"waiting" doc:"open runs that wait for it"`
}

func connectionOf(c view.Connection) Connection {
	return Connection{c.Name, c.State, timeOf(c.Since), timeOf(c.NextProbe), orNull(c.Why), len(c.Waiting)}
}

// questions are what questions are made of: all these interfaces of the store, because one about a
// connection counts the runs that wait for it.
type questions interface {
	store.Escalations
	view.LimitedRuns
}

// withRuns adds to questions about connections the runs that wait for them. It reads
// nothing if there is no such question.
func withRuns(ctx context.Context, s view.LimitedRuns, qs []Escalation) ([]Escalation, error) {
	if !slices.ContainsFunc(qs, func(q Escalation) bool { return q.Connection != nil }) {
		return qs, nil
	}
	waiting, err := view.WaitingFor(ctx, s)
	return waitedFor(qs, waiting), err
}

// waitedFor is withRuns with runs that were read.
func waitedFor(qs []Escalation, waiting map[string][]keep.RunID) []Escalation {
	for i, q := range qs {
		if q.Connection != nil {
			runs := list(waiting[*q.Connection])
			n := len(runs)
			qs[i].Runs, qs[i].Count = runs, &n
		}
	}
	return qs
}
