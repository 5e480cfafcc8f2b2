package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
)

const workflowColumns = `name, major, minor, paused, created_at, updated_at`

// scanWorkflow reads workflowColumns.
func scanWorkflow(row pgx.CollectableRow) (w keep.Workflow, err error) {
	var created, updated int64
	err = row.Scan(into(&w.Name), &w.Version.Major, &w.Version.Minor, &w.Paused, &created, &updated)
	w.CreatedAt, w.UpdatedAt = moment(created), moment(updated)
	return w, err
}

var (
	putWorkflow = insertInto("workflow", `name text, major bigint, minor bigint, paused boolean, created_at bigint, updated_at bigint`,
		`ON CONFLICT (name) DO UPDATE SET major = excluded.major, minor = excluded.minor, paused = excluded.paused, updated_at = excluded.updated_at`)
	insertDeployment = insertInto("deployment", `workflow text, major bigint, minor bigint, n bigint, hash text, entry text,
		definition text, created_at bigint, code bytea?, map bytea?`, "")
)

// writeWorkflow writes a row of a plan. A workflow that is new gets its lease.
func (t *tx) writeWorkflow(w *commit.Workflow) {
	if w.New {
		t.lease()
	}
	t.add(&putWorkflow, text(string(w.Name)), int64(w.Version.Major), int64(w.Version.Minor), w.Paused, millis(w.CreatedAt), millis(w.UpdatedAt))
}

// writeDeployment adds a version. Topics are declared here, so that the empty ones are
// counted, too; those of older versions stay.
func (t *tx) writeDeployment(d keep.Deployment) error {
	definition, err := encode(d.Definition)
	if err != nil {
		return fmt.Errorf("deploy %s: %w", d.Version, err)
	}
	t.add(&insertDeployment, text(string(d.Workflow)), int64(d.Version.Major), int64(d.Version.Minor), t.next(), text(d.Hash), text(d.Entry),
		text(*definition), millis(d.CreatedAt), d.Code, d.Map)
	for _, topic := range d.Definition.Topics {
		t.declare(topic, !d.Definition.Reads(topic))
	}
	return nil
}

const handlerColumns = `handler.workflow, handler.name, handler.kind, handler.idle_seq, handler.wake_at, handler.next_at,
	handler.requested_at, handler.last_run, handler.last_at`

// scanHandler reads handlerColumns.
func scanHandler(row pgx.CollectableRow) (h keep.HandlerState, err error) {
	var wake, next, requested, last int64
	err = row.Scan(into(&h.Workflow), into(&h.Handler), into(&h.Kind), &h.IdleSeq, &wake, &next, &requested, into(&h.LastRun), &last)
	h.WakeAt, h.NextAt, h.RequestedAt, h.LastAt = moment(wake), moment(next), moment(requested), moment(last)
	return h, err
}

var putHandlers = insertInto("handler", `workflow text, name text, kind text, idle_seq bigint, wake_at bigint, next_at bigint,
		requested_at bigint, last_run text, last_at bigint`,
	`ON CONFLICT (workflow, name) DO UPDATE SET kind = excluded.kind, idle_seq = excluded.idle_seq, wake_at = excluded.wake_at,
		next_at = excluded.next_at, requested_at = excluded.requested_at, last_run = excluded.last_run, last_at = excluded.last_at`)

// writeHandler writes a row of a plan.
func (t *tx) writeHandler(h *commit.Handler) error {
	t.add(&putHandlers, text(string(h.Workflow)), text(string(h.Handler)), text(string(h.Kind)), h.IdleSeq, millis(h.WakeAt), millis(h.NextAt),
		millis(h.RequestedAt), text(string(h.LastRun)), millis(h.LastAt))
	return nil
}

var (
	resetKVs = statement{`DELETE FROM kv AS t USING unnest($1::text[], $2::text[]) AS v (workflow, producer)
		 WHERE t.workflow = v.workflow AND t.producer = v.producer`, []string{"text", "text"}}
	deleteKV = statement{`DELETE FROM kv AS t USING unnest($1::text[], $2::text[], $3::text[]) AS v (workflow, producer, key)
		 WHERE t.workflow = v.workflow AND t.producer = v.producer AND t.key = v.key`, []string{"text", "text", "text"}}
	putKV = insertInto("kv", `workflow text, producer text, key text, value bytea`,
		`ON CONFLICT (workflow, producer, key) DO UPDATE SET value = excluded.value`)
)

// writeKV writes to checkpoints. A value that is set twice is written once, and one
// that is set before its checkpoint is deleted is not. How large a value may be is the
// engine's to say; Check reports what is over the limit.
func (t *tx) writeKV(list []commit.KV) {
	w := text(string(t.workflow))
	type value struct {
		producer keep.HandlerName
		key      string
	}
	reset, done := make(map[keep.HandlerName]bool), make(map[value]bool)
	for _, c := range slices.Backward(list) {
		v := value{c.Producer, c.Key}
		if reset[c.Producer] || done[v] {
			continue
		}
		row := []any{w, text(string(c.Producer)), text(c.Key)}
		switch {
		case c.Reset:
			reset[c.Producer] = true
			t.add(&resetKVs, row[:2]...)
			continue
		case c.Value == nil:
			t.add(&deleteKV, row...)
		default:
			t.add(&putKV, append(row, []byte(c.Value))...)
		}
		done[v] = true
	}
}

// Workflows returns every workflow, sorted by name.
func (db *DB) Workflows(ctx context.Context) ([]keep.Workflow, error) {
	return collect(ctx, db, scanWorkflow, `SELECT `+workflowColumns+` FROM workflow ORDER BY name`)
}

// Workflow returns a workflow, or *keep.NotFoundError.
func (db *DB) Workflow(ctx context.Context, w keep.WorkflowName) (keep.Workflow, error) {
	return one(ctx, db, "workflow", string(w), scanWorkflow, `SELECT `+workflowColumns+` FROM workflow WHERE name = $1`, w)
}

// Deployment returns one version of a workflow, or *keep.NotFoundError.
func (db *DB) Deployment(ctx context.Context, w keep.WorkflowName, v keep.Version) (keep.Deployment, error) {
	return one(ctx, db, "version", string(w)+" "+v.String(), scanDeployment, `
		SELECT `+deploymentColumns+` FROM deployment WHERE workflow = $1 AND major = $2 AND minor = $3`, w, v.Major, v.Minor)
}

// Deployments returns the versions of a workflow, or of all if w is empty,
// newest first, without their code.
func (db *DB) Deployments(ctx context.Context, w keep.WorkflowName) ([]keep.Deployment, error) {
	if w == "" {
		return collect(ctx, db, scanDeployment, `
			SELECT workflow, major, minor, hash, entry, definition, created_at, NULL::bytea, NULL::bytea
			  FROM deployment ORDER BY n DESC, workflow DESC`)
	}
	return collect(ctx, db, scanDeployment, `
		SELECT workflow, major, minor, hash, entry, definition, created_at, NULL::bytea, NULL::bytea
		  FROM deployment WHERE workflow = $1 ORDER BY major DESC, minor DESC`, w)
}

const deploymentColumns = `workflow, major, minor, hash, entry, definition, created_at, code, map`

// scanDeployment reads deploymentColumns; lists select NULL for its code and map.
func scanDeployment(row pgx.CollectableRow) (d keep.Deployment, err error) {
	var created int64
	var definition string
	err = row.Scan(into(&d.Workflow), &d.Version.Major, &d.Version.Minor, into(&d.Hash), into(&d.Entry), into(&definition), &created, &d.Code, &d.Map)
	if err != nil {
		return d, err
	}
	d.CreatedAt = moment(created)
	if err := json.Unmarshal([]byte(definition), &d.Definition); err != nil {
		return d, fmt.Errorf("deployment %s %s: read definition: %w", d.Workflow, d.Version, err)
	}
	return d, nil
}

// Current returns the version of each workflow that is in force, sorted by workflow,
// without its code.
func (db *DB) Current(ctx context.Context) ([]keep.Deployment, error) {
	return collect(ctx, db, scanDeployment, `
		SELECT d.workflow, d.major, d.minor, d.hash, d.entry, d.definition, d.created_at, NULL::bytea, NULL::bytea
		  FROM workflow w JOIN deployment d ON d.workflow = w.name AND d.major = w.major AND d.minor = w.minor ORDER BY w.name`)
}

// Handlers returns the handler states of a workflow, or of all if w is empty, sorted
// by workflow and name.
func (db *DB) Handlers(ctx context.Context, w keep.WorkflowName) ([]keep.HandlerState, error) {
	if w == "" {
		return collect(ctx, db, scanHandler, `SELECT `+handlerColumns+` FROM handler ORDER BY workflow, name`)
	}
	return collect(ctx, db, scanHandler, `SELECT `+handlerColumns+` FROM handler WHERE workflow = $1 ORDER BY name`, w)
}

// KV returns one value of a producer's checkpoint; nil if it is not set.
func (db *DB) KV(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName, key string) ([]byte, error) {
	list, err := collect(ctx, db, func(row pgx.CollectableRow) (value []byte, err error) {
		err = row.Scan(&value)
		return value, err
	}, `SELECT value FROM kv WHERE workflow = $1 AND producer = $2 AND key = $3`, w, producer, key)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

// KVSize returns the bytes of all keys and values of a checkpoint.
func (db *DB) KVSize(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName) (int, error) {
	list, err := collect(ctx, db, scanNumber, `
		SELECT coalesce(sum(octet_length(key) + octet_length(value)), 0)::bigint
		  FROM kv WHERE workflow = $1 AND producer = $2`, w, producer)
	if err != nil {
		return 0, err
	}
	return int(list[0]), nil
}

// TopicCounts counts the events of every topic that a version declared or that
// has events, of one workflow or of all if w is empty, sorted by name.
func (db *DB) TopicCounts(ctx context.Context, w keep.WorkflowName) ([]keep.TopicCount, error) {
	if w == "" {
		return collect(ctx, db, scanTopic, topicCounts+` ORDER BY t.workflow, t.name`)
	}
	return collect(ctx, db, scanTopic, topicCounts+` WHERE t.workflow = $1 ORDER BY t.name`, w)
}

const topicCounts = `
	SELECT t.workflow, t.name, t.pending - r.reserved, r.reserved, t.consumed, t.skipped
	  FROM topic t, LATERAL (
		SELECT count(*) AS reserved FROM event e
		 WHERE e.workflow = t.workflow AND e.topic = t.name AND e.reserved_by > '' AND e.status = 'pending') r`

// scanTopic reads topicCounts.
func scanTopic(row pgx.CollectableRow) (c keep.TopicCount, err error) {
	err = row.Scan(into(&c.Workflow), into(&c.Topic), &c.Pending, &c.Reserved, &c.Consumed, &c.Skipped)
	return c, err
}
