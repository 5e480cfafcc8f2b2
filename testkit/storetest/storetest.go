package storetest

import (
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
	promises := slices.Concat(runPromises, mutationPromises, rivalPromises, eventPromises, inputPromises, workflowPromises,
		itemPromises, escalationPromises, noticePromises, listPromises, countPromises,
		searchPromises, credentialPromises, hookPromises, accountPromises, gatePromises, grantPromises, commitPromises, sweepPromises)
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, open(t))
			p.test(w)
			w.check()
		})
	}
}
