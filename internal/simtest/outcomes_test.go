package simtest

import (
	"slices"
	"testing"
)

// Whatever happens to a call of whatever level, and wherever the host dies: the
// effect happens once, and the ledger agrees with the service. Nobody is asked
// but where nobody can know (laws once, doubt-is-not-failure).
func TestOutcomes(t *testing.T) {
	right := fault{name: "nothing goes wrong", effect: "now"}
	late := []string{"recorded", "emitted", "committed"}   // the answer was heard and written
	lags := map[string]int{"a": 1, "b": 1, "c": 2, "d": 1} // only C is found by a search
	for _, tool := range []string{"a", "b", "c", "d"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			count, deadly := 0, make(map[string]int)
			for _, f := range append(slices.Clone(faults), right) {
				for _, lag := range []bool{false, true}[:lags[tool]] {
					for _, job := range []bool{false, true} {
						for _, death := range deaths {
							d := drill{tool: tool, job: job, fault: f, lag: lag, dieAt: death.turn}
							r := runDrill(t, d)
							count++
							deadly[death.name] += r.Crashes
							for _, p := range r.Problems {
								t.Errorf("%s: broken law %s", d, p)
							}
							if r.Effects != 1 {
								t.Errorf("%s: %d effects, want 1 (law: once)", d, r.Effects)
							}
							asked := r.Seen["question: unknown_outcome"] > 0
							known := tool != "d" || f.name == right.name && slices.Contains(late, death.name)
							if asked && known {
								t.Errorf("%s: a person is asked what Keep can know", d)
							}
						}
					}
				}
			}
			for _, death := range deaths[1:] {
				if deadly[death.name] == 0 {
					t.Errorf("no host died when it was %s", death.name)
				}
			}
			t.Logf("%d drills, %d deaths", count, sum(deadly))
		})
	}
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}
