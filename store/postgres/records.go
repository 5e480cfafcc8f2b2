package postgres

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/internal/stored"
	"github.com/keep-run/keep/store/transfer"
)

// exports read the records of transfer.Kinds, in their order.
var exports = []func(context.Context, pgx.Tx, func(transfer.Record) error) error{
	export(`SELECT `+workflowColumns+` FROM workflow`, scanWorkflow),
	export(`SELECT `+deploymentColumns+` FROM deployment ORDER BY n, workflow`, scanDeployment),
	export(`SELECT `+grantColumns+` FROM granted`, scanGrant),
	export(`SELECT `+proposalColumns+` FROM proposal`, scanProposal),
	export(topicCounts, scanTopic),
	export(`SELECT workflow, producer, key, value FROM kv`, func(row pgx.CollectableRow) (v transfer.Value, err error) {
		err = row.Scan(into(&v.Workflow), into(&v.Producer), into(&v.Key), (*[]byte)(&v.SetKV.Value))
		return v, err
	}),
	export(`SELECT `+inputColumns+`, unfinished FROM input ORDER BY n, workflow`, func(row pgx.CollectableRow) (in transfer.Input, err error) {
		in.Input, err = scanInput(wider{row, []any{&in.Unfinished}})
		return in, err
	}),
	export(`SELECT `+eventColumns+` FROM event ORDER BY n, workflow`, readEvent),
	export(`SELECT e.workflow, e.topic, e.message_id, l.chain FROM event_tried l `+joinTried, func(row pgx.CollectableRow) (l transfer.Tried, err error) {
		err = row.Scan(into(&l.Workflow), into(&l.Event.Topic), into(&l.Event.MessageID), into(&l.Chain))
		return l, err
	}),
	export(seen("handler", handlerColumns, "handler.idle_seq", "handler.idle_seq = 0"), func(row pgx.CollectableRow) (h transfer.Handler, err error) {
		h.HandlerState, err = scanHandler(wider{row, []any{into(&h.Seen.Topic), into(&h.Seen.MessageID)}})
		return h, err
	}),
	export(seen("run", runColumns, "run.seen_seq", "run.seen_seq = 0 OR run.closed")+` ORDER BY run.n, run.workflow`,
		func(row pgx.CollectableRow) (r transfer.Run, err error) {
			r.Run, err = scanRun(wider{row, []any{into(&r.Seen.Topic), into(&r.Seen.MessageID)}})
			return r, err
		}),
	export(`SELECT `+logColumns+` FROM run JOIN run_log l ON l.workflow = run.workflow AND l.run = run.id ORDER BY run.n, run.workflow, l.n`, scanLog),
	export(`SELECT `+traceColumns+` FROM run JOIN run_trace p ON p.workflow = run.workflow AND p.run = run.id ORDER BY run.n, run.workflow, p.n`, scanTrace),
	export(`SELECT `+itemColumns+` FROM item ORDER BY n, workflow`, scanItem),
	export(`SELECT `+mutationColumns+` FROM mutation ORDER BY n, workflow`, scanMutation),
	export(`SELECT `+moveColumns+`, m.key FROM mutation m JOIN mutation_history h ON h.workflow = m.workflow AND h.mutation = m.n
		ORDER BY m.n, m.workflow, h.n`, func(row pgx.CollectableRow) (m transfer.Move, err error) {
		m.Move, err = scanMove(wider{row, []any{into(&m.Mutation)}})
		return m, err
	}),
	export(`SELECT `+escalationColumns+` FROM escalation ORDER BY n, workflow`, scanEscalation),
	export(`SELECT `+noticeColumns+` FROM notice JOIN escalation e ON e.workflow = notice.workflow AND e.n = notice.escalation`, scanNotice),
	export(`SELECT `+decisionColumns+` FROM decision ORDER BY n, workflow`, scanDecision),
	export(`SELECT `+keyColumns+`, header, body FROM idempotency_key ORDER BY n`, func(row pgx.CollectableRow) (r key.Record, err error) {
		err = scanKey(row, &r, &r.Answer.Header, &r.Answer.Body)
		return r, err
	}),
	export(`SELECT `+credentialColumns+` FROM credential ORDER BY n`, scanCredential),
	export(`SELECT `+hookColumns+` FROM hook`, scanHookCount),
	export(`SELECT `+accountColumns+` FROM account`, scanAccount),
	export(`SELECT `+gateColumns+` FROM gate`, scanGate),
	export(`SELECT `+repairColumns+` FROM repair`, scanRepair),
	export(`SELECT `+counterColumns+` FROM counter`, scanCounter),
}

// export returns a function that calls f with each row of a query.
func export[T any](query string, scan func(pgx.CollectableRow) (T, error)) func(context.Context, pgx.Tx, func(transfer.Record) error) error {
	return func(ctx context.Context, tx pgx.Tx, f func(transfer.Record) error) error {
		found, err := tx.Query(ctx, query)
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			v, err := scan(found)
			if err == nil {
				err = f(v)
			}
			if err != nil {
				return err
			}
		}
		return found.Err()
	}
}

// wider is a row with more columns than a scan function knows.
type wider struct {
	pgx.CollectableRow
	more []any
}

// Scan reads the row, and its last columns into more.
func (w wider) Scan(dest ...any) error { return w.CollectableRow.Scan(append(dest, w.more...)...) }

// seen returns a query for columns of a table, and for the newest event of the workflow
// that was there when the row had the number in column. What is over needs no more than
// the event itself, if it is still there.
func seen(table, columns, column, over string) string {
	return strings.NewReplacer("{table}", table, "{columns}", columns, "{n}", column, "{over}", over).Replace(`
		SELECT {columns}, coalesce(e.topic, ''), coalesce(e.message_id, '') FROM {table}
		  LEFT JOIN event e ON e.workflow = {table}.workflow AND e.n = CASE
			WHEN {over} THEN {n}
			ELSE coalesce((SELECT x.n FROM event x WHERE x.n = {n} AND x.workflow = {table}.workflow),
				(SELECT max(x.n) FROM event x WHERE x.workflow = {table}.workflow AND x.n <= {n})) END`)
}

// Records reads every noun; see transfer.Reader. A server that lost keys is not read: a copy would not know that.
func (h *held) Records(ctx context.Context, f func(transfer.Record) error) error {
	if err := keysLost(ctx, h.tx); err != nil {
		return err
	}
	for _, export := range exports {
		if err := export(ctx, h.tx, f); err != nil {
			return err
		}
	}
	return nil
}

// A sink writes records as commits do.
type sink struct {
	tx    pgx.Tx
	kind  int
	lease leaseFact // of every workflow, so that rows are numbered in the order in which they come
	last  int64     // highest number of all
	s     snapshot
}

func newSink(tx pgx.Tx) *sink {
	return &sink{tx: tx, s: snapshot{leases: make(map[keep.WorkflowName]*leaseFact), topics: make(map[topicKey]bool)}}
}

// Add adds records; see transfer.Sink.
func (s *sink) Add(ctx context.Context, records []transfer.Record) error {
	if kind := transfer.KindOf(records[0]); kind != s.kind {
		s.kind, s.lease.n = kind, 0 // numbers follow the time at which a row was made
	}
	of, err := s.references(ctx, records)
	if err != nil {
		return err
	}
	t, b := &tx{s: &s.s}, new(pgx.Batch)
	var keys []*key.Record
	for i, r := range records {
		switch r := r.(type) {
		case key.Record:
			r.Rev--
			keys = append(keys, &r)
		case keep.Credential:
			err = queueOne(b, insertCredential, stored.Credentials, &r)
		case keep.HookCount:
			err = queueOne(b, countHook, stored.Hooks, &r)
		case keep.Grant:
			err = t.writeGrant(r)
		case keep.Proposal:
			err = t.addProposal(r)
		case keep.Account:
			err = queueNew(b, accounts, &r)
		case keep.Gate:
			err = queueNew(b, gates, &r)
		case keep.Repair:
			err = queueNew(b, repairs, &r)
		case keep.Counter:
			err = queueOne(b, putCounter, stored.Counters, &r)
		default:
			err = s.put(t, r, of[i])
		}
		if err != nil {
			return err
		}
	}
	t.queue(b, order)
	if len(keys) > 0 {
		b.Queue(insertKeys, columnsOf(keys).args()...)
	}
	s.last = max(s.last, s.lease.n)
	return s.tx.SendBatch(ctx, b).Close()
}

// A reference is the row that a record belongs to, or the newest event that it has seen.
type reference struct {
	workflow keep.WorkflowName
	n        int64
}

// references returns that of each record; zero if it has none.
func (s *sink) references(ctx context.Context, records []transfer.Record) ([]reference, error) {
	join := ""
	var names [3][]string
	name := func(table string, list ...string) {
		join = table
		for i, v := range list {
			names[i] = append(names[i], text(v))
		}
	}
	for _, r := range records {
		switch r := r.(type) {
		case transfer.Tried:
			name(`event x ON x.workflow = v.a AND x.topic = v.b AND x.message_id = v.c`, string(r.Workflow), string(r.Event.Topic), string(r.Event.MessageID))
		case transfer.Handler:
			name(`event x ON x.workflow = v.a AND x.topic = v.b AND x.message_id = v.c`, string(r.Workflow), string(r.Seen.Topic), string(r.Seen.MessageID))
		case transfer.Run:
			name(`event x ON x.workflow = v.a AND x.topic = v.b AND x.message_id = v.c`, string(r.Workflow), string(r.Seen.Topic), string(r.Seen.MessageID))
		case keep.LogLine:
			name(`run x ON x.id = v.a`, string(r.Run), "", "")
		case keep.TracePart:
			name(`run x ON x.id = v.a`, string(r.Run), "", "")
		case transfer.Move:
			name(`mutation x ON x.key = v.a`, string(r.Mutation), "", "")
		case keep.Notice:
			name(`escalation x ON x.id = v.a`, string(r.Escalation), "", "")
		}
	}
	found := make([]reference, len(records))
	if join == "" {
		return found, nil
	}
	rows, err := s.tx.Query(ctx, `SELECT v.i, x.workflow, x.n FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS v (a, b, c, i) JOIN `+join,
		names[0], names[1], names[2])
	if err != nil {
		return nil, err
	}
	var i int
	var of reference
	_, err = pgx.ForEachRow(rows, []any{&i, into(&of.workflow), &of.n}, func() error { found[i-1] = of; return nil })
	return found, err
}

// put adds a record as the commit did that made it, if it was new and had all its changes.
func (s *sink) put(t *tx, r transfer.Record, of reference) error {
	in := func(w keep.WorkflowName) { t.workflow, s.s.leases[w] = w, &s.lease }
	in(of.workflow)
	made := commit.Row{New: true}
	switch r := r.(type) {
	case keep.Workflow:
		in(r.Name)
		t.writeWorkflow(&commit.Workflow{Workflow: r})
		return nil
	case keep.Deployment:
		in(r.Workflow)
		t.at = millis(r.CreatedAt)
		return t.writeDeployment(r)
	case keep.TopicCount:
		in(r.Workflow)
		return t.countTopic(commit.Topic{Name: r.Topic, Pending: r.Pending + r.Reserved, Consumed: r.Consumed, Skipped: r.Skipped})
	case transfer.Value:
		in(r.Workflow)
		t.writeKV([]commit.KV{{SetKV: r.SetKV}})
		return nil
	case transfer.Input:
		in(r.Workflow)
		t.at = millis(r.CreatedAt)
		return t.writeInput(&commit.Input{Row: made, Workflow: r.Workflow, ID: r.ID, Put: r.Input, Skipped: r.Status == keep.InputSkipped, By: r.Unfinished})
	case keep.Event:
		in(r.Workflow)
		t.at = millis(r.CreatedAt)
		return t.addEvent(&commit.Event{Row: made, EventKey: commit.EventKey{Workflow: r.Workflow, Topic: r.Topic, ID: r.MessageID},
			Status: r.Status, ReservedBy: r.ReservedBy, Causes: r.CausedBy, Redone: r.Redone, Put: &r})
	case transfer.Tried:
		in(r.Workflow)
		return t.writeTried(commit.Tried{Event: &commit.Event{Row: commit.Row{N: of.n}, EventKey: commit.EventKey{Topic: r.Event.Topic}}, Chain: r.Chain})
	case transfer.Handler:
		in(r.Workflow)
		r.IdleSeq = of.n
		return t.writeHandler(&commit.Handler{Row: made, HandlerState: r.HandlerState})
	case transfer.Run:
		in(r.Workflow)
		t.at, r.SeenSeq = millis(r.CreatedAt), of.n
		return t.writeRun(&commit.Run{Row: made, Put: &r.Run})
	case keep.LogLine, keep.TracePart:
		return t.addAppended(r)
	case keep.Decided:
		in(r.About.Workflow)
		return t.addAppended(r)
	case keep.Item:
		in(r.Workflow)
		t.at = millis(r.CreatedAt)
		return t.writeItem(&commit.Item{Row: made, Put: r})
	case keep.Mutation:
		in(r.Workflow)
		t.at = millis(r.CreatedAt)
		return t.writeMutation(&commit.Mutation{Row: made, Put: &r})
	case transfer.Move:
		t.at = millis(r.At)
		return t.writeMove(commit.Move{Mutation: &commit.Mutation{Row: commit.Row{N: of.n}}, Move: r.Move})
	case keep.Escalation:
		in(r.Workflow)
		return t.addEscalation(r, made)
	case keep.Notice:
		return t.addNotice(r, of.n)
	}
	return errors.New("a record of an unknown kind")
}

// addNotice adds a notice of the question in a row.
func (t *tx) addNotice(n keep.Notice, question int64) error {
	t.s.Escalations = commit.Table[keep.EscalationID, *commit.Escalation]{}
	t.s.Escalations.Put(n.Escalation, &commit.Escalation{Row: commit.Row{N: question}})
	return t.writeNotice(&commit.Notice{Row: commit.Row{New: true}, Notice: n})
}

// addAppended adds what is only appended: what a run wrote beside its records, or what a person decided.
func (t *tx) addAppended(r transfer.Record) error {
	switch r := r.(type) {
	case keep.LogLine:
		t.at = millis(r.At)
		return t.writeLog(r)
	case keep.TracePart:
		t.at = millis(r.At)
		return t.writeTrace(r)
	case keep.Decided:
		t.at = millis(r.Decision.At)
		return t.writeDecision(r)
	}
	return errors.New("a record of an unknown kind")
}

// addEvent adds an event, and its causes by input.
func (t *tx) addEvent(e *commit.Event) error {
	err := t.writeEvent(e)
	for _, id := range e.Causes {
		err = errors.Join(err, t.writeCause(commit.Cause{Input: id, Event: e}))
	}
	return err
}

// addEscalation adds a question, and its end.
func (t *tx) addEscalation(e keep.Escalation, made commit.Row) error {
	t.at = millis(e.CreatedAt)
	if err := t.writeEscalation(&commit.Escalation{Row: made, Put: e}); err != nil || e.ClosedAt.IsZero() {
		return err
	}
	end := &commit.Escalation{Put: e, Closed: true}
	if e.Decision != nil {
		end.Decision = *e.Decision
	}
	t.at = millis(e.ClosedAt)
	return t.writeEscalation(end)
}

// finish makes the leases, which no host has.
func (s *sink) finish(ctx context.Context) error {
	_, err := s.tx.Exec(ctx, `
		INSERT INTO lease (workflow, n, deployed)
		SELECT name, $2, EXISTS (SELECT 1 FROM workflow WHERE workflow.name = v.name) FROM unnest($1::text[]) AS v (name)`,
		texts(slices.Collect(maps.Keys(s.s.leases))), s.last)
	if err != nil {
		return err
	}
	_, err = s.tx.Exec(ctx, `UPDATE topic AS t SET unread = NOT unread WHERE EXISTS (SELECT 1 FROM workflow w WHERE w.name = t.workflow) AND unread = `+isRead)
	return err
}
