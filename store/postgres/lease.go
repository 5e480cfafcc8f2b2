package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
)

// A leaseFact is the row of a workflow, which a commit has locked.
type leaseFact struct {
	progress
	host     keep.HostID
	epoch    int64
	deployed bool
	oldest   int // see oldestOf

	written bool // a commit is to be written
	wrote   progress
}

// leaseFacts is where every commit begins. Rows are locked in the order of their
// names, so that two groups never wait for each other.
const leaseFacts = `SELECT workflow, n, commits, decided, host, epoch, deployed, ` + oldestOf + ` FROM lease WHERE workflow = ANY($1) ORDER BY workflow FOR UPDATE`

func (s *snapshot) scanLease(row pgx.CollectableRow) error {
	var w keep.WorkflowName
	l := new(leaseFact)
	err := row.Scan(into(&w), &l.n, &l.commits, &l.decided, into(&l.host), &l.epoch, &l.deployed, &l.oldest)
	s.leases[w] = l
	return err
}

// fence refuses a commit under a lease that has ended. It refuses one without a lease of a program that must not work on the database any
// more: a host finds that out by its heartbeat, and what is no host, as keep gateway, would work on.
func (t *tx) fence(epoch int64) error {
	switch l := t.s.leases[t.workflow]; {
	case epoch == 0:
		return beside(t.s.schema, l.oldest)
	case l.host == "" || l.epoch != epoch:
		return fmt.Errorf("epoch %d: %w", epoch, keep.ErrFenced)
	}
	return nil
}

var (
	// setLease ends every commit.
	setLease = over(`UPDATE lease AS t SET n = v.n, commits = v.commits, decided = v.decided, touched = t.touched OR v.touched
		  FROM %s WHERE t.workflow = v.workflow`, `workflow text, n bigint, commits bigint, decided bigint, touched boolean`)
	makeLease = updateOf("lease", "workflow text", "since bigint, deployed boolean")

	// countWorkflows changes the one row that all workflows share, when they are
	// deployed for the first time. It comes last, and so holds up nobody for long.
	countWorkflows = literal(`UPDATE meta SET value = (value::bigint + (SELECT sum(by) FROM unnest($1::bigint[]) AS v (by)))::text
		 WHERE name = 'workflows'`, "bigint")

	// alertHosts notifies hosts that a poll is worth its cost: the one that it names, or
	// all. Only commits beside a host do so, since notifying ones wait for each other.
	alertHosts = literal(`SELECT pg_notify('keep_' || (SELECT value FROM meta WHERE name = 'id'), v.host) FROM unnest($1::text[]) AS v (host)`,
		"text")
)

// lease makes the lease of a workflow that is deployed for the first time.
func (t *tx) lease() {
	t.add(&makeLease, text(string(t.workflow)), t.at, true)
	t.add(&countWorkflows, int64(1))
	t.add(&alertHosts, "")
}

// writeLease keeps the last number, counts the commit, and notes for the host of the workflow that
// another caller committed.
func (t *tx) writeLease(epoch int64) {
	l := t.s.leases[t.workflow]
	touched := epoch == 0 && l.host != ""
	if touched {
		t.add(&alertHosts, text(string(l.host)))
	}
	if epoch != 0 {
		l.commits++
	} else {
		l.decided++
	}
	l.written, l.wrote = true, l.progress
	t.add(&setLease, text(string(t.workflow)), l.n, l.commits, l.decided, touched)
}

// The server's time in milliseconds, in SQL: as it is, and as it was when the
// transaction began. A lease status is as of one moment, and no later than that.
const (
	now   = `(extract(epoch FROM clock_timestamp()) * 1000)::bigint`
	begun = `(extract(epoch FROM transaction_timestamp()) * 1000)::bigint`
)

const (
	// leaseStatus says how the host $1 stands. It counts hosts and not workflows, and takes
	// the marks off what it names; one that is being committed to keeps its mark.
	leaseStatus = `
	WITH told AS (
		UPDATE lease SET touched = FALSE
		 WHERE workflow IN (SELECT workflow FROM lease WHERE host = $1 AND touched FOR UPDATE SKIP LOCKED)
		RETURNING workflow),` + restOfStatus

	// lookedAt says the same to who only reads, and takes no marks off.
	lookedAt = `
	WITH told AS (SELECT workflow FROM lease WHERE host = $1 AND touched),` + restOfStatus
)

const restOfStatus = `
	moment AS (SELECT ` + begun + ` AS now),
	fleet AS (
		SELECT coalesce(sum(held) FILTER (WHERE until > now), 0)::bigint AS there,
		       coalesce(sum(held) FILTER (WHERE until <= now), 0)::bigint AS gone,
		       coalesce(sum(held) FILTER (WHERE until > now AND partial), 0)::bigint AS apart,
		       count(*) FILTER (WHERE until > now AND NOT partial AND NOT draining) AS hosts,
		       count(DISTINCT connections) FILTER (WHERE until > now AND connections <> '') > 1 AS mixed,
		       (SELECT value::bigint FROM meta WHERE name = 'workflows') AS total
		  FROM host, moment)
	SELECT ` + oldestOf + `, now, coalesce(me.until, 0), coalesce(me.draining, FALSE), coalesce(me.held, 0),
	       total - there, gone, total - apart, hosts, mixed, ARRAY(SELECT workflow FROM told ORDER BY workflow),
	       coalesce((SELECT value::bigint FROM meta WHERE name = 'news'), 0), coalesce((SELECT sum(rev) FROM gate), 0)::bigint
	  FROM moment, fleet LEFT JOIN host me ON me.id = $1`

// scanStatus reads leaseStatus. Its error is keep.ErrNewerDatabase if this program must not
// work on the database any more.
func (db *DB) scanStatus(row pgx.CollectableRow) (p keep.LeaseStatus, err error) {
	var now, until int64
	var oldest int
	var touched []string
	err = row.Scan(&oldest, &now, &until, &p.Draining, &p.Held, &p.Free, &p.Gone, &p.Total, &p.Hosts, &p.Mixed, &touched, &p.News, &p.Gates)
	p.Now, p.Until = moment(now), moment(until)
	for _, name := range touched {
		p.Touched = append(p.Touched, keep.WorkflowName(plain(name)))
	}
	if err == nil {
		err = beside(db.schema, oldest)
	}
	return p, err
}

// Heartbeat makes or renews the row of a host, in one round trip; see store.Hosts. A
// migration that this host cannot live with gets no heartbeat: the error is
// keep.ErrNewerDatabase.
func (db *DB) Heartbeat(ctx context.Context, h keep.Host, ttl time.Duration) (p keep.LeaseStatus, err error) {
	if h.ID == "" || ttl <= 0 {
		return p, fmt.Errorf("host %q: id and a positive ttl required: %s", h.ID, ttl)
	}
	if db.pool == nil || db.over.Load() {
		return p, ErrClosed
	}
	if err := db.record.failed(); err != nil {
		return p, err
	}
	id := text(string(h.ID))
	db.alerts.of(id)
	connections, inGo := "", texts(h.InGo)
	if h.Connections != nil {
		b, _ := json.Marshal(h.Connections) // of strings, in the order of their names
		connections = text(string(b))
	}
	b := new(pgx.Batch)
	b.Queue(`INSERT INTO host AS h (id, name, version, started_at, until, partial, schema, connections, in_go)
		SELECT $1::text, $2::text, $3::text, `+begun+`, `+begun+` + $4::bigint, $5::boolean, $6::integer, $7::text, $8::text[] WHERE $6::integer >= `+oldestOf+`
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, version = excluded.version, until = excluded.until,
			partial = excluded.partial, schema = excluded.schema, connections = excluded.connections, in_go = excluded.in_go`,
		id, text(h.Name), text(h.Version), ttl.Milliseconds(), h.Partial, db.schema, connections, inGo)
	// Hosts that are gone and have nothing are forgotten.
	b.Queue(`DELETE FROM host WHERE id IN (SELECT id FROM host WHERE until <= ` + begun + ` AND held = 0 FOR UPDATE SKIP LOCKED)`)
	b.Queue(leaseStatus, id).Query(func(rows pgx.Rows) error {
		p, err = pgx.CollectExactlyOneRow(rows, db.scanStatus)
		return err
	})
	if err := send(ctx, db.pool, b); err != nil {
		return keep.LeaseStatus{}, fmt.Errorf("renew the leases of host %s: %w", h.ID, err)
	}
	return p, nil
}

// Poll returns what Heartbeat would; see store.Hosts.
func (db *DB) Poll(ctx context.Context, id keep.HostID) (keep.LeaseStatus, error) {
	if err := db.record.failed(); err != nil {
		return keep.LeaseStatus{}, err
	}
	sql := leaseStatus
	if id == "" || db.cfg.ReadOnly { // the server may be one that nobody can write to
		sql = lookedAt
	}
	return one(ctx, db, "lease status", string(id), db.scanStatus, sql, id)
}

// Deregister forgets a host; see store.Hosts.
func (db *DB) Deregister(ctx context.Context, id keep.HostID) error {
	return db.change(ctx, func(tx pgx.Tx) error {
		known, err := lockHost(ctx, tx, id)
		if err != nil || !known {
			return err
		}
		// Rows are locked in the order that commits have.
		_, err = tx.Exec(ctx, `
			WITH mine AS (SELECT workflow FROM lease WHERE host = $1 AND host <> '' ORDER BY workflow FOR UPDATE)
			UPDATE lease SET host = '', since = `+now+`, touched = FALSE WHERE workflow IN (SELECT workflow FROM mine)`, text(string(id)))
		if err == nil {
			_, err = tx.Exec(ctx, `DELETE FROM host WHERE id = $1`, text(string(id)))
		}
		if err == nil {
			err = alert(ctx, tx, "")
		}
		return err
	})
}

// lockHost locks the row of a host, and reports whether there is one. Every change
// of leases locks hosts before leases.
func lockHost(ctx context.Context, tx pgx.Tx, id keep.HostID) (bool, error) {
	tag, err := tx.Exec(ctx, `SELECT 1 FROM host WHERE id = $1 FOR UPDATE`, text(string(id)))
	return tag.RowsAffected() == 1, err
}

// change runs f in a transaction.
func (db *DB) change(ctx context.Context, f func(pgx.Tx) error) error {
	if err := db.writable(); err != nil {
		return err
	}
	return pgx.BeginTxFunc(ctx, db.pool, readCommitted, f)
}

// writable returns why nothing can be written.
func (db *DB) writable() error {
	switch {
	case db.cfg.ReadOnly:
		return ErrReadOnly
	case db.pool == nil || db.over.Load():
		return ErrClosed
	}
	return nil
}

// alert notifies a host, or all, that a poll is worth its cost.
func alert(ctx context.Context, tx pgx.Tx, id keep.HostID) error {
	sql, _ := alertHosts.parts()
	_, err := tx.Exec(ctx, sql, []string{text(string(id))})
	return err
}

// Claim takes workflows that are free; see store.Leases. The rows of hosts that
// are gone are locked first, so that none of them comes back while its workflows
// are taken.
func (db *DB) Claim(ctx context.Context, id keep.HostID, n int, only []keep.WorkflowName) (got []keep.Lease, err error) {
	err = db.change(ctx, func(tx pgx.Tx) (err error) {
		got, err = claim(ctx, tx, id, n, only)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim for host %s: %w", id, err)
	}
	return got, nil
}

func claim(ctx context.Context, tx pgx.Tx, id keep.HostID, n int, only []keep.WorkflowName) ([]keep.Lease, error) {
	var draining bool
	var until, at int64
	err := tx.QueryRow(ctx, `SELECT draining, until, `+now+` FROM host WHERE id = $1 FOR UPDATE`, text(string(id))).Scan(&draining, &until, &at)
	switch {
	case errors.Is(err, pgx.ErrNoRows), err == nil && until <= at:
		return nil, keep.ErrFenced
	case err != nil || draining || n <= 0 || only != nil && len(only) == 0:
		return nil, err
	}
	rows, err := tx.Query(ctx, `SELECT id FROM host WHERE until <= $1 AND held > 0 ORDER BY id FOR UPDATE`, at)
	if err != nil {
		return nil, err
	}
	gone, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	named := ""
	args := []any{gone, n, text(string(id)), at}
	if only != nil {
		named, args = ` AND workflow = ANY($5)`, append(args, texts(only))
	}
	elsewhere, err := versionsElsewhere(ctx, tx, id, at)
	if err != nil {
		return nil, err
	}
	if len(elsewhere) > 0 {
		args = append(args, elsewhere)
		named += fmt.Sprintf(` AND NOT EXISTS (SELECT FROM workflow w JOIN deployment d ON d.workflow = w.name AND d.major = w.major AND d.minor = w.minor
			WHERE w.name = lease.workflow AND d.hash = ANY($%d))`, len(args))
	}
	rows, err = tx.Query(ctx, `
		WITH free AS (
			(SELECT workflow, host FROM lease WHERE deployed AND host = ''`+named+` LIMIT $2 FOR UPDATE SKIP LOCKED)
		), late AS (
			SELECT workflow, host FROM lease WHERE host = ANY($1) AND host <> ''`+named+`
			 LIMIT greatest($2 - (SELECT count(*) FROM free), 0) FOR UPDATE SKIP LOCKED
		), mine AS (
			UPDATE lease AS l SET host = $3, epoch = l.epoch + 1, since = $4, touched = FALSE
			  FROM (SELECT * FROM free UNION ALL SELECT * FROM late) t
			 WHERE l.workflow = t.workflow
			RETURNING l.workflow, l.host, l.epoch, l.since
		), given AS (
			UPDATE host AS h SET held = h.held + c.by
			  FROM (SELECT $3 AS id, count(*) AS by FROM mine
			        UNION ALL
			        SELECT host, -count(*) FROM late GROUP BY host) c
			 WHERE h.id = c.id)
		SELECT workflow, host, epoch, since FROM mine`, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanLease)
}

// versionsElsewhere returns the versions written in Go that other hosts can execute, as of
// a time, and a host cannot.
func versionsElsewhere(ctx context.Context, tx pgx.Tx, id keep.HostID, at int64) ([]string, error) {
	rows, err := tx.Query(ctx, `SELECT DISTINCT one.hash FROM host, unnest(in_go) AS one (hash)
		 WHERE until > $2 AND NOT draining AND one.hash <> ALL((SELECT in_go FROM host WHERE id = $1)::text[])`, text(string(id)), at)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// scanLease reads a lease.
func scanLease(row pgx.CollectableRow) (l keep.Lease, err error) {
	var since int64
	err = row.Scan(into(&l.Workflow), into(&l.Host), &l.Epoch, &since)
	l.Since = moment(since)
	return l, err
}

// Release gives workflows back; see store.Leases.
func (db *DB) Release(ctx context.Context, id keep.HostID, ws []keep.WorkflowName) error {
	return db.change(ctx, func(tx pgx.Tx) error {
		known, err := lockHost(ctx, tx, id)
		if err != nil || !known {
			return err
		}
		// Rows are locked in the order that commits have.
		_, err = tx.Exec(ctx, `
			WITH mine AS (
				SELECT workflow FROM lease WHERE workflow = ANY($2) AND host = $1 AND host <> '' ORDER BY workflow FOR UPDATE
			), given AS (
				UPDATE lease SET host = '', since = `+now+`, touched = FALSE WHERE workflow IN (SELECT workflow FROM mine) RETURNING 1)
			UPDATE host SET held = held - (SELECT count(*) FROM given) WHERE id = $1`, text(string(id)), texts(ws))
		if err == nil {
			err = alert(ctx, tx, "")
		}
		return err
	})
}

// Leases returns the leases of a host, or all; see store.Leases.
func (db *DB) Leases(ctx context.Context, id keep.HostID) ([]keep.Lease, error) {
	if id == "" {
		return collect(ctx, db, scanLease, `SELECT workflow, host, epoch, since FROM lease WHERE deployed ORDER BY workflow`)
	}
	return collect(ctx, db, scanLease, `SELECT workflow, host, epoch, since FROM lease WHERE host = $1 AND host <> '' ORDER BY workflow`, id)
}

// Hosts returns every host that the store knows, the newest last. One that is
// gone stays until its workflows are taken over.
func (db *DB) Hosts(ctx context.Context) ([]keep.Host, error) {
	return collect(ctx, db, func(row pgx.CollectableRow) (h keep.Host, err error) {
		var started, until int64
		var connections string
		err = row.Scan(into(&h.ID), into(&h.Name), into(&h.Version), &started, &until, &h.Draining, &h.Partial, &h.Held, into(&connections), &h.InGo)
		h.StartedAt, h.Until = moment(started), moment(until)
		if len(h.InGo) == 0 {
			h.InGo = nil
		}
		if err == nil && connections != "" {
			err = json.Unmarshal([]byte(connections), &h.Connections)
		}
		return h, err
	}, `SELECT id, name, version, started_at, until, draining, partial, held, connections, in_go FROM host ORDER BY started_at, id`)
}

// Drain says whether a host should drain. A host that is not known is a
// *keep.NotFoundError.
func (db *DB) Drain(ctx context.Context, id keep.HostID, drain bool, acts ...keep.Decided) error {
	return db.change(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE host SET draining = $2 WHERE id = $1`, text(string(id)), drain)
		if err == nil && tag.RowsAffected() == 0 {
			err = &keep.NotFoundError{What: "host", ID: string(id)}
		}
		if err == nil {
			err = alert(ctx, tx, id)
		}
		if err == nil {
			err = writeActs(ctx, tx, acts)
		}
		return err
	})
}
