package simtest

import (
	"flag"
	"io"
	"runtime"
	"testing"
	"time"
)

var seed = flag.Uint64("seed", 0, "the seed that TestSeed replays")

// TestSeed replays one seed and prints every step: -run TestSeed -seed N -v.
func TestSeed(t *testing.T) {
	if *seed == 0 {
		t.Skip("no -seed given")
	}
	start := time.Now()
	r := Run(t, *seed, t.Output())
	if t.Log(r.describe(time.Since(start))); len(r.Problems) > 0 {
		t.Fail()
	}
}

// The same seed is the same history.
func TestSameSeedSameTrace(t *testing.T) {
	for n := range uint64(5) {
		a, b := Run(t, n+1, nil), Run(t, n+1, io.Discard)
		if a.Digest != b.Digest || a.Digest == 0 {
			t.Errorf("seed %d: digests %x and %x", n+1, a.Digest, b.Digest)
		}
	}
}

var count = flag.Uint64("seeds", 60, "how many seeds TestSeeds simulates")

// A fixed set of seeds breaks no law.
func TestSeeds(t *testing.T) {
	report := work(t, 1, runtime.GOMAXPROCS(0), func(n uint64) bool { return n < *count }, t.Output())
	t.Log(report)
	if len(report.Bad) > 0 {
		t.Fail()
	}
}
