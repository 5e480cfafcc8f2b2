package simtest

import (
	"slices"
	"testing"
)

// right is a call with which nothing goes wrong.
var right = fault{name: "nothing goes wrong", effect: "now"}

// drills returns the whole table for the tool of one level: every fault, in a
// consumer and in an item, with death at every point and without.
func drills(tool string) (list []drill) {
	lags := []bool{false}
	if tool == "c" { // the one that is found by a search
		lags = append(lags, true)
	}
	for _, f := range append(slices.Clone(faults), right) {
		for _, lag := range lags {
			for _, job := range []bool{false, true} {
				for _, death := range deaths {
					list = append(list, drill{tool: tool, job: job, fault: f, lag: lag, dieAt: death.turn})
				}
			}
		}
	}
	return list
}

// knowable reports whether Keep can find out what happened without a person: by
// asking, or because it had the answer on disk before it died.
func (d drill) knowable() bool {
	after := slices.IndexFunc(deaths, func(p struct{ name, turn string }) bool { return p.name == "recorded" })
	written := slices.IndexFunc(deaths, func(p struct{ name, turn string }) bool { return p.turn == d.dieAt }) >= after
	return d.tool != "d" || d.fault == right && written
}

// Whatever happens to a call of whatever level, and wherever the host dies: the
// effect happens once, the ledger agrees with the service, and nobody is asked
// what Keep can know (laws once, doubt-is-not-failure).
func TestOutcomes(t *testing.T) {
	for _, tool := range []string{"a", "b", "c", "d"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			deadly := make(map[string]int)
			list := drills(tool)
			for i, d := range list {
				if i%fewDrills != 0 {
					continue
				}
				r := runDrill(t, d)
				deadly[d.dieAt] += r.Crashes
				for _, p := range r.Problems {
					t.Errorf("%s: broken law %s", d, p)
				}
				if r.Effects != 1 {
					t.Errorf("%s: %d effects, want 1 (law: once)", d, r.Effects)
				}
				if asked := r.Seen["question: unknown_outcome"]; asked > 0 && d.knowable() {
					t.Errorf("%s: a person is asked what Keep can know", d)
				}
			}
			for _, p := range deaths[1:] {
				if deadly[p.turn] == 0 && fewDrills == 1 {
					t.Errorf("no host died when it was %s", p.name)
				}
			}
			t.Logf("%d drills", (len(list)+fewDrills-1)/fewDrills)
		})
	}
}
