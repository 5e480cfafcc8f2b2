package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/store/internal/stored"
)

// writeEvent writes a row of a plan. It leaves out what didn't change: an index is
// rewritten for each of its columns that is set, also to the same value. An event that
// was not read is reserved if it is free.
func (t *tx) writeEvent(e *commit.Event) (err error) {
	n := int64(1)
	var redone any
	if len(e.Redone) > 0 {
		text, err := stored.Encode(&e.Redone)
		if err != nil {
			return err
		}
		redone = string(text)
	}
	switch {
	case e.New:
		n, e.N, err = t.insert(`
			INSERT INTO event (workflow, topic, message_id, status, reserved_by, created_by, created_at, updated_at, caused_by, redone, payload)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			e.Workflow, e.Topic, e.ID, e.Status, e.ReservedBy, e.Put.CreatedBy, e.Put.CreatedAt, e.Put.UpdatedAt, encodeCauses(e.Causes), redone, e.Put.Payload)
		return written("event", e.ID, n, err)
	case e.N == 0:
		n, err = t.exec(`
			UPDATE event SET reserved_by = ?1, updated_at = ?2
			 WHERE workflow = ?3 AND topic = ?4 AND message_id = ?5 AND status = 'pending' AND reserved_by = ''
			   AND (redone IS NULL AND ?6 = 1 OR redone IS NOT NULL AND json_array_length(redone) = ?6 - 1)`,
			e.ReservedBy, t.at, e.Workflow, e.Topic, e.ID, e.Attempt)
	case e.Redo:
		n, err = t.exec(`UPDATE event SET status = ?, reserved_by = ?, redone = ?, updated_at = ? WHERE seq = ?`, e.Status, e.ReservedBy, redone, t.at, e.N)
	case e.Moved:
		n, err = t.exec(`UPDATE event SET status = ?, reserved_by = ?, updated_at = ? WHERE seq = ?`, e.Status, e.ReservedBy, t.at, e.N)
	case e.Status != keep.EventPending:
		n, err = t.exec(`UPDATE event SET status = ?, updated_at = ? WHERE seq = ?`, e.Status, t.at, e.N)
	}
	if err == nil && n == 1 && e.Republished {
		n, err = t.exec(`UPDATE event SET payload = ?, caused_by = ?, updated_at = ? WHERE seq = ?`,
			e.Put.Payload, encodeCauses(e.Causes), t.at, e.N)
	}
	return written("event", e.ID, n, err)
}

// writeCause makes an input wait for an event.
func (t *tx) writeCause(c commit.Cause) error {
	n, err := t.exec(`INSERT INTO event_cause (input, event) VALUES (?, ?)`, c.Input, c.Event.N)
	return written("cause", c.Input, n, err)
}

// writeTried links an event with a chain that gave it back.
func (t *tx) writeTried(l commit.Tried) error {
	_, err := t.exec(`INSERT INTO event_tried (event, chain) VALUES (?, ?) ON CONFLICT DO NOTHING`, l.Event.N, l.Chain)
	return err
}

// countTopic adds to the counts of a topic. The insert comes only where a topic was
// never declared: CHECKs see the row before the conflict is solved.
func (t *tx) countTopic(by commit.Topic) error {
	if by.Pending == 0 && by.Consumed == 0 && by.Skipped == 0 {
		return nil
	}
	n, err := t.exec(`
		UPDATE topic SET pending = pending + ?, consumed = consumed + ?, skipped = skipped + ?
		 WHERE workflow = ? AND name = ?`,
		by.Pending, by.Consumed, by.Skipped, t.workflow, by.Name)
	if err == nil && n == 0 {
		n, err = t.exec(`INSERT INTO topic (workflow, name, pending, consumed, skipped, unread) VALUES (?, ?, ?, ?, ?, ?)`,
			t.workflow, by.Name, by.Pending, by.Consumed, by.Skipped, by.Unread)
	}
	return written("topic", by.Name, n, err)
}

// flipTopic makes the inputs of a topic's free events wait for them, or wait no more.
func (t *tx) flipTopic(f commit.Flip) error {
	by := 1
	if f.Unread {
		by = -1
	}
	_, err := t.exec(`-- of a deploy
		UPDATE input SET unfinished = unfinished + c.n,
		       status = CASE WHEN status = 'skipped' THEN 'skipped' WHEN unfinished + c.n > 0 THEN 'pending' ELSE 'done' END
		  FROM (SELECT j.value AS id, ?3 * count(*) AS n FROM event e INDEXED BY event_free, json_each(e.caused_by) j
		         WHERE e.workflow = ?1 AND e.topic = ?2 AND e.reserved_by = '' AND e.status = 'pending' GROUP BY j.value) c
		 WHERE input.id = c.id`, t.workflow, f.Topic, by)
	if err == nil {
		_, err = t.exec(`UPDATE topic SET unread = ? WHERE workflow = ? AND name = ?`, f.Unread, t.workflow, f.Topic)
	}
	return err
}

// encodeCauses returns a JSON array. It is written by hand where it can be: most
// events have one cause, whose id needs no escapes.
func encodeCauses(causes []keep.InputID) string {
	switch {
	case len(causes) == 0:
		return `[]`
	case len(causes) == 1 && plain(string(causes[0])):
		return `["` + string(causes[0]) + `"]`
	}
	text, err := json.Marshal(causes)
	if err != nil {
		panic(err) // strings always encode
	}
	return string(text)
}

// plain reports whether s is the same inside a JSON string.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// decodeCauses is the opposite of encodeCauses.
func decodeCauses(text string) (causes []keep.InputID, err error) {
	if text == `[]` {
		return nil, nil
	}
	if id := text[2:max(2, len(text)-2)]; text == `["`+id+`"]` && plain(id) {
		return []keep.InputID{keep.InputID(id)}, nil
	}
	err = json.Unmarshal([]byte(text), &causes)
	return causes, err
}

// Backlog describes the free events in the given topics.
func (db *DB) Backlog(ctx context.Context, w keep.WorkflowName, topics []keep.TopicName) (b keep.Backlog, err error) {
	var oldest int64
	for _, topic := range topics {
		var first, last sql.NullInt64
		err := db.row(ctx, `
			SELECT (SELECT seq FROM event WHERE workflow = ?1 AND topic = ?2 AND reserved_by = '' AND status = 'pending' ORDER BY seq LIMIT 1),
			       (SELECT seq FROM event WHERE workflow = ?1 AND topic = ?2 AND reserved_by = '' AND status = 'pending' ORDER BY seq DESC LIMIT 1)`,
			[]any{w, topic}, &first, &last)
		if err != nil {
			return b, fmt.Errorf("read backlog of %q: %w", topic, err)
		}
		if first.Valid && (oldest == 0 || first.Int64 < oldest) {
			oldest = first.Int64
		}
		b.Newest = max(b.Newest, last.Int64)
	}
	if oldest != 0 {
		b.Oldest, err = one(ctx, db, "event", "", scanEvent, `SELECT `+eventColumns+` FROM event WHERE seq = ?`, oldest)
	}
	return b, err
}

// Peek returns up to limit free events of a topic, oldest first.
func (db *DB) Peek(ctx context.Context, w keep.WorkflowName, t keep.TopicName, limit int) ([]keep.Event, error) {
	return rows(ctx, db, scanEvent, `
		SELECT `+eventColumns+` FROM event
		 WHERE workflow = ? AND topic = ? AND reserved_by = '' AND status = 'pending'
		 ORDER BY seq LIMIT ?`, w, t, max(limit, 0))
}

// FreeAfter returns up to limit free events of the topics after a place, oldest first.
func (db *DB) FreeAfter(ctx context.Context, w keep.WorkflowName, topics []keep.TopicName, after int64, limit int) ([]keep.Event, error) {
	var all []keep.Event
	for _, topic := range topics {
		some, err := rows(ctx, db, scanEvent, `
			SELECT `+eventColumns+` FROM event
			 WHERE workflow = ? AND topic = ? AND reserved_by = '' AND status = 'pending' AND seq > ?
			 ORDER BY seq LIMIT ?`, w, topic, after, max(limit, 0))
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b keep.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	return all[:min(len(all), max(limit, 0))], nil
}

// EventsByID returns those of the named events that exist, in the order of ids,
// whatever their status.
func (db *DB) EventsByID(ctx context.Context, w keep.WorkflowName, t keep.TopicName, ids []keep.MessageID) ([]keep.Event, error) {
	names, err := json.Marshal(ids)
	if err != nil {
		return nil, err
	}
	found, err := rows(ctx, db, scanEvent, `
		SELECT `+eventColumns+`
		  FROM (SELECT value FROM json_each(?3)) CROSS JOIN event
		 WHERE workflow = ?1 AND topic = ?2 AND message_id = value`, w, t, string(names))
	if err != nil {
		return nil, err
	}
	byID := make(map[keep.MessageID]keep.Event, len(found))
	for _, e := range found {
		byID[e.MessageID] = e
	}
	var list []keep.Event
	for _, id := range ids {
		if e, ok := byID[id]; ok {
			list = append(list, e)
		}
	}
	return list, nil
}

// Event returns an event, or *keep.NotFoundError.
func (db *DB) Event(ctx context.Context, w keep.WorkflowName, t keep.TopicName, id keep.MessageID) (keep.Event, error) {
	return one(ctx, db, "event", string(id), scanEvent, `
		SELECT `+eventColumns+` FROM event WHERE workflow = ? AND topic = ? AND message_id = ?`, w, t, id)
}

var (
	eventColumns = stored.Events.Columns("")
	scanEvent    = scanOf(stored.Events)
)
