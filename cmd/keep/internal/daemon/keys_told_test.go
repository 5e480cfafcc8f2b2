package daemon_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/store/sqlite"
)

// Each key that is unknown is told, also those that a page of newer ones hides.
func TestOldKeysAreTold(t *testing.T) {
	db := sqlite.New(filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{})
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var rows strings.Builder
	const all = 1001 // more than a page
	for i := range all {
		fmt.Fprintf(&rows, `{"user_id":"u","key":"k%d","status":"in_progress","method":"POST","path":"/act","created_at":"2026-01-02T15:04:05Z"}`+"\n", i)
	}
	if n, err := idempotency.Import(t.Context(), db.Keys(), strings.NewReader(rows.String()), "X-User-Id", 100*365*24*time.Hour, time.Now()); err != nil || n.Added != all {
		t.Fatalf("%+v, %v", n, err)
	}
	list, err := daemon.UnknownKeys(db.Keys())(t.Context())
	if err != nil || len(list) != all {
		t.Errorf("told: %d keys, %v, want %d", len(list), err, all)
	}
}
