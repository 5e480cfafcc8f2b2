package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/keep-run/keep"
)

// deploy adds a version and makes it current. Topics are declared here, so that
// the empty ones are counted, too; those of older versions stay.
func (t *tx) deploy(d keep.Deployment) error {
	if err := t.mine("deployment", d.Version.String(), d.Workflow); err != nil {
		return err
	}
	definition, err := json.Marshal(d.Definition)
	if err != nil {
		return fmt.Errorf("deploy %s: %w", d.Version, err)
	}
	if err := t.makeCurrent(d.Version); err != nil {
		return fmt.Errorf("deploy %s: %w", d.Version, err)
	}
	_, err = t.exec(`
		INSERT INTO deployment (workflow, major, minor, hash, entry, definition, created_at, code, map)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		d.Workflow, d.Version.Major, d.Version.Minor, d.Hash, d.Entry, string(definition), d.CreatedAt,
		d.Code, d.Map)
	if err != nil {
		return fmt.Errorf("deploy %s: %w", d.Version, err)
	}
	for _, topic := range d.Definition.Topics {
		_, err := t.exec(`INSERT INTO topic (workflow, name) VALUES (?, ?) ON CONFLICT DO NOTHING`, t.workflow, topic)
		if err != nil {
			return fmt.Errorf("declare topic %q: %w", topic, err)
		}
	}
	return nil
}

// makeCurrent refuses a version that is not later than the current one: whoever
// deploys it has not seen what is running.
func (t *tx) makeCurrent(v keep.Version) error {
	if v.IsZero() {
		return keep.ErrStale
	}
	n, err := t.exec(`
		INSERT INTO workflow (name, major, minor, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?4)
		ON CONFLICT (name) DO UPDATE SET major = ?2, minor = ?3, updated_at = ?4
		 WHERE (major, minor) < (?2, ?3)`,
		t.workflow, v.Major, v.Minor, t.at)
	if err == nil && n == 0 {
		err = keep.ErrStale
	}
	return err
}

// setPaused pauses or resumes the workflow.
func (t *tx) setPaused(paused bool) error {
	n, err := t.exec(`UPDATE workflow SET paused = ?, updated_at = ? WHERE name = ?`, paused, t.at, t.workflow)
	if err != nil {
		return fmt.Errorf("set paused: %w", err)
	}
	if n == 0 {
		return &keep.NotFoundError{What: "workflow", ID: string(t.workflow)}
	}
	return nil
}

// putHandler writes a state. A request is cleared only by Served: one that came
// after the run began must not get lost with the run's own commit.
func (t *tx) putHandler(h keep.HandlerState, served int64) error {
	if err := t.mine("handler", string(h.Handler), h.Workflow); err != nil {
		return err
	}
	_, err := t.exec(`
		INSERT INTO handler (workflow, name, kind, idle_seq, wake_at, next_at, last_run, last_at)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
		ON CONFLICT (workflow, name) DO UPDATE
		   SET kind = ?3, idle_seq = ?4, wake_at = ?5, next_at = ?6, last_run = ?7, last_at = ?8,
		       requested_at = CASE WHEN requested_at > ?9 THEN requested_at ELSE 0 END`,
		h.Workflow, h.Handler, h.Kind, h.IdleSeq, h.WakeAt, h.NextAt, h.LastRun, h.LastAt, served)
	if err != nil {
		return fmt.Errorf("handler %s: %w", h.Handler, err)
	}
	return nil
}

// requestRun asks for a run. The open run comes first: "not now" is true of every
// handler, whether it exists or not.
func (t *tx) requestRun(name keep.HandlerName) error {
	open, err := t.row(`SELECT id FROM run WHERE workflow = ? AND closed = 0`, t.workflow)
	if err != nil {
		return fmt.Errorf("run %s now: %w", name, err)
	}
	if open != nil {
		return fmt.Errorf("run %s now: %w: %s", name, keep.ErrRunOpen, open[0])
	}
	n, err := t.exec(`UPDATE handler SET requested_at = ? WHERE workflow = ? AND name = ?`, t.at, t.workflow, name)
	if err != nil {
		return fmt.Errorf("run %s now: %w", name, err)
	}
	if n == 0 {
		return &keep.NotFoundError{What: "handler", ID: string(name)}
	}
	return nil
}

// setKV sets or deletes one value. How large it may be is the engine's to say;
// Check reports what is over the limit.
func (t *tx) setKV(c keep.SetKV) error {
	var err error
	if c.Value == nil {
		_, err = t.exec(`DELETE FROM kv WHERE workflow = ? AND producer = ? AND key = ?`, t.workflow, c.Producer, c.Key)
	} else {
		_, err = t.exec(`
			INSERT INTO kv (workflow, producer, key, value) VALUES (?, ?, ?, ?)
			ON CONFLICT (workflow, producer, key) DO UPDATE SET value = excluded.value`,
			t.workflow, c.Producer, c.Key, c.Value)
	}
	if err != nil {
		return fmt.Errorf("set %q of %s: %w", c.Key, c.Producer, err)
	}
	return nil
}

// resetKV deletes the whole checkpoint of a producer.
func (t *tx) resetKV(producer keep.HandlerName) error {
	_, err := t.exec(`DELETE FROM kv WHERE workflow = ? AND producer = ?`, t.workflow, producer)
	if err != nil {
		return fmt.Errorf("reset checkpoint of %s: %w", producer, err)
	}
	return nil
}

// Workflows returns every workflow, sorted by name.
func (db *DB) Workflows(ctx context.Context) ([]keep.Workflow, error) {
	return rows(ctx, db, scanWorkflow, `SELECT `+workflowColumns+` FROM workflow ORDER BY name`)
}

// Workflow returns a workflow, or *keep.NotFoundError.
func (db *DB) Workflow(ctx context.Context, w keep.WorkflowName) (keep.Workflow, error) {
	return one(ctx, db, "workflow", string(w), scanWorkflow, `SELECT `+workflowColumns+` FROM workflow WHERE name = ?`, w)
}

// workflowColumns are those of the table.
const workflowColumns = `name, major, minor, paused, created_at, updated_at`

// scanWorkflow reads workflowColumns.
func scanWorkflow(row *sql.Rows) (w keep.Workflow, err error) {
	var created, updated int64
	err = row.Scan(&w.Name, &w.Version.Major, &w.Version.Minor, &w.Paused, &created, &updated)
	w.CreatedAt, w.UpdatedAt = moment(created), moment(updated)
	return w, err
}

// Deployment returns one version of a workflow, or *keep.NotFoundError.
func (db *DB) Deployment(ctx context.Context, w keep.WorkflowName, v keep.Version) (keep.Deployment, error) {
	return one(ctx, db, "version", string(w)+" "+v.String(), scanDeployment, `
		SELECT workflow, major, minor, hash, entry, definition, created_at, code, map
		  FROM deployment WHERE workflow = ? AND major = ? AND minor = ?`, w, v.Major, v.Minor)
}

// Deployments returns the versions of a workflow, or of all if w is empty,
// newest first, without their code.
func (db *DB) Deployments(ctx context.Context, w keep.WorkflowName) ([]keep.Deployment, error) {
	if w == "" {
		return rows(ctx, db, scanDeployment, `
			SELECT workflow, major, minor, hash, entry, definition, created_at, NULL, NULL
			  FROM deployment ORDER BY n DESC`)
	}
	return rows(ctx, db, scanDeployment, `
		SELECT workflow, major, minor, hash, entry, definition, created_at, NULL, NULL
		  FROM deployment WHERE workflow = ? ORDER BY major DESC, minor DESC`, w)
}

// scanDeployment reads a deployment; lists select NULL for its code and map.
func scanDeployment(row *sql.Rows) (d keep.Deployment, err error) {
	var created int64
	var definition []byte
	err = row.Scan(&d.Workflow, &d.Version.Major, &d.Version.Minor, &d.Hash, &d.Entry, &definition, &created, &d.Code, &d.Map)
	if err != nil {
		return d, err
	}
	d.CreatedAt = moment(created)
	if err := json.Unmarshal(definition, &d.Definition); err != nil {
		return d, fmt.Errorf("deployment %s %s: read definition: %w", d.Workflow, d.Version, err)
	}
	return d, nil
}

// Handlers returns the handler states of a workflow, sorted by name.
func (db *DB) Handlers(ctx context.Context, w keep.WorkflowName) ([]keep.HandlerState, error) {
	return rows(ctx, db, func(row *sql.Rows) (h keep.HandlerState, err error) {
		var wake, next, requested, last int64
		err = row.Scan(&h.Workflow, &h.Handler, &h.Kind, &h.IdleSeq, &wake, &next, &requested, &h.LastRun, &last)
		h.WakeAt, h.NextAt, h.RequestedAt, h.LastAt = moment(wake), moment(next), moment(requested), moment(last)
		return h, err
	}, `
		SELECT workflow, name, kind, idle_seq, wake_at, next_at, requested_at, last_run, last_at
		  FROM handler WHERE workflow = ? ORDER BY name`, w)
}

// KV returns one value of a producer's checkpoint; nil if it is not set.
func (db *DB) KV(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName, key string) (value []byte, err error) {
	err = db.row(ctx, `SELECT value FROM kv WHERE workflow = ? AND producer = ? AND key = ?`, []any{w, producer, key}, &value)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return value, err
}

// KVSize returns the bytes of all keys and values of a checkpoint.
func (db *DB) KVSize(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName) (size int, err error) {
	err = db.row(ctx, `
		SELECT ifnull(sum(octet_length(key) + octet_length(value)), 0)
		  FROM kv WHERE workflow = ? AND producer = ?`, []any{w, producer}, &size)
	return size, err
}

// TopicCounts counts the events of every topic that a version declared or that
// has events, of one workflow or of all if w is empty, sorted by name.
func (db *DB) TopicCounts(ctx context.Context, w keep.WorkflowName) ([]keep.TopicCount, error) {
	scan := func(row *sql.Rows) (c keep.TopicCount, err error) {
		err = row.Scan(&c.Workflow, &c.Topic, &c.Pending, &c.Reserved, &c.Consumed, &c.Skipped)
		return c, err
	}
	const counts = `
		SELECT workflow, name, pending - reserved, reserved, consumed, skipped
		  FROM (SELECT workflow, name, pending, consumed, skipped,
		               (SELECT count(*) FROM event INDEXED BY event_pending
		                 WHERE event.workflow = topic.workflow AND event.topic = topic.name AND reserved_by > '' AND status = 'pending') AS reserved
		          FROM topic`
	if w == "" {
		return rows(ctx, db, scan, counts+`) ORDER BY workflow, name`)
	}
	return rows(ctx, db, scan, counts+` WHERE workflow = ?) ORDER BY name`, w)
}
