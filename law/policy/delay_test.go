package policy_test

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keep-run/keep/law/policy"
)

// A wait is the first one doubled, whatever that comes to: no wait is short because a number was too large.
func TestDelayIsThatOfLargeNumbers(t *testing.T) {
	check := func(t rapid.TB, b policy.Backoff, done int) {
		want := new(big.Int).Lsh(big.NewInt(int64(b.First)), uint(done))
		if most := big.NewInt(int64(b.Max)); want.Cmp(most) > 0 {
			want = most
		}
		if got := b.Delay(done, 0, 0); got != time.Duration(want.Int64()) {
			t.Fatalf("%s, at most %s, after %d repeats: %s, want %s", b.First, b.Max, done, got, time.Duration(want.Int64()))
		}
	}
	check(t, policy.Backoff{First: 13*time.Hour + 7*time.Minute + 59*time.Second, Max: 24 * time.Hour}, 24)
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Int64Range(1, int64(100*24*time.Hour)).Draw(t, "first")
		check(t, policy.Backoff{First: time.Duration(first), Max: time.Duration(rapid.Int64Range(first, 1<<62).Draw(t, "max"))}, rapid.IntRange(0, 100).Draw(t, "done"))
	})
}
