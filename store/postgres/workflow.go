package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/store/internal/stored"
)

var (
	workflowColumns = stored.Workflows.Columns("")
	scanWorkflow    = scanOf(stored.Workflows)

	putWorkflow = insertInto("workflow", specOf(stored.Workflows),
		`ON CONFLICT (name) DO UPDATE SET `+excluded(stored.Workflows.Without("name", "created_at")))
	insertDeployment = insertInto("deployment", specOf(stored.Deployments)+`, n bigint`, "")
)

// writeWorkflow writes a row of a plan. A workflow that is new gets its lease.
func (t *tx) writeWorkflow(w *commit.Workflow) {
	if w.New {
		t.lease()
	}
	t.add(&putWorkflow, text(string(w.Name)), int64(w.Version.Major), int64(w.Version.Minor), w.Paused, text(w.PauseNote), int64(w.Granted), millis(w.CreatedAt), millis(w.UpdatedAt))
}

// writeDeployment adds a version. Topics are declared here, so that the empty ones are
// counted, too; those of older versions stay.
func (t *tx) writeDeployment(d keep.Deployment) error {
	if err := write(&t.writes, &insertDeployment, stored.Deployments, &d, t.next()); err != nil {
		return fmt.Errorf("deploy %s: %w", d.Version, err)
	}
	for _, topic := range d.Definition.Topics {
		t.declare(topic, !d.Definition.Reads(topic))
	}
	return nil
}

var (
	handlerColumns = stored.Handlers.Columns("handler.")
	scanHandler    = scanOf(stored.Handlers)

	putHandlers = insertInto("handler", specOf(stored.Handlers),
		`ON CONFLICT (workflow, name) DO UPDATE SET `+excluded(stored.Handlers.Without("workflow", "name")))
)

// writeHandler writes a row of a plan.
func (t *tx) writeHandler(h *commit.Handler) error {
	return write(&t.writes, &putHandlers, stored.Handlers, &h.HandlerState)
}

var (
	resetKVs = literal(`DELETE FROM kv AS t USING unnest($1::text[], $2::text[]) AS v (workflow, producer)
		 WHERE t.workflow = v.workflow AND t.producer = v.producer`, "text", "text")
	deleteKV = literal(`DELETE FROM kv AS t USING unnest($1::text[], $2::text[], $3::text[]) AS v (workflow, producer, key)
		 WHERE t.workflow = v.workflow AND t.producer = v.producer AND t.key = v.key`, "text", "text", "text")
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
		SELECT `+deploymentColumns+` FROM deployment WHERE workflow = $1 AND major = $2::bigint AND minor = $3::bigint`, w, v.Major, v.Minor)
}

// Deployments returns the versions of a workflow, or of all if w is empty,
// newest first, without their code.
func (db *DB) Deployments(ctx context.Context, w keep.WorkflowName) ([]keep.Deployment, error) {
	if w == "" {
		return collect(ctx, db, scanDeployment, `
			SELECT `+versionColumns+` FROM deployment d ORDER BY n DESC, workflow DESC`)
	}
	return collect(ctx, db, scanDeployment, `
		SELECT `+versionColumns+` FROM deployment d WHERE workflow = $1 ORDER BY major DESC, minor DESC`, w)
}

var (
	deploymentColumns = stored.Deployments.Columns("")
	scanDeployment    = scanOf(stored.Deployments)

	// versionColumns are those of a deployment without its code.
	versionColumns = stored.Deployments.Bare("d.", "NULL::bytea")
)

// Current returns the version of each workflow that is in force, sorted by workflow,
// without its code.
func (db *DB) Current(ctx context.Context) ([]keep.Deployment, error) {
	return collect(ctx, db, scanDeployment, `
		SELECT `+versionColumns+`
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

// KVs returns a whole checkpoint, sorted by key.
func (db *DB) KVs(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName) ([]keep.SetKV, error) {
	list, err := collect(ctx, db, func(row pgx.CollectableRow) (c keep.SetKV, err error) {
		c.Producer = producer
		err = row.Scan(into(&c.Key), (*[]byte)(&c.Value))
		return c, err
	}, `SELECT key, value FROM kv WHERE workflow = $1 AND producer = $2 ORDER BY key`, w, producer)
	slices.SortFunc(list, func(a, b keep.SetKV) int { return strings.Compare(a.Key, b.Key) }) // as stored, some have another order
	return list, err
}

// KVSize returns the bytes of all keys and values of a checkpoint.
func (db *DB) KVSize(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName) (int, error) {
	list, err := collect(ctx, db, scanNumber, `
		SELECT coalesce(sum(`+sizeOf("key")+` + octet_length(value)), 0)::bigint
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
