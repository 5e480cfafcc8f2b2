package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/transfer"
)

// A standby that takes the place of a server may lack its last commits: replication is asynchronous
// unless somebody made it synchronous. Whoever worked on would do again what these had recorded. So
// a process remembers for each workflow what it was told is committed, and compares:
//
//   - each commit, which has locked the workflow's row of lease: also behind a pooler, whose
//     connections outlive a server;
//   - each new connection, before it is used for anything: a host must not even claim.
//
// What is compared was remembered before the server was asked, and a commit whose answer was lost is
// not remembered, so a server that lost nothing never says less. A process that was started since
// remembers nothing.

// A progress is how far a workflow has come. No number ever becomes smaller.
type progress struct {
	n       int64 // the last number given
	commits int64 // how many commits of hosts, under their leases: those of other processes do not make up for a lost one
	decided int64 // how many other commits, of all processes: one that another process made since stands in for a lost one
}

// readProgress reads it of all workflows.
const readProgress = `SELECT workflow, n, commits, decided FROM lease`

// behind reports whether a server that says p has lost something of what is known.
func (p progress) behind(known progress) bool {
	return p.n < known.n || p.commits < known.commits || p.decided < known.decided
}

// A record remembers what was committed.
type record struct {
	mu    sync.Mutex
	known map[keep.WorkflowName]progress // protected by mu
	lost  error                          // protected by mu; the server went back
}

// failed returns keep.ErrReplaced, with what to do, once the server was found to have gone back.
func (r *record) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// before returns what is known of workflows. It is called before the server is asked.
func (r *record) before(group []*request[keep.Commit]) map[keep.WorkflowName]progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := make(map[keep.WorkflowName]progress, len(group))
	for _, q := range group {
		known[q.what.Workflow] = r.known[q.what.Workflow]
	}
	return known
}

// all returns what is known of all workflows.
func (r *record) all() map[keep.WorkflowName]progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.known)
}

// add remembers what is committed.
func (r *record) add(s *snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = make(map[keep.WorkflowName]progress)
	}
	for w, l := range s.leases {
		if known := r.known[w]; l.written {
			r.known[w] = progress{max(known.n, l.wrote.n), max(known.commits, l.wrote.commits), max(known.decided, l.wrote.decided)}
		}
	}
}

// compare returns an error if a commit has read less than is known. The connection may be one to a
// server that somebody has replaced, so all are made anew, and the first of them decides.
func (db *DB) compare(s *snapshot, known map[keep.WorkflowName]progress) error {
	for w, p := range known {
		if s.leases[w].behind(p) {
			db.pool.Reset()
			return fmt.Errorf("the server does not have what it said is committed to workflow %s; connecting anew", w)
		}
	}
	return nil
}

// recall compares what a new connection says with what is known. Of a standby that follows it says
// nothing: what it lacks may still come. If the server has gone back, every workflow is paused, for
// all hosts; until that is done, no connection can be made.
func (db *DB) recall(ctx context.Context, conn *pgx.Conn) error {
	known := db.record.all()
	if len(known) == 0 || db.record.failed() != nil {
		return nil
	}
	// This comes first: a standby that is promoted while it answers has everything that it will have.
	var follows bool
	if err := conn.QueryRow(ctx, `SELECT pg_is_in_recovery()`).Scan(&follows); err != nil || follows {
		return err
	}
	lacks, err := lacking(ctx, conn, known, readProgress+` WHERE workflow = ANY($1)`, texts(slices.Collect(maps.Keys(known))))
	if err != nil || lacks == "" {
		return err
	}
	return db.stop(ctx, conn, known)
}

// lacking returns a workflow of which the rows say less than is known; empty: there is none.
func lacking(ctx context.Context, q querier, known map[keep.WorkflowName]progress, sql string, args ...any) (keep.WorkflowName, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return "", err
	}
	found := make(map[keep.WorkflowName]progress, len(known))
	var w keep.WorkflowName
	var p progress
	if _, err := pgx.ForEachRow(rows, []any{into(&w), &p.n, &p.commits, &p.decided}, func() error { found[w] = p; return nil }); err != nil {
		return "", err
	}
	for w, p := range known {
		if found[w].behind(p) {
			return w, nil
		}
	}
	return "", nil
}

// stop pauses every workflow if the server has gone back, and refuses everything from then on.
//
// It looks again at rows that it locks, which only a server that takes writes has: a pooler may have had
// another one answer before, that was behind.
func (db *DB) stop(ctx context.Context, conn *pgx.Conn, known map[keep.WorkflowName]progress) error {
	var lacks keep.WorkflowName
	paused := pgx.BeginTxFunc(ctx, conn, readCommitted, func(tx pgx.Tx) error {
		// As commits do: they begin with these rows, in this order.
		var err error
		if lacks, err = lacking(ctx, tx, known, readProgress+` ORDER BY workflow FOR UPDATE`); err != nil || lacks == "" {
			return err
		}
		var at int64
		if err := tx.QueryRow(ctx, `SELECT `+now).Scan(&at); err != nil {
			return err
		}
		if err := pauseAll(ctx, tx, keep.Decision{By: "a host", From: "host", Note: transfer.LostNote(moment(at)), At: moment(at)}, transfer.LostNotes); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE lease SET touched = TRUE WHERE host <> ''`); err != nil {
			return err
		}
		return alert(ctx, tx, "")
	})
	if paused != nil {
		return fmt.Errorf("pause every workflow, since the server went back: %w", paused)
	}
	if lacks == "" {
		return nil
	}
	err := fmt.Errorf("%w: the server does not have what it said is committed to workflow %s, as after a failover to a standby that was behind; "+
		"what was done since would be done again: every workflow is paused; stop all hosts, and see keep db restored --help", keep.ErrReplaced, lacks)
	db.record.mu.Lock()
	defer db.record.mu.Unlock()
	db.record.lost = err
	return err
}
