package simtest

import (
	"fmt"
	"strings"
	"testing"
)

// The oracle notices every lie that the contracts exclude.
func TestCheatsAreNoticed(t *testing.T) {
	for _, c := range cheats() {
		t.Run(string(c), func(t *testing.T) {
			for seed := uint64(1); seed <= 20; seed++ {
				w := newWorld(seed, nil)
				w.cheat = c
				if r := w.run(t); len(r.Problems) > 0 {
					t.Logf("seed %d: %s", seed, r.Problems[0])
					return
				}
			}
			t.Error("20 seeds noticed nothing")
		})
	}
}

// A broken seed says what went before, and how to see it again.
func TestBrokenSeedIsDescribed(t *testing.T) {
	var h history
	w := newWorld(1, &h)
	w.cheat = claimsFalse
	r := w.run(t)
	r.Script = h.lines
	text := r.describe(0)
	for _, want := range []string{"broken law doubt-is-not-failure", "FAULT", "-run TestSeed -seed 1 -v", "keep torture --trace --seed 1"} {
		if !strings.Contains(text, want) {
			t.Errorf("the description lacks %q:\n%s", want, text)
		}
	}
	for n := range 2 * maxScript {
		fmt.Fprintf(&h, "%d FAULT x\n", n)
	}
	if len(h.lines) != maxScript {
		t.Errorf("the history has %d lines, want %d", len(h.lines), maxScript)
	}
}
