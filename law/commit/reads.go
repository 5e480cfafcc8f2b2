package commit

import (
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// A ReadSet names the records of one workflow that a commit must know.
type ReadSet struct {
	Open        bool // the runs of the workflow that are not closed
	Workflow    bool // the row of the workflow
	AllTopics   bool // all topics of the workflow
	Proposal    bool // the proposals of the workflow
	Topics      []keep.TopicName
	Runs        []keep.RunID
	Mutations   []keep.MutationKey
	Unlike      []keep.Unlike // records that may be rivals, of all workflows
	Setting     []keep.Setting
	Within      []keep.Within // records that count in budgets, of all workflows
	Events      []keep.EventRef
	Held        []keep.RunID // chains: their pending events
	Inputs      []keep.InputID
	NewInputs   []keep.Input // to be found by their ids or by their keys
	Items       []string
	Escalations []keep.EscalationID
	Notices     []keep.EscalationID // all notices of these
	Handlers    []keep.HandlerName
	KVs         []keep.IfKV
	Sweeps      []keep.Sweep
}

// Reads returns what a commit must know.
func Reads(c keep.Commit) (r ReadSet) {
	for _, change := range c.Changes {
		r.add(change)
	}
	return r
}

// SpentSince returns since when records count in the budgets of a commit at a time, and false
// if it is about none.
func (r ReadSet) SpentSince(at time.Time) (since time.Time, some bool) {
	var longest time.Duration
	for _, w := range r.Within {
		longest = max(longest, w.Per)
	}
	return at.Add(-longest), len(r.Within) > 0
}

// add adds what a change must know.
func (r *ReadSet) add(change keep.Change) {
	switch c := change.(type) {
	case keep.PutRun:
		r.Runs, r.Open = append(r.Runs, c.Run.ID), true
	case keep.PutMutation:
		r.Mutations = append(r.Mutations, c.Mutation.Key)
	case keep.Unlike:
		r.Unlike = append(r.Unlike, c)
	case keep.Setting:
		r.Setting = append(r.Setting, c)
	case keep.Within:
		r.Within = append(r.Within, c)
	case keep.Reserve:
		r.events(c.Topic, c.IDs...)
		r.Topics = append(r.Topics, c.Topic)
	case keep.SkipEvents:
		r.events(c.Topic, c.IDs...)
	case keep.UnskipEvents:
		r.events(c.Topic, c.IDs...)
	case keep.RedoEvents:
		r.events(c.Topic, c.IDs...)
	case keep.Publish:
		r.events(c.Event.Topic, c.Event.MessageID)
		r.Topics = append(r.Topics, c.Event.Topic)
		r.Inputs = append(r.Inputs, c.Event.CausedBy...)
	case keep.Release:
		r.Held, r.Events = append(r.Held, c.Chain), append(r.Events, c.Tried...)
	case keep.Finish:
		r.Held = append(r.Held, c.Chain)
	case keep.PutInput:
		r.NewInputs = append(r.NewInputs, c.Input)
	case keep.SkipInput:
		r.Inputs = append(r.Inputs, c.Input)
	case keep.UnskipInput:
		r.Inputs = append(r.Inputs, c.Input)
	case keep.PutHandler:
		r.Handlers = append(r.Handlers, c.State.Handler)
	case keep.IfKV:
		r.KVs = append(r.KVs, c)
	case keep.RequestRun:
		r.Handlers, r.Open = append(r.Handlers, c.Handler), true
	case keep.LookAgain:
		r.Handlers = append(r.Handlers, c.Handler)
	case keep.AppendLogs:
		for _, l := range c.Lines {
			if n := len(r.Runs); n == 0 || r.Runs[n-1] != l.Run {
				r.Runs = append(r.Runs, l.Run)
			}
		}
	case keep.AppendTrace:
		r.Runs = append(r.Runs, c.Part.Run)
	case keep.OpenEscalation:
		r.Escalations = append(r.Escalations, c.Escalation.ID)
	case keep.CloseEscalation:
		r.Escalations, r.Notices = append(r.Escalations, c.ID), append(r.Notices, c.ID)
	case keep.PutNotice:
		r.Escalations, r.Notices = append(r.Escalations, c.Notice.Escalation), append(r.Notices, c.Notice.Escalation)
	case keep.PutItem:
		r.Items = append(r.Items, c.Item.ID)
	case keep.Sweep:
		r.Sweeps = append(r.Sweeps, c)
	default:
		r.consent(change)
	}
}

// consent adds what a change must know that is about what the workflow may do.
func (r *ReadSet) consent(change keep.Change) {
	switch change.(type) {
	case keep.Deploy:
		r.Workflow, r.AllTopics, r.Proposal = true, true, true
	case keep.PutProposal, keep.EndProposal:
		r.Workflow, r.Proposal = true, true
	case keep.SetPaused, keep.PutGrant, keep.UnderGrant:
		r.Workflow = true
	}
}

// events adds events of a topic.
func (r *ReadSet) events(topic keep.TopicName, ids ...keep.MessageID) {
	for _, id := range ids {
		r.Events = append(r.Events, keep.EventRef{Topic: topic, MessageID: id})
	}
}

// Expect returns what a commit finds if nobody else changed what it was made from,
// and what must be read beside that. A store that uses it writes a row only if it
// still is as the snapshot has it: a run and a mutation by their revision and what is
// fixed of them, a reserved event if it is free, an input if it exists, a handler by
// its time of a request. An input of which no row is written is in Plan.Verify.
// A row of a plan that is new must not exist yet, nor must an open run beside a run
// that is open in its lane.
//
// Only what nearly every commit writes is expected. The rest is read.
func Expect(c keep.Commit) (*Snapshot, ReadSet) {
	s, n := new(Snapshot), census(c)
	var r ReadSet
	for _, change := range c.Changes {
		switch c := change.(type) {
		case keep.PutRun:
			// Of two runs each may be the open one, and no row says that a run which is
			// made closed is refused beside an open one.
			if len(n.runs) > 1 || c.Run.Rev == 0 && c.Run.Closed {
				r.add(c)
			} else if c.Run.Rev > 0 {
				s.Runs.Put(c.Run.ID, &Run{Workflow: c.Run.Workflow, Chain: c.Run.Chain, Handler: c.Run.Handler, Kind: c.Run.Kind, Rev: c.Run.Rev})
			}
		case keep.PutMutation:
			if m := c.Mutation; n.mutations > 1 {
				r.add(c)
			} else if m.Rev > 0 {
				s.Mutations.Put(m.Key, &Mutation{Workflow: m.Workflow, Tool: m.Tool, Item: m.Item, Attempt: m.Attempt, Rev: m.Rev})
			}
		case keep.Publish:
			if n.skips || n.reserves {
				r.add(c) // it may end what it publishes, whose causes say nothing
				continue
			}
			r.events(c.Event.Topic, c.Event.MessageID)
			r.Topics = append(r.Topics, c.Event.Topic)
			for _, id := range c.Event.CausedBy {
				if n.inputs.Get(id) {
					continue
				}
				s.Inputs.Put(id, &Input{Workflow: c.Event.Workflow, ID: id, Expected: true})
			}
		case keep.Reserve:
			if n.ends {
				r.add(c) // what ends a reserved event must know its causes
				continue
			}
			r.Topics = append(r.Topics, c.Topic)
			for i, id := range c.IDs {
				key := EventKey{n.workflow, c.Topic, id}
				s.AddEvent(&Event{EventKey: key, Status: keep.EventPending, Attempt: c.Attempt(i)})
			}
		case keep.PutHandler:
			if n.asks || c.Over != nil { // whoever asks a handler for a run must know that there is one
				r.add(c)
				continue
			}
			key := HandlerKey{c.State.Workflow, c.State.Handler}
			s.Handlers.Put(key, &Handler{HandlerState: keep.HandlerState{Workflow: key.Workflow, Handler: key.Handler}})
		case keep.AppendLogs:
			for _, l := range c.Lines {
				if !slices.Contains(n.runs, l.Run) {
					r.add(keep.AppendLogs{Lines: []keep.LogLine{l}})
				}
			}
		case keep.AppendTrace:
			if !slices.Contains(n.runs, c.Part.Run) {
				r.add(c)
			}
		default:
			r.add(change)
		}
	}
	return s, r
}

// A summary says what a commit changes together.
type summary struct {
	workflow  keep.WorkflowName
	runs      []keep.RunID // that it puts, as the next two
	inputs    Table[keep.InputID, bool]
	mutations int
	reserves  bool
	skips     bool
	asks      bool
	ends      bool // it may do more with an event than reserve it
}

// census returns the summary of a commit.
func census(c keep.Commit) summary {
	n := summary{workflow: c.Workflow}
	for _, change := range c.Changes {
		switch c := change.(type) {
		case keep.PutRun:
			n.runs = append(n.runs, c.Run.ID)
		case keep.PutMutation:
			n.mutations++
		case keep.PutInput:
			n.inputs.Put(c.Input.ID, true)
		case keep.Reserve:
			n.reserves = true
		case keep.RequestRun, keep.LookAgain:
			n.asks = true
		case keep.SkipInput, keep.UnskipInput:
			n.skips = true
		case keep.SkipEvents, keep.UnskipEvents, keep.RedoEvents:
			n.skips, n.ends = true, true
		case keep.Finish, keep.Release, keep.Publish:
			n.ends = true
		}
	}
	return n
}
