package postgres

import (
	"fmt"
	"slices"

	"github.com/keep-run/keep"
)

// A tx is one commit that is being decided. It changes what is known and adds up
// what is to be written; nothing is sent before all of its changes are accepted.
type tx struct {
	*known
	workflow keep.WorkflowName
	at       int64
	writes

	runWrites      []*runFact
	mutationWrites []*mutationFact
	eventWrites    []*eventFact
	inputWrites    []*inputFact
	itemWrites     []*itemFact
	noticeWrites   []*noticeFact
	handlerWrites  map[handlerKey]bool
	kvWrites       map[kvKey][]byte // nil: delete
	kvResets       map[handlerKey]bool
	topicWrites    map[topicKey]topicDelta
}

type kvKey struct {
	handlerKey
	key string
}

// decide makes the changes of one commit, in their order. If one is refused,
// nothing of the commit is written.
func decide(k *known, c keep.Commit) (*writes, error) {
	t := &tx{known: k, workflow: c.Workflow, at: millis(c.At)}
	if err := t.fence(c.Epoch); err != nil {
		return nil, err
	}
	for _, change := range c.Changes {
		if err := t.apply(change); err != nil {
			return nil, err
		}
	}
	if err := t.flush(); err != nil {
		return nil, err
	}
	t.writeLease(c.Epoch)
	return &t.writes, nil
}

// order is that of the statements of a group. A row is made before what refers to
// it; a run is closed before the next one of its workflow is opened.
var order = []*statement{
	&putWorkflow, &insertDeployment, &insertTopic, &insertInput, &skipInputs, &countInput,
	&updateRun, &insertRun, &insertLog, &insertItem, &updateItem,
	&insertMutation, &updateMutation, &insertMove,
	&insertEvent, &updateEvent, &republishEvent, &insertCause, &countTopic,
	&putHandlers, &resetKVs, &deleteKV, &putKV, &insertEscalation, &closeEscalations, &putNotices, &addTally,
	&sweepEvents, &sweepNotices, &sweepEscalations, &sweepMoves, &sweepMutationTally, &sweepMutations, &sweepLogs, &sweepRunTally, &sweepRuns,
	&setLease, &makeLease, &countWorkflows, &alertHosts,
}

// clockBits leave room for 1,024 numbers in a millisecond, and keep them below
// 2^53 until the year 2248.
const clockBits = 10

// next returns a number for a new row: later ones are larger.
func (t *tx) next() int64 {
	n := numberAfter(t.leases[t.workflow].last, t.at)
	t.leases[t.workflow].last = n
	return n
}

// numberAfter returns the number of a row that was made at a time, after the row with
// the number last.
func numberAfter(last, at int64) int64 { return max(last+1, min(at, 1<<43-1)<<clockBits) }

// flush turns what changed into rows.
func (t *tx) flush() error {
	// Those that end come first: of two that change places, one must be open at a time.
	slices.SortStableFunc(t.runWrites, func(a, b *runFact) int { return firstIf(a.put.Closed) - firstIf(b.put.Closed) })
	for _, r := range t.runWrites {
		if err := t.writeRun(r); err != nil {
			return err
		}
	}
	for _, m := range t.mutationWrites {
		if err := t.writeMutation(m); err != nil {
			return err
		}
	}
	for _, e := range t.eventWrites {
		t.writeEvent(e)
	}
	for _, in := range t.inputWrites {
		t.writeInput(in)
	}
	for _, it := range t.itemWrites {
		t.writeItem(it)
	}
	for _, n := range t.noticeWrites {
		t.writeNotice(n)
	}
	t.writeTopics()
	t.writeHandlers()
	t.writeKV()
	return nil
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
		t.release(c.Chain)
		return nil
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
		t.setKV(c)
		return nil
	case keep.ResetKV:
		t.resetKV(c.Producer)
		return nil
	case keep.PutHandler:
		return t.putHandler(c.State, c.Served)
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

// mine refuses a record of another workflow than the commit's: nothing else
// keeps one workflow from writing what belongs to another.
func (t *tx) mine(what, id string, w keep.WorkflowName) error {
	if w != t.workflow {
		return fmt.Errorf("%s %s belongs to workflow %q", what, id, w)
	}
	return nil
}

// firstIf sorts true before false.
func firstIf(first bool) int {
	if first {
		return 0
	}
	return 1
}

// changed puts a fact on a list once.
func changed[T any](list *[]*T, fact *T, dirty *bool) {
	if !*dirty {
		*dirty = true
		*list = append(*list, fact)
	}
}
