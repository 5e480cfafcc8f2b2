// Package feed tells those who look at a host what has changed, so that they
// look again. It carries names and no data: what a change means is read from the
// store, by the rights of who reads.
//
// # Guarantees
//
//   - Publishing never waits for a subscriber, and costs the same with none and
//     with thousands.
//   - A subscriber sees every change after its start, in order, or a Reset
//     instead of those that it missed. A Reset means: read everything again.
//   - Changes that wait are merged, one for each workflow, so a subscriber that
//     is slower than the host gets fewer and never falls behind for long.
//
// A feed remembers its last changes in a ring. A subscription is a place in it
// and holds no changes of its own, so that it costs a few bytes.
package feed

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/keep-run/keep"
)

// A Kind says what changed.
type Kind string

const (
	Run        Kind = "run"        // its phase or status, or a line of its log
	Event      Kind = "event"      // published, reserved, consumed or skipped
	Input      Kind = "input"      // made, skipped, or how far it came
	Mutation   Kind = "mutation"   // a record of the ledger
	Item       Kind = "item"       // of a job
	Escalation Kind = "escalation" // a question was asked or answered
	Workflow   Kind = "workflow"   // its version, its pause, or a handler of it
	Key        Kind = "key"        // an idempotency key of an HTTP request

	// Credential means that a token or a session was made or has ended.
	Credential Kind = "credential"

	// Reset means that anything may have changed.
	Reset Kind = "reset"
)

// Kinds returns every kind, in the order in which changes name them.
func Kinds() []Kind {
	return []Kind{Run, Event, Input, Mutation, Item, Escalation, Workflow, Key, Credential, Reset}
}

// Looked returns the kinds of what a workflow has: somebody changed it, and it is
// not known what.
func Looked() []Kind { return []Kind{Run, Event, Input, Mutation, Item, Escalation, Workflow} }

// A Change says that something changed, and not how.
type Change struct {
	// ID is where to continue from: all before it, and it, were seen. It is empty
	// in a change that was merged and handed out before the last of its batch.
	ID       string
	Workflow keep.WorkflowName // empty: of no workflow in particular
	Kinds    []Kind            // in the order of Kinds, each once
}

// IsReset reports whether everything is to be read again.
func (c Change) IsReset() bool { return slices.Contains(c.Kinds, Reset) }

// A Feed hands changes to subscribers. It is safe for concurrent use.
type Feed struct {
	epoch string // tells this feed's ids from those of an earlier process
	size  uint64 // of the ring, when it is full

	mu   sync.Mutex // protects the fields below
	ring []Change   // change n is at n-1 modulo size; it grows, for many hosts never see so many
	next uint64     // number of the next change, from 1
	more chan struct{}
}

// New returns a feed that remembers its last size changes; at least one.
func New(size int) *Feed {
	return &Feed{epoch: rand.Text()[:12], size: uint64(max(size, 1)), next: 1, more: make(chan struct{})}
}

// Publish tells every subscriber of a change; its ID is ignored. One without
// kinds is nothing.
func (f *Feed) Publish(c Change) {
	if len(c.Kinds) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c.ID = f.id(f.next)
	if at := (f.next - 1) % f.size; at < uint64(len(f.ring)) {
		f.ring[at] = c
	} else {
		f.ring = append(f.ring, c)
	}
	f.next++
	close(f.more) // wakes all that wait, and no one has to be waited for
	f.more = make(chan struct{})
}

// Reset tells every subscriber to read everything again.
func (f *Feed) Reset() { f.Publish(Change{Kinds: []Kind{Reset}}) }

// Last returns the ID of the newest change. Whoever reads the store after this call
// may continue from it, and misses nothing.
func (f *Feed) Last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id(f.next - 1)
}

// id writes the id of change n.
func (f *Feed) id(n uint64) string { return fmt.Sprintf("%s-%d", f.epoch, n) }

// A Subscription is one reader's place in a feed. It is used by one goroutine,
// and needs no end: it holds nothing.
type Subscription struct {
	feed *Feed
	at   uint64 // number of the next change to hand out
	lost bool   // begin with a Reset
}

// Subscribe returns a subscription that begins after the change with that ID. An
// ID that is not remembered any more, or is of another process, begins with a
// Reset. An empty one begins with what comes next.
func (f *Feed) Subscribe(_ context.Context, after string) *Subscription {
	f.mu.Lock()
	defer f.mu.Unlock()
	if after == "" {
		return &Subscription{feed: f, at: f.next}
	}
	epoch, text, _ := strings.Cut(after, "-")
	n, err := strconv.ParseUint(text, 10, 64)
	if epoch != f.epoch || err != nil || n >= f.next {
		return &Subscription{feed: f, at: f.next, lost: true}
	}
	return &Subscription{feed: f, at: n + 1}
}

// Next waits for changes and returns all that there are, one for each workflow,
// or one Reset instead. It returns the cause when ctx ends.
func (s *Subscription) Next(ctx context.Context) ([]Change, error) {
	for {
		batch, more := s.take()
		if len(batch) > 0 {
			return batch, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// take returns what there is, or what to wait for. Publishing waits only while the
// changes are copied, not while they are merged.
func (s *Subscription) take() ([]Change, <-chan struct{}) {
	changes, more := s.copy()
	batch := merge(changes)
	for i := range len(batch) - 1 {
		batch[i].ID = "" // to continue from here would leave out some of the others
	}
	return batch, more
}

// copy returns the changes that there are, and what to wait for if there are none.
func (s *Subscription) copy() ([]Change, <-chan struct{}) {
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if missed := f.next-s.at > f.size; missed || s.lost {
		s.at, s.lost = f.next, false
		return []Change{{ID: f.id(f.next - 1), Kinds: []Kind{Reset}}}, nil
	}
	changes := make([]Change, 0, f.next-s.at)
	for ; s.at < f.next; s.at++ {
		changes = append(changes, f.ring[(s.at-1)%f.size])
	}
	return changes, f.more
}

// merge returns one change for each workflow, in the place of its newest, and a Reset
// instead of all that came before it. The last has the newest ID.
func merge(changes []Change) []Change {
	var batch []Change // newest first
	place := make(map[keep.WorkflowName]int)
	for _, c := range slices.Backward(changes) {
		if c.IsReset() {
			batch = append(batch, c)
			break
		}
		if i, ok := place[c.Workflow]; ok {
			batch[i].Kinds = append(batch[i].Kinds, c.Kinds...)
			continue
		}
		place[c.Workflow] = len(batch)
		c.Kinds = slices.Clone(c.Kinds)
		batch = append(batch, c)
	}
	for i := range batch {
		batch[i].Kinds = ordered(batch[i].Kinds)
	}
	slices.Reverse(batch)
	return batch
}

// ordered returns kinds in the order of Kinds, each once.
func ordered(kinds []Kind) []Kind {
	var out []Kind
	for _, k := range Kinds() {
		if slices.Contains(kinds, k) {
			out = append(out, k)
		}
	}
	return out
}
