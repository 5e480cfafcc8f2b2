package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
)

// What a database that is opened to read only has stays there, and one that is closed says so.
func TestTracesOfAReader(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	db := openDB(t, url, postgres.Config{})
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Version: keep.Version{Major: 1}, Handler: "h", Kind: keep.Consumer,
		Phase: keep.Preparing, Status: keep.StatusActive, CreatedAt: at, UpdatedAt: at}
	if err := db.Commit(t.Context(), keep.Commit{Workflow: "w", At: at, Changes: []keep.Change{keep.PutRun{Run: run},
		keep.AppendTrace{Part: keep.TracePart{Run: run.ID, At: at, Data: []byte("x")}}}}); err != nil {
		t.Fatal(err)
	}
	reader := openDB(t, url, postgres.Config{ReadOnly: true})
	if n, err := reader.ForgetTraces(t.Context(), at.Add(time.Hour), 10); n != 0 || !errors.Is(err, postgres.ErrReadOnly) {
		t.Errorf("ForgetTraces = %d, %v, want ErrReadOnly", n, err)
	}
	if n, err := reader.OldTraces(t.Context(), at.Add(time.Hour)); n != 1 || err != nil {
		t.Errorf("OldTraces = %d, %v, want 1", n, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, none := range []*postgres.DB{db, postgres.New(url, postgres.Config{})} {
		_, forgot := none.ForgetTraces(t.Context(), at, 10)
		_, counted := none.OldTraces(t.Context(), at)
		if !errors.Is(forgot, keep.ErrClosed) || !errors.Is(counted, keep.ErrClosed) {
			t.Errorf("ForgetTraces: %v, OldTraces: %v, want ErrClosed", forgot, counted)
		}
	}
}
