package simtest

import (
	"flag"
	"runtime"
	"strings"
	"testing"
	"time"
)

var groupSeeds = flag.Uint64("group-seeds", fewGroupSeeds, "how many seeds TestGroups simulates")

// TestGroup replays one seed with several hosts: -run TestGroup$ -seed N -v.
func TestGroup(t *testing.T) {
	if *seed == 0 {
		t.Skip("no -seed given")
	}
	start := time.Now()
	r := RunGroup(t, *seed, t.Output())
	if t.Log(r.describe(time.Since(start))); len(r.Problems) > 0 {
		t.Fail()
	}
}

// Several hosts that die, freeze, are cut off and have wrong clocks do what one
// does: each effect once, and nothing is left to lie for longer than a lease.
func TestGroups(t *testing.T) {
	var sum Result
	for n := range *groupSeeds {
		r := RunGroup(t, n+1, nil)
		sum.Add(r)
		for _, p := range r.Problems {
			t.Errorf("seed %d: broken law %s (replay it with -run TestGroup$ -seed %d -v)", n+1, p, n+1)
		}
	}
	t.Log(sum)
	if *groupSeeds < 25 {
		return
	}
	for _, what := range []string{"fault: a host is frozen", "fault: a host is cut off", "lease: a late host is fenced",
		"lease: a workflow changes hands", "fault: answer to a poll or claim is lost",
		"fault: answer to a poll or claim is unknown", "fault: answer to a poll or claim is slow"} {
		if sum.Seen[what] == 0 {
			t.Errorf("this never happened: %s", what)
		}
	}
}

// A world of several hosts is decided by its seed, but for limits, outages, grants and budgets.
func TestSameGroupSameTrace(t *testing.T) {
	seeds := uint64(3) // test.sh has them without the race detector, too
	if raced {
		seeds = 1
	}
	// Who is woken waits until who woke him touches the world next: the leases wake a workflow and then tell it to yield,
	// and on two processors it may be the seed's turn or the scheduler's which of them it sees first.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for n := range seeds {
		var a, b strings.Builder
		for _, trace := range []*strings.Builder{&a, &b} {
			w := newWorld(n+1, trace)
			w.gather()
			w.unlimited()
			w.run(t)
		}
		x, y := strings.Split(a.String(), "\n"), strings.Split(b.String(), "\n")
		for i := range min(len(x), len(y)) {
			if x[i] != y[i] {
				t.Errorf("seed %d: after\n%s\ncomes\n%s\nor\n%s", n+1, strings.Join(x[max(0, i-5):i], "\n"), x[i], y[i])
				break
			}
		}
	}
}
