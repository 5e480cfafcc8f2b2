package rehearsal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/schedule"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/memory"
)

// A Base is a database whose state a rehearsal begins with. It is read only, and wide
// because scripts may read every noun.
type Base interface {
	store.Workflows
	store.Checkpoints
	store.Runs
	store.Events
	store.Topics
	store.Mutations
	store.Rivals
	store.Items
	store.Doubts
	store.Limits
	host.Names
}

// MaxPending is how many pending events of one topic a rehearsal begins with.
const MaxPending = 1000

// An overlay is a store in memory over a base: what the script asks by name is copied
// from the base when it is first asked for. Only what a run depends on is there.
type overlay struct {
	host.Store // in memory; without leases, which memory.Store has
	memory     *memory.Store
	base       Base          // nil: none
	bare       time.Duration // interval of a handler without a schedule

	// seen answers what a script reads of a checkpoint; nil: the base does.
	seen func(producer keep.HandlerName, key string) ([]byte, error)

	mu      sync.Mutex // protects all below
	kv      map[kvKey]bool
	sizing  bool                       // what is read of a checkpoint is to know its size, and no script reads it
	stored  map[string]json.RawMessage // checkpoints that were written; nil: deleted
	inDoubt []keep.Mutation            // of the base, in items
	runs    map[keep.RunID]bool
	maxRuns int                 // zero: no limit
	rest    map[keep.RunID]bool // chains for which nothing more is done without a person
	works   int                 // of them; zero: no limit
	full    func()              // called when there are that many
	broke   func(error)         // called when the base cannot be read; nil: nothing is executed yet
}

// known returns what a read of the base, in the middle of the rehearsal, failed with. An engine tries a store that fails again
// until it answers; nobody mends the one that a rehearsal looks at, so the rehearsal ends.
func (o *overlay) known(err error) error {
	if err == nil || errors.Is(err, keep.ErrNotFound) {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.broke != nil {
		o.broke(err)
	}
	return err
}

type kvKey struct {
	producer keep.HandlerName
	key      string // empty: all of the producer's
}

func newOverlay(base Base, bare time.Duration) *overlay {
	m := memory.New()
	return &overlay{Store: m, memory: m, base: base, bare: bare, kv: make(map[kvKey]bool), stored: make(map[string]json.RawMessage),
		runs: make(map[keep.RunID]bool), rest: make(map[keep.RunID]bool)}
}

// Commit implements store.Committer. An event that the base has and is finished or
// reserved stays as it is, so publishing it again changes nothing. A value that the base has of a checkpoint
// stays as it was read.
func (o *overlay) Commit(ctx context.Context, c keep.Commit) error {
	for i := 0; o.base != nil && i < len(c.Changes); i++ {
		if v, ok := c.Changes[i].(keep.IfKV); ok && !o.owns(v.Producer, v.Key) {
			c.Changes = slices.Delete(slices.Clone(c.Changes), i, i+1)
			i--
			continue
		}
		p, ok := c.Changes[i].(keep.Publish)
		if !ok {
			continue
		}
		e, err := o.base.Event(ctx, c.Workflow, p.Event.Topic, p.Event.MessageID)
		switch {
		case errors.Is(err, keep.ErrNotFound):
		case err != nil:
			return o.known(err)
		case !e.Free():
			c.Changes = slices.Delete(slices.Clone(c.Changes), i, i+1)
			i--
		}
	}
	if err := o.memory.Commit(ctx, c); err != nil {
		return err
	}
	o.note(c)
	return nil
}

// note writes down what the rehearsal itself has written.
func (o *overlay) note(c keep.Commit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, change := range c.Changes {
		switch c := change.(type) {
		case keep.SetKV:
			o.kv[kvKey{c.Producer, c.Key}] = true
			o.stored[c.Key] = c.Value
		case keep.ResetKV:
			o.kv[kvKey{c.Producer, ""}] = true
		case keep.PutRun:
			o.sizing = false
			o.runs[c.Run.ID] = true
			if o.maxRuns > 0 && len(o.runs) >= o.maxRuns {
				o.full()
			}
			if o.rest[c.Run.Chain] = rests(c.Run); o.works > 0 && count(o.rest) >= o.works {
				o.full()
			}
		}
	}
}

// rests reports whether nothing more is done for the chain of r without a person.
func rests(r keep.Run) bool {
	switch r.Status {
	case keep.StatusCommitted, keep.StatusAborted:
		return r.Closed
	case keep.StatusApproval, keep.StatusPerson, keep.StatusLogic, keep.StatusInternal:
		return !r.Closed
	}
	return false
}

func count(of map[keep.RunID]bool) (n int) {
	for _, is := range of {
		if is {
			n++
		}
	}
	return n
}

// owns reports whether what there is of a key of a checkpoint is in memory, and not in the base.
func (o *overlay) owns(producer keep.HandlerName, key string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.base == nil || o.kv[kvKey{producer, key}] || o.kv[kvKey{producer, ""}]
}

// KV implements store.Checkpoints.
func (o *overlay) KV(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName, key string) ([]byte, error) {
	own := o.owns(producer, key)
	o.mu.Lock()
	seen := o.seen
	if o.sizing || strings.HasPrefix(string(producer), string(keep.PaidAnswers(""))) {
		seen = nil
	}
	o.mu.Unlock()
	if own {
		return o.memory.KV(ctx, w, producer, key)
	}
	if seen != nil {
		value, err := seen(producer, key)
		return value, o.known(err)
	}
	value, err := o.base.KV(ctx, w, producer, key)
	return value, o.known(err)
}

// KVSize implements store.Checkpoints. The engine asks when a producer has come to its end, and then for the values that are
// replaced.
func (o *overlay) KVSize(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName) (int, error) {
	size, err := o.memory.KVSize(ctx, w, producer)
	o.mu.Lock()
	o.sizing = true
	replaced := []string{}
	for k := range o.kv {
		if k.producer == producer {
			replaced = append(replaced, k.key)
		}
	}
	o.mu.Unlock()
	if err != nil || o.base == nil || slices.Contains(replaced, "") {
		return size, err
	}
	before, err := o.base.KVSize(ctx, w, producer)
	if err != nil {
		return 0, o.known(err)
	}
	for _, key := range replaced {
		old, err := o.base.KV(ctx, w, producer, key)
		if err != nil {
			return 0, o.known(err)
		}
		if old != nil {
			before -= len(key) + len(old)
		}
	}
	return size + before, nil
}

// EventsByID implements store.Events. Events that only the base has are finished or
// reserved there.
func (o *overlay) EventsByID(ctx context.Context, w keep.WorkflowName, t keep.TopicName, ids []keep.MessageID) ([]keep.Event, error) {
	mine, err := o.memory.EventsByID(ctx, w, t, ids)
	if err != nil || o.base == nil || len(mine) == len(ids) {
		return mine, err
	}
	theirs, err := o.base.EventsByID(ctx, w, t, ids)
	if err != nil {
		return nil, o.known(err)
	}
	var out []keep.Event
	for _, id := range ids {
		is := func(e keep.Event) bool { return e.MessageID == id }
		if i := slices.IndexFunc(mine, is); i >= 0 {
			out = append(out, mine[i])
		} else if i := slices.IndexFunc(theirs, is); i >= 0 {
			out = append(out, theirs[i])
		}
	}
	return out, nil
}

// Item implements store.Items.
func (o *overlay) Item(ctx context.Context, w keep.WorkflowName, id string) (keep.Item, error) {
	it, err := o.memory.Item(ctx, w, id)
	if o.base == nil || !errors.Is(err, keep.ErrNotFound) {
		return it, err
	}
	if it, err = o.base.Item(ctx, w, id); err != nil {
		return it, o.known(err)
	}
	at := it.UpdatedAt
	it.Rev = 0
	if err := o.memory.Commit(ctx, keep.Commit{Workflow: w, At: at, Changes: []keep.Change{keep.PutItem{Item: it}}}); err != nil {
		return keep.Item{}, fmt.Errorf("copy item %q: %w", id, err)
	}
	return o.memory.Item(ctx, w, id)
}

// ItemDoubts implements store.Doubts. A rehearsal asks nobody what became of a call that the base has in doubt, so its item stays as
// it is: as that of one which a person has to be asked about.
func (o *overlay) ItemDoubts(ctx context.Context, w keep.WorkflowName) ([]keep.Mutation, error) {
	mine, err := o.memory.ItemDoubts(ctx, w)
	if err != nil || o.base == nil {
		return mine, err
	}
	theirs, err := o.base.ItemDoubts(ctx, w)
	if err != nil {
		return nil, o.known(err)
	}
	o.mu.Lock()
	o.inDoubt = theirs
	o.mu.Unlock()
	out := slices.Clone(theirs)
	for i := range out {
		out[i] = lifecycle.OnlyForPerson(out[i])
	}
	for _, m := range mine { // it may be one of theirs that was copied
		if !slices.ContainsFunc(theirs, func(o keep.Mutation) bool { return o.Key == m.Key }) {
			out = append(out, m)
		}
	}
	return out, nil
}

// Mutation implements store.Mutations.
func (o *overlay) Mutation(ctx context.Context, key keep.MutationKey) (keep.Mutation, error) {
	m, err := o.memory.Mutation(ctx, key)
	if o.base == nil || !errors.Is(err, keep.ErrNotFound) {
		return m, err
	}
	if m, err = o.base.Mutation(ctx, key); err != nil {
		return m, o.known(err)
	}
	at := m.UpdatedAt
	m.Rev = 0
	if err := o.memory.Commit(ctx, keep.Commit{Workflow: m.Workflow, At: at, Changes: []keep.Change{keep.PutMutation{Mutation: m}}}); err != nil {
		return keep.Mutation{}, fmt.Errorf("copy mutation %s: %w", key, err)
	}
	return o.memory.Mutation(ctx, key)
}

// Mutations returns the records of an item with those of the base: a run looks among them for calls that were made when their tool
// had another name or identity. Other lists are of the rehearsal alone.
func (o *overlay) Mutations(ctx context.Context, f keep.MutationFilter, p keep.Page) ([]keep.Mutation, string, error) {
	if o.base == nil || f.Item == "" {
		return o.memory.Mutations(ctx, f, p)
	}
	mine, err := whole(ctx, o.memory.Mutations, f)
	if err != nil {
		return nil, "", err
	}
	theirs, err := whole(ctx, o.base.Mutations, f)
	if err != nil {
		return nil, "", o.known(err)
	}
	for _, m := range theirs {
		if !slices.ContainsFunc(mine, func(o keep.Mutation) bool { return o.Key == m.Key }) {
			mine = append(mine, m)
		}
	}
	return mine, "", nil
}

// Rival implements store.Rivals. What the base has was done, or may have been, whatever the rehearsal does.
func (o *overlay) Rival(ctx context.Context, u keep.Unlike) (keep.Mutation, bool, error) {
	if o.base != nil {
		if m, there, err := o.base.Rival(ctx, u); there || err != nil {
			return m, there, o.known(err)
		}
	}
	return o.memory.Rival(ctx, u)
}

// begin copies what the first decisions depend on: when handlers are due, and the
// pending events, of which take selects. It returns of how many topics some were left out.
func (o *overlay) begin(ctx context.Context, d keep.Definition, now time.Time, take func(keep.Event) bool) (more int, err error) {
	if o.base == nil {
		return 0, nil
	}
	w, err := o.base.Workflow(ctx, d.Name)
	if errors.Is(err, keep.ErrNotFound) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	var before keep.Deployment // none is in force while the first waits
	if !w.Version.IsZero() {
		if before, err = o.base.Deployment(ctx, d.Name, w.Version); err != nil {
			return 0, err
		}
	}
	c := keep.Commit{Workflow: d.Name, At: now}
	states, err := o.base.Handlers(ctx, d.Name)
	if err != nil {
		return 0, err
	}
	for _, s := range states {
		h, ok := d.Handler(s.Handler)
		if !ok {
			continue
		}
		if s, err = schedule.Deployed(h, states, before, o.bare, now); err != nil {
			return 0, err
		}
		s.LastRun, s.IdleSeq = "", 0 // runs and events of the rehearsal have other numbers
		if s.Workflow == d.Name {
			c.Changes = append(c.Changes, keep.PutHandler{State: s})
		}
	}
	pending, more, err := o.pending(ctx, d)
	if err != nil {
		return 0, err
	}
	if len(c.Changes) > 0 {
		err = o.memory.Commit(ctx, c)
	}
	for _, e := range pending {
		if err == nil && (take == nil || take(e)) {
			err = o.publish(ctx, e)
		}
	}
	return more, err
}

// publish makes an event pending as it is in the base: since when, and at which attempt.
func (o *overlay) publish(ctx context.Context, e keep.Event) error {
	commit := func(at time.Time, changes ...keep.Change) error {
		return o.memory.Commit(ctx, keep.Commit{Workflow: e.Workflow, At: at, Changes: changes})
	}
	e.CreatedBy, e.CausedBy = given, nil
	err := commit(e.CreatedAt, keep.Publish{Event: e})
	ids := []keep.MessageID{e.MessageID}
	for i, r := range e.Redone {
		if err == nil {
			err = commit(r.At, keep.SkipEvents{Topic: e.Topic, IDs: ids},
				keep.RedoEvents{Topic: e.Topic, IDs: ids, Attempt: i + 1, By: r.By, From: r.From, Note: r.Note})
		}
	}
	return err
}

// pending returns the free events of the base in the order of publishing, and of how many topics some were left out.
func (o *overlay) pending(ctx context.Context, d keep.Definition) (events []keep.Event, more int, err error) {
	for _, topic := range d.Topics {
		free, err := o.base.Peek(ctx, d.Name, topic, MaxPending+1)
		if err != nil {
			return nil, 0, err
		}
		more += max(0, len(free)-MaxPending)
		events = append(events, free[:min(len(free), MaxPending)]...)
	}
	slices.SortFunc(events, func(a, b keep.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	return events, more, nil
}
