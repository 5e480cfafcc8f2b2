package commit

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// Keys of records whose ids are unique within a workflow only.
type (
	EventKey struct {
		Workflow keep.WorkflowName
		Topic    keep.TopicName
		ID       keep.MessageID
	}
	TopicKey struct {
		Workflow keep.WorkflowName
		Topic    keep.TopicName
	}
	InputKey struct {
		Workflow                 keep.WorkflowName
		Source, Type, ExternalID string
	}
	ItemKey struct {
		Workflow keep.WorkflowName
		ID       string
	}
	HandlerKey struct {
		Workflow keep.WorkflowName
		Handler  keep.HandlerName
	}
	KVKey struct {
		Workflow keep.WorkflowName
		Producer keep.HandlerName
		Key      string
	}
	LaneKey struct {
		Workflow keep.WorkflowName
		Lane     keep.Lane
	}
	IdentityKey struct {
		Tool             keep.ToolName
		Identity, Subkey string
	}
	SettingKey struct {
		Tool     keep.ToolName
		Identity string
	}
	VersionKey struct {
		Workflow keep.WorkflowName
		Version  keep.Version
	}
	NoticeKey struct {
		Escalation keep.EscalationID
		Sink       keep.Sink
	}
)

// A Row is what all records have in common.
type Row struct {
	N   int64 // the store's number of the row; the law only carries it
	New bool  // made by this commit
	Was int   // in a plan: the revision that is stored, if the record has one

	planned bool // in the plan
}

// The records of a snapshot. Of those that exist, a store sets Row.N and the fields
// of the first group; Put is what a plan writes.
type (
	Run struct {
		Row
		Workflow keep.WorkflowName
		Chain    keep.RunID
		Handler  keep.HandlerName
		Kind     keep.Kind
		Rev      int

		Put *keep.Run // its Rev is that which is stored
	}
	Mutation struct {
		Row
		Workflow keep.WorkflowName
		Tool     keep.ToolName
		Item     string
		Attempt  int
		Rev      int
		Summed   bool // it may be in sums of budgets

		Put   *keep.Mutation // its Rev is that which is stored
		moves int            // of a new one, in the plan
	}
	Event struct {
		Row
		EventKey
		Status     keep.EventStatus
		ReservedBy keep.RunID
		Causes     []keep.InputID // sorted
		Redone     []keep.Redo    // as stored, then as it is written if Redo is set
		Attempt    int            // of one that is only expected; else 0, and Redone says it

		Put         *keep.Event // if it is new or Republished: as it was published last
		Republished bool        // it was there, and gets another payload and more causes
		Moved       bool        // ReservedBy changed
		Redo        bool        // Redone changed
	}
	Input struct {
		Row
		Workflow   keep.WorkflowName
		ID         keep.InputID
		Expected   bool // no record that was read says that it exists
		Unfinished int  // its stored count

		Put       keep.Input // if it is new
		Skipped   bool       // by this commit
		Unskipped bool       // by this commit
		By        int        // change of its unfinished events
	}
	Item struct {
		Row
		Rev     int
		Status  keep.ItemStatus
		Attempt int
		Swept   int // see keep.Item

		Put keep.Item // its Rev is that which is stored
	}
	Escalation struct {
		Row
		Workflow keep.WorkflowName
		Open     bool

		Put      keep.Escalation // if it is new
		Closed   bool            // by this commit
		Decision keep.Decision   // if it was closed by a person
	}
	Notice struct {
		Row
		keep.Notice // as stored, then as it is written
	}
	Workflow struct {
		Row
		keep.Workflow // as stored, then as it is written
	}
	Proposal struct {
		Row
		Version keep.Version
		State   keep.ProposalState

		Put *keep.Proposal // if it is new
	}
	Handler struct {
		Row
		keep.HandlerState           // as stored, then as it is written
		Was               time.Time // RequestedAt as stored
	}
	Chain struct {
		Workflow keep.WorkflowName
		Over     bool // keep.Sweep may take it

		swept bool
	}
)

// free reports whether a run may reserve the event.
func (e *Event) free() bool { return e.Status == keep.EventPending && e.ReservedBy == "" }

// attempt returns at which attempt the event is.
func (e *Event) attempt() int { return max(e.Attempt, 1+len(e.Redone)) }

// A Snapshot is what is known of the records that commits touch. What was read and is
// not in a table does not exist. A decision changes it, so that a later change of the
// commit is judged by what an earlier one did.
type Snapshot struct {
	Runs        Table[keep.RunID, *Run]
	Open        Table[LaneKey, keep.RunID] // the run that is not closed; empty: none
	Mutations   Table[keep.MutationKey, *Mutation]
	Rivals      Table[IdentityKey, []keep.MutationKey] // records of an identity that may have had their effect
	Settings    Table[SettingKey, []keep.Mutation]     // records of an identity that may be in the way of a keep.Setting: what its Bars looks at
	Spending    Table[keep.MutationKey, keep.Mutation] // records that count in budgets: Key, State, Spent and SpentAt
	Summed      Table[SummedKey, keep.Amount]          // what other records count, those of Spending apart
	Events      Table[EventKey, *Event]
	Unread      Table[TopicKey, bool] // topics whose free events count for no input
	Inputs      Table[keep.InputID, *Input]
	InputKeys   Table[InputKey, keep.InputID]
	Items       Table[ItemKey, *Item]
	Escalations Table[keep.EscalationID, *Escalation]
	Notices     Table[NoticeKey, *Notice]
	Workflows   Table[keep.WorkflowName, *Workflow]
	Proposals   Table[VersionKey, *Proposal]
	Handlers    Table[HandlerKey, *Handler]
	KVs         Table[KVKey, json.RawMessage] // nil: there is none
	Chains      Table[keep.RunID, *Chain]

	// What commits did that were decided on this snapshot: Chain.Over, which was read
	// before, does not know of an item that was over and is no more, nor an item of a
	// chain that is forgotten.
	reopened Table[keep.WorkflowName, bool]
	swept    Table[keep.WorkflowName, bool]
}

// A Table has records by their keys. Most commits touch one record of a kind, for
// which a list costs a tenth of a map.
type Table[K comparable, V any] struct {
	list  []entry[K, V]
	index map[K]int // of a list that is longer than few
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// few entries of a list are compared one by one.
const few = 8

// find returns the place of a key, or -1.
func (t *Table[K, V]) find(key K) int {
	if t.index != nil {
		if i, ok := t.index[key]; ok {
			return i
		}
		return -1
	}
	return slices.IndexFunc(t.list, func(e entry[K, V]) bool { return e.key == key })
}

// Get returns the record of a key, or the zero value.
func (t *Table[K, V]) Get(key K) (value V) {
	if i := t.find(key); i >= 0 {
		return t.list[i].value
	}
	return value
}

// Has reports whether there is a record of a key.
func (t *Table[K, V]) Has(key K) bool { return t.find(key) >= 0 }

// Put puts a record in, and returns it.
func (t *Table[K, V]) Put(key K, value V) V {
	if i := t.find(key); i >= 0 {
		t.list[i].value = value
		return value
	}
	t.list = append(t.list, entry[K, V]{key, value})
	switch {
	case t.index != nil:
		t.index[key] = len(t.list) - 1
	case len(t.list) > few:
		t.index = make(map[K]int)
		for i, e := range t.list {
			t.index[e.key] = i
		}
	}
	return value
}

// AddEvent adds an event, once.
func (s *Snapshot) AddEvent(e *Event) {
	if s.Events.Get(e.EventKey) == nil {
		s.Events.Put(e.EventKey, e)
	}
}

// AddRival adds a record that may have had its effect.
func (s *Snapshot) AddRival(k IdentityKey, m keep.MutationKey) {
	if known := s.Rivals.Get(k); !slices.Contains(known, m) {
		s.Rivals.Put(k, append(slices.Clone(known), m))
	}
}

// AddSetting adds a record that may be in the way of a keep.Setting.
func (s *Snapshot) AddSetting(k SettingKey, m keep.Mutation) {
	s.Settings.Put(k, append(slices.Clone(s.Settings.Get(k)), keep.Mutation{Key: m.Key, PayloadHash: m.PayloadHash, State: m.State, Attempts: m.Attempts, Doubted: m.Doubted,
		CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt, NextReconcileAt: m.NextReconcileAt, CallDeadline: m.CallDeadline}))
}

// AddSpending adds a record that counts in budgets.
func (s *Snapshot) AddSpending(m keep.Mutation) {
	s.Spending.Put(m.Key, keep.Mutation{Key: m.Key, State: m.State, Spent: m.Spent, SpentAt: m.SpentAt})
}

// AddSummed adds what is summed for a call. If it is asked for twice, as when a group has its commit of two times, the
// larger sum holds for both.
func (s *Snapshot) AddSummed(k SummedKey, sum keep.Amount) {
	s.Summed.Put(k, max(sum, s.Summed.Get(k)))
}

// A SummedKey is a name of a budget, and the call for which its window was summed, without that call.
type SummedKey struct {
	Key  keep.MutationKey
	Name string
}

// AddInput adds an input that was read, once.
func (s *Snapshot) AddInput(in *Input, key InputKey) {
	if s.Inputs.Get(in.ID) == nil {
		s.Inputs.Put(in.ID, in)
	}
	s.InputKeys.Put(key, in.ID)
}
