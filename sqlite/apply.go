package sqlite

import (
	"fmt"

	"github.com/keep-run/keep"
)

// A tx is one commit under way, inside its savepoint. It adds up how counts
// change, so that what cancels out, such as an event consumed and one published
// for the same input, costs no write.
type tx struct {
	*conn
	workflow keep.WorkflowName
	at       int64
	inputs   map[keep.InputID]int          // change in unfinished events
	topics   map[keep.TopicName]topicDelta // change in counts
}

// apply makes the changes of one commit, in their order.
func apply(conn *conn, c keep.Commit) error {
	if err := c.Sound(); err != nil {
		return err
	}
	t := &tx{conn: conn, workflow: c.Workflow, at: millis(c.At)}
	for _, change := range c.Changes {
		if err := t.apply(change); err != nil {
			return err
		}
		conn.unindexed += titles(change)
	}
	if err := t.countInputs(); err != nil {
		return err
	}
	return t.countTopics()
}

// apply makes one change. What it refuses is said at the types in keep.
func (t *tx) apply(change keep.Change) error {
	switch c := change.(type) {
	case keep.PutRun:
		return t.putRun(c.Run)
	case keep.PutMutation:
		return t.putMutation(c.Mutation, c.Moves)
	case keep.Reserve:
		return t.reserve(c)
	case keep.Release:
		return t.release(c.Chain)
	case keep.Finish:
		return t.finish(c)
	case keep.Publish:
		return t.publish(c.Event)
	case keep.SkipEvents:
		return t.skipEvents(c)
	case keep.PutInput:
		return t.putInput(c.Input)
	case keep.SkipInput:
		return t.skipInput(c.Input)
	case keep.SetKV:
		return t.setKV(c)
	case keep.ResetKV:
		return t.resetKV(c.Producer)
	case keep.PutHandler:
		return t.putHandler(c.State, millis(c.Served))
	case keep.RequestRun:
		return t.requestRun(c.Handler)
	case keep.Deploy:
		return t.deploy(c.Deployment)
	case keep.SetPaused:
		return t.setPaused(c.Paused)
	case keep.AppendLogs:
		return t.appendLogs(c.Lines)
	case keep.OpenEscalation:
		return t.openEscalation(c.Escalation)
	case keep.CloseEscalation:
		return t.closeEscalation(c)
	case keep.PutNotice:
		return t.putNotice(c.Notice)
	case keep.PutItem:
		return t.putItem(c.Item)
	case keep.Sweep:
		return t.sweep(c)
	}
	return fmt.Errorf("unknown change %T", change)
}

// titles returns how many titles a change may bring, or take away.
func titles(change keep.Change) int {
	switch c := change.(type) {
	case keep.PutRun:
		return min(len(c.Run.Title), 1)
	case keep.PutMutation:
		return min(len(c.Mutation.Title), 1)
	case keep.PutInput:
		return min(len(c.Input.Title), 1)
	case keep.PutItem:
		return min(len(c.Item.Title), 1)
	case keep.Sweep:
		return 2 // those of a run and its mutation go
	}
	return 0
}

// mine refuses a record of another workflow than the commit's: nothing else
// keeps one workflow from writing what belongs to another.
func (t *tx) mine(what, id string, w keep.WorkflowName) error {
	if w != t.workflow {
		return fmt.Errorf("%s %s belongs to workflow %q", what, id, w)
	}
	return nil
}

// exists reports whether a query returns a row.
func (t *tx) exists(sql string, args ...any) (bool, error) {
	row, err := t.row(sql, args...)
	return row != nil, err
}
