package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/testkit/storetest"
)

var (
	_ storetest.Leased = (*postgres.DB)(nil)
	_ store.Alerter    = (*postgres.DB)(nil)
)

func TestLeases(t *testing.T) {
	storetest.Leases(t, func(tb testing.TB) (storetest.Leased, func(time.Duration)) {
		db := openDB(tb, pgtest.SchemaURL(tb), postgres.Config{Host: true, Conns: 4})
		return db, func(d time.Duration) {
			if err := db.Age(tb.Context(), d); err != nil {
				tb.Error(err)
			}
		}
	})
}

// What one process commits to a workflow of another reaches that one at once: its
// alerts ring, and its look names the workflow. A host hears nothing of workflows of
// others, and a connection that broke is made again.
func TestAlerts(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	host, other := openDB(t, url, postgres.Config{Host: true}), openDB(t, url, postgres.Config{Conns: 3})
	if other.Alerts() != nil {
		t.Error("a process that is no host has alerts")
	}
	l := newLoad(1)
	commit := func(c keep.Commit) {
		t.Helper()
		if err := other.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := host.Heartbeat(t.Context(), keep.Host{ID: "a"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	commit(l.Deploy())
	ring(t, host) // a new workflow is for all
	if _, err := host.Claim(t.Context(), "a", 1, nil); err != nil {
		t.Fatal(err)
	}
	touch := keep.Commit{Workflow: l.Workflow, At: l.At, Changes: []keep.Change{keep.SetPaused{Paused: true}}}
	for range 2 {
		commit(touch)
		for {
			ring(t, host)
			p, err := host.Poll(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Touched) == 1 && p.Touched[0] == l.Workflow {
				break
			}
		}
		if err := other.Terminate(t.Context(), "LISTEN%"); err != nil {
			t.Fatal(err)
		}
	}
}

// ring waits until the alerts of a host ring.
func ring(t *testing.T, db *postgres.DB) {
	t.Helper()
	select {
	case <-db.Alerts():
	case <-t.Context().Done():
		t.Fatal("no alert")
	case <-time.After(time.Minute):
		t.Fatal("no alert")
	}
}

// Behind PgBouncer in transaction mode every statement may come to another session.
// Commits, leases and claims of many hosts at once are what would notice.
func TestPgBouncer(t *testing.T) {
	through := pgtest.Bouncer(t)
	storetest.Leases(t, func(tb testing.TB) (storetest.Leased, func(time.Duration)) {
		db := openDB(tb, through(pgtest.URL(tb)), postgres.Config{Host: true, Conns: 4})
		return db, func(d time.Duration) {
			if err := db.Age(tb.Context(), d); err != nil {
				tb.Error(err)
			}
		}
	})
}

// A host that leaves waits for the rows of its workflows in the order in which commits to them do, so neither waits for the other
// without end, and no lease stays until it ends.
func TestDeregisterBesideACommit(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	host := openDB(t, url+"&default_query_exec_mode=exec", postgres.Config{Host: true}) // as behind a pooler: the server plans by itself
	other := connect(t, url)
	if _, err := host.Heartbeat(t.Context(), keep.Host{ID: "h"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	for _, workflow := range []string{"b", "a"} { // as rows lie that were claimed in that order
		if _, err := other.Exec(t.Context(), `INSERT INTO lease (workflow, n, host, deployed) VALUES ($1, 0, 'h', TRUE)`, workflow); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := other.Begin(t.Context())
	lock := func(workflow string) {
		t.Helper()
		if err == nil {
			_, err = tx.Exec(t.Context(), `SELECT FROM lease WHERE workflow = $1 FOR UPDATE`, workflow)
		}
		if err != nil {
			t.Errorf("lock %s: %v", workflow, err)
		}
	}
	lock("a")
	left := make(chan error, 1)
	go func() { left <- host.Deregister(context.Background(), "h") }()
	watch := connect(t, url)
	for waits := 0; waits == 0; {
		if err := watch.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))`,
			other.PgConn().PID()).Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	lock("b")
	if err := tx.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-left; err != nil {
		t.Errorf("Deregister = %v", err)
	}
	if leases, err := host.Leases(t.Context(), "h"); err != nil || len(leases) != 0 {
		t.Errorf("it has %v afterwards, %v", leases, err)
	}
}
