package memory_test

import (
	"testing"

	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/testkit/storetest"
)

var _ store.Store = (*memory.Store)(nil)

func TestStore(t *testing.T) {
	storetest.Run(t, func(testing.TB) store.Store { return memory.New() })
}

func TestFilters(t *testing.T) { storetest.Filters(t, memory.New()) }
