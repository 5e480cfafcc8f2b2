// Package count decides what the counters of workflows say (keep.Counter), given what ended and
// what was counted before.
//
// Counters are derived: those of minutes from the records of their minute, those of hours and
// days from shorter ones. Counting a time again gives the same, so that a host which was killed
// anywhere between counting and writing simply counts again, and two hosts may count the same.
// Only how much waited is seen when a host looks, and stays as it was seen: the most of all looks.
package count

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// How long counters are kept (law: bounded). Days are kept longest, and still few: 730 of a workflow.
const (
	MinutesKept = 48 * time.Hour
	HoursKept   = 62 * 24 * time.Hour
	DaysKept    = 730 * 24 * time.Hour
)

const (
	// First is how far back the first count goes in a database that has no counters.
	First = 31 * 24 * time.Hour

	// Again is how much of what was counted is counted again: commits of that time may have
	// become durable after the count.
	Again = 2 * time.Minute
)

// Before returns from when on the counters of each step are kept.
func Before(now time.Time) map[keep.Step]time.Time {
	return map[keep.Step]time.Time{
		keep.Minute: now.Add(-MinutesKept).Truncate(keep.Day.Length()),
		keep.Hour:   now.Add(-HoursKept).Truncate(keep.Day.Length()),
		keep.Day:    now.Add(-DaysKept).Truncate(keep.Day.Length()),
	}
}

// Part returns the end of the next part to count of [from, to): what is written at once. It
// never reaches into another day, and has whole hours where minutes are not kept.
func Part(from, to, now time.Time) time.Time {
	step := keep.Hour
	if from.Before(Before(now)[keep.Minute]) {
		step = keep.Day
	}
	return earlier(from.Truncate(step.Length()).Add(step.Length()), to)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Known are the counters that there are of a day: of its hours that the part to count has, those
// of minutes; all of its hours; and itself.
type Known struct{ Minutes, Hours, Days []keep.Counter }

// Counted returns the counters to write after a part [from, to) was counted: ended are the runs
// that ended in it, and standing what waits now, at the end of the part; nil if that is not now.
// What is as it was is left out.
func Counted(from, to time.Time, ended, standing []keep.Counter, known Known) []keep.Counter {
	minutes := index(known.Minutes)
	for key, c := range minutes { // what was counted of the part is counted again
		if !c.At.Before(from) && c.At.Before(to) {
			minutes[key] = keep.Counter{Step: keep.Minute, At: c.At, Workflow: c.Workflow, Waiting: c.Waiting, Asked: c.Asked}
		}
	}
	for _, c := range ended {
		was := minutes[keyOf(c)]
		c.Waiting, c.Asked = was.Waiting, was.Asked
		minutes[keyOf(c)] = c
	}
	for _, s := range standing {
		s.Step, s.At = keep.Minute, to.Add(-time.Nanosecond).Truncate(time.Minute)
		c, some := minutes[keyOf(s)]
		if !some {
			c = keep.Counter{Step: s.Step, At: s.At, Workflow: s.Workflow}
		}
		c.Waiting, c.Asked = max(c.Waiting, s.Waiting), max(c.Asked, s.Asked)
		minutes[keyOf(s)] = c
	}
	hours := index(known.Hours)
	maps.Copy(hours, index(Fold(slices.Collect(maps.Values(minutes)), keep.Hour)))
	days := index(Fold(slices.Collect(maps.Values(hours)), keep.Day))
	var out []keep.Counter
	out = append(out, changed(minutes, known.Minutes)...)
	out = append(out, changed(hours, known.Hours)...)
	return append(out, changed(days, known.Days)...)
}

// Nothing returns the counters of no workflow for the end of a part: what can be written where there is
// nothing to count. All steps are there, since the newest minute is where the next count begins.
func Nothing(to time.Time) (list []keep.Counter) {
	for _, step := range keep.Steps() {
		list = append(list, keep.Counter{Step: step, At: to.Add(-time.Nanosecond).Truncate(step.Length())})
	}
	return list
}

// A key names a counter among those of a step.
type key struct {
	at       int64
	workflow keep.WorkflowName
}

func keyOf(c keep.Counter) key { return key{c.At.UnixMilli(), c.Workflow} }

func index(list []keep.Counter) map[key]keep.Counter {
	m := make(map[key]keep.Counter, len(list))
	for _, c := range list {
		m[keyOf(c)] = c
	}
	return m
}

// changed returns those of now that differ from what was, sorted.
func changed(now map[key]keep.Counter, was []keep.Counter) []keep.Counter {
	old := index(was)
	var out []keep.Counter
	for k, c := range now {
		if o, some := old[k]; !some || !same(o, c) {
			out = append(out, c)
		}
	}
	return sorted(out)
}

func same(a, b keep.Counter) bool {
	return a.Committed == b.Committed && a.Idle == b.Idle && a.Failed == b.Failed && a.Waiting == b.Waiting && a.Asked == b.Asked && slices.Equal(a.Took, b.Took)
}

func sorted(list []keep.Counter) []keep.Counter {
	slices.SortFunc(list, func(a, b keep.Counter) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Workflow, b.Workflow))
	})
	return list
}

// Fold returns the counters of a longer step, sorted by time and workflow.
func Fold(list []keep.Counter, step keep.Step) []keep.Counter {
	out := make(map[key]keep.Counter)
	for _, c := range list {
		c.Step, c.At = step, c.At.UTC().Truncate(step.Length())
		out[keyOf(c)] = Add(out[keyOf(c)], c)
	}
	return sorted(slices.Collect(maps.Values(out)))
}

// Add returns b with what a counted in the same time or in another.
func Add(a, b keep.Counter) keep.Counter {
	b.Committed, b.Idle, b.Failed = a.Committed+b.Committed, a.Idle+b.Idle, a.Failed+b.Failed
	b.Waiting, b.Asked = max(a.Waiting, b.Waiting), max(a.Asked, b.Asked)
	took := slices.Clone(a.Took)
	if took == nil {
		took = slices.Clone(b.Took)
	} else {
		for i, n := range b.Took {
			took[i] += n
		}
	}
	b.Took = took
	return b
}

// Took returns within which of keep.TookBounds a share of the committed runs of a counter was,
// such as 0.95; false if there are none, and math.MaxInt64 if it took longer than the last.
func Took(c keep.Counter, share float64) (time.Duration, bool) {
	total := 0
	for _, n := range c.Took {
		total += n
	}
	if total == 0 {
		return 0, false
	}
	bounds, seen := keep.TookBounds(), 0
	for i, n := range c.Took[:len(bounds)] {
		if seen += n; float64(seen) >= share*float64(total) {
			return bounds[i], true
		}
	}
	return 1<<63 - 1, true
}
