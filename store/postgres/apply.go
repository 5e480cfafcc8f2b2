package postgres

import (
	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
)

// A tx is one commit that was decided, and adds up what is to be written. Nothing is
// sent before all commits of its group are decided.
type tx struct {
	s        *snapshot
	workflow keep.WorkflowName
	at       int64
	writes
}

// decide returns what one commit writes. If it is refused, nothing of it is written.
func decide(s *snapshot, c keep.Commit) (*writes, error) {
	t := &tx{s: s, workflow: c.Workflow, at: millis(c.At)}
	if err := t.fence(c.Epoch); err != nil {
		return nil, err
	}
	plan, err := s.Decide(c)
	if err == nil {
		err = t.write(plan)
	}
	if err != nil {
		return nil, err
	}
	t.writeLease(c.Epoch)
	return &t.writes, nil
}

// write turns a plan into rows.
func (t *tx) write(p *commit.Plan) error {
	var err error
	if p.Workflow != nil {
		t.writeWorkflow(p.Workflow)
	}
	err = all(t, err, p.Flips, (*tx).flipTopic)
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
	t.writeKV(p.KV)
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

// order is that of the statements of a group. A row is made before what refers to
// it; a run is closed before the next one of its workflow is opened.
var order = []*statement{
	&lockSums, &flipInputs, &flipTopic, &putWorkflow, &insertDeployment, &insertGrant, &endProposal, &insertProposal, &insertTopic, &insertInput, &skipInputs, &countInput,
	&updateRun, &insertRun, &insertLog, &insertTrace, &insertDecision, &insertItem, &updateItem,
	&insertMutation, &unfoldMutation, &updateMutation, &insertMove,
	&insertEvent, &updateEvent, &redoEvent, &republishEvent, &insertCause, &insertTried, &countTopic,
	&putHandlers, &resetKVs, &deleteKV, &putKV, &insertEscalation, &closeEscalations, &putNotices, &addTally,
	&sweepEvents, &sweepTried, &sweepNotices, &sweepEscalations, &sweepMoves, &sweepMutationTally, &sweepItems, &sweepSums, &sweepMutations, &sweepLogs, &sweepTraces, &sweepRunTally, &sweepRuns, &sweepEmptySums,
	&setLease, &makeLease, &countWorkflows, &alertHosts,
}

// clockBits leave room for 1,024 numbers in a millisecond, and keep them below
// 2^53 until the year 2248.
const clockBits = 10

// maxClock is the latest time that numbers have.
const maxClock = 1<<43 - 1

// next returns a number for a new row: later ones are larger.
func (t *tx) next() int64 {
	n := numberAfter(t.s.leases[t.workflow].n, t.at)
	t.s.leases[t.workflow].n = n
	return n
}

// numberAfter returns the number of a row that was made at a time, after the row with
// the number last.
func numberAfter(last, at int64) int64 { return max(last+1, min(at, maxClock)<<clockBits) }
