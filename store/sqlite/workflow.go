package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/store/internal/stored"
)

// writeWorkflow writes a row of a plan.
func (t *tx) writeWorkflow(w *commit.Workflow) error {
	n, err := t.exec(`
		INSERT INTO workflow (name, major, minor, paused, pause_note, granted, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
		ON CONFLICT (name) DO UPDATE SET major = ?2, minor = ?3, paused = ?4, pause_note = ?5, granted = ?6, updated_at = ?8`,
		w.Name, w.Version.Major, w.Version.Minor, w.Paused, w.PauseNote, w.Granted, w.CreatedAt, w.UpdatedAt)
	return written("workflow", w.Name, n, err)
}

// writeDeployment adds a version. Topics are declared here, so that the empty ones are
// counted, too; those of older versions stay.
func (t *tx) writeDeployment(d keep.Deployment) error {
	if _, _, err := write(t.conn, insertDeployment, stored.Deployments, &d); err != nil {
		return fmt.Errorf("deploy %s: %w", d.Version, err)
	}
	for _, topic := range d.Definition.Topics {
		_, err := t.exec(`INSERT INTO topic (workflow, name, unread) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`,
			t.workflow, topic, !d.Definition.Reads(topic))
		if err != nil {
			return fmt.Errorf("declare topic %q: %w", topic, err)
		}
	}
	return nil
}

// writeHandler writes a row of a plan, unless a run was requested since it was read.
func (t *tx) writeHandler(h *commit.Handler) error {
	n, err := t.exec(`
		INSERT INTO handler (workflow, name, kind, idle_seq, wake_at, next_at, last_run, last_at, requested_at)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
		ON CONFLICT (workflow, name) DO UPDATE
		   SET kind = ?3, idle_seq = ?4, wake_at = ?5, next_at = ?6, last_run = ?7, last_at = ?8, requested_at = ?9
		 WHERE requested_at = ?10`,
		h.Workflow, h.Handler, h.Kind, h.IdleSeq, h.WakeAt, h.NextAt, h.LastRun, h.LastAt, h.RequestedAt, h.Was)
	return written("handler", h.Handler, n, err)
}

// writeKV writes to a checkpoint. How large a value may be is the engine's to say;
// Check reports what is over the limit.
func (t *tx) writeKV(c commit.KV) (err error) {
	switch {
	case c.Reset:
		_, err = t.exec(`DELETE FROM kv WHERE workflow = ? AND producer = ?`, t.workflow, c.Producer)
	case c.Value == nil:
		_, err = t.exec(`DELETE FROM kv WHERE workflow = ? AND producer = ? AND key = ?`, t.workflow, c.Producer, c.Key)
	default:
		_, err = t.exec(`
			INSERT INTO kv (workflow, producer, key, value) VALUES (?, ?, ?, ?)
			ON CONFLICT (workflow, producer, key) DO UPDATE SET value = excluded.value`,
			t.workflow, c.Producer, c.Key, c.Value)
	}
	if err != nil {
		return fmt.Errorf("checkpoint of %s: %w", c.Producer, err)
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

var (
	workflowColumns = stored.Workflows.Columns("")
	scanWorkflow    = scanOf(stored.Workflows)
)

// Deployment returns one version of a workflow, or *keep.NotFoundError.
func (db *DB) Deployment(ctx context.Context, w keep.WorkflowName, v keep.Version) (keep.Deployment, error) {
	return one(ctx, db, "version", string(w)+" "+v.String(), scanDeployment, `
		SELECT `+deploymentColumns+` FROM deployment WHERE workflow = ? AND major = ? AND minor = ?`, w, v.Major, v.Minor)
}

// Deployments returns the versions of a workflow, or of all if w is empty,
// newest first, without their code.
func (db *DB) Deployments(ctx context.Context, w keep.WorkflowName) ([]keep.Deployment, error) {
	if w == "" {
		return rows(ctx, db, scanDeployment, `
			SELECT `+versionColumns+` FROM deployment ORDER BY n DESC`)
	}
	return rows(ctx, db, scanDeployment, `
		SELECT `+versionColumns+` FROM deployment WHERE workflow = ? ORDER BY major DESC, minor DESC`, w)
}

var (
	insertDeployment  = stored.Deployments.Insert("deployment", "?")
	deploymentColumns = stored.Deployments.Columns("")
	scanDeployment    = scanOf(stored.Deployments)

	// versionColumns are those of a deployment without its code.
	versionColumns = stored.Deployments.Bare("deployment.", "NULL")
)

// Handlers returns the handler states of a workflow, or of all if w is empty, sorted
// by workflow and name.
func (db *DB) Handlers(ctx context.Context, w keep.WorkflowName) ([]keep.HandlerState, error) {
	of, args := "", []any(nil)
	if w != "" {
		of, args = " WHERE workflow = ?", []any{w}
	}
	return rows(ctx, db, scanHandler, `SELECT `+handlerColumns+` FROM handler`+of+` ORDER BY workflow, name`, args...)
}

var (
	handlerColumns = stored.Handlers.Columns("")
	scanHandler    = scanOf(stored.Handlers)
)

// Current returns the version of each workflow that is in force, sorted by workflow,
// without its code.
func (db *DB) Current(ctx context.Context) ([]keep.Deployment, error) {
	return rows(ctx, db, scanDeployment, `
		SELECT `+versionColumns+`
		  FROM workflow CROSS JOIN deployment ON deployment.workflow = name AND deployment.major = workflow.major AND deployment.minor = workflow.minor ORDER BY name`)
}

// KV returns one value of a producer's checkpoint; nil if it is not set.
func (db *DB) KV(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName, key string) (value []byte, err error) {
	err = db.row(ctx, `SELECT value FROM kv WHERE workflow = ? AND producer = ? AND key = ?`, []any{w, producer, key}, &value)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return value, err
}

// KVs returns a whole checkpoint, sorted by key.
func (db *DB) KVs(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName) ([]keep.SetKV, error) {
	return rows(ctx, db, func(row scanner) (c keep.SetKV, err error) {
		c.Producer = producer
		err = row.Scan(&c.Key, (*[]byte)(&c.Value))
		return c, err
	}, `SELECT key, value FROM kv WHERE workflow = ? AND producer = ? ORDER BY key`, w, producer)
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
	if w == "" {
		return rows(ctx, db, scanTopic, topicCounts+`) ORDER BY workflow, name`)
	}
	return rows(ctx, db, scanTopic, topicCounts+` WHERE workflow = ?) ORDER BY name`, w)
}

const topicCounts = `
		SELECT workflow, name, pending - reserved, reserved, consumed, skipped
		  FROM (SELECT workflow, name, pending, consumed, skipped,
		               (SELECT count(*) FROM event INDEXED BY event_reserved
		                 WHERE event.workflow = topic.workflow AND event.topic = topic.name AND reserved_by <> '' AND status = 'pending') AS reserved
		          FROM topic`

// scanTopic reads topicCounts.
func scanTopic(row scanner) (c keep.TopicCount, err error) {
	err = row.Scan(&c.Workflow, &c.Topic, &c.Pending, &c.Reserved, &c.Consumed, &c.Skipped)
	return c, err
}
