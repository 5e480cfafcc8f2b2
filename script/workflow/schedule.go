package workflow

import (
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/schedule"
)

// intervalForm is how scripts write an interval.
var intervalForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9]{1,9})(s|m|h|d)$`) })

var intervalUnits = map[string]time.Duration{
	"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
}

// maxInterval bounds an interval; who needs a longer one means a cron.
const maxInterval = 366 * 24 * time.Hour

// ParseInterval reads an interval as scripts write it: "30s", "5m", "1h", "1d".
func ParseInterval(s string) (time.Duration, error) {
	m := intervalForm().FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("interval %q: use a whole number of s, m, h or d, such as 30s, 5m, 1h or 1d", short(s))
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	unit := intervalUnits[m[2]]
	if err != nil || n > int64(maxInterval/unit) {
		return 0, fmt.Errorf("interval %q is longer than 366d", s)
	}
	if n == 0 {
		return 0, fmt.Errorf("interval %q: must be longer than nothing", s)
	}
	return time.Duration(n) * unit, nil
}

// schedule reads the schedule of a producer or job; zero if there is none.
func (c *checker) schedule(at location, handler value) keep.Schedule {
	const fix = `write schedule: { interval: "5m" }, or { cron: "0 9 * * 1-5", timezone: "Europe/Berlin" }`
	v, ok := handler.get("schedule")
	if !ok {
		return keep.Schedule{}
	}
	at = at.key("schedule").of(v)
	if v.kind != kObject {
		c.wrong(at, "an object", v, fix)
		return keep.Schedule{}
	}
	before := len(c.problems)
	c.keys(at, v, scheduleKeys)
	s := keep.Schedule{
		Interval: c.interval(at, v),
		Cron:     c.text(at, v, "cron", `write cron: "0 9 * * 1-5"`),
		Timezone: c.text(at, v, "timezone", `write timezone: "Europe/Berlin"`),
	}
	if len(c.problems) > before {
		return s // what follows would be said twice
	}
	if s.IsZero() {
		c.problem(at, fix, "needs an interval or a cron")
		return s
	}
	if _, err := schedule.Parse(s, time.Minute); err != nil {
		c.problem(c.blamed(at, s), "", "%v", err)
	}
	return s
}

// blamed returns the place of the part of s that schedule.Parse complains about.
func (c *checker) blamed(at location, s keep.Schedule) location {
	_, withoutZone := schedule.Parse(keep.Schedule{Interval: s.Interval, Cron: s.Cron}, time.Minute)
	switch {
	case s.Interval != 0 && s.Cron != "":
		return at
	case withoutZone == nil:
		return at.key("timezone")
	case s.Cron != "":
		return at.key("cron")
	default:
		return at.key("interval")
	}
}

// interval reads the interval of a schedule. A number is refused: nobody can see
// whether 30 means seconds or milliseconds.
func (c *checker) interval(at location, v value) time.Duration {
	const fix = `write interval: "30s", "5m", "1h" or "1d"`
	i, ok := v.get("interval")
	switch at := at.key("interval"); {
	case !ok:
		return 0
	case i.kind != kString:
		c.wrong(at, "a string with its unit", i, fix)
		return 0
	default:
		d, err := ParseInterval(i.text)
		if err != nil {
			c.problem(at, "", "%v", err)
		}
		return d
	}
}

// text reads an optional member that must be a string with something in it.
func (c *checker) text(at location, v value, key, fix string) string {
	s, ok := v.get(key)
	switch at := at.key(key); {
	case !ok:
		return ""
	case s.kind != kString:
		c.wrong(at, "a string", s, fix)
	case s.text == "":
		c.problem(at, fix, "is empty")
	}
	if s.kind != kString {
		return ""
	}
	return s.text
}
