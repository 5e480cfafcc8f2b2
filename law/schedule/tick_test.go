package schedule_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/schedule"
)

func plan(t testing.TB, s keep.Schedule) schedule.Plan {
	t.Helper()
	p, err := schedule.Parse(s, 5*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// Each case lists the ticks after a moment, as the clocks in the zone show them.
func TestTicks(t *testing.T) {
	for _, tt := range []struct {
		name, cron, zone string
		after            string // RFC 3339
		want             string
	}{
		{"every weekday", "0 9 * * 1-5", "Europe/Berlin", "2026-11-20T09:00:00+01:00",
			"Mon 2026-11-23 09:00 +0100, Tue 2026-11-24 09:00 +0100"},
		{"no zone is UTC", "0 9 * * *", "", "2026-11-20T09:30:00Z", "Sat 2026-11-21 09:00 +0000"},
		{"missed ticks are passed over", "*/5 * * * *", "", "2026-11-20T09:59:59Z", "Fri 2026-11-20 10:00 +0000"},
		{"a day or a weekday", "0 0 13 * 5", "", "2026-11-10T00:00:00Z",
			"Fri 2026-11-13 00:00 +0000, Fri 2026-11-20 00:00 +0000, Fri 2026-11-27 00:00 +0000, Fri 2026-12-04 00:00 +0000, Fri 2026-12-11 00:00 +0000, Sun 2026-12-13 00:00 +0000"},
		{"every second day that is a Monday", "0 0 */2 * 1", "", "2026-12-01T00:00:00Z",
			"Mon 2026-12-07 00:00 +0000, Mon 2026-12-21 00:00 +0000, Mon 2027-01-11 00:00 +0000"},
		{"the first Sunday of a month", "0 9 1-7 * */7", "", "2026-12-01T00:00:00Z",
			"Sun 2026-12-06 09:00 +0000, Sun 2027-01-03 09:00 +0000, Sun 2027-02-07 09:00 +0000"},
		{"all days of a month, or a weekday", "0 0 1-31 * 1", "", "2026-12-07T00:00:00Z", "Tue 2026-12-08 00:00 +0000"},
		{"Sunday is 0 and 7", "0 0 * * 7", "", "2026-11-20T00:00:00Z", "Sun 2026-11-22 00:00 +0000"},
		{"a leap day across a century", "0 0 29 2 *", "", "2096-03-01T00:00:00Z", "Fri 2104-02-29 00:00 +0000"},
		{"a gap runs at its end", "30 2 * * *", "Europe/Berlin", "2027-03-27T12:00:00+01:00",
			"Sun 2027-03-28 03:00 +0200, Mon 2027-03-29 02:30 +0200"},
		{"many ticks in a gap are one", "*/10 2,3 * * *", "Europe/Berlin", "2027-03-28T01:00:00+01:00",
			"Sun 2027-03-28 03:00 +0200, Sun 2027-03-28 03:10 +0200"},
		{"an overlap runs once", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00+02:00",
			"Sun 2026-10-25 02:30 +0200, Mon 2026-10-26 02:30 +0100"},
		{"an overlap is not entered twice", "30 2 * * *", "Europe/Berlin", "2026-10-25T02:10:00+01:00",
			"Mon 2026-10-26 02:30 +0100"},
		{"a repeated hour has no ticks of its own", "*/10 * * * *", "Europe/Berlin", "2026-10-25T02:40:00+02:00",
			"Sun 2026-10-25 02:50 +0200, Sun 2026-10-25 03:00 +0100, Sun 2026-10-25 03:10 +0100"},
		{"half an hour is skipped", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30",
			"Sun 2026-10-04 02:30 +1100, Mon 2026-10-05 02:15 +1100"},
		{"half an hour is repeated", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00+11:00",
			"Sun 2026-04-05 01:45 +1100, Mon 2026-04-06 01:45 +1030"},
		{"a day is skipped", "0 9 * * *", "Pacific/Apia", "2011-12-29T08:00:00-10:00",
			"Thu 2011-12-29 09:00 -1000, Sat 2011-12-31 00:00 +1400, Sat 2011-12-31 09:00 +1400"},
		{"midnight is skipped", "0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00-03:00",
			"Sun 2018-11-04 01:00 -0200, Mon 2018-11-05 00:00 -0200"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, z := plan(t, keep.Schedule{Cron: tt.cron, Timezone: tt.zone}), zone(t, tt.zone)
			at, err := time.Parse(time.RFC3339, tt.after)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for range strings.Split(tt.want, ", ") {
				at = p.After(at)
				got = append(got, at.In(z).Format("Mon 2006-01-02 15:04 -0700"))
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("After(%s) of %q in %s: want -, got +:\n%s", tt.after, tt.cron, tt.zone, diff)
			}
		})
	}
}

func TestIntervals(t *testing.T) {
	hourly, bare := plan(t, keep.Schedule{Interval: time.Hour}), plan(t, keep.Schedule{})
	daily := plan(t, keep.Schedule{Cron: "@daily"})
	for _, tt := range []struct {
		call      string
		got, want time.Time
	}{
		{"First of an interval", hourly.First(now), now},
		{"After of an interval", hourly.After(now), now.Add(time.Hour)},
		{"First of a bare handler", bare.First(now), now},
		{"After of a bare handler", bare.After(now), now.Add(5 * time.Minute)},
		{"First of a cron", daily.First(now), now.Add(15 * time.Hour)},
		// The clock went back: the plan follows it.
		{"After at an earlier time", hourly.After(now.Add(-48 * time.Hour)), now.Add(-47 * time.Hour)},
		{"After of a cron at an earlier time", daily.After(now.Add(-48 * time.Hour)), now.Add(-33 * time.Hour)},
	} {
		if !tt.got.Equal(tt.want) {
			t.Errorf("%s = %s, want %s", tt.call, tt.got, tt.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct {
		s    keep.Schedule
		want string
	}{
		{keep.Schedule{Interval: time.Minute, Cron: "* * * * *"}, "schedule has both interval and cron: use one"},
		{keep.Schedule{Timezone: "UTC"}, `schedule has a timezone "UTC" without cron`},
		{keep.Schedule{Interval: time.Millisecond}, "interval 1ms is shorter than 1s"},
		{keep.Schedule{Interval: -time.Hour}, "interval -1h0m0s is shorter than 1s"},
		{keep.Schedule{Cron: "* * * *"}, "five fields"},
		{keep.Schedule{Cron: "0 * * * * *"}, "five fields"},
		{keep.Schedule{Cron: "60 * * * *"}, "five fields"},
		{keep.Schedule{Cron: "H * * * *"}, "five fields"},
		{keep.Schedule{Cron: " "}, "five fields"},
		{keep.Schedule{Cron: "@every 5m"}, "write it as interval"},
		{keep.Schedule{Cron: "CRON_TZ=UTC * * * * *"}, "write it as timezone"},
		{keep.Schedule{Cron: "* * * * *", Timezone: "Mars/Base"}, `timezone "Mars/Base" is not known`},
		{keep.Schedule{Cron: "* * * * *", Timezone: "Local"}, `timezone "Local" is not known`},
		{keep.Schedule{Cron: "* * * * *", Timezone: "../etc/passwd"}, "is not known"},
		{keep.Schedule{Cron: "0 0 30 2 *"}, "never comes"},
		{keep.Schedule{Cron: "0 0 31 4,6,9,11 *"}, "never comes"},
	} {
		_, err := schedule.Parse(tt.s, time.Minute)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Parse(%+v) = %v, want an error with %q", tt.s, err, tt.want)
		}
	}
	if _, err := schedule.Parse(keep.Schedule{}, 0); err == nil {
		t.Error("Parse of a bare handler without an interval: no error")
	}
}

// zones change their clocks by an hour, half an hour, two hours or a day, at
// midnight and by day, in both directions.
var zones = []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia",
	"America/Sao_Paulo", "Asia/Kolkata", "Africa/Casablanca", "Asia/Tehran", "Antarctica/Troll",
	"Pacific/Kwajalein", "America/Caracas", "Asia/Pyongyang"}

// A field is a cron field with what it matches.
type field struct {
	text string
	in   func(n int) bool
}

func drawField(t *rapid.T, label string, low, high int) field {
	n := rapid.IntRange(low, high).Draw(t, label)
	switch rapid.IntRange(0, 3).Draw(t, label+" form") {
	case 0:
		return field{fmt.Sprint(n), func(x int) bool { return x == n }}
	case 1:
		step := rapid.IntRange(2, 20).Draw(t, label+" step")
		return field{fmt.Sprintf("%d-%d/%d", low, high, step), func(x int) bool { return x <= high && (x-low)%step == 0 }}
	case 2:
		return field{fmt.Sprintf("%d-%d", low, n), func(x int) bool { return x <= n }}
	default:
		return field{"*", func(int) bool { return true }}
	}
}

// ticks returns the ticks in (from, to] by walking through every minute: a tick
// is at the first minute at which the clocks reach or pass a matching time that
// they have not reached before.
func ticks(z *time.Location, from, to time.Time, match func(wall time.Time) bool) []time.Time {
	var out []time.Time
	var seen time.Time // the latest wall clock so far, as if it were UTC
	for at := from.Add(-50 * time.Hour); !at.After(to); at = at.Add(time.Minute) {
		local := at.In(z)
		wall := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), 0, 0, time.UTC)
		if seen.IsZero() {
			seen = wall
		}
		due := false
		for ; seen.Before(wall); seen = seen.Add(time.Minute) {
			due = due || match(seen.Add(time.Minute))
		}
		if due && at.After(from) {
			out = append(out, at)
		}
	}
	return out
}

// Ticks strictly increase, and are those that a walk through the minutes finds:
// each at its wall clock, at the end of a gap, and once in an overlap.
func TestTicksAreThoseOfTheClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(zones).Draw(t, "zone")
		z, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		minute, hour := drawField(t, "minute", 0, 59), drawField(t, "hour", 0, 23)
		day := drawField(t, "day", 1, 28)
		cron := fmt.Sprintf("%s %s %s * *", minute.text, hour.text, day.text)
		p, err := schedule.Parse(keep.Schedule{Cron: cron, Timezone: name}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		from := drawStart(t, z)
		to := from.Add(72 * time.Hour)
		want := ticks(z, from, to, func(w time.Time) bool {
			return minute.in(w.Minute()) && hour.in(w.Hour()) && day.in(w.Day())
		})
		var got []time.Time
		for at := p.After(from); !at.IsZero() && !at.After(to); at = p.After(at) {
			if n := len(got); n > 0 && !at.After(got[n-1]) {
				t.Fatalf("%q in %s: tick %s after %s", cron, name, at, got[n-1])
			}
			got = append(got, at)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q in %s after %s: want -, got +:\n%s", cron, name, from.In(z), diff)
		}
	})
}

// drawStart returns a minute between 1990 and 2036, mostly shortly before the
// clocks change.
func drawStart(t *rapid.T, z *time.Location) time.Time {
	first := time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC)
	at := first.Add(time.Duration(rapid.IntRange(0, 46*365*24*60).Draw(t, "start")) * time.Minute)
	if rapid.IntRange(0, 4).Draw(t, "anywhere") == 0 {
		return at
	}
	if _, change := at.In(z).ZoneBounds(); !change.IsZero() {
		return change.Add(-time.Duration(rapid.IntRange(-120, 60*40).Draw(t, "before")) * time.Minute).UTC().Truncate(time.Minute)
	}
	return at
}

// Whatever Parse accepts has ticks that come and increase.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"0 9 * * 1-5", "*/7 2 29 2 *", "@monthly", "0 0 1 jan sun", "59 23 31 12 7", "H", "1-0 * * * *"} {
		f.Add(s, "Europe/Berlin", int64(0), int64(1_800_000_000))
	}
	f.Add("", "", int64(time.Hour), int64(-5_000_000_000))
	f.Fuzz(func(t *testing.T, cron, zone string, interval, unix int64) {
		p, err := schedule.Parse(keep.Schedule{Interval: time.Duration(interval), Cron: cron, Timezone: zone}, time.Minute)
		if err != nil {
			return
		}
		at := time.Unix(unix%8_000_000_000, 0)
		for range 3 {
			next := p.After(at)
			if next.IsZero() {
				return
			}
			if !next.After(at) {
				t.Fatalf("After(%s) = %s", at, next)
			}
			at = next
		}
	})
}

// Zones come with the package: a program on a machine that has none would execute what another host deployed at some interval.
func TestZonesAreEmbedded(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !slices.Contains(strings.Fields(string(out)), "time/tzdata") {
		t.Error("the package does not have the zones of time/tzdata")
	}
}
