package simtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The oracle notices every lie that the contracts exclude.
func TestCheatsAreNoticed(t *testing.T) {
	if raced {
		t.Skip(".ci/check sim runs it without the race detector")
	}
	for _, c := range cheats() {
		t.Run(string(c), func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 60; seed++ {
				w := newWorld(seed, nil)
				w.cheat = c
				if r := w.run(t); len(r.Problems) > 0 {
					t.Logf("seed %d: %s", seed, r.Problems[0])
					return
				}
			}
			t.Error("60 seeds noticed nothing")
		})
	}
}

// A world whose laws break, which the audit finds after the last bubble, has one
// history, too.
func TestBrokenSeedIsReproducible(t *testing.T) {
	if raced {
		t.Skip(".ci/check sim runs it without the race detector")
	}
	for seed := range uint64(10) {
		live := func() Result {
			w := newWorld(seed+1, nil)
			w.cheat = claimsFalse
			return w.run(t)
		}
		a, b := live(), live()
		if a.Digest != b.Digest || !slices.Equal(a.Problems, b.Problems) {
			t.Errorf("seed %d: digests %x and %x, problems\n%s\nand\n%s", seed+1, a.Digest, b.Digest,
				strings.Join(a.Problems, "\n"), strings.Join(b.Problems, "\n"))
		}
	}
}

// A broken seed says what went before, and how to see it again.
func TestBrokenSeedIsDescribed(t *testing.T) {
	var h history
	seed, text := uint64(0), ""
	for !strings.Contains(text, "broken law doubt-is-not-failure") { // not every world has such an answer
		if seed++; seed > 60 {
			t.Fatal("60 seeds noticed nothing")
		}
		h = history{}
		w := newWorld(seed, &h)
		w.cheat = claimsFalse
		r := w.run(t)
		r.Script = h.lines
		text = r.describe(0)
	}
	for _, want := range []string{"FAULT", fmt.Sprintf("-run TestSeed -seed %d -v", seed), fmt.Sprintf("go run ./internal/torture -trace -seed %d", seed)} {
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
