package commit

import (
	"fmt"
	"time"

	"github.com/keep-run/keep"
)

// A Plan is what a commit writes: each record once, as it is in the end. A row is
// made before what refers to it, so a store writes in the order of the fields, and in
// Runs those that are closed before the others.
type Plan struct {
	Workflow    *Workflow // nil: it stays
	Deployments []keep.Deployment
	Grants      []keep.Grant
	Proposals   []*Proposal
	Inputs      []*Input
	Runs        []*Run
	Logs        []keep.LogLine
	Decisions   []keep.Decided
	Traces      []keep.TracePart
	Items       []*Item
	Mutations   []*Mutation
	Moves       []Move
	Events      []*Event
	Causes      []Cause
	Tried       []Tried
	Topics      []Topic
	Flips       []Flip // before all events
	Handlers    []*Handler
	KV          []KV // in their order
	Escalations []*Escalation
	Notices     []*Notice
	Forget      []keep.RunID // chains

	// Verify are inputs that must exist: the snapshot only expects them. None if it
	// was read whole.
	Verify []keep.InputID
}

// A Move is a line of the history of a mutation.
type Move struct {
	Mutation *Mutation
	Line     int // from 1, if the mutation is new; 0: after those that it has
	keep.Move
}

// A Cause says that an event comes from an input.
type Cause struct {
	Input keep.InputID
	Event *Event
}

// A Tried links an event with a chain of runs that gave it back. It may be linked already.
type Tried struct {
	Event *Event
	Chain keep.RunID
}

// A Topic says how the counts of its events change; perhaps not at all.
type Topic struct {
	Name                       keep.TopicName
	Pending, Consumed, Skipped int
	Unread                     bool // see Snapshot.Unread
}

// A Flip says that a topic gets its first reader or loses its last one: the inputs of its
// free events wait for them from now on, or do no more.
type Flip struct {
	Topic  keep.TopicName
	Unread bool
}

// A KV sets a value of a checkpoint, deletes it if Value is nil, or deletes the whole
// checkpoint if Reset is set.
type KV struct {
	keep.SetKV
	Reset bool
}

// Decide returns what a commit writes, or why it is refused. It changes the snapshot,
// which after a refusal is of no use to the workflow of the commit.
func (s *Snapshot) Decide(c keep.Commit) (*Plan, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	d := &decision{Snapshot: s, w: c.Workflow, at: c.At, p: new(Plan)}
	for _, change := range c.Changes {
		if err := d.apply(change); err != nil {
			return nil, err
		}
	}
	closedFirst(d.p.Runs)
	for _, e := range s.Inputs.list {
		if e.value.Expected && e.value.By == 0 {
			d.p.Verify = append(d.p.Verify, e.key)
		}
	}
	return d.p, nil
}

// A decision is one commit that is being decided.
type decision struct {
	*Snapshot
	w  keep.WorkflowName
	at time.Time
	p  *Plan
}

// apply makes one change. What each refuses is said at the types in keep, which are the
// contract; the methods say why where that is not plain.
func (d *decision) apply(change keep.Change) error {
	switch c := change.(type) {
	case keep.PutRun:
		return d.putRun(c.Run)
	case keep.PutMutation:
		return d.putMutation(c.Mutation, c.Moves)
	case keep.Reserve:
		return d.reserve(c)
	case keep.Release:
		d.release(c)
		return nil
	case keep.Finish:
		return d.finish(c)
	case keep.Publish:
		return d.publish(c.Event, c.New)
	case keep.SkipEvents:
		return d.skipEvents(c)
	case keep.UnskipEvents:
		return d.unskipEvents(c)
	case keep.RedoEvents:
		return d.redoEvents(c)
	case keep.PutInput:
		return d.putInput(c.Input)
	case keep.SkipInput:
		return d.skipInput(c.Input)
	case keep.UnskipInput:
		return d.unskipInput(c.Input)
	case keep.SetKV:
		return d.setKV(KV{SetKV: c})
	case keep.ResetKV:
		return d.setKV(KV{SetKV: keep.SetKV{Producer: c.Producer}, Reset: true})
	case keep.PutHandler:
		return d.putHandler(c)
	case keep.RequestRun:
		return d.requestRun(c.Handler)
	case keep.LookAgain:
		return d.lookAgain(c.Handler)
	case keep.Deploy:
		return d.deploy(c.Deployment)
	case keep.SetPaused:
		return d.setPaused(c)
	case keep.AppendDecision:
		return d.appendDecision(c.Decided)
	case keep.AppendLogs:
		return d.appendLogs(c.Lines)
	case keep.AppendTrace:
		return d.appendTrace(c.Part)
	case keep.OpenEscalation:
		return d.openEscalation(c.Escalation)
	case keep.CloseEscalation:
		return d.closeEscalation(c)
	case keep.PutNotice:
		return d.putNotice(c.Notice)
	case keep.PutItem:
		return d.putItem(c.Item)
	case keep.Sweep:
		return d.sweep(c)
	}
	return d.consent(change)
}

// consent makes a change that is about what the workflow may do.
func (d *decision) consent(change keep.Change) error {
	switch c := change.(type) {
	case keep.PutGrant:
		return d.putGrant(c.Grant)
	case keep.UnderGrant:
		return d.underGrant(c)
	case keep.PutProposal:
		return d.putProposal(c.Proposal)
	case keep.EndProposal:
		return d.endProposal(c)
	}
	return d.guard(change)
}

// guard makes a change that writes nothing, and may refuse the commit.
func (d *decision) guard(change keep.Change) error {
	switch c := change.(type) {
	case keep.Unlike:
		return d.unlike(c)
	case keep.Setting:
		return d.setting(c)
	case keep.Within:
		return d.within(c)
	case keep.IfKV:
		return d.ifKV(c)
	}
	return fmt.Errorf("unknown change %T", change)
}

// own refuses a record of another workflow than the commit's: nothing else keeps one
// workflow from writing what belongs to another.
func (d *decision) own(what, id string, w keep.WorkflowName) error {
	if w != d.w {
		return fmt.Errorf("%s %s belongs to workflow %q", what, id, w)
	}
	return nil
}

// plan puts a record on a list of the plan, once.
func plan[T any](list *[]*T, record *T, row *Row) {
	if !row.planned {
		row.planned = true
		*list = append(*list, record)
	}
}

// revise counts a revision of a record. Row.Was stays that which is stored.
func revise(row *Row, rev *int) {
	if !row.planned {
		row.Was = *rev
	}
	*rev++
}
