package idempotency_test

import (
	"path/filepath"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// A guard whose store deletes nothing, which needs no space, and takes no writes is not ready; one that is
// leaves nothing behind.
func TestReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, nil)
	w.do(with("k"))
	must(t, w.guard.Ready(t.Context()))
	w.store.failWrite.Store(true)
	if err := w.guard.Ready(t.Context()); err == nil {
		t.Error("ready without a store that takes writes")
	}
	db := openFile(t, filepath.Join(t.TempDir(), "keys.db"))
	file, err := idempotency.New(db.Keys(), idempotency.Config{})
	must(t, err)
	must(t, file.Ready(t.Context()))
	for _, store := range []idempotency.Store{w.store, db.Keys()} {
		for _, r := range first(store.List(t.Context(), key.Filter{}, keep.Page{})) {
			if r.Key != "k" {
				t.Errorf("left behind: %+v", r)
			}
		}
	}
}

func first(list []key.Record, _ string, err error) []key.Record {
	if err != nil {
		panic(err)
	}
	return list
}
