package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keep-run/keep/transfer"
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
	var used bool
	err = q.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM workflow) OR EXISTS (SELECT 1 FROM lease) OR EXISTS (SELECT 1 FROM idempotency_key)
		OR EXISTS (SELECT 1 FROM credential)`).Scan(&used)
	if err == nil && (used || mark.Fenced()) {
		err = errors.New("there is a database already; name an empty one, or another schema with ?search_path=")
	}
	return err
}

// replace puts rows, and all that is derived from them, in the place of what is there.
func replace(ctx context.Context, pool *pgxpool.Pool, m transfer.Mark, fill func(transfer.Sink) error) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
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
		if err := fill(&sink{tx: tx}); err != nil {
			return err
		}
		if err := script(ctx, tx, freePlans+`;`+derive); err != nil {
			return fmt.Errorf("derive: %w", err)
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

// derive makes what is kept beside the rows that it is derived from.
const derive = `
	INSERT INTO lease (workflow, n, deployed)
	SELECT workflow, max(n), bool_or(deployed) FROM (
		SELECT name AS workflow, 0::bigint AS n, TRUE AS deployed FROM workflow
		UNION ALL SELECT workflow, max(n), FALSE FROM deployment GROUP BY workflow
		UNION ALL SELECT workflow, 0, FALSE FROM topic GROUP BY workflow
		UNION ALL SELECT workflow, 0, FALSE FROM kv GROUP BY workflow
		UNION ALL SELECT workflow, 0, FALSE FROM handler GROUP BY workflow
		UNION ALL SELECT workflow, max(n), FALSE FROM input GROUP BY workflow
		UNION ALL SELECT workflow, max(n), FALSE FROM event GROUP BY workflow
		UNION ALL SELECT workflow, max(n), FALSE FROM run GROUP BY workflow
		UNION ALL SELECT workflow, max(n), FALSE FROM run_log GROUP BY workflow
		UNION ALL SELECT workflow, max(n), FALSE FROM item GROUP BY workflow
		UNION ALL SELECT workflow, max(n), FALSE FROM mutation GROUP BY workflow
		UNION ALL SELECT workflow, max(n), FALSE FROM mutation_history GROUP BY workflow
		UNION ALL SELECT workflow, max(n), FALSE FROM escalation GROUP BY workflow) r
	 GROUP BY workflow;
	UPDATE meta SET value = (SELECT count(*) FROM workflow)::text WHERE name = 'workflows';
	INSERT INTO tally (workflow, noun, name, rows)
	SELECT workflow, 'run', handler, count(*) FROM run GROUP BY workflow, handler
	UNION ALL SELECT workflow, 'mutation', tool, count(*) FROM mutation GROUP BY workflow, tool
	UNION ALL SELECT workflow, 'input', '', count(*) FROM input GROUP BY workflow
	UNION ALL SELECT workflow, 'item', '', count(*) FROM item GROUP BY workflow;
	ANALYZE ` + `event, event_cause, run, run_log, input, item, mutation, mutation_history`

// A sink adds rows to a schema.
type sink struct {
	tx    pgx.Tx
	table string
	load  load
	last  int64  // number of the last row of the table
	child string // parent of the last row that has one
	place int64  // of that row
}

// Add adds rows; see transfer.Sink.
func (s *sink) Add(ctx context.Context, t transfer.Table, rows []transfer.Row) error {
	if s.table != t.Name {
		*s = sink{tx: s.tx, table: t.Name, load: loadOf(t)}
	}
	c := change{statement: &statement{s.load.sql, s.load.types}}
	var causes writes
	for _, row := range rows {
		values, err := s.valuesOf(t, row)
		if err != nil {
			return err
		}
		c.rows = append(c.rows, values)
		if t.Name == "event" {
			if err := addCauses(&causes, t, row, s.last); err != nil {
				return err
			}
		}
	}
	b := new(pgx.Batch)
	b.Queue(c.statement.sql, c.arguments()...)
	causes.queue(b, []*statement{&insertCause})
	return s.tx.SendBatch(ctx, b).Close()
}

// valuesOf returns a row as the statement takes it.
func (s *sink) valuesOf(t transfer.Table, row transfer.Row) ([]any, error) {
	values := make([]any, len(row), len(row)+len(s.load.extra))
	for i, c := range t.Columns {
		switch v := row[i].(type) {
		case string:
			stored, err := renamed(c, v, oddName, text)
			if err != nil {
				return nil, err
			}
			values[i] = text(stored)
		case []byte:
			values[i] = v
			if c.Kind != transfer.Maybe {
				break
			}
			values[i] = (*string)(nil)
			if v != nil {
				stored, err := renamed(c, string(v), oddName, text)
				if err != nil {
					return nil, err
				}
				stored = text(stored)
				values[i] = &stored
			}
		default:
			values[i] = v
		}
	}
	for _, extra := range s.load.extra {
		switch extra {
		case "place":
			values = append(values, s.placeOf(t, row))
		case "n":
			s.last = numberAfter(s.last, row[t.Index("created_at")].(int64))
			values = append(values, s.last)
		case "words":
			values = append(values, words(t.String(row, "title")))
		}
	}
	return values, nil
}

// placeOf returns the place of a row among those of its parent.
func (s *sink) placeOf(t transfer.Table, row transfer.Row) int64 {
	if parent := t.String(row, t.Parent); parent != s.child || s.place == 0 {
		s.child, s.place = parent, 0
	}
	s.place++
	return s.place
}

// addCauses writes the causes of an event by input, too.
func addCauses(w *writes, t transfer.Table, row transfer.Row, n int64) error {
	list := t.String(row, "caused_by")
	if list == `[]` {
		return nil
	}
	var causes []string
	err := json.Unmarshal([]byte(list), &causes)
	for _, id := range causes {
		w.add(&insertCause, text(t.String(row, "workflow")), text(id), n, text(t.String(row, "topic")))
	}
	return err
}
