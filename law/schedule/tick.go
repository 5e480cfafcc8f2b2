package schedule

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // of zones that a schedule names: not every machine has them

	cron "github.com/netresearch/go-cron"

	"github.com/keep-run/keep"
)

// A Plan computes the ticks of a schedule. The zero Plan is not valid; make one
// with Parse.
type Plan struct {
	interval time.Duration
	cron     cron.Schedule
	zone     *time.Location
}

// MinInterval is the shortest interval of a schedule.
const MinInterval = time.Second

// fields reads five fields. Ten years are searched, since 29 February can be eight years away.
const fields = cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor

// either and both read them. If day and weekday are restricted, a day that matches either is a match, unless one of the two begins
// with a star, as */2 does: then a day has to match both. That is what crontab does, and what people and language models expect;
// the library's default is another, and what it calls the old way takes a star with a step for no star.
var (
	either = cron.NewParser(fields | cron.DowOrDom).WithMaxSearchYears(10)
	both   = cron.NewParser(fields).WithMaxSearchYears(10)
)

// parserOf returns the parser for a cron.
func parserOf(text string) cron.Parser {
	for i, field := range strings.Fields(text) {
		if (i == 2 || i == 4) && strings.ContainsRune("*?", rune(field[0])) {
			return both
		}
	}
	return either
}

// reference is a day from which every date that exists comes within ten years.
var reference = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Parse reads a schedule. bare is the interval of a handler without one. Errors
// say what is wrong and what is good.
func Parse(s keep.Schedule, bare time.Duration) (Plan, error) {
	switch {
	case s.Interval != 0 && s.Cron != "":
		return Plan{}, fmt.Errorf("schedule has both interval and cron: use one")
	case s.Cron == "" && s.Timezone != "":
		return Plan{}, fmt.Errorf("schedule has a timezone %q without cron", s.Timezone)
	case s.IsZero() && bare <= 0:
		return Plan{}, fmt.Errorf("the interval of a handler without a schedule must be positive: %s", bare)
	case s.IsZero():
		return Plan{interval: bare}, nil
	case s.Cron == "":
		if s.Interval < MinInterval {
			return Plan{}, fmt.Errorf("interval %s is shorter than %s", s.Interval, MinInterval)
		}
		return Plan{interval: s.Interval}, nil
	}
	return parseCron(s)
}

func parseCron(s keep.Schedule) (Plan, error) {
	switch {
	case strings.Contains(s.Cron, "TZ="):
		return Plan{}, fmt.Errorf("cron %q names a time zone: write it as timezone", s.Cron)
	case strings.HasPrefix(strings.TrimSpace(s.Cron), "@every"):
		return Plan{}, fmt.Errorf("cron %q is an interval: write it as interval", s.Cron)
	}
	spec, err := parserOf(s.Cron).Parse(strings.TrimSpace(s.Cron))
	if err != nil {
		return Plan{}, fmt.Errorf(`cron %q: %w (five fields: minute hour day month weekday, such as "0 9 * * 1-5")`, s.Cron, err)
	}
	if spec.Next(reference).IsZero() {
		return Plan{}, fmt.Errorf("cron %q never comes: no month has such a day", s.Cron)
	}
	zone, err := time.LoadLocation(s.Timezone)
	if err != nil || s.Timezone == "Local" {
		return Plan{}, fmt.Errorf("timezone %q is not known: use a name such as Europe/Berlin", s.Timezone)
	}
	return Plan{cron: spec, zone: zone}, nil
}

// First returns when a handler that was just deployed is due: an interval ticks
// at once, a cron at its next time.
func (p Plan) First(now time.Time) time.Time {
	if p.cron == nil {
		return now
	}
	return p.After(now)
}

// Next returns when a handler is due after a run that began then and ended now. What ticked since
// it began is not done by it, and is one run: the next, at once.
func (p Plan) Next(began, ended time.Time) time.Time {
	if p.cron == nil {
		return p.After(ended)
	}
	return p.After(began)
}

// After returns the first tick after t: an interval counts from t, which is the
// end of the last run; ticks of a cron before t are passed over. A cron time that
// a DST change leaves out runs at the next minute that exists; one that a change
// repeats runs the first time only. The zero time means that no tick comes
// within ten years.
func (p Plan) After(t time.Time) time.Time {
	if p.cron == nil {
		return t.Add(p.interval)
	}
	// Ticks are computed on the wall clock, as if it were UTC, and then found in
	// the zone; libraries that compute them in the zone run a repeated hour twice.
	wall := naive(t.In(p.zone))
	for {
		if wall = p.cron.Next(wall); wall.IsZero() {
			return time.Time{}
		}
		if real := locate(wall, p.zone); real.After(t) {
			return real.UTC()
		}
	}
}

// naive returns the wall clock of t as a time in UTC.
func naive(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// locate returns the first instant at which the clocks in zone show wall, or,
// if they never do, the instant at which they jump over it.
func locate(wall time.Time, zone *time.Location) time.Time {
	t := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, zone)
	start, end := t.ZoneBounds()
	switch got := naive(t); {
	case got.After(wall):
		return start
	case got.Before(wall):
		return end
	}
	if start.IsZero() {
		return t
	}
	_, before := start.Add(-time.Second).Zone()
	_, now := t.Zone()
	if earlier := t.Add(-time.Duration(before-now) * time.Second); before > now && naive(earlier.In(zone)).Equal(wall) {
		return earlier
	}
	return t
}
