package sqlite

import (
	"errors"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
)

// errUnexpected says that a commit was decided on what it expects, and found something
// else. The writer does it again, on what is there.
var errUnexpected = errors.New("a row is not what was expected")

// A tx is one commit under way.
type tx struct {
	*conn
	workflow keep.WorkflowName
	at       int64

	newRun  keep.RunID // that it wrote last, and its row
	newRunN int64
}

// apply reads what a commit must know, has it decided, and writes the plan. Nearly all
// commits find what they expect, so little is read: each statement compares what it
// replaces. If that fails, or the law refuses the commit, it is done again by a conn
// that reads all.
func apply(conn *conn, c keep.Commit) error {
	s, reads := commit.Expect(c)
	if conn.readAll {
		s, reads = new(commit.Snapshot), commit.Reads(c)
	}
	t := &tx{conn: conn, workflow: c.Workflow, at: millis(c.At)}
	if err := t.read(s, reads); err != nil {
		return err
	}
	plan, err := s.Decide(c)
	switch {
	case err != nil && !conn.readAll:
		return fmt.Errorf("%w: %w", errUnexpected, err)
	case err != nil:
		return err
	}
	for _, change := range c.Changes {
		conn.unindexed += searched(change)
	}
	return t.write(plan)
}

// write writes the rows of a plan.
func (t *tx) write(p *commit.Plan) error {
	err := all(t, nil, p.Verify, (*tx).verifyInput)
	err = all(t, err, p.Flips, (*tx).flipTopic)
	if p.Workflow != nil && err == nil {
		err = t.writeWorkflow(p.Workflow)
	}
	err = all(t, err, p.Deployments, (*tx).writeDeployment)
	err = all(t, err, p.Grants, (*tx).writeGrant)
	err = all(t, err, p.Proposals, (*tx).writeProposal)
	err = all(t, err, p.Inputs, (*tx).writeInput)
	err = all(t, err, p.Runs, (*tx).writeRun)
	err = all(t, err, p.Logs, (*tx).writeLog)
	err = all(t, err, p.Traces, (*tx).writeTrace)
	err = all(t, err, p.Decisions, (*tx).writeDecision)
	err = all(t, err, p.Items, (*tx).writeItem)
	err = all(t, err, p.Mutations, (*tx).writeMutation)
	err = all(t, err, p.Moves, (*tx).writeMove)
	err = all(t, err, p.Events, (*tx).writeEvent)
	err = all(t, err, p.Causes, (*tx).writeCause)
	err = all(t, err, p.Tried, (*tx).writeTried)
	err = all(t, err, p.Topics, (*tx).countTopic)
	err = all(t, err, p.Handlers, (*tx).writeHandler)
	err = all(t, err, p.KV, (*tx).writeKV)
	err = all(t, err, p.Escalations, (*tx).writeEscalation)
	err = all(t, err, p.Notices, (*tx).writeNotice)
	return all(t, err, p.Forget, (*tx).forget)
}

// all calls f with each record of a list, until there is an error.
func all[T any](t *tx, err error, list []T, f func(*tx, T) error) error {
	for _, record := range list {
		if err != nil {
			return err
		}
		err = f(t, record)
	}
	return err
}

// written returns the error of a statement that is to write one row. A row that was
// not written, and one that repeats a unique value, is errUnexpected.
func written[S ~string](what string, id S, rows int64, err error) error {
	if err == nil && rows == 0 || err != nil && isUnique(err) {
		err = errUnexpected
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, id, err)
	}
	return nil
}

// searched returns how many records a change may add to what search has to read beside
// its index.
func searched(change keep.Change) int {
	switch change.(type) {
	case keep.PutRun, keep.PutMutation, keep.PutInput, keep.PutItem, keep.Publish:
		return 1
	}
	return 0
}
