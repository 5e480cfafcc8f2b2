package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
)

const workflowColumns = `name, major, minor, paused, created_at, updated_at`

const workflowFacts = `SELECT ` + workflowColumns + ` FROM workflow WHERE name = ANY($1)`

func (k *known) scanWorkflow(row pgx.CollectableRow) error {
	w, err := scanWorkflow(row)
	k.workflows[w.Name] = &w
	return err
}

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

// deploy adds a version and makes it current, if it is later than the current
// one: whoever deploys an older one has not seen what is running. Topics are
// declared here, so that the empty ones are counted, too; those of older versions
// stay.
func (t *tx) deploy(d keep.Deployment) error {
	if err := t.mine("deployment", d.Version.String(), d.Workflow); err != nil {
		return err
	}
	w := t.workflows[t.workflow]
	if d.Version.IsZero() || w != nil && !older(w.Version, d.Version) {
		return fmt.Errorf("deploy %s: %w", d.Version, keep.ErrStale)
	}
	definition, err := encode(d.Definition)
	if err != nil {
		return fmt.Errorf("deploy %s: %w", d.Version, err)
	}
	if w == nil {
		w = &keep.Workflow{Name: t.workflow, CreatedAt: moment(t.at)}
		t.workflows[t.workflow] = w
		t.lease()
	}
	w.Version, w.UpdatedAt = d.Version, moment(t.at)
	t.writeWorkflow(w)
	t.add(&insertDeployment, text(string(d.Workflow)), int64(d.Version.Major), int64(d.Version.Minor), t.next(), text(d.Hash), text(d.Entry),
		text(*definition), millis(d.CreatedAt), d.Code, d.Map)
	for _, topic := range d.Definition.Topics {
		t.declare(topicKey{t.workflow, topic})
	}
	return nil
}

// older reports whether v comes before w.
func older(v, w keep.Version) bool {
	return cmp.Or(cmp.Compare(v.Major, w.Major), cmp.Compare(v.Minor, w.Minor)) < 0
}

// setPaused pauses or resumes the workflow.
func (t *tx) setPaused(paused bool) error {
	w := t.workflows[t.workflow]
	if w == nil {
		return &keep.NotFoundError{What: "workflow", ID: string(t.workflow)}
	}
	w.Paused, w.UpdatedAt = paused, moment(t.at)
	t.writeWorkflow(w)
	return nil
}

// writeWorkflow replaces the row that an earlier change of the commit wrote.
func (t *tx) writeWorkflow(w *keep.Workflow) {
	t.drop(&putWorkflow)
	t.add(&putWorkflow, text(string(w.Name)), int64(w.Version.Major), int64(w.Version.Minor), w.Paused, millis(w.CreatedAt), millis(w.UpdatedAt))
}

const handlerColumns = `handler.workflow, handler.name, handler.kind, handler.idle_seq, handler.wake_at, handler.next_at,
	handler.requested_at, handler.last_run, handler.last_at`

var handlerFacts = `SELECT ` + handlerColumns + ` FROM ` + elements(`workflow text, name text`) + `
	  JOIN handler ON handler.workflow = v.workflow AND handler.name = v.name`

func (k *known) scanHandler(row pgx.CollectableRow) error {
	h, err := scanHandler(row)
	k.handlers[handlerKey{h.Workflow, h.Handler}] = &h
	return err
}

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

// putHandler writes a state. A request is cleared only by served: one that came
// after the run began must not get lost with the run's own commit.
func (t *tx) putHandler(h keep.HandlerState, served time.Time) error {
	if err := t.mine("handler", string(h.Handler), h.Workflow); err != nil {
		return err
	}
	key := handlerKey{t.workflow, h.Handler}
	h.RequestedAt = time.Time{}
	if old := t.handlers[key]; old != nil && millis(old.RequestedAt) > millis(served) {
		h.RequestedAt = old.RequestedAt
	}
	t.handlers[key] = &h
	t.handlerChanged(key)
	return nil
}

// requestRun asks for a run. The open run comes first: "not now" is true of every
// handler, whether it exists or not.
func (t *tx) requestRun(name keep.HandlerName) error {
	if open, isOpen := t.open[t.workflow]; isOpen {
		return fmt.Errorf("run %s now: %w: %s", name, keep.ErrRunOpen, open)
	}
	key := handlerKey{t.workflow, name}
	h := t.handlers[key]
	if h == nil {
		return &keep.NotFoundError{What: "handler", ID: string(name)}
	}
	h.RequestedAt = moment(t.at)
	t.handlerChanged(key)
	return nil
}

func (t *tx) handlerChanged(key handlerKey) {
	if t.handlerWrites == nil {
		t.handlerWrites = make(map[handlerKey]bool)
	}
	t.handlerWrites[key] = true
}

func (t *tx) writeHandlers() {
	for key := range sorted(t.handlerWrites, compareHandlers) {
		h := t.handlers[key]
		t.add(&putHandlers, text(string(h.Workflow)), text(string(h.Handler)), text(string(h.Kind)), h.IdleSeq, millis(h.WakeAt), millis(h.NextAt),
			millis(h.RequestedAt), text(string(h.LastRun)), millis(h.LastAt))
	}
}

// setKV sets or deletes one value. How large it may be is the engine's to say;
// Check reports what is over the limit.
func (t *tx) setKV(c keep.SetKV) {
	if t.kvWrites == nil {
		t.kvWrites = make(map[kvKey][]byte)
	}
	t.kvWrites[kvKey{handlerKey{t.workflow, c.Producer}, c.Key}] = c.Value
}

// resetKV deletes the whole checkpoint of a producer.
func (t *tx) resetKV(producer keep.HandlerName) {
	if t.kvResets == nil {
		t.kvResets = make(map[handlerKey]bool)
	}
	t.kvResets[handlerKey{t.workflow, producer}] = true
	maps.DeleteFunc(t.kvWrites, func(k kvKey, _ []byte) bool { return k.handler == producer })
}

var (
	resetKVs = statement{`DELETE FROM kv AS t USING unnest($1::text[], $2::text[]) AS v (workflow, producer)
		 WHERE t.workflow = v.workflow AND t.producer = v.producer`, []string{"text", "text"}}
	deleteKV = statement{`DELETE FROM kv AS t USING unnest($1::text[], $2::text[], $3::text[]) AS v (workflow, producer, key)
		 WHERE t.workflow = v.workflow AND t.producer = v.producer AND t.key = v.key`, []string{"text", "text", "text"}}
	putKV = insertInto("kv", `workflow text, producer text, key text, value bytea`,
		`ON CONFLICT (workflow, producer, key) DO UPDATE SET value = excluded.value`)
)

func (t *tx) writeKV() {
	for key := range sorted(t.kvResets, compareHandlers) {
		t.add(&resetKVs, text(string(key.workflow)), text(string(key.handler)))
	}
	for key, value := range sorted(t.kvWrites, compareKV) {
		row := []any{text(string(key.workflow)), text(string(key.handler)), text(key.key)}
		if value == nil {
			t.add(&deleteKV, row...)
		} else {
			t.add(&putKV, append(row, value)...)
		}
	}
}

// sorted yields a map in the order of its keys, so that the same commits always
// make the same statements, and two of them never lock rows in two orders.
func sorted[K comparable, V any](m map[K]V, compare func(a, b K) int) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, k := range slices.SortedFunc(maps.Keys(m), compare) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

func compareTopics(a, b topicKey) int {
	return cmp.Or(cmp.Compare(a.workflow, b.workflow), cmp.Compare(a.topic, b.topic))
}

func compareHandlers(a, b handlerKey) int {
	return cmp.Or(cmp.Compare(a.workflow, b.workflow), cmp.Compare(a.handler, b.handler))
}

func compareKV(a, b kvKey) int {
	return cmp.Or(compareHandlers(a.handlerKey, b.handlerKey), cmp.Compare(a.key, b.key))
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
		SELECT workflow, major, minor, hash, entry, definition, created_at, code, map
		  FROM deployment WHERE workflow = $1 AND major = $2 AND minor = $3`, w, v.Major, v.Minor)
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

// scanDeployment reads a deployment; lists select NULL for its code and map.
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

// Handlers returns the handler states of a workflow, sorted by name.
func (db *DB) Handlers(ctx context.Context, w keep.WorkflowName) ([]keep.HandlerState, error) {
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
	scan := func(row pgx.CollectableRow) (c keep.TopicCount, err error) {
		err = row.Scan(into(&c.Workflow), into(&c.Topic), &c.Pending, &c.Reserved, &c.Consumed, &c.Skipped)
		return c, err
	}
	const counts = `
		SELECT t.workflow, t.name, t.pending - r.reserved, r.reserved, t.consumed, t.skipped
		  FROM topic t, LATERAL (
			SELECT count(*) AS reserved FROM event e
			 WHERE e.workflow = t.workflow AND e.topic = t.name AND e.reserved_by > '' AND e.status = 'pending') r`
	if w == "" {
		return collect(ctx, db, scan, counts+` ORDER BY t.workflow, t.name`)
	}
	return collect(ctx, db, scan, counts+` WHERE t.workflow = $1 ORDER BY t.name`, w)
}
