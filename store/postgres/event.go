package postgres

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/law/search"
	"github.com/keep-run/keep/store/internal/stored"
)

var insertCause = insertInto("event_cause", `workflow text, input text, event bigint, topic text`, "")

// writeCause makes an input wait for an event.
func (t *tx) writeCause(c commit.Cause) error {
	t.add(&insertCause, text(string(t.workflow)), text(string(c.Input)), c.Event.N, text(string(c.Event.Topic)))
	return nil
}

var (
	insertEvent = insertInto("event", `workflow text, topic text, n bigint, message_id text, status text, reserved_by text,
		created_by text, created_at bigint, updated_at bigint, caused_by text, redone text?, payload bytea?, words words?`, "")
	updateEvent    = updateOf("event", `workflow text, topic text, n bigint`, `status text, reserved_by text, updated_at bigint`)
	redoEvent      = updateOf("event", `workflow text, topic text, n bigint`, `redone text?`)
	republishEvent = updateOf("event", `workflow text, topic text, n bigint`, `caused_by text, payload bytea?`)
)

// writeEvent writes a row of a plan.
func (t *tx) writeEvent(e *commit.Event) error {
	if e.New {
		e.N = t.next()
	}
	key := []any{text(string(e.Workflow)), text(string(e.Topic)), e.N}
	redone, err := encodeRedone(e.Redone)
	if err != nil {
		return err
	}
	if e.New {
		t.add(&insertEvent, append(key, text(string(e.ID)), string(e.Status), text(string(e.ReservedBy)),
			text(string(e.Put.CreatedBy)), millis(e.Put.CreatedAt), millis(e.Put.UpdatedAt), encodeCauses(e.Causes), redone, []byte(e.Put.Payload), words(search.OfEvent(*e.Put)))...)
		return nil
	}
	t.add(&updateEvent, append(slices.Clone(key), string(e.Status), text(string(e.ReservedBy)), t.at)...)
	if e.Redo {
		t.add(&redoEvent, append(slices.Clone(key), redone)...)
	}
	if e.Republished {
		t.add(&republishEvent, append(key, encodeCauses(e.Causes), []byte(e.Put.Payload))...)
	}
	return nil
}

var insertTried = insertInto("event_tried", `workflow text, topic text, event bigint, chain text`, "ON CONFLICT DO NOTHING")

// writeTried links an event with a chain that gave it back.
func (t *tx) writeTried(l commit.Tried) error {
	t.add(&insertTried, text(string(t.workflow)), text(string(l.Event.Topic)), l.Event.N, text(string(l.Chain)))
	return nil
}

var (
	insertTopic = insertInto("topic", `workflow text, name text, unread boolean`, "ON CONFLICT DO NOTHING")
	flipTopic   = updateOf("topic", `workflow text, name text`, `unread boolean`)
	flipInputs  = literal(`UPDATE input AS t
		   SET unfinished = t.unfinished + c.n,
		       status = CASE WHEN t.status = 'skipped' THEN 'skipped' WHEN t.unfinished + c.n > 0 THEN 'pending' ELSE 'done' END
		  FROM (SELECT j.id, sum(v.by) AS n FROM unnest($1::text[], $2::text[], $3::bigint[]) AS v (workflow, topic, by)
		          JOIN event e ON e.workflow = v.workflow AND e.topic = v.topic AND e.reserved_by = '' AND e.status = 'pending',
		               json_array_elements_text(e.caused_by::json) AS j (id)
		         GROUP BY j.id) c WHERE t.id = c.id`, "text", "text", "bigint")
	countTopic = over(`UPDATE topic AS t
		   SET pending = t.pending + v.pending, consumed = t.consumed + v.consumed, skipped = t.skipped + v.skipped
		  FROM %s WHERE t.workflow = v.workflow AND t.name = v.name`,
		`workflow text, name text, pending bigint, consumed bigint, skipped bigint`)
)

// countTopic adds to the counts of a topic, which is declared if it never was.
func (t *tx) countTopic(by commit.Topic) error {
	if by.Pending == 0 && by.Consumed == 0 && by.Skipped == 0 {
		return nil
	}
	if by.Pending+by.Consumed+by.Skipped > 0 { // it has a new event
		t.declare(by.Name, by.Unread)
	}
	t.add(&countTopic, text(string(t.workflow)), text(string(by.Name)), int64(by.Pending), int64(by.Consumed), int64(by.Skipped))
	return nil
}

// declare makes the row of a topic, if there is none.
func (t *tx) declare(topic keep.TopicName, unread bool) {
	if key := (topicKey{t.workflow, topic}); !t.s.topics[key] {
		t.s.topics[key] = true
		t.add(&insertTopic, text(string(t.workflow)), text(string(topic)), unread)
	}
}

// flipTopic makes the inputs of a topic's free events wait for them, or wait no more.
func (t *tx) flipTopic(f commit.Flip) error {
	by := int64(1)
	if f.Unread {
		by = -1
	}
	t.add(&flipInputs, text(string(t.workflow)), text(string(f.Topic)), by)
	t.add(&flipTopic, text(string(t.workflow)), text(string(f.Topic)), f.Unread)
	return nil
}

// encodeCauses returns a JSON array, whose texts are as columns have them.
func encodeCauses(causes []keep.InputID) string {
	if len(causes) == 0 {
		return `[]`
	}
	stored, err := json.Marshal(texts(causes))
	if err != nil {
		panic(err) // strings always encode
	}
	return string(stored)
}

// decodeCauses is the opposite of encodeCauses.
func decodeCauses(stored string) (causes []keep.InputID, err error) {
	if stored == `[]` {
		return nil, nil
	}
	err = json.Unmarshal([]byte(stored), &causes)
	for i, id := range causes {
		causes[i] = keep.InputID(plain(string(id)))
	}
	return causes, err
}

// Backlog describes the free events in the given topics. Those that are reserved
// are few, and among the oldest: they are stepped over.
func (db *DB) Backlog(ctx context.Context, w keep.WorkflowName, topics []keep.TopicName) (b keep.Backlog, err error) {
	if len(topics) == 0 {
		return b, nil
	}
	list, err := collect(ctx, db, func(row pgx.CollectableRow) (b keep.Backlog, err error) {
		b.Oldest, err = scanEvent(row, &b.Newest)
		return b, err
	}, `
		SELECT `+eventColumns+`, (
			SELECT last.n FROM unnest($2::text[]) AS v (topic), LATERAL (
				SELECT n FROM event WHERE workflow = $1 AND topic = v.topic AND status = 'pending' AND reserved_by = ''
				 ORDER BY n DESC LIMIT 1) last
			 ORDER BY last.n DESC LIMIT 1)
		  FROM unnest($2::text[]) AS v (topic), LATERAL (
			SELECT * FROM event WHERE workflow = $1 AND topic = v.topic AND status = 'pending' AND reserved_by = ''
			 ORDER BY n LIMIT 1) event
		 ORDER BY event.n LIMIT 1`, w, texts(topics))
	if err != nil || len(list) == 0 {
		return b, err
	}
	return list[0], nil
}

// Peek returns up to limit free events of a topic, oldest first.
func (db *DB) Peek(ctx context.Context, w keep.WorkflowName, t keep.TopicName, limit int) ([]keep.Event, error) {
	return collect(ctx, db, readEvent, `
		SELECT `+eventColumns+` FROM event
		 WHERE workflow = $1 AND topic = $2 AND status = 'pending' AND reserved_by = ''
		 ORDER BY n LIMIT $3`, w, t, max(limit, 0))
}

// FreeAfter returns up to limit free events of the topics after a place, oldest first.
func (db *DB) FreeAfter(ctx context.Context, w keep.WorkflowName, topics []keep.TopicName, after int64, limit int) ([]keep.Event, error) {
	return collect(ctx, db, readEvent, `
		SELECT `+eventColumns+`
		  FROM unnest($2::text[]) AS v (topic), LATERAL (
			SELECT * FROM event WHERE workflow = $1 AND topic = v.topic AND status = 'pending' AND reserved_by = '' AND n > $3
			 ORDER BY n LIMIT $4) event
		 ORDER BY event.n LIMIT $4`, w, texts(topics), after, max(limit, 0))
}

// EventsByID returns those of the named events that exist, in the order of ids,
// whatever their status.
func (db *DB) EventsByID(ctx context.Context, w keep.WorkflowName, t keep.TopicName, ids []keep.MessageID) ([]keep.Event, error) {
	return collect(ctx, db, readEvent, `
		SELECT `+eventColumns+` FROM unnest($3::text[]) WITH ORDINALITY AS v (id, place)
		  JOIN event ON workflow = $1 AND topic = $2 AND message_id = v.id
		 ORDER BY v.place`, w, t, texts(ids))
}

// Event returns an event, or *keep.NotFoundError.
func (db *DB) Event(ctx context.Context, w keep.WorkflowName, t keep.TopicName, id keep.MessageID) (keep.Event, error) {
	return one(ctx, db, "event", string(id), readEvent, `
		SELECT `+eventColumns+` FROM event WHERE workflow = $1 AND topic = $2 AND message_id = $3`, w, t, id)
}

// eventRow is an event without its number, which the table has as n.
var (
	eventRow     = stored.Events.Without("seq")
	eventColumns = `event.n, ` + eventRow.Columns("event.")
	bareEvents   = `event.n, ` + eventRow.Bare("event.", "NULL::bytea")
	readEvent    = scanOf(stored.Events)
)

// scanEvent reads eventColumns, and those after them into more.
func scanEvent(row pgx.CollectableRow, more ...any) (e keep.Event, err error) {
	return readEvent(wider{row, more})
}

// scanEventAt is readEvent with the place of the event in lists.
func scanEventAt(row pgx.CollectableRow) (p placed[keep.Event], err error) {
	p.what, err = readEvent(row)
	p.n, p.workflow = p.what.Seq, p.what.Workflow
	return p, err
}
