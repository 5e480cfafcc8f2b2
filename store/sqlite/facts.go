package sqlite

import (
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/store/internal/stored"
)

// What a commit must know is read by one statement for each record: a commit has few,
// and a statement that is prepared costs a few microseconds. Only what the law looks at
// is selected. The names of columns here and in the statements that write are all that
// connects a field of the law to the file.

// read puts what a commit must know into a snapshot.
func (t *tx) read(s *commit.Snapshot, r commit.ReadSet) error {
	var err error
	if r.Open {
		err = t.each(`SELECT id, lane FROM run WHERE workflow = ? AND closed = 0`, []any{t.workflow}, func(row []driver.Value) error {
			s.Open.Put(commit.LaneKey{Workflow: t.workflow, Lane: name[keep.Lane](row[1])}, keep.RunID(row[0].(string)))
			return nil
		})
	}
	if r.Workflow && err == nil {
		err = t.readWorkflow(s)
	}
	if r.Proposal && err == nil {
		err = t.readProposals(s)
	}
	err = readAll(t, s, err, r.Runs, (*tx).readRun)
	err = readAll(t, s, err, r.Mutations, (*tx).readMutation)
	if r.AllTopics && err == nil {
		err = t.each(`SELECT name, unread FROM topic WHERE workflow = ?`, []any{t.workflow}, func(row []driver.Value) error {
			s.Unread.Put(commit.TopicKey{Workflow: t.workflow, Topic: keep.TopicName(row[0].(string))}, number(row[1]) != 0)
			return nil
		})
	}
	err = readAll(t, s, err, r.Topics, (*tx).readTopic)
	err = readAll(t, s, err, r.Unlike, (*tx).readRivals)
	err = readAll(t, s, err, r.Setting, (*tx).readSetting)
	if since, some := r.SpentSince(moment(t.at)); some && err == nil {
		err = t.readSpending(s, since, r.Within)
	}
	err = readAll(t, s, err, r.Events, (*tx).readEvent)
	err = readAll(t, s, err, r.Held, (*tx).readHeld)
	err = readAll(t, s, err, r.Inputs, (*tx).readInput)
	err = readAll(t, s, err, r.NewInputs, (*tx).readNewInput)
	err = readAll(t, s, err, r.Items, (*tx).readItem)
	err = readAll(t, s, err, r.Escalations, (*tx).readEscalation)
	err = readAll(t, s, err, r.Notices, (*tx).readNotices)
	err = readAll(t, s, err, r.Handlers, (*tx).readHandler)
	err = readAll(t, s, err, r.KVs, (*tx).readKV)
	err = readAll(t, s, err, r.Sweeps, (*tx).readChain)
	if err != nil {
		return fmt.Errorf("read what the commit must know: %w", err)
	}
	return nil
}

// readAll calls read with each name of a list, until there is an error.
func readAll[T any](t *tx, s *commit.Snapshot, err error, list []T, read func(*tx, *commit.Snapshot, T) error) error {
	for _, name := range list {
		if err != nil {
			return err
		}
		err = read(t, s, name)
	}
	return err
}

// The functions below read one record each. One that does not exist is not put into the
// snapshot.

func (t *tx) readWorkflow(s *commit.Snapshot) error {
	row, err := t.row(`SELECT major, minor, paused, pause_note, granted, created_at, updated_at FROM workflow WHERE name = ?`, t.workflow)
	if row != nil {
		s.Workflows.Put(t.workflow, &commit.Workflow{Workflow: keep.Workflow{
			Name: t.workflow, Version: keep.Version{Major: number(row[0]), Minor: number(row[1])}, Paused: number(row[2]) != 0,
			PauseNote: row[3].(string), Granted: number(row[4]), CreatedAt: moment(row[5].(int64)), UpdatedAt: moment(row[6].(int64)),
		}})
	}
	return err
}

// readTopic reads whether anybody reads a topic. One that has no row was declared by no
// version.
func (t *tx) readTopic(s *commit.Snapshot, topic keep.TopicName) error {
	key := commit.TopicKey{Workflow: t.workflow, Topic: topic}
	if s.Unread.Has(key) {
		return nil
	}
	row, err := t.row(`SELECT unread FROM topic WHERE workflow = ? AND name = ?`, t.workflow, topic)
	if row == nil && err == nil {
		row, err = t.row(`SELECT count(*) FROM workflow WHERE name = ?`, t.workflow)
	}
	if err == nil {
		s.Unread.Put(key, number(row[0]) != 0)
	}
	return err
}

func (t *tx) readRun(s *commit.Snapshot, id keep.RunID) error {
	row, err := t.row(`SELECT workflow, chain, handler, kind, rev FROM run WHERE id = ?`, id)
	if row != nil {
		s.Runs.Put(id, &commit.Run{Workflow: name[keep.WorkflowName](row[0]), Chain: name[keep.RunID](row[1]),
			Handler: name[keep.HandlerName](row[2]), Kind: name[keep.Kind](row[3]), Rev: number(row[4])})
	}
	return err
}

func (t *tx) readMutation(s *commit.Snapshot, key keep.MutationKey) error {
	row, err := t.row(`SELECT n, workflow, tool, item, attempt, rev FROM mutation WHERE key = ?`, key)
	if row != nil {
		s.Mutations.Put(key, &commit.Mutation{Row: commit.Row{N: row[0].(int64)}, Workflow: name[keep.WorkflowName](row[1]),
			Tool: name[keep.ToolName](row[2]), Item: row[3].(string), Attempt: number(row[4]), Rev: number(row[5])})
	}
	return err
}

// sameIdentity finds the records of a tool and an identity that may have had their effect.
// The index has the beginning of the identity.
const sameIdentity = ` FROM mutation INDEXED BY mutation_by_identity
	 WHERE tool = ?1 AND substr(identity, 1, 64) = substr(?2, 1, 64) AND identity = ?2 AND subkey = ?3
	   AND state <> 'failed' AND state <> 'skipped' ORDER BY n`

// readRivals reads what may keep a call from being made. There is one writer, so nobody
// else adds one before this commit is written.
func (t *tx) readRivals(s *commit.Snapshot, u keep.Unlike) error {
	for _, tool := range u.Tools {
		k := commit.IdentityKey{Tool: tool, Identity: string(u.Identity), Subkey: u.Subkey}
		err := t.each(`SELECT key`+sameIdentity, []any{tool, k.Identity, k.Subkey}, func(row []driver.Value) error {
			s.AddRival(k, name[keep.MutationKey](row[0]))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mayBar finds the records of a tool and an identity that may keep a keep.Setting from being committed: those whose outcome is open, among
// all that are, those that failed after a doubt and were made or changed later than it is now, at ?4, as when the clock was set back, and, only for a call in doubt that
// was made at ?3, the others that were made since, among all of the identity.
const mayBar = ` FROM mutation WHERE n IN (
	SELECT n FROM mutation INDEXED BY mutation_by_state
	 WHERE state IN ('in_flight', 'needs_reconcile', 'indeterminate') AND state <> 'applied' AND tool = ?1 AND identity = ?2
	UNION ALL
	SELECT n FROM mutation INDEXED BY mutation_failed_after_doubt
	 WHERE state = 'failed' AND doubted = 1 AND max(created_at, updated_at) > ?4 AND tool = ?1 AND identity = ?2
	UNION ALL
	SELECT n FROM mutation INDEXED BY mutation_by_identity
	 WHERE ?3 <> 0 AND tool = ?1 AND substr(identity, 1, 64) = substr(?2, 1, 64) AND identity = ?2
	   AND state <> 'failed' AND (created_at >= ?3 OR attempts > 1 AND updated_at >= ?3))`

// readSetting reads what may be in the way of a call that sets something.
func (t *tx) readSetting(s *commit.Snapshot, c keep.Setting) error {
	for _, tool := range c.Tools {
		k := commit.SettingKey{Tool: tool, Identity: string(c.Identity)}
		err := t.each(`SELECT key, payload_hash, state, attempts, created_at, updated_at, next_reconcile_at, call_deadline, doubted`+mayBar, []any{tool, k.Identity, millis(c.Since), t.at}, func(row []driver.Value) error {
			s.AddSetting(k, keep.Mutation{Key: name[keep.MutationKey](row[0]), PayloadHash: row[1].(string), State: name[keep.MutationState](row[2]), Attempts: number(row[3]),
				CreatedAt: moment(row[4].(int64)), UpdatedAt: moment(row[5].(int64)), NextReconcileAt: moment(row[6].(int64)), CallDeadline: moment(row[7].(int64)), Doubted: number(row[8]) != 0})
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eventFacts are what the law knows of an event.
const eventFacts = `SELECT seq, topic, message_id, status, reserved_by, caused_by, redone FROM event`

func (t *tx) readEvent(s *commit.Snapshot, ref keep.EventRef) error {
	return t.addEvents(s, eventFacts+` WHERE workflow = ? AND topic = ? AND message_id = ?`, t.workflow, ref.Topic, ref.MessageID)
}

// readHeld reads the pending events of a chain. The query names its index: with
// event_reserved SQLite would walk over all that is reserved in the workflow.
func (t *tx) readHeld(s *commit.Snapshot, chain keep.RunID) error {
	return t.addEvents(s, eventFacts+` INDEXED BY event_by_chain
		 WHERE reserved_by = ? AND reserved_by <> '' AND status = 'pending' AND workflow = ?`, chain, t.workflow)
}

// addEvents adds the events of a query.
func (t *tx) addEvents(s *commit.Snapshot, query string, args ...any) error {
	return t.each(query, args, func(row []driver.Value) error {
		causes, err := decodeCauses(row[5].(string))
		if err == nil {
			err = t.readTopic(s, name[keep.TopicName](row[1]))
		}
		var redone []keep.Redo
		if err == nil {
			err = stored.JSON{Part: &redone}.Scan(row[6])
		}
		s.AddEvent(&commit.Event{
			Row:      commit.Row{N: row[0].(int64)},
			EventKey: commit.EventKey{Workflow: t.workflow, Topic: name[keep.TopicName](row[1]), ID: name[keep.MessageID](row[2])},
			Status:   name[keep.EventStatus](row[3]), ReservedBy: name[keep.RunID](row[4]), Causes: causes, Redone: redone,
		})
		return err
	})
}

// readInput reads whose an input is. The id alone finds it, also in another workflow: an
// event may not be caused by what belongs to another one.
func (t *tx) readInput(s *commit.Snapshot, id keep.InputID) error {
	if s.Inputs.Get(id) != nil {
		return nil
	}
	row, err := t.row(`SELECT workflow, unfinished FROM input WHERE id = ?`, id)
	if row != nil {
		s.Inputs.Put(id, &commit.Input{Workflow: name[keep.WorkflowName](row[0]), ID: id, Unfinished: number(row[1])})
	}
	return err
}

// readNewInput reads the input that has the id or the key of a new one.
func (t *tx) readNewInput(s *commit.Snapshot, in keep.Input) error {
	const facts = `SELECT id, workflow, source, type, external_id, unfinished FROM input `
	add := func(row []driver.Value) error {
		s.AddInput(&commit.Input{Workflow: name[keep.WorkflowName](row[1]), ID: name[keep.InputID](row[0]), Unfinished: number(row[5])}, commit.InputKey{
			Workflow: name[keep.WorkflowName](row[1]), Source: row[2].(string), Type: row[3].(string), ExternalID: row[4].(string)})
		return nil
	}
	return errors.Join(
		t.each(facts+`WHERE id = ?`, []any{in.ID}, add),
		t.each(facts+`WHERE workflow = ? AND source = ? AND type = ? AND external_id = ?`,
			[]any{in.Workflow, in.Source, in.Type, in.ExternalID}, add))
}

func (t *tx) readItem(s *commit.Snapshot, id string) error {
	row, err := t.row(`SELECT rev, status, attempt, swept FROM item WHERE workflow = ? AND id = ?`, t.workflow, id)
	if row != nil {
		s.Items.Put(commit.ItemKey{Workflow: t.workflow, ID: id},
			&commit.Item{Rev: number(row[0]), Status: name[keep.ItemStatus](row[1]), Attempt: number(row[2]), Swept: number(row[3])})
	}
	return err
}

func (t *tx) readEscalation(s *commit.Snapshot, id keep.EscalationID) error {
	row, err := t.row(`SELECT workflow, closed_at = 0 FROM escalation WHERE id = ?`, id)
	if row != nil {
		s.Escalations.Put(id, &commit.Escalation{Workflow: name[keep.WorkflowName](row[0]), Open: number(row[1]) != 0})
	}
	return err
}

// readNotices reads all notices of a question: who closes it cancels those that are
// pending, whatever their sinks.
func (t *tx) readNotices(s *commit.Snapshot, id keep.EscalationID) error {
	return t.each(`
		SELECT sink, status, attempts, next_at, error, updated_at, rev FROM notice
		 WHERE escalation = (SELECT n FROM escalation WHERE id = ?)`, []any{id}, func(row []driver.Value) error {
		n := keep.Notice{Escalation: id, Sink: name[keep.Sink](row[0]), Status: name[keep.NoticeStatus](row[1]), Attempts: number(row[2]),
			NextAt: moment(row[3].(int64)), Error: row[4].(string), UpdatedAt: moment(row[5].(int64)), Rev: number(row[6])}
		s.Notices.Put(commit.NoticeKey{Escalation: id, Sink: n.Sink}, &commit.Notice{Notice: n})
		return nil
	})
}

func (t *tx) readHandler(s *commit.Snapshot, handler keep.HandlerName) error {
	row, err := t.row(`SELECT kind, idle_seq, wake_at, next_at, requested_at, last_run, last_at FROM handler WHERE workflow = ? AND name = ?`,
		t.workflow, handler)
	if row != nil {
		h := keep.HandlerState{Workflow: t.workflow, Handler: handler, Kind: name[keep.Kind](row[0]), IdleSeq: row[1].(int64),
			WakeAt: moment(row[2].(int64)), NextAt: moment(row[3].(int64)), RequestedAt: moment(row[4].(int64)),
			LastRun: name[keep.RunID](row[5]), LastAt: moment(row[6].(int64))}
		s.Handlers.Put(commit.HandlerKey{Workflow: t.workflow, Handler: handler}, &commit.Handler{HandlerState: h, Was: h.RequestedAt})
	}
	return err
}

func (t *tx) readKV(s *commit.Snapshot, c keep.IfKV) error {
	row, err := t.row(`SELECT value FROM kv WHERE workflow = ? AND producer = ? AND key = ?`, t.workflow, c.Producer, c.Key)
	if row != nil {
		s.KVs.Put(commit.KVKey{Workflow: t.workflow, Producer: c.Producer, Key: c.Key}, json.RawMessage(row[0].(string)))
	}
	return err
}

// readChain asks whether a chain is over. That takes a join over all that belongs to it,
// so it is the one precondition that SQL judges; see over.
func (t *tx) readChain(s *commit.Snapshot, c keep.Sweep) error {
	row, err := t.row(`SELECT r.workflow, `+over+` FROM run r WHERE r.id = ?2 AND r.chain = ?2`, millis(c.Before), c.Chain)
	if row != nil {
		s.Chains.Put(c.Chain, &commit.Chain{Workflow: name[keep.WorkflowName](row[0]), Over: number(row[1]) == 1})
	}
	return err
}

// number and name return what the driver read as what it is.
func number(v driver.Value) int { return int(v.(int64)) }

func name[S ~string](v driver.Value) S { return S(v.(string)) }
