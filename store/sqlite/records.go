package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/transfer"
)

// exports read the records of transfer.Kinds, in their order.
var exports = []func(context.Context, *sql.DB, func(transfer.Record) error) error{
	export(`SELECT `+workflowColumns+` FROM workflow`, scanWorkflow),
	export(`SELECT `+deploymentColumns+` FROM deployment ORDER BY n`, scanDeployment),
	export(`SELECT `+grantColumns+` FROM granted`, scanGrant),
	export(`SELECT `+proposalColumns+` FROM proposal`, scanProposal),
	export(topicCounts+`)`, scanTopic),
	export(`SELECT workflow, producer, key, value FROM kv`, func(row scanner) (v transfer.Value, err error) {
		err = row.Scan(&v.Workflow, &v.Producer, &v.Key, (*[]byte)(&v.SetKV.Value))
		return v, err
	}),
	export(`SELECT `+inputColumns+`, unfinished FROM input ORDER BY n`, func(row scanner) (in transfer.Input, err error) {
		in.Input, err = scanInput(wider{row, []any{&in.Unfinished}})
		return in, err
	}),
	export(`SELECT `+eventColumns+` FROM event ORDER BY seq`, scanEvent),
	export(`SELECT workflow, topic, message_id, chain FROM event_tried CROSS JOIN event ON seq = event`, func(row scanner) (l transfer.Tried, err error) {
		err = row.Scan(&l.Workflow, &l.Event.Topic, &l.Event.MessageID, &l.Chain)
		return l, err
	}),
	export(seen("handler", handlerColumns, "idle_seq", "idle_seq = 0"), func(row scanner) (h transfer.Handler, err error) {
		h.HandlerState, err = scanHandler(wider{row, []any{&h.Seen.Topic, &h.Seen.MessageID}})
		return h, err
	}),
	export(seen("run", runColumns, "seen_seq", "seen_seq = 0 OR closed = 1")+` ORDER BY n`, func(row scanner) (r transfer.Run, err error) {
		r.Run, err = scanRun(wider{row, []any{&r.Seen.Topic, &r.Seen.MessageID}})
		return r, err
	}),
	export(`SELECT run, l.at, l.level, l.text, l.place FROM run r CROSS JOIN run_log l ON l.run = r.id ORDER BY r.n, line`, scanLog),
	export(`SELECT r.id, p.at, p.data FROM run r CROSS JOIN run_trace p ON p.run = r.n ORDER BY r.n, p.n`, scanTrace),
	export(`SELECT `+itemColumns+` FROM item ORDER BY n`, scanItem),
	export(`SELECT `+mutationColumns+` FROM mutation ORDER BY n`, scanMutation),
	export(`SELECT `+moveColumns+`, m.key FROM mutation m CROSS JOIN mutation_history h ON h.mutation = m.n ORDER BY m.n, move`,
		func(row scanner) (m transfer.Move, err error) {
			m.Move, err = scanMove(wider{row, []any{&m.Mutation}})
			return m, err
		}),
	export(`SELECT `+escalationColumns+` FROM escalation ORDER BY n`, scanEscalation),
	export(`SELECT `+noticeColumns+` FROM notice`, scanNotice),
	export(`SELECT `+decisionColumns+` FROM decision ORDER BY n`, scanDecision),
	export(`SELECT `+keyColumns+`, header, body FROM idempotency_key ORDER BY n`, func(row scanner) (r key.Record, err error) {
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
func export[T any](query string, scan func(scanner) (T, error)) func(context.Context, *sql.DB, func(transfer.Record) error) error {
	return func(ctx context.Context, db *sql.DB, f func(transfer.Record) error) error {
		found, err := db.QueryContext(ctx, query)
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
		return errors.Join(found.Err(), found.Close())
	}
}

// seen returns a query for columns of a table, and for the newest event of the workflow
// that was there when the row had the number in column. What is over needs no more than
// the event itself, if it is still there.
func seen(table, columns, column, over string) string {
	event := func(name string) string {
		return `, ifnull((SELECT ` + name + ` FROM event e WHERE e.seq = s AND e.workflow = t.workflow), '')`
	}
	return `SELECT ` + columns + event("topic") + event("message_id") + ` FROM (
		SELECT *, CASE WHEN ` + over + ` THEN ` + column + ` ELSE coalesce(
			(SELECT seq FROM event x WHERE x.seq = ` + column + ` AND x.workflow = ` + table + `.workflow),
			(SELECT max(seq) FROM event x WHERE x.workflow = ` + table + `.workflow AND +x.seq <= ` + column + `)) END AS s
		  FROM ` + table + `) t`
}

// Records reads every noun; see transfer.Reader.
func (h *held) Records(ctx context.Context, f func(transfer.Record) error) error {
	for _, export := range exports {
		if err := export(ctx, h.db.read, f); err != nil {
			return err
		}
	}
	return nil
}

// A sink writes records as commits do.
type sink struct{ conn *conn }

// Add adds records; see transfer.Sink.
func (s sink) Add(ctx context.Context, records []transfer.Record) error {
	for _, r := range records {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := s.add(r); err != nil {
			return err
		}
	}
	return nil
}

// add adds a record as the commit did that made it, if it was new and had all its changes.
func (s sink) add(r transfer.Record) (err error) {
	t := &tx{conn: s.conn}
	made := commit.Row{New: true}
	switch r := r.(type) {
	case keep.Workflow:
		return t.writeWorkflow(&commit.Workflow{Row: made, Workflow: r})
	case keep.Deployment:
		t.workflow = r.Workflow
		return t.writeDeployment(r)
	case keep.Grant:
		return t.writeGrant(r)
	case keep.Proposal:
		return t.addProposal(r)
	case keep.TopicCount:
		t.workflow = r.Workflow
		return t.countTopic(commit.Topic{Name: r.Topic, Pending: r.Pending + r.Reserved, Consumed: r.Consumed, Skipped: r.Skipped})
	case transfer.Value:
		t.workflow = r.Workflow
		return t.writeKV(commit.KV{SetKV: r.SetKV})
	case transfer.Input:
		return t.writeInput(&commit.Input{Row: made, Workflow: r.Workflow, ID: r.ID, Put: r.Input, Skipped: r.Status == keep.InputSkipped, By: r.Unfinished})
	case keep.Event:
		return t.addEvent(&commit.Event{Row: made, EventKey: commit.EventKey{Workflow: r.Workflow, Topic: r.Topic, ID: r.MessageID},
			Status: r.Status, ReservedBy: r.ReservedBy, Causes: r.CausedBy, Redone: r.Redone, Put: &r})
	case transfer.Tried:
		n, err := t.number(r.Workflow, r.Event)
		return errors.Join(err, t.writeTried(commit.Tried{Event: &commit.Event{Row: commit.Row{N: n}}, Chain: r.Chain}))
	case transfer.Handler:
		r.IdleSeq, err = t.number(r.Workflow, r.Seen)
		return errors.Join(err, t.writeHandler(&commit.Handler{Row: made, HandlerState: r.HandlerState}))
	case transfer.Run:
		r.SeenSeq, err = t.number(r.Workflow, r.Seen)
		return errors.Join(err, t.writeRun(&commit.Run{Row: made, Put: &r.Run}))
	case keep.LogLine, keep.TracePart:
		return t.addOfRun(r)
	case keep.Item:
		return t.writeItem(&commit.Item{Row: made, Put: r})
	case keep.Mutation:
		return t.writeMutation(&commit.Mutation{Row: made, Put: &r})
	case transfer.Move:
		return t.writeMove(commit.Move{Mutation: &commit.Mutation{Put: &keep.Mutation{Key: r.Mutation}}, Move: r.Move})
	case keep.Escalation:
		e := &commit.Escalation{Row: made, Put: r, Closed: !r.ClosedAt.IsZero()}
		if r.Decision != nil {
			e.Decision = *r.Decision
		}
		t.at = millis(r.ClosedAt)
		return t.writeEscalation(e)
	case keep.Decided:
		return t.writeDecision(r)
	case keep.Notice:
		return t.writeNotice(&commit.Notice{Row: made, Notice: r})
	case key.Record:
		r.Rev--
		return insertKey(s.conn.exec, r)
	}
	return s.addBeside(r)
}

// addBeside adds a record that is written beside commits.
func (s sink) addBeside(r transfer.Record) error {
	switch r := r.(type) {
	case keep.Credential:
		return addCredential(s.conn, r)
	case keep.HookCount:
		return countHook(s.conn, r)
	case keep.Account:
		return put(s.conn, accounts, &r, true)
	case keep.Gate:
		return put(s.conn, gates, &r, true)
	case keep.Repair:
		return put(s.conn, repairs, &r, true)
	case keep.Counter:
		return addCounter(s.conn, r)
	}
	return errors.New("a record of an unknown kind")
}

// addOfRun adds what a run wrote beside its records.
func (t *tx) addOfRun(r transfer.Record) error {
	switch r := r.(type) {
	case keep.LogLine:
		return t.writeLog(r)
	case keep.TracePart:
		return t.writeTrace(r)
	}
	return errors.New("a record of an unknown kind")
}

// addEvent adds an event, and its causes by input.
func (t *tx) addEvent(e *commit.Event) error {
	err := t.writeEvent(e)
	for _, id := range e.Causes {
		if err == nil {
			err = t.writeCause(commit.Cause{Input: id, Event: e})
		}
	}
	return err
}

// number returns the number of an event; 0 if it is none.
func (t *tx) number(w keep.WorkflowName, e keep.EventRef) (int64, error) {
	row, err := t.row(`SELECT seq FROM event WHERE workflow = ? AND topic = ? AND message_id = ?`, w, e.Topic, e.MessageID)
	if err != nil || row == nil {
		return 0, err
	}
	return row[0].(int64), nil
}
