package keep

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A Commit is one durable step of one workflow, or of none if it is about questions of
// no workflow: all of its changes become durable together, in their order, or none of them
// does (law: all-or-nothing). It is a value, so that the law can compute it, a store
// can batch it with the commits of other workflows, and a test can read it.
type Commit struct {
	Workflow WorkflowName
	At       time.Time // when it was decided; stores never read a clock
	Changes  []Change

	// Epoch is that of the lease under which a host commits. A store with leases
	// refuses it with ErrFenced unless it is the epoch of a lease that somebody
	// has now. Zero is a commit beside the host: a person's decision, a deploy.
	// Revisions guard that one, and the host of the workflow learns of it.
	Epoch int64
}

// Validate reports whether c is well formed.
func (c Commit) Validate() error {
	sweeps, moves, skips, deploys, others := 0, false, false, false, false
	for _, change := range c.Changes {
		switch change.(type) {
		case OpenEscalation, CloseEscalation, PutNotice:
		default:
			others = true
		}
		switch s := change.(type) {
		case Sweep:
			if sweeps++; s.Before.After(c.At) {
				return fmt.Errorf("sweep %s: what changed before %s is not old at %s", s.Chain, s.Before, c.At)
			}
		case Deploy:
			if moves || deploys {
				return errors.New("a commit deploys once, before it changes events")
			}
			deploys = true
		case PutMutation:
			if !c.hasItemOf(s) {
				return fmt.Errorf("mutation %s is in flight: the commit does not write item %q, at work in attempt %d", s.Mutation.Key, s.Mutation.Item, s.Mutation.Attempt)
			}
		case Reserve, Release, Finish, Publish, SkipEvents, UnskipEvents, RedoEvents:
			moves = true
		case SkipInput, UnskipInput:
			skips = true
		}
	}
	switch {
	case c.Workflow == "" && (others || c.Epoch != 0):
		return errors.New("workflow required")
	case c.At.IsZero():
		return errors.New("time required")
	case skips && deploys:
		return errors.New("a commit that deploys skips no input, and undoes no skip")
	case sweeps > 0 && sweeps < len(c.Changes):
		return errors.New("a commit that sweeps does nothing else")
	}
	return nil
}

// hasItemOf reports whether the item of a call that p sends, if it has one, is written, too.
func (c Commit) hasItemOf(p PutMutation) bool {
	m := p.Mutation
	if m.Item == "" || m.State != InFlight || len(p.Moves) == 0 {
		return true
	}
	return slices.ContainsFunc(c.Changes, func(change Change) bool {
		it, ok := change.(PutItem)
		return ok && it.Item.ID == m.Item && it.Item.Attempt == m.Attempt && !it.Item.Over()
	})
}

// A Change is one part of a commit. The types below are all there are.
type Change interface{ change() }

// PutRun writes a run. If Run.Rev is 0 the run is new: its lane must have no other
// run that is not closed, else ErrRunOpen. Otherwise the stored Rev
// must be Run.Rev, else ErrStale. The stored Rev is then Run.Rev + 1.
type PutRun struct{ Run Run }

// PutMutation writes a ledger record and appends its moves. Rev works as in
// PutRun; a new record whose key exists is ErrMutationExists. A commit after which a call of
// an item is in flight also writes the item, which is not over and at the attempt of the call.
// So of a call and a skip of its item that are decided at the same time one is ErrStale.
type PutMutation struct {
	Mutation Mutation
	Moves    []Move
}

// Unlike is for a call whose identity is to be applied once, whoever asks for it. It
// refuses the commit with *RivalError if a record of another key, of whatever workflow,
// has one of the tools, the same identity and subkey, and may have had its effect: it is in
// flight, in doubt or applied. Records in Except don't count. Of two commits at the same
// moment, of two hosts too, one is refused.
type Unlike struct {
	Key      MutationKey
	Tools    []ToolName // all names of the one tool: a record has that of its time
	Identity json.RawMessage
	Subkey   string
	Except   []MutationKey
}

// Setting is for a call of a tool that says what is to be: whichever is sent last decides. So one in doubt is not sent again
// after a later one, and a later one is not sent while one in doubt is. It refuses the commit with *RivalError if there is a
// record that Setting.Bars. Of two commits at the same moment, of two hosts too, one sees the other.
type Setting struct {
	Key         MutationKey
	Tools       []ToolName      // all names of the one tool: a record has that of its time
	Identity    json.RawMessage // whatever the subkeys: two calls of one identity set the same thing
	PayloadHash string
	Since       time.Time     // of the attempt in doubt that would be sent again; zero: none
	Except      []MutationKey // later ones over which a person said to make it
}

// IsUndone reports whether to send the call of s again may undo what m did: m was recorded or made again since the attempt of
// s, may have happened, and says something else.
func (s Setting) IsUndone(m Mutation) bool {
	return !s.Since.IsZero() && s.others(m) && !slices.Contains(s.Except, m.Key) && m.State != Failed && !lastMade(m).Before(s.Since)
}

// Bars reports whether m keeps a commit at a time with s from being made: it would be undone, or it is in doubt and being sent
// again now, or it may be sent again after a doubt, and was made later by the clock, which was set back: those that may be sent again
// are told from later ones by their times.
func (s Setting) Bars(m Mutation, at time.Time) bool {
	if s.IsUndone(m) {
		return true
	}
	again := m.State == InFlight || m.State == NeedsReconcile || m.State == Indeterminate || m.State == Failed && m.Doubted
	return again && s.others(m) && (m.SentAgainUntil().After(at) || lastMade(m).After(at))
}

// Barring returns the one of a list that Store.Barring is to return, and whether there is one.
func (s Setting) Barring(list []Mutation, at time.Time) (m Mutation, found bool) {
	place := func(m Mutation) (bool, time.Time, MutationKey) { return s.IsUndone(m), lastMade(m), m.Key }
	for _, other := range list {
		if !s.Bars(other, at) {
			continue
		}
		undone, made, key := place(other)
		was, madeBefore, keyBefore := place(m)
		if !found || undone && !was || undone == was && (made.After(madeBefore) || made.Equal(madeBefore) && key > keyBefore) {
			m, found = other, true
		}
	}
	return m, found
}

// others reports whether m is another record that says something else.
func (s Setting) others(m Mutation) bool {
	return m.Key != s.Key && m.PayloadHash != s.PayloadHash
}

// lastMade returns when the last attempt at the call of m was recorded, at the latest.
func lastMade(m Mutation) time.Time {
	if m.Attempts > 1 && m.UpdatedAt.After(m.CreatedAt) {
		return m.UpdatedAt
	}
	return m.CreatedAt
}

// Within is for a call that counts in a budget: the commit is *OverBudgetError if the call
// of Key, with what the others count in the budget within Per before Commit.At, is more
// than Limit. Of two commits at the same moment, of two hosts too, one sees what the other
// spends (law: within-budget).
type Within struct {
	Key MutationKey
	Spent
}

// Reserve pins events to a chain of runs. Each must exist in the topic of this
// workflow, pending and free, else *ReservationError. One that is at another attempt than
// the reservation says is ErrStale.
type Reserve struct {
	Chain RunID
	Reservation
}

// Release gives back every pending event that the chain reserved. The chain and these
// events stay linked: what it did is part of what became of them. So are those of Tried
// that exist, which the chain worked on without reserving them.
type Release struct {
	Chain RunID
	Tried []EventRef
}

// Finish gives every pending event that the chain reserved its last status,
// EventConsumed or EventSkipped.
type Finish struct {
	Chain  RunID
	Status EventStatus
}

// Publish adds an event. If the topic has its message id already, there is
// still one event: while that one is pending and free, the later payload wins;
// otherwise nothing changes. CausedBy must name inputs of the workflow.
//
// If New is set, an event that exists is ErrStale instead: of several publishers of
// one message id exactly one learns that it was the first.
type Publish struct {
	Event Event
	New   bool
}

// SkipEvents skips events that are pending and free. An event that is not is
// a *ReservationError; it says why.
type SkipEvents struct {
	Topic TopicName
	IDs   []MessageID
}

// UnskipEvents makes events that were skipped pending and free again, each in its old
// place. Chain is what all of them have as ReservedBy: empty, or the chain of runs that
// was ended by skipping them and stays linked with them. It is ErrStale if one of them is
// not skipped or has another ReservedBy, and *NotFoundError if one does not exist. Swept
// events have no payload any more: Chain is never Swept.
type UnskipEvents struct {
	Topic TopicName
	IDs   []MessageID
	Chain RunID
}

// RedoEvents makes events that are consumed or skipped pending and free again, each in its
// old place and as a new attempt. Chain is what all of them have as ReservedBy: empty, or
// the chain of runs that finished them and stays linked with them. It is ErrStale if one of
// them is pending, has another ReservedBy, or is at another attempt than Attempt, and
// *NotFoundError if one does not exist. Swept events have no payload any more: Chain is
// never Swept. Nobody redoes an event that is at MaxAttempts.
type RedoEvents struct {
	Topic   TopicName
	IDs     []MessageID
	Chain   RunID
	Attempt int
	By      string
	From    string
	Note    string
}

// PutInput adds an input. If its source, type and external id are known, the
// known one stays as it is, and the commit fails with ErrStale if its id is
// another: the caller looked before it decided.
type PutInput struct{ Input Input }

// SkipInput marks an input skipped. One that is done stays done.
type SkipInput struct{ Input InputID }

// UnskipInput gives an input the status again that follows from its events.
type UnskipInput struct{ Input InputID }

// SetKV sets one value of a producer's checkpoint; a nil Value deletes it.
type SetKV struct {
	Producer HandlerName
	Key      string
	Value    json.RawMessage
}

// IfKV is for what was decided by a value of a checkpoint: the commit is ErrStale if the value is another one, or if
// there is one and Value is nil.
type IfKV struct {
	Producer HandlerName
	Key      string
	Value    json.RawMessage
}

// ResetKV deletes the whole checkpoint of a producer.
type ResetKV struct{ Producer HandlerName }

// PutHandler writes what the host remembers of a handler. RequestedAt is left
// as it is, except that a request made at or before Served is cleared.
type PutHandler struct {
	State  HandlerState
	Served time.Time // zero: clear no request

	// Over is what State was made from by somebody beside the host: what of its alarm, its next time and its last run is the
	// same in both stays as it is stored, since a run may have committed meanwhile. Nil: all of State is written.
	Over *HandlerState
}

// Merged returns what is written where stored is there, but for RequestedAt.
func (c PutHandler) Merged(stored HandlerState) HandlerState {
	s := c.State
	if c.Over == nil || stored.Kind != s.Kind {
		return s
	}
	if s.WakeAt.Equal(c.Over.WakeAt) {
		s.WakeAt = stored.WakeAt
	}
	if s.NextAt.Equal(c.Over.NextAt) {
		s.NextAt = stored.NextAt
	}
	if s.LastRun == c.Over.LastRun && s.LastAt.Equal(c.Over.LastAt) {
		s.LastRun, s.LastAt = stored.LastRun, stored.LastAt
	}
	return s
}

// RequestRun asks for a run of a producer or job as soon as the workflow is
// free ("run now"). With a run open in the lane of the workflow, or of the handler,
// it is ErrRunOpen. A handler without a state is a *NotFoundError.
type RequestRun struct{ Handler HandlerName }

// LookAgain makes a consumer look at all events that it subscribes to, as soon as it may
// run: also at those that it passed over before; and a job at its items. It counts as a
// request that a run under way does not serve, and as later than one before it. A handler without a state is a *NotFoundError.
type LookAgain struct{ Handler HandlerName }

// Deploy adds a version and makes it current. The workflow is made if it is
// new. A version that exists is ErrStale. From then on the free events of a topic count for
// the inputs that caused them if a consumer of this version subscribes to it: an event
// that nobody will take keeps no input waiting. An event that a run has counts. Before the
// first version all do.
type Deploy struct{ Deployment Deployment }

// PutGrant gives the workflow a grant, in the place of the one before: Grant.N must be
// one more than that of the one that holds, else ErrStale. A workflow that does not exist
// is a *NotFoundError.
type PutGrant struct{ Grant Grant }

// UnderGrant is for a call that was decided under grant N of the workflow: the commit is
// ErrStale if another one holds. So no call is recorded under a grant that was taken away.
// One that a person approved names the version, too, and is recorded only while that is current.
type UnderGrant struct {
	N       int
	Version Version // zero: whichever is current
}

// PutProposal stores a version that waits for a person. Proposal.Over must be the current
// version of the workflow, no other proposal of it may wait, and Proposal.Version must be later than
// the current version and not that of another proposal, else ErrStale.
type PutProposal struct{ Proposal Proposal }

// EndProposal ends the wait of a proposal of the workflow, which must be Version and wait, else
// ErrStale. State says how. While one waits, Deploy is ErrStale; after it was approved, its
// version may be deployed, else never.
type EndProposal struct {
	Version Version
	State   ProposalState
}

// SetPaused pauses or resumes the workflow. Only a pause has a note.
type SetPaused struct {
	Paused bool
	Note   string      // why; empty: nobody said
	If     *PauseState // as it must be before, else ErrStale; nil: in whatever state
}

// IsCondition reports whether c changes nothing: what it would set must be so before.
func (c SetPaused) IsCondition() bool {
	return c.If != nil && *c.If == (PauseState{Paused: c.Paused, Note: c.Note})
}

// A PauseState is whether a workflow is paused, and with which note.
type PauseState struct {
	Paused bool
	Note   string
}

// AppendDecision records what a person decided about something, beside any question, in the commit that does it.
type AppendDecision struct{ Decided }

// AppendLogs adds log lines to a run.
type AppendLogs struct{ Lines []LogLine }

// AppendTrace adds to what is kept of a run's reads. A run that the workflow does not have
// is a *NotFoundError.
type AppendTrace struct{ Part TracePart }

// OpenEscalation asks a question. Escalation.ID must be new.
type OpenEscalation struct{ Escalation Escalation }

// CloseEscalation ends a question, once: if it is not open, ErrDecided. A nil
// Decision means that the host closed it because it no longer applies.
type CloseEscalation struct {
	ID       EscalationID
	Decision *Decision
}

// PutNotice writes what became of telling a sink of a question. If Notice.Rev is
// 0 it is new: ErrStale if there is one, ErrDecided if the question is closed.
// Otherwise the stored Rev must be Notice.Rev, else ErrStale. The stored Rev is
// then Notice.Rev + 1. CloseEscalation makes every pending notice of its question
// moot, which counts as a write.
type PutNotice struct{ Notice Notice }

// PutItem writes an item. Rev works as in PutRun, and Swept never falls. An item that is
// done or skipped is ErrStale if it would be neither in an attempt of which calls were
// swept: nobody knows any more what was done.
type PutItem struct{ Item Item }

// Sweep forgets a chain of runs that is over and old: its runs and their logs, their
// mutations with all moves, their questions, and the payloads of the events that it
// finished. What keeps things from being done twice stays: the events themselves, by
// their message ids, the inputs that caused them, items and checkpoints. ReservedBy of
// the events becomes Swept; Swept of an item becomes the attempt of a call that is forgotten.
//
// It is ErrStale unless all of this holds, and a *NotFoundError if there is no such
// chain. Over and before Before are: every run of the chain, every mutation of them,
// every question, every event. A mutation is over when its outcome is known (applied,
// skipped, failed) and, in an item, when the item is done or skipped or at a later
// attempt; a question of an item waits for that, too. The events are
// those that the chain finished and those that it gave back. No input that caused one of
// them is pending. No run of another chain retries one of these, no open one waits for one
// of the mutations, and no handler names one as its last. The newest run, mutation and question of a database stay: the first
// of the lists, which after a clock was set back need not be what was committed last.
//
// A commit with a Sweep has nothing else.
type Sweep struct {
	Chain  RunID
	Before time.Time
}

// Swept is what a swept event has in the place of the chain that finished it.
const Swept RunID = "swept"

// OldRuns are the runs of a workflow that were made before a time.
type OldRuns struct {
	Workflow WorkflowName
	Before   time.Time

	// Empty means only those that found nothing to do, at their first attempt.
	Empty bool
}

// An OldChain is a chain of runs that Sweep takes.
type OldChain struct {
	Workflow  WorkflowName
	Chain     RunID
	At        time.Time // of its last change
	Runs      int
	Mutations int
}

func (PutRun) change()          {}
func (PutMutation) change()     {}
func (Unlike) change()          {}
func (Setting) change()         {}
func (Within) change()          {}
func (Reserve) change()         {}
func (Release) change()         {}
func (Finish) change()          {}
func (Publish) change()         {}
func (SkipEvents) change()      {}
func (UnskipEvents) change()    {}
func (RedoEvents) change()      {}
func (PutInput) change()        {}
func (SkipInput) change()       {}
func (UnskipInput) change()     {}
func (SetKV) change()           {}
func (IfKV) change()            {}
func (ResetKV) change()         {}
func (PutHandler) change()      {}
func (RequestRun) change()      {}
func (LookAgain) change()       {}
func (Deploy) change()          {}
func (Sweep) change()           {}
func (PutGrant) change()        {}
func (UnderGrant) change()      {}
func (PutProposal) change()     {}
func (EndProposal) change()     {}
func (SetPaused) change()       {}
func (AppendDecision) change()  {}
func (AppendLogs) change()      {}
func (AppendTrace) change()     {}
func (OpenEscalation) change()  {}
func (CloseEscalation) change() {}
func (PutNotice) change()       {}
func (PutItem) change()         {}
