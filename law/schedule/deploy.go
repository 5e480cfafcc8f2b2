package schedule

import (
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// Deployed returns the state with which a handler starts in a new version: that of
// the handler before, if it is of the same kind. A schedule that did not change keeps
// its next tick; a consumer looks again at the events that it passed over. bare is the
// interval of a handler without a schedule.
func Deployed(h keep.Handler, states []keep.HandlerState, before keep.Deployment, bare time.Duration, now time.Time) (keep.HandlerState, error) {
	s := keep.HandlerState{Handler: h.Name, Kind: h.Kind}
	if i := slices.IndexFunc(states, func(s keep.HandlerState) bool { return s.Handler == h.Name }); i >= 0 && states[i].Kind == h.Kind {
		s = states[i]
	}
	s.IdleSeq = 0
	if h.Kind == keep.Consumer {
		return s, nil
	}
	old, known := before.Definition.Handler(h.Name)
	if known && old.Schedule == h.Schedule && !s.NextAt.IsZero() {
		return s, nil
	}
	plan, err := Parse(h.Schedule, bare)
	if err != nil {
		return s, err
	}
	s.NextAt = plan.First(now)
	return s, nil
}

// BringForward returns the state of a job that becomes due now, and false if it is due
// already or there is no such job.
func BringForward(states []keep.HandlerState, job keep.HandlerName, now time.Time) (keep.HandlerState, bool) {
	for _, s := range states {
		if s.Handler == job && s.Kind == keep.Job && (s.NextAt.IsZero() || s.NextAt.After(now)) {
			s.NextAt = now
			return s, true
		}
	}
	return keep.HandlerState{}, false
}
