package count_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/count"
)

var midnight = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)

// Whatever parts a day is counted in, and however often, its counters are those of the day
// counted at once.
func TestCountedAgain(t *testing.T) {
	var ended []keep.Counter
	for i := range 24 * 60 {
		c := keep.Counter{Step: keep.Minute, At: midnight.Add(time.Duration(i) * time.Minute), Workflow: "w", Committed: i % 7, Failed: i % 3}
		c.Took = make([]int, len(keep.TookBounds())+1)
		c.Took[i%len(c.Took)] = c.Committed
		ended = append(ended, c)
	}
	at := func(i int) time.Time { return midnight.Add(time.Duration(i) * time.Minute) }
	whole := apply(nil, count.Counted(at(0), at(24*60), ended, nil, count.Known{}))
	random := rand.New(rand.NewPCG(1, 2))
	var stored []keep.Counter
	for done := 0; done < 24*60; {
		target := min(done+1+random.IntN(90), 24*60)
		for from := max(done-2, 0); from < target; { // it counts the last minutes again
			to := min(target, (from/60+1)*60)
			part := count.Counted(at(from), at(to), ended[from:to], nil, knownOf(stored, at(from)))
			if random.IntN(4) == 0 {
				break // the host died before it wrote
			}
			stored = apply(stored, part)
			from, done = to, max(done, to)
		}
	}
	if diff := cmp.Diff(whole, stored); diff != "" {
		t.Errorf("in parts (-whole +parts):\n%s", diff)
	}
	if again := count.Counted(at(60), at(90), ended[60:90], nil, knownOf(whole, at(60))); len(again) > 0 {
		t.Errorf("counting again what is known writes %v", again)
	}
}

// What waits is the most that was seen, and seeing less later does not change it.
func TestStanding(t *testing.T) {
	look := func(stored []keep.Counter, waiting int) []keep.Counter {
		part := count.Counted(midnight, midnight.Add(time.Minute), nil, []keep.Counter{{Workflow: "w", Waiting: waiting, Asked: 1}}, knownOf(stored, midnight))
		return apply(stored, part)
	}
	stored := look(look(look(nil, 2), 5), 3)
	for _, c := range stored {
		if c.Waiting != 5 || c.Asked != 1 {
			t.Errorf("%s: waiting %d, asked %d; want 5, 1", c.Step, c.Waiting, c.Asked)
		}
	}
	if len(stored) != 3 {
		t.Errorf("%d counters, want a minute, an hour and a day", len(stored))
	}
}

// A part never reaches over the hour where minutes are kept, nor over the day before.
func TestPart(t *testing.T) {
	now := midnight.Add(10*24*time.Hour + 90*time.Minute)
	for _, c := range []struct{ from, want time.Time }{
		{midnight, midnight.Add(24 * time.Hour)},
		{midnight.Add(5 * time.Hour), midnight.Add(24 * time.Hour)},
		{now.Add(-3 * time.Minute), now},
		{now.Add(-time.Hour), now.Truncate(time.Hour)},
	} {
		if got := count.Part(c.from, now, now); !got.Equal(c.want) {
			t.Errorf("Part(%s) = %s, want %s", c.from, got, c.want)
		}
	}
}

func TestTook(t *testing.T) {
	c := keep.Counter{Took: make([]int, len(keep.TookBounds())+1)}
	if _, some := count.Took(c, 0.5); some {
		t.Error("of no runs something took long")
	}
	c.Took[0], c.Took[2], c.Took[len(c.Took)-1] = 90, 5, 5
	for share, want := range map[float64]time.Duration{0.5: 5 * time.Millisecond, 0.95: 25 * time.Millisecond, 0.99: 1<<63 - 1} {
		if got, _ := count.Took(c, share); got != want {
			t.Errorf("Took(%v) = %s, want %s", share, got, want)
		}
	}
}

// apply does what a store does with a list of counters.
func apply(stored, list []keep.Counter) []keep.Counter {
	for _, c := range list {
		stored = slices.DeleteFunc(slices.Clone(stored), func(o keep.Counter) bool {
			return o.Step == c.Step && o.At.Equal(c.At) && o.Workflow == c.Workflow
		})
		stored = append(stored, c)
	}
	order := func(c keep.Counter) int { return slices.Index([]keep.Step{keep.Day, keep.Hour, keep.Minute}, c.Step) }
	slices.SortFunc(stored, func(a, b keep.Counter) int {
		if d := order(a) - order(b); d != 0 {
			return d
		}
		return a.At.Compare(b.At)
	})
	return stored
}

// knownOf returns what a host reads before it counts a part that begins at from.
func knownOf(stored []keep.Counter, from time.Time) (k count.Known) {
	for _, c := range stored {
		switch {
		case c.Step == keep.Minute && c.At.Truncate(time.Hour).Equal(from.Truncate(time.Hour)):
			k.Minutes = append(k.Minutes, c)
		case c.Step == keep.Hour:
			k.Hours = append(k.Hours, c)
		case c.Step == keep.Day:
			k.Days = append(k.Days, c)
		}
	}
	return k
}
