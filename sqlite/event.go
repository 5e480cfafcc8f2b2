package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/keep-run/keep"
)

// A topicDelta is how one commit changes the counts of a topic.
type topicDelta struct{ pending, consumed, skipped int }

// count adds to what the commit changes in a topic.
func (t *tx) count(topic keep.TopicName, d topicDelta) {
	if t.topics == nil {
		t.topics = make(map[keep.TopicName]topicDelta)
	}
	was := t.topics[topic]
	t.topics[topic] = topicDelta{was.pending + d.pending, was.consumed + d.consumed, was.skipped + d.skipped}
}

// countTopics writes the counts that changed. The insert comes first only where
// a topic was never declared: CHECKs see the row before the conflict is solved.
func (t *tx) countTopics() error {
	for topic, d := range t.topics {
		if d == (topicDelta{}) {
			continue
		}
		n, err := t.exec(`
			UPDATE topic
			   SET pending = pending + ?, consumed = consumed + ?, skipped = skipped + ?
			 WHERE workflow = ? AND name = ?`,
			d.pending, d.consumed, d.skipped, t.workflow, topic)
		if err == nil && n == 0 {
			_, err = t.exec(`INSERT INTO topic (workflow, name, pending, consumed, skipped) VALUES (?, ?, ?, ?, ?)`,
				t.workflow, topic, d.pending, d.consumed, d.skipped)
		}
		if err != nil {
			return fmt.Errorf("count topic %q: %w", topic, err)
		}
	}
	return nil
}

// reserve pins events one by one: each UPDATE is a compare-and-set, so an event
// that is listed twice is refused the second time.
func (t *tx) reserve(c keep.Reserve) error {
	if c.Chain == "" {
		return fmt.Errorf("reserve in %q: chain required", c.Topic)
	}
	for _, id := range c.IDs {
		n, err := t.exec(`
			UPDATE event SET reserved_by = ?, updated_at = ?
			 WHERE workflow = ? AND topic = ? AND message_id = ? AND status = 'pending' AND reserved_by = ''`,
			c.Chain, t.at, t.workflow, c.Topic, id)
		if err == nil && n == 0 {
			err = t.whyNotFree(c.Topic, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// whyNotFree explains why an event could be neither reserved nor skipped.
func (t *tx) whyNotFree(topic keep.TopicName, id keep.MessageID) error {
	row, err := t.row(`SELECT status FROM event WHERE workflow = ? AND topic = ? AND message_id = ?`, t.workflow, topic, id)
	if err != nil {
		return err
	}
	why := "unknown"
	if row != nil {
		if why = row[0].(string); why == string(keep.EventPending) {
			why = "reserved"
		}
	}
	return &keep.ReservationError{Topic: topic, ID: id, Why: why}
}

// release gives back what the chain holds. The statement names its index: with
// another, SQLite would collect the rows in a table first.
func (t *tx) release(chain keep.RunID) error {
	_, err := t.exec(`
		UPDATE event INDEXED BY event_by_chain SET reserved_by = '', updated_at = ?
		 WHERE reserved_by = ? AND reserved_by <> '' AND status = 'pending' AND workflow = ?`,
		t.at, chain, t.workflow)
	if err != nil {
		return fmt.Errorf("release events of %s: %w", chain, err)
	}
	return nil
}

// finish gives the events that the chain holds their last status, and tells the
// topics and the inputs that wait for them. The chain's name stays on the events.
func (t *tx) finish(c keep.Finish) error {
	d := topicDelta{pending: -1, consumed: 1}
	switch c.Status {
	case keep.EventConsumed:
	case keep.EventSkipped:
		d = topicDelta{pending: -1, skipped: 1}
	default:
		return fmt.Errorf("finish %s: %q is not a last status", c.Chain, c.Status)
	}
	// One statement with RETURNING would make a table, each time.
	var held [][]driver.Value
	err := t.rows(`
		SELECT seq, topic, caused_by FROM event INDEXED BY event_by_chain
		 WHERE reserved_by = ? AND reserved_by <> '' AND status = 'pending' AND workflow = ?`,
		[]any{c.Chain, t.workflow}, func(row []driver.Value) { held = append(held, row) })
	for _, row := range held {
		if err == nil {
			_, err = t.exec(`UPDATE event SET status = ?, updated_at = ? WHERE seq = ?`, c.Status, t.at, row[0])
		}
		if err == nil {
			err = t.countCauses(row[2].(string), -1)
		}
		t.count(keep.TopicName(row[1].(string)), d)
	}
	if err != nil {
		return fmt.Errorf("finish events of %s: %w", c.Chain, err)
	}
	return nil
}

// skipEvents skips events that nobody touched.
func (t *tx) skipEvents(c keep.SkipEvents) error {
	for _, id := range c.IDs {
		row, err := t.row(`
			UPDATE event SET status = 'skipped', updated_at = ?
			 WHERE workflow = ? AND topic = ? AND message_id = ? AND status = 'pending' AND reserved_by = ''
			RETURNING caused_by`,
			t.at, t.workflow, c.Topic, id)
		if err == nil && row == nil {
			err = t.whyNotFree(c.Topic, id)
		}
		if err == nil {
			err = t.countCauses(row[0].(string), -1)
		}
		if err != nil {
			return err
		}
	}
	t.count(c.Topic, topicDelta{pending: -len(c.IDs), skipped: len(c.IDs)})
	return nil
}

// publish adds an event, or gives the one of that name the later payload. The
// insert comes first, without a look: most message ids are new.
func (t *tx) publish(e keep.Event) error {
	if err := t.mine("event", string(e.MessageID), e.Workflow); err != nil {
		return err
	}
	if err := e.MessageID.Validate(); err != nil {
		return err
	}
	if e.Topic == "" {
		return fmt.Errorf("event %q: topic required", e.MessageID)
	}
	causes := slices.Clone(e.CausedBy)
	slices.Sort(causes)
	causes = slices.Compact(causes)
	for _, id := range causes {
		if err := t.knowInput(id); err != nil {
			return err
		}
	}
	n, seq, err := t.insert(`
		INSERT INTO event (workflow, topic, message_id, status, created_by, created_at, updated_at, caused_by, payload)
		VALUES (?, ?, ?, 'pending', ?, ?, ?, ?, ?)
		ON CONFLICT (workflow, topic, message_id) DO NOTHING`,
		e.Workflow, e.Topic, e.MessageID, e.CreatedBy, t.at, t.at, encodeCauses(causes), e.Payload)
	switch {
	case err != nil:
	case n == 0:
		err = t.publishAgain(e, causes)
	default:
		t.count(e.Topic, topicDelta{pending: 1})
		err = t.addCauses(seq, causes)
	}
	if err != nil {
		return fmt.Errorf("publish %q in %q: %w", e.MessageID, e.Topic, err)
	}
	return nil
}

// publishAgain gives an event that nobody touched the later payload, and adds
// the later causes to its own: their inputs wait for this event, too.
func (t *tx) publishAgain(e keep.Event, causes []keep.InputID) error {
	row, err := t.row(`
		UPDATE event SET payload = ?, updated_at = ?
		 WHERE workflow = ? AND topic = ? AND message_id = ? AND status = 'pending' AND reserved_by = ''
		RETURNING seq, caused_by`,
		e.Payload, t.at, e.Workflow, e.Topic, e.MessageID)
	if err != nil || row == nil {
		return err
	}
	seq := row[0].(int64)
	known, err := decodeCauses(row[1].(string))
	if err != nil {
		return err
	}
	added := slices.DeleteFunc(causes, func(id keep.InputID) bool { return slices.Contains(known, id) })
	if len(added) == 0 {
		return nil
	}
	all := slices.Sorted(slices.Values(append(known, added...)))
	if _, err := t.exec(`UPDATE event SET caused_by = ? WHERE seq = ?`, encodeCauses(all), seq); err != nil {
		return err
	}
	return t.addCauses(seq, added)
}

// addCauses makes inputs wait for an event.
func (t *tx) addCauses(seq int64, causes []keep.InputID) error {
	for _, id := range causes {
		if _, err := t.exec(`INSERT INTO event_cause (input, event) VALUES (?, ?)`, id, seq); err != nil {
			return err
		}
		t.countInput(id, +1)
	}
	return nil
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

// eventColumns are in the order of the table; the payload is last.
const eventColumns = `seq, workflow, topic, message_id, status, reserved_by, created_by, created_at, updated_at, caused_by, payload`

// scanEvent reads eventColumns.
func scanEvent(row *sql.Rows) (e keep.Event, err error) {
	var created, updated int64
	var causes string
	err = row.Scan(&e.Seq, &e.Workflow, &e.Topic, &e.MessageID, &e.Status, &e.ReservedBy, &e.CreatedBy,
		&created, &updated, &causes, (*[]byte)(&e.Payload))
	if err != nil {
		return e, err
	}
	e.CreatedAt, e.UpdatedAt = moment(created), moment(updated)
	if e.CausedBy, err = decodeCauses(causes); err != nil {
		return e, fmt.Errorf("event %d: read causes: %w", e.Seq, err)
	}
	return e, nil
}
