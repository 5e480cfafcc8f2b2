package memory

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/keep-run/keep"
)

// A Store keeps everything in maps. It is safe for concurrent use. Make one
// with New.
type Store struct {
	id      string
	linkKey []byte // nil: nobody asked yet; protected by mu

	// mu protects everything below. Values in the maps are never changed in
	// place: a change puts a new value, so that undoing it puts back the old.
	mu          sync.RWMutex
	rows        int64 // rows made so far; gives every row its place in lists
	seq         int64 // newest event
	workflows   map[keep.WorkflowName]keep.Workflow
	deployments map[keep.WorkflowName][]row[keep.Deployment]
	grants      map[keep.WorkflowName][]keep.Grant    // oldest first
	proposals   map[keep.WorkflowName][]keep.Proposal // oldest first
	handlers    map[handlerKey]keep.HandlerState
	kv          map[kvKey][]byte
	runs        map[keep.RunID]row[keep.Run]
	open        map[laneKey]keep.RunID // the run that is not closed
	logs        map[keep.RunID][]keep.LogLine
	decided     map[keep.Subject][]row[keep.Decided]
	traces      map[keep.RunID][]row[keep.TracePart]
	mutations   map[keep.MutationKey]row[keep.Mutation]
	moves       map[keep.MutationKey][]keep.Move
	events      map[int64]keep.Event     // by Seq
	eventIDs    map[eventKey]int64       // Seq by name
	topics      map[topicKey][]int64     // Seqs, oldest first
	caused      map[keep.InputID][]int64 // Seqs of the events that an input caused
	pinned      map[keep.RunID][]int64   // Seqs of the events that a chain reserved
	tried       map[keep.RunID][]int64   // Seqs of the events that a chain gave back, and what else it tried
	inputs      map[keep.InputID]row[keep.Input]
	inputKeys   map[inputKey]keep.InputID
	items       map[itemKey]row[keep.Item]
	escalations map[keep.EscalationID]row[keep.Escalation]
	notices     map[noticeKey]keep.Notice
	credentials map[string]row[keep.Credential]
	hooks       map[string]keep.HookCount
	accounts    map[accountKey]keep.Account
	gates       map[string]keep.Gate
	repairs     map[string]keep.Repair
	counters    map[counterTime]map[keep.WorkflowName]keep.Counter
	leases      map[keep.WorkflowName]lease
	hosts       map[keep.HostID]keep.Host // Held is counted when it is read
	news        uint64                    // how often hosts sent news
}

// A row is a value and its place in the order of making.
type row[T any] struct {
	n int64
	v T
}

type (
	handlerKey struct {
		workflow keep.WorkflowName
		handler  keep.HandlerName
	}
	kvKey struct {
		handlerKey
		key string
	}
	laneKey struct {
		workflow keep.WorkflowName
		lane     keep.Lane
	}
	topicKey struct {
		workflow keep.WorkflowName
		topic    keep.TopicName
	}
	eventKey struct {
		topicKey
		id keep.MessageID
	}
	inputKey struct {
		workflow                keep.WorkflowName
		source, typ, externalID string
	}
	noticeKey struct {
		escalation keep.EscalationID
		sink       keep.Sink
	}
	accountKey struct {
		kind keep.AccountKind
		name string
	}
	itemKey struct {
		workflow keep.WorkflowName
		id       string
	}
)

// New returns an empty store.
func New() *Store {
	return &Store{
		id:          rand.Text(),
		workflows:   make(map[keep.WorkflowName]keep.Workflow),
		deployments: make(map[keep.WorkflowName][]row[keep.Deployment]),
		grants:      make(map[keep.WorkflowName][]keep.Grant),
		proposals:   make(map[keep.WorkflowName][]keep.Proposal),
		handlers:    make(map[handlerKey]keep.HandlerState),
		kv:          make(map[kvKey][]byte),
		runs:        make(map[keep.RunID]row[keep.Run]),
		open:        make(map[laneKey]keep.RunID),
		logs:        make(map[keep.RunID][]keep.LogLine),
		decided:     make(map[keep.Subject][]row[keep.Decided]),
		traces:      make(map[keep.RunID][]row[keep.TracePart]),
		mutations:   make(map[keep.MutationKey]row[keep.Mutation]),
		moves:       make(map[keep.MutationKey][]keep.Move),
		events:      make(map[int64]keep.Event),
		eventIDs:    make(map[eventKey]int64),
		topics:      make(map[topicKey][]int64),
		caused:      make(map[keep.InputID][]int64),
		pinned:      make(map[keep.RunID][]int64),
		tried:       make(map[keep.RunID][]int64),
		inputs:      make(map[keep.InputID]row[keep.Input]),
		inputKeys:   make(map[inputKey]keep.InputID),
		items:       make(map[itemKey]row[keep.Item]),
		escalations: make(map[keep.EscalationID]row[keep.Escalation]),
		notices:     make(map[noticeKey]keep.Notice),
		credentials: make(map[string]row[keep.Credential]),
		hooks:       make(map[string]keep.HookCount),
		accounts:    make(map[accountKey]keep.Account),
		gates:       make(map[string]keep.Gate),
		repairs:     make(map[string]keep.Repair),
		counters:    make(map[counterTime]map[keep.WorkflowName]keep.Counter),
		leases:      make(map[keep.WorkflowName]lease),
		hosts:       make(map[keep.HostID]keep.Host),
	}
}

// LinkKey returns what links to questions are signed with; see store.Links.
func (s *Store) LinkKey(ctx context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.linkKey == nil {
		s.linkKey = make([]byte, 32)
		rand.Read(s.linkKey) // never fails
	}
	return slices.Clone(s.linkKey), context.Cause(ctx)
}

// MayHost returns nil: no other process has the store; see store.Hosting.
func (s *Store) MayHost() error { return nil }

// StoreID returns the random name that the store was given when it was made.
func (s *Store) StoreID(ctx context.Context) (string, error) { return s.id, ctx.Err() }

// Commit makes all changes of c, or none; see store.Committer.
func (s *Store) Commit(ctx context.Context, c keep.Commit) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("commit %s: %w", c.Workflow, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &tx{s: s, workflow: c.Workflow, at: clean(c.At)}
	if err := t.applyAll(c); err != nil {
		t.rollback()
		return fmt.Errorf("commit %s: %w", c.Workflow, keep.Refused(err))
	}
	return nil
}

// A tx is one commit under way: the store, and how to undo what was done.
type tx struct {
	s        *Store
	workflow keep.WorkflowName
	at       time.Time
	undo     []func()
}

// applyAll makes the changes in their order, up to the first that is refused.
func (t *tx) applyAll(c keep.Commit) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := t.fence(c.Epoch); err != nil {
		return err
	}
	for _, change := range c.Changes {
		if err := t.apply(change); err != nil {
			return err
		}
	}
	return nil
}

// rollback undoes what was done, last things first.
func (t *tx) rollback() {
	for _, f := range slices.Backward(t.undo) {
		f()
	}
}

// own refuses a record of another workflow than the commit's.
func (t *tx) own(what string, id any, w keep.WorkflowName) error {
	if w != t.workflow {
		return fmt.Errorf("%s %v belongs to workflow %q", what, id, w)
	}
	return nil
}

// next returns the place of a new row.
func (t *tx) next() int64 {
	was := t.s.rows
	t.undo = append(t.undo, func() { t.s.rows = was })
	t.s.rows++
	return t.s.rows
}

// put sets m[k] until the commit is undone.
func put[K comparable, V any](t *tx, m map[K]V, k K, v V) {
	remember(t, m, k)
	m[k] = v
}

// drop deletes m[k] until the commit is undone.
func drop[K comparable, V any](t *tx, m map[K]V, k K) {
	remember(t, m, k)
	delete(m, k)
}

// remember notes how to put m[k] back.
func remember[K comparable, V any](t *tx, m map[K]V, k K) {
	was, had := m[k]
	t.undo = append(t.undo, func() {
		if had {
			m[k] = was
		} else {
			delete(m, k)
		}
	})
}

// sortedKeys returns the keys of m in order: nothing leaves a map unsorted.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
