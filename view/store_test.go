package view_test

import (
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/memory"
)

// storeAt returns a store, and what commits to it at a time.
func storeAt(t *testing.T, at time.Time) (*memory.Store, func(keep.WorkflowName, ...keep.Change)) {
	t.Helper()
	s := memory.New()
	return s, func(w keep.WorkflowName, changes ...keep.Change) {
		t.Helper()
		if err := s.Commit(t.Context(), keep.Commit{Workflow: w, At: at, Changes: changes}); err != nil {
			t.Fatal(err)
		}
	}
}
