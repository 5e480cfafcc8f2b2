package memory_test

import (
	"testing"

	"github.com/keep-run/keep/memory"
	"github.com/keep-run/keep/storetest"
)

var _ storetest.Looker = (*memory.Store)(nil)

func TestStore(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Store { return memory.New() })
}
