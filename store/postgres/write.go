package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keep-run/keep"
)

// serve commits a group in one transaction. What the law refuses is known before
// anything is written, and is left out. What the server refuses, a CHECK or a
// unique index, undoes the transaction; then each commit is tried alone, so that it
// does not take the others with it.
//
// After any other error the outcome is unknown: the server may have committed, and its answer
// got lost. That pgx calls an error safe to retry says nothing about a COMMIT.
func (db *DB) serve(ctx context.Context, group []*request[keep.Commit]) {
	ctx, cancel := context.WithTimeoutCause(ctx, db.cfg.StatementTimeout, &keep.TimeoutError{Op: "commit", After: db.cfg.StatementTimeout})
	defer cancel()
	err := db.transact(ctx, group)
	if len(group) > 1 && undone(err) {
		for i := range group {
			db.serve(ctx, group[i:i+1])
		}
		return
	}
	if again(err) {
		err = db.transact(ctx, group)
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && undone(err) && strings.HasPrefix(e.Code, "23") { // a CHECK or a unique index
		err = keep.Refused(err)
	}
	if err != nil {
		for _, r := range group {
			r.err = err
		}
	}
}

// again reports whether a transaction that was undone can do better the second
// time: it lost a race for an id, or waited for a lock in a circle.
func again(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && undone(err) && (e.Code == "23505" || e.Code == "40001" || e.Code == "40P01")
}

// transact decides and writes a group in one transaction and two round trips: one
// to lock and read, one to write and commit. A nil error means that each request
// has its fate in err.
func (db *DB) transact(ctx context.Context, group []*request[keep.Commit]) error {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err := db.record.failed(); err != nil {
		return err
	}
	known := db.record.before(group)
	s, err := db.read(ctx, conn, group)
	if err == nil {
		err = db.compare(s, known)
	}
	if err != nil {
		return rollback(ctx, conn, err)
	}
	b := new(pgx.Batch)
	var all writes
	for _, r := range group {
		w, err := decide(s, r.what)
		if r.err = keep.Refused(err); err == nil {
			all.join(w)
		}
	}
	if len(all.changes) == 0 {
		return rollback(ctx, conn, nil)
	}
	all.queue(b, order)
	if err := writeAll(ctx, conn, b); err != nil {
		return rollback(ctx, conn, err)
	}
	db.record.add(s)
	return nil
}

// readCommitted is how transactions begin, whatever the server or the URL says: what is read after a
// lock was waited for must be what is there then.
var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

// read begins the transaction, locks the workflows of a group and reads what must
// be known, as readCommitted says. A workflow that never committed gets its row of lease first.
func (db *DB) read(ctx context.Context, conn *pgxpool.Conn, group []*request[keep.Commit]) (*snapshot, error) {
	var reads readSet
	for _, r := range group {
		reads.add(r.what)
	}
	b := new(pgx.Batch)
	b.Queue("begin isolation level read committed")
	for {
		s := &snapshot{schema: db.schema, leases: make(map[keep.WorkflowName]*leaseFact), topics: make(map[topicKey]bool)}
		reads.queue(b, s)
		if err := send(ctx, conn, b); err != nil {
			return nil, err
		}
		if len(s.leases) == len(reads.workflows) {
			return s, nil
		}
		b = new(pgx.Batch)
		b.Queue(`INSERT INTO lease (workflow, n) SELECT name, 0 FROM unnest($1::text[]) AS v (name) ORDER BY name ON CONFLICT DO NOTHING`, reads.workflows)
	}
}

// writeAll sends the writes and the end of the transaction in one go.
func writeAll(ctx context.Context, conn *pgxpool.Conn, b *pgx.Batch) error {
	b.Queue("commit").Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" {
			return fmt.Errorf("the server answered %q to COMMIT", tag)
		}
		return nil
	})
	return send(ctx, conn, b)
}

// rollback ends a transaction that failed, and returns why. A connection that
// cannot do even that is closed; the server then undoes what was open.
func rollback(ctx context.Context, conn *pgxpool.Conn, cause error) error {
	if conn.Conn().IsClosed() {
		return cause
	}
	if _, err := conn.Exec(ctx, "rollback"); err != nil {
		_ = conn.Conn().Close(context.WithoutCancel(ctx)) // nothing is left to say on it
		return errors.Join(cause, err)
	}
	return cause
}
