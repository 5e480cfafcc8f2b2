package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
)

// An eventFact is what must be known of an event, and what is to be written.
type eventFact struct {
	key         eventKey
	n           int64
	status      keep.EventStatus
	reservedBy  keep.RunID
	causes      []keep.InputID
	made        bool       // by this commit
	republished bool       // payload and causes changed
	dirty       bool       // status or reservedBy changed, or made
	put         keep.Event // if made or republished
}

func (e *eventFact) free() bool { return e.status == keep.EventPending && e.reservedBy == "" }

var eventFacts = `SELECT e.workflow, e.topic, e.message_id, e.n, e.status, e.reserved_by, e.caused_by
	  FROM ` + elements(`workflow text, topic text, message_id text`) + `
	  JOIN event e ON e.workflow = v.workflow AND e.topic = v.topic AND e.message_id = v.message_id`

func (k *known) scanEvent(row pgx.CollectableRow) error {
	_, err := k.readEvent(row)
	return err
}

// heldFacts looks in the index of chains, and then at the rest: OFFSET keeps the
// planner from looking among all that is pending.
var heldFacts = `SELECT e.workflow, e.topic, e.message_id, e.n, e.status, e.reserved_by, e.caused_by
	  FROM ` + elements(`workflow text, chain text`) + `,
	       LATERAL (SELECT * FROM event WHERE reserved_by = v.chain AND reserved_by <> '' OFFSET 0) e
	 WHERE e.workflow = v.workflow AND e.status = 'pending'`

// scanHeld reads an event that a chain holds. A commit that both releases and
// finishes a chain asks for it twice.
func (k *known) scanHeld(row pgx.CollectableRow) error {
	e, err := k.readEvent(row)
	if err != nil {
		return err
	}
	chain := chainKey{e.key.workflow, e.reservedBy}
	if !slices.Contains(k.held[chain], e) {
		k.held[chain] = append(k.held[chain], e)
	}
	return nil
}

func (k *known) readEvent(row pgx.CollectableRow) (*eventFact, error) {
	e := new(eventFact)
	var causes string
	err := row.Scan(into(&e.key.workflow), into(&e.key.topic), into(&e.key.id), &e.n, into(&e.status), into(&e.reservedBy), &causes)
	if err != nil {
		return nil, err
	}
	if known := k.events[e.key]; known != nil {
		return known, nil
	}
	k.events[e.key] = e
	if e.causes, err = decodeCauses(causes); err != nil {
		return nil, fmt.Errorf("event %d: read causes: %w", e.n, err)
	}
	return e, nil
}

var topicFacts = `SELECT t.workflow, t.name FROM ` + elements(`workflow text, name text`) + `
	  JOIN topic t ON t.workflow = v.workflow AND t.name = v.name`

func (k *known) scanTopic(row pgx.CollectableRow) error {
	var key topicKey
	err := row.Scan(into(&key.workflow), into(&key.topic))
	k.topics[key] = true
	return err
}

func (t *tx) eventKey(topic keep.TopicName, id keep.MessageID) eventKey {
	return eventKey{topicKey{t.workflow, topic}, id}
}

// reserve pins events one by one, so an event that is listed twice is refused the
// second time.
func (t *tx) reserve(c keep.Reserve) error {
	if c.Chain == "" {
		return fmt.Errorf("reserve in %q: chain required", c.Topic)
	}
	for _, id := range c.IDs {
		e := t.events[t.eventKey(c.Topic, id)]
		if e == nil || !e.free() {
			return whyNotFree(e, c.Topic, id)
		}
		e.reservedBy = c.Chain
		changed(&t.eventWrites, e, &e.dirty)
		chain := chainKey{t.workflow, c.Chain}
		if !slices.Contains(t.held[chain], e) {
			t.held[chain] = append(t.held[chain], e)
		}
	}
	return nil
}

// whyNotFree explains why an event could be neither reserved nor skipped.
func whyNotFree(e *eventFact, topic keep.TopicName, id keep.MessageID) error {
	why := "unknown"
	switch {
	case e == nil:
	case e.status == keep.EventPending:
		why = "reserved"
	default:
		why = string(e.status)
	}
	return &keep.ReservationError{Topic: topic, ID: id, Why: why}
}

// holds returns the pending events of a chain.
func (t *tx) holds(chain keep.RunID) (list []*eventFact) {
	for _, e := range t.held[chainKey{t.workflow, chain}] {
		if e.status == keep.EventPending && e.reservedBy == chain && chain != "" {
			list = append(list, e)
		}
	}
	return list
}

// release gives back what the chain holds.
func (t *tx) release(chain keep.RunID) {
	for _, e := range t.holds(chain) {
		e.reservedBy = ""
		changed(&t.eventWrites, e, &e.dirty)
	}
}

// finish gives the events that the chain holds their last status, and tells the
// topics and the inputs that wait for them. The chain's name stays on the events.
func (t *tx) finish(c keep.Finish) error {
	if c.Status != keep.EventConsumed && c.Status != keep.EventSkipped {
		return fmt.Errorf("finish %s: %q is not a last status", c.Chain, c.Status)
	}
	for _, e := range t.holds(c.Chain) {
		t.end(e, c.Status)
	}
	return nil
}

// end gives a pending event its last status.
func (t *tx) end(e *eventFact, status keep.EventStatus) {
	e.status = status
	changed(&t.eventWrites, e, &e.dirty)
	d := topicDelta{pending: -1, consumed: 1}
	if status == keep.EventSkipped {
		d = topicDelta{pending: -1, skipped: 1}
	}
	t.count(e.key.topic, d)
	for _, id := range e.causes {
		t.countInput(id, -1)
	}
}

// skipEvents skips events that nobody touched.
func (t *tx) skipEvents(c keep.SkipEvents) error {
	for _, id := range c.IDs {
		e := t.events[t.eventKey(c.Topic, id)]
		if e == nil || !e.free() {
			return whyNotFree(e, c.Topic, id)
		}
		t.end(e, keep.EventSkipped)
	}
	return nil
}

// publish adds an event, or gives the one of that name that nobody touched the
// later payload, and the later causes besides its own: their inputs wait for it,
// too.
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
		if in := t.inputs[id]; in == nil || in.key.workflow != t.workflow {
			return &keep.NotFoundError{What: "input", ID: string(id)}
		}
	}
	key := t.eventKey(e.Topic, e.MessageID)
	old := t.events[key]
	switch {
	case old == nil:
		old = &eventFact{key: key, n: t.next(), status: keep.EventPending, made: true, put: e}
		t.events[key] = old
		t.count(e.Topic, topicDelta{pending: 1})
	case !old.free():
		return nil
	default:
		if createdBy := old.put.CreatedBy; old.made {
			e.CreatedBy = createdBy
		}
		old.put, old.republished = e, true
	}
	changed(&t.eventWrites, old, &old.dirty)
	t.cause(old, causes)
	return nil
}

var insertCause = insertInto("event_cause", `workflow text, input text, event bigint, topic text`, "")

// cause makes inputs wait for an event, those that do not yet.
func (t *tx) cause(e *eventFact, causes []keep.InputID) {
	for _, id := range causes {
		if slices.Contains(e.causes, id) {
			continue
		}
		e.causes = append(e.causes, id)
		t.add(&insertCause, text(string(t.workflow)), text(string(id)), e.n, text(string(e.key.topic)))
		t.countInput(id, +1)
	}
	slices.Sort(e.causes)
}

var (
	insertEvent = insertInto("event", `workflow text, topic text, n bigint, message_id text, status text, reserved_by text,
		created_by text, created_at bigint, updated_at bigint, caused_by text, payload bytea?`, "")
	updateEvent    = updateOf("event", `workflow text, topic text, n bigint`, `status text, reserved_by text, updated_at bigint`)
	republishEvent = updateOf("event", `workflow text, topic text, n bigint`, `caused_by text, payload bytea?`)
)

func (t *tx) writeEvent(e *eventFact) {
	key := []any{text(string(e.key.workflow)), text(string(e.key.topic)), e.n}
	if e.made {
		t.add(&insertEvent, append(key, text(string(e.key.id)), string(e.status), text(string(e.reservedBy)),
			text(string(e.put.CreatedBy)), t.at, t.at, encodeCauses(e.causes), []byte(e.put.Payload))...)
		return
	}
	t.add(&updateEvent, append(slices.Clone(key), string(e.status), text(string(e.reservedBy)), t.at)...)
	if e.republished {
		t.add(&republishEvent, append(key, encodeCauses(e.causes), []byte(e.put.Payload))...)
	}
}

// A topicDelta is how one commit changes the counts of a topic.
type topicDelta struct{ pending, consumed, skipped int64 }

// count adds to what the commit changes in a topic.
func (t *tx) count(topic keep.TopicName, d topicDelta) {
	if t.topicWrites == nil {
		t.topicWrites = make(map[topicKey]topicDelta)
	}
	key := topicKey{t.workflow, topic}
	was := t.topicWrites[key]
	t.topicWrites[key] = topicDelta{was.pending + d.pending, was.consumed + d.consumed, was.skipped + d.skipped}
}

var (
	insertTopic = insertInto("topic", `workflow text, name text`, "ON CONFLICT DO NOTHING")
	countTopic  = over(`UPDATE topic AS t
		   SET pending = t.pending + v.pending, consumed = t.consumed + v.consumed, skipped = t.skipped + v.skipped
		  FROM %s WHERE t.workflow = v.workflow AND t.name = v.name`,
		`workflow text, name text, pending bigint, consumed bigint, skipped bigint`)
)

// writeTopics writes the counts that changed, in a fixed order.
func (t *tx) writeTopics() {
	for key, d := range sorted(t.topicWrites, compareTopics) {
		if d == (topicDelta{}) {
			continue
		}
		if !t.topics[key] && d.pending+d.consumed+d.skipped > 0 { // it has a new event
			t.declare(key)
		}
		t.add(&countTopic, text(string(key.workflow)), text(string(key.topic)), d.pending, d.consumed, d.skipped)
	}
}

// declare makes the row of a topic.
func (t *tx) declare(key topicKey) {
	t.topics[key] = true
	t.add(&insertTopic, text(string(key.workflow)), text(string(key.topic)))
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

// eventColumns are in the order of keep.Event, but for JSON.
const eventColumns = `event.n, event.workflow, event.topic, event.message_id, event.status, event.reserved_by,
	event.created_by, event.created_at, event.updated_at, event.caused_by, event.payload`

// readEvent reads eventColumns.
func readEvent(row pgx.CollectableRow) (keep.Event, error) { return scanEvent(row) }

// scanEvent reads eventColumns, and those after them into more.
func scanEvent(row pgx.CollectableRow, more ...any) (e keep.Event, err error) {
	var created, updated int64
	var causes string
	err = row.Scan(append([]any{&e.Seq, into(&e.Workflow), into(&e.Topic), into(&e.MessageID), into(&e.Status), into(&e.ReservedBy), into(&e.CreatedBy),
		&created, &updated, &causes, (*[]byte)(&e.Payload)}, more...)...)
	if err != nil {
		return e, err
	}
	e.CreatedAt, e.UpdatedAt = moment(created), moment(updated)
	if e.CausedBy, err = decodeCauses(causes); err != nil {
		return e, fmt.Errorf("event %d: read causes: %w", e.Seq, err)
	}
	return e, nil
}

// scanEventAt is scanEvent with the place of the event in lists.
func scanEventAt(row pgx.CollectableRow) (p placed[keep.Event], err error) {
	p.what, err = scanEvent(row)
	p.n, p.workflow = p.what.Seq, p.what.Workflow
	return p, err
}
