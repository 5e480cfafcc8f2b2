package postgres_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
)

// Each migration since there are several versions says which of them may continue
// beside it. A table that grows is never rewritten while hosts wait.
func TestMigrationsSayWhoGoesOn(t *testing.T) {
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files[5:] {
		script, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`^-- oldest: [1-9][0-9]*\n`).Match(script) {
			t.Errorf("%s: its first line must be -- oldest: N, the last migration of the oldest version that may continue beside it (docs/POSTGRES.md, Rolling upgrade)", file)
		}
	}
}

// A database that has newer migrations is one to work on if they say so, and not
// one to work on any more from the moment that one says otherwise.
func TestBesideNewer(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	host := openDB(t, url, postgres.Config{Host: true})
	exec(t, url, `UPDATE meta SET value = '1000' WHERE name = 'keep_schema'`)
	beside := openDB(t, url, postgres.Config{})
	heartbeat := func() error {
		_, err := host.Heartbeat(t.Context(), keep.Host{ID: "a", Name: "machine:1", Version: "v1"}, time.Hour)
		return err
	}
	if err := heartbeat(); err != nil {
		t.Fatal(err)
	}
	before := hosts(t, beside)

	exec(t, url, `UPDATE meta SET value = '1000' WHERE name = 'keep_oldest'`)
	if err := heartbeat(); !errors.Is(err, keep.ErrNewerDatabase) {
		t.Errorf("Heartbeat = %v", err)
	}
	if _, err := host.Poll(t.Context(), "a"); !errors.Is(err, keep.ErrNewerDatabase) {
		t.Errorf("Poll = %v", err)
	}
	if after := hosts(t, beside); !after[0].Until.Equal(before[0].Until) {
		t.Error("a host renewed its leases on a database that it must not work on")
	}
	for _, cfg := range []postgres.Config{{}, {Host: true}, {ReadOnly: true}} {
		err := postgres.New(url, cfg).Open(t.Context())
		if !errors.Is(err, keep.ErrNewerDatabase) || !strings.Contains(err.Error(), "it asks for schema 1000") {
			t.Errorf("%+v: Open = %v", cfg, err)
		}
	}
}

// What is no host, as a gateway, has no heartbeat: its commits are refused on a database that it must not work on any more.
func TestCommitBesideNewer(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	gateway, l := openDB(t, url, postgres.Config{}), newLoad(1)
	exec(t, url, `UPDATE meta SET value = '1000' WHERE name = 'keep_schema'`)
	if err := gateway.Commit(t.Context(), l.Deploy()); err != nil {
		t.Fatalf("beside a newer one that it can live with: %v", err)
	}
	exec(t, url, `UPDATE meta SET value = '1000' WHERE name = 'keep_oldest'`)
	pause := keep.Commit{Workflow: l.Workflow, At: l.At, Changes: []keep.Change{keep.SetPaused{Paused: true}}}
	if err := gateway.Commit(t.Context(), pause); !errors.Is(err, keep.ErrNewerDatabase) {
		t.Errorf("beside a newer one that it cannot live with: %v, want %v", err, keep.ErrNewerDatabase)
	}
	if w, err := gateway.Workflow(t.Context(), l.Workflow); err != nil || w.Paused {
		t.Errorf("the workflow is paused: %t, %v", w.Paused, err)
	}
}

// A migration that a host could not live with waits until it has gone, and takes the
// leases of one that went without giving them back.
func TestLeaveBehind(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	host, other := openDB(t, url, postgres.Config{Host: true}), openDB(t, url, postgres.Config{})
	l := newLoad(1)
	if err := other.Commit(t.Context(), l.Deploy()); err != nil {
		t.Fatal(err)
	}
	if _, err := host.Heartbeat(t.Context(), keep.Host{ID: "a", Name: "machine:1", Version: "v1"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	leases, err := host.Claim(t.Context(), "a", 1, nil)
	if err != nil || len(leases) != 1 {
		t.Fatalf("Claim = %v, %v", leases, err)
	}
	if err := other.LeaveBehind(t.Context(), 1); err != nil {
		t.Errorf("a migration that the host can live with: %v", err)
	}
	err = other.LeaveBehind(t.Context(), 1000)
	if !errors.Is(err, keep.ErrOlderHosts) || !strings.Contains(err.Error(), "machine:1 (v1)") {
		t.Errorf("a migration that the host cannot live with: %v", err)
	}

	if err := host.Age(t.Context(), 2*time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := other.LeaveBehind(t.Context(), 1000); err != nil {
		t.Errorf("after the host had gone: %v", err)
	}
	if list := hosts(t, other); len(list) != 0 {
		t.Errorf("hosts are %v, want none", list)
	}
	late := keep.Commit{Workflow: l.Workflow, At: l.At, Epoch: leases[0].Epoch, Changes: []keep.Change{keep.SetPaused{Paused: true}}}
	if err := host.Commit(t.Context(), late); !errors.Is(err, keep.ErrFenced) {
		t.Errorf("what the host still commits: %v, want %v", err, keep.ErrFenced)
	}
	for err := range other.Check(t.Context()) {
		t.Error(err)
	}
}

// A migration does not wait for long, since hosts wait behind it.
func TestMigrationGivesUp(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	db := openDB(t, url, postgres.Config{})
	conn := connect(t, url)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `LOCK TABLE lease IN ROW SHARE MODE`); err != nil { // as a commit
		t.Fatal(err)
	}
	if err := db.LeaveBehind(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "a long transaction, such as pg_dump, was in the way for 5s") {
		t.Errorf("the migration: %v", err)
	}
}

func hosts(t *testing.T, db *postgres.DB) []keep.Host {
	t.Helper()
	list, err := db.Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func exec(t testing.TB, url, query string) {
	t.Helper()
	if _, err := connect(t, url).Exec(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}
