package storetest

import (
	"hash/fnv"
	"slices"
	"testing"

	"github.com/keep-run/keep/store"
)

// A Reopener is a store that survives its process. Reopen closes it and opens
// the same data again.
type Reopener interface {
	Reopen(tb testing.TB) store.Store
}

// A promise is one thing that every store does.
type promise struct {
	name string
	test func(*world)
}

// Run checks every promise on a store of its own. Open returns an empty store
// and closes it when the test ends.
func Run(t *testing.T, open func(testing.TB) store.Store) {
	promises := slices.Concat(runPromises, mutationPromises, rivalPromises, settingPromises, budgetPromises, spentPromises, eventPromises, inputPromises, workflowPromises,
		itemPromises, escalationPromises, questionPromises, noticePromises, listPromises, countPromises,
		searchPromises, credentialPromises, hookPromises, accountPromises, gatePromises, repairPromises, counterPromises, grantPromises, commitPromises, sweepPromises, namePromises, decisionPromises)
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, open(t))
			p.test(w)
			w.check()
		})
	}
}

// Sample skips the test, unless its name is [Sampled].
func Sample(tb testing.TB, n uint32) {
	tb.Helper()
	if !Sampled(tb.Name(), n) {
		tb.Skip("not in the sample; -all runs it")
	}
}

// Sampled reports whether a name is one of about one in n: for a suite that is run once more
// on a store which another run of it has tried whole. Which ones those are does not change.
func Sampled(name string, n uint32) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return h.Sum32()%n == 0
}
