package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keep-run/keep/store/transfer"
)

// Receive fills the schema in one transaction; see transfer.Place.
func (p *Place) Receive(ctx context.Context, m transfer.Mark, fill func(transfer.Sink) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("copy to %s: %w", p.Name(), waited(err))
		}
	}()
	db := New(p.url, Config{})
	pool, err := db.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := prepareMoved(ctx, pool, true); err != nil {
		return err
	}
	if err := replaceable(ctx, pool, m); err != nil { // before it waits for a lock
		return err
	}
	// From here on whoever opens the database learns that it is not complete.
	if err := replace(ctx, pool, m, func(transfer.Sink) error { return nil }); err != nil {
		return err
	}
	return replace(ctx, pool, m, fill)
}

// replaceable refuses to write over anything but nothing, and the rest of a copy of the
// same database.
func replaceable(ctx context.Context, q querier, m transfer.Mark) error {
	mark, err := readMark(ctx, q)
	if err != nil || mark.State == transfer.Incoming && mark.Store == m.Store {
		return err
	}
	used := mark.Fenced()
	for _, table := range append([]string{"lease"}, kindTables()...) { // what a person connected before the first host counts, too
		if err == nil && !used {
			err = q.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM `+table+`)`).Scan(&used)
		}
	}
	if err == nil && used {
		err = errors.New("there is a database already; name an empty one, or another schema with ?search_path=")
	}
	return err
}

// replace puts rows, and all that is derived from them, in the place of what is there.
func replace(ctx context.Context, pool *pgxpool.Pool, m transfer.Mark, fill func(transfer.Sink) error) error {
	return pgx.BeginTxFunc(ctx, pool, readCommitted, func(tx pgx.Tx) error {
		if err := script(ctx, tx, unhurried+`; LOCK TABLE `+ours()+` IN EXCLUSIVE MODE`); err != nil {
			return err
		}
		if err := noHosts(ctx, tx); err != nil {
			return err
		}
		if err := replaceable(ctx, tx, m); err != nil {
			return err
		}
		if err := fence(ctx, tx, false); err != nil {
			return err
		}
		if err := script(ctx, tx, `TRUNCATE `+ours()+`; `+byIndexOnly); err != nil {
			return err
		}
		sink := newSink(tx)
		if err := fill(sink); err != nil {
			return err
		}
		if err := sink.finish(ctx); err != nil {
			return fmt.Errorf("make leases: %w", err)
		}
		if err := script(ctx, tx, freePlans+`;`+summarize); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE meta SET value = $1 WHERE name = 'id'`, m.Store); err != nil {
			return err
		}
		return setMark(ctx, tx, m)
	})
}

// byIndexOnly makes statements find rows by an index, also while the server believes
// that the tables are as empty as when it planned them.
const byIndexOnly = `SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off`

// summarize makes what the server and hosts want to know of the tables.
const summarize = `
	UPDATE meta SET value = (SELECT count(*) FROM workflow)::text WHERE name = 'workflows';
	ANALYZE event, event_cause, run, run_log, input, item, mutation, mutation_history`
