package engine

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
)

// Doubts that other hosts settled, of which this one is never told, leave room for the keys that it meets: each of those is
// counted, as is a doubt that it meets again from time to time, and there are no more than maxAges at once.
func TestAgesOfWhatOthersSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a keyAges
		start := time.Now()
		meet := func(key string) {
			a.meet(keep.Mutation{Key: keep.MutationKey(key), CreatedAt: start, UpdatedAt: start}, start) // by a clock that stands
		}
		for i := range 5 * maxAges {
			key := fmt.Sprint("mut_", i)
			meet(key)
			if a.elapsed(keep.MutationKey(key)) < 0 {
				t.Fatalf("the age of key %d is not counted", i)
			}
			if i%(maxAges/4) == 0 {
				time.Sleep(time.Hour)
				meet("mut_waits")
			}
			if n := len(a.met) + len(a.before); n > maxAges {
				t.Fatalf("%d keys are counted, want %d at most", n, maxAges)
			}
		}
		if got, want := a.elapsed("mut_waits"), time.Since(start)-time.Hour; got != want {
			t.Errorf("a doubt that was met again and again is %v old, want %v", got, want)
		}
		if got := a.elapsed("mut_0"); got >= 0 {
			t.Errorf("a key that was met once is counted still: %v", got)
		}
		a.forget([]keep.Change{keep.PutMutation{Mutation: keep.Mutation{Key: "mut_waits", State: keep.Applied}}})
		if got := a.elapsed("mut_waits"); got >= 0 {
			t.Errorf("a call that was settled is counted still: %v", got)
		}
	})
}
