package schedule

import (
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// Deployed returns the state with which a handler starts in a new version: that of
// the handler before, if it is of the same kind. A schedule that did not change keeps
// its next tick; a consumer looks again at the events that it passed over. One that is renamed takes its tick or its alarm along. bare is
// the interval of a handler without a schedule.
func Deployed(h keep.Handler, states []keep.HandlerState, before keep.Deployment, bare time.Duration, now time.Time) (keep.HandlerState, error) {
	of := func(name keep.HandlerName) keep.HandlerState {
		i := slices.IndexFunc(states, func(s keep.HandlerState) bool { return s.Handler == name && s.Kind == h.Kind })
		if i < 0 {
			return keep.HandlerState{Handler: h.Name, Kind: h.Kind}
		}
		return states[i]
	}
	s := of(h.Name)
	s.IdleSeq = 0
	was := of(calledIn(before.Definition, h))
	if h.Kind == keep.Consumer {
		if was.Handler != h.Name {
			s.WakeAt = was.WakeAt
		}
		return s, nil
	}
	if old, known := before.Definition.Handler(was.Handler); known && old.Schedule == h.Schedule && !was.NextAt.IsZero() {
		s.NextAt = was.NextAt
		return s, nil
	}
	plan, err := Parse(h.Schedule, bare)
	if err != nil {
		return s, err
	}
	s.NextAt = plan.First(now)
	return s, nil
}

// calledIn returns the name by which a version before has a handler, whose tick or alarm it takes over; its own if that has none.
func calledIn(before keep.Definition, h keep.Handler) keep.HandlerName {
	if _, known := before.Handler(h.Name); known {
		return h.Name
	}
	if was, known := before.Handler(keep.HandlerName(h.ItemsOf())); known && was.Kind == h.Kind {
		return was.Name
	}
	if was, known := before.FirstNamed(h.Kind, h.ItemsOf()); known {
		return was.Name
	}
	return h.Name
}

// Same reports whether a handler looks at the same events and runs at the same times in two states.
func Same(a, b keep.HandlerState) bool {
	return a.IdleSeq == b.IdleSeq && a.WakeAt.Equal(b.WakeAt) && a.NextAt.Equal(b.NextAt)
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
