// Package trace is what a run saw and how long it took: its phases, reads, calls and lookups,
// bounded and compressed, as stores keep them beside the run (docs/traces.md).
//
// A trace is evidence for people and for a replay, never for the engine: nothing that is
// done depends on it. It is written with the commits that a run makes anyway, so a host that
// dies loses what the run saw since its last commit, as it loses the run's phase.
package trace

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/keep-run/keep"
)

// A What is a kind of entry.
type What string

// The kinds of entries.
const (
	Phase  What = "phase"  // a phase of the script, with its whole time
	Read   What = "read"   // an answer that the script got from outside: of a tool, a topic, a checkpoint, an item
	Call   What = "call"   // a call of a mutate tool; its payload and outcome are in the ledger
	Lookup What = "lookup" // a question to the service what became of a call
	Wait   What = "wait"   // a read that had no answer yet when this was stored; it follows, with the same time
)

// An Entry is one thing that a run did.
type Entry struct {
	Phase string `json:"phase"`
	What  What   `json:"what"`
	Tool  string `json:"tool,omitempty"` // or the name of the host call, such as "kv.get"

	// Params are what a read was asked with, and the key of a call or lookup.
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *keep.Failure   `json:"error,omitempty"`

	At  time.Time `json:"at"`  // when it began
	MS  float64   `json:"ms"`  // how long it took, in milliseconds
	Cut bool      `json:"cut"` // the result, or the params too, did not fit in and is left out

	Script *Script `json:"script,omitempty"` // of a phase: what a replay needs besides its reads
}

// ReadsCheckpoint reports whether the result of e is what a producer keeps in its checkpoint, which is shown to admins alone.
func (e Entry) ReadsCheckpoint() bool { return e.What == Read && e.Tool == "kv.get" }

// A Script is what a phase of a script was called with and what came of it, as far as the run
// does not have it elsewhere. What is large is here as its Digest.
type Script struct {
	Clock time.Time `json:"clock"` // where its clock stood
	Seed  []byte    `json:"seed"`  // what its chance came from
	In    Sum       `json:"in"`    // its arguments
	Out   Sum       `json:"out"`   // what it returned, or the call that ended it

	Published Sum `json:"published,omitempty"` // what it published, in order
	Stored    Sum `json:"stored,omitempty"`    // what it wrote with ctx.kv
}

// A Sum tells lists of values apart: the first 18 bytes of a SHA-256. It is empty if there is no
// list; as a text it is base64.
type Sum string

const digestSize = 18

// MarshalText returns s in base64.
func (s Sum) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, []byte(s)), nil
}

// UnmarshalText reads base64.
func (s *Sum) UnmarshalText(text []byte) error {
	b, err := base64.RawURLEncoding.AppendDecode(nil, text)
	*s = Sum(b)
	return err
}

// Digest returns the Sum of values. A nil value is another than an empty one.
func Digest[T ~[]byte](values ...T) Sum {
	room := borrow()
	b := *room
	for _, v := range values {
		is := byte(1)
		if v == nil {
			is = 0
		}
		b = binary.BigEndian.AppendUint64(append(b, is), uint64(len(v)))
		b = append(b, v...)
	}
	sum := sha256.Sum256(b)
	giveBack(room, b)
	return Sum(sum[:digestSize])
}

// A Trace is what is kept of a run.
type Trace struct {
	Entries []Entry
	Dropped int  // entries that did not fit in
	Gap     bool // a part before another one is not kept any more
}

// Under returns the read that had no answer yet when the trace was stored; false: none.
func (t Trace) Under() (Entry, bool) {
	if len(t.Entries) == 0 {
		return Entry{}, false
	}
	e := t.Entries[len(t.Entries)-1]
	return e, e.What == Wait
}

// A Recorder collects the entries of one run, up to a limit. It is safe for concurrent use.
// A nil Recorder keeps nothing.
type Recorder struct {
	mu      sync.Mutex
	left    int     // bytes that still fit in
	pending []byte  // encoded entries, not stored yet
	room    *[]byte // borrowed for pending
	many    int     // how many are in pending
	stored  int     // how many were stored before
	dropped int     // not stored yet
	due     bool    // there is a read among them
	full    bool    // an entry did not fit in: later ones are only counted
	under   *Entry  // the read under way
	said    bool    // an entry says that it waits
}

// NewRecorder returns a Recorder of at most limit bytes of entries before they are
// compressed; 0 or less: nil.
func NewRecorder(limit int) *Recorder {
	if limit <= 0 {
		return nil
	}
	return &Recorder{left: limit}
}

// Add keeps an entry, without its result if that does not fit in, or else only counts it.
func (r *Recorder) Add(e Entry) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(e)
}

// Begin says that a read is under way.
func (r *Recorder) Begin(e Entry) {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.under, r.said = &e, false
	}
}

// End says that the read under way is over, and keeps it; the zero Entry: it saw nothing.
func (r *Recorder) End(e Entry) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.under = nil
	if e.What != "" {
		r.add(e)
	}
}

// Waits keeps that the read under way has no answer yet, if there is one, and reports
// whether that is new.
func (r *Recorder) Waits() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.under == nil || r.said {
		return false
	}
	e := *r.under
	e.What, r.said = Wait, true
	r.add(e)
	return true
}

func (r *Recorder) add(e Entry) {
	if r.full {
		r.dropped++
		return
	}
	e.At = e.At.UTC()
	if len(e.Params)+len(e.Result) < r.left && r.put(e) {
		return
	}
	if e.Result != nil {
		e.Result, e.Cut = nil, true
	}
	if len(e.Params) < r.left && r.put(e) {
		return
	}
	e.Params, e.Cut = nil, true
	if !r.put(e) {
		r.full = true
		r.dropped++
	}
}

// put appends the entry if it fits in. Its params and result are JSON: whoever gave them
// to a script, or took them, has looked.
func (r *Recorder) put(e Entry) bool {
	if r.room == nil {
		r.room = borrow()
		r.pending = *r.room
	}
	before := len(r.pending)
	b, err := e.append(slices.Grow(r.pending, len(e.Params)+len(e.Result)+entrySize))
	if n := len(b) - before; err != nil || n > r.left {
		r.pending = b[:before]
		return false
	}
	r.left -= len(b) - before
	r.pending = b
	r.many++
	r.due = r.due || e.What == Read || e.What == Wait
	return true
}

// Due reports whether there is a read to store. The times of phases and calls can wait for a
// later commit.
func (r *Recorder) Due() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.due
}

// A Mark says how much of what was recorded a part holds.
type Mark struct{ bytes, many, dropped int }

// Part returns what is not stored yet, compressed; nil if there is nothing.
func (r *Recorder) Part() ([]byte, Mark) {
	if r == nil {
		return nil, Mark{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.many == 0 && r.dropped == 0 {
		return nil, Mark{}
	}
	return pack(r.pending, r.dropped, r.stored), Mark{len(r.pending), r.many, r.dropped}
}

// Stored says that the part with that mark is durable.
func (r *Recorder) Stored(m Mark) {
	if r == nil || m == (Mark{}) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending = append(r.pending[:0], r.pending[m.bytes:]...); len(r.pending) == 0 && r.room != nil {
		giveBack(r.room, r.pending)
		r.room, r.pending = nil, nil
	}
	r.many, r.stored, r.dropped = r.many-m.many, r.stored+m.many, r.dropped-m.dropped
	r.due = r.many > 0 && r.due
}

// Join returns the trace that parts hold, in their order. The oldest go first, so those of a
// run may be there without the ones before them.
func Join(parts []keep.TracePart) (Trace, error) {
	var t Trace
	have := 0 // entries since one began to record
	for _, p := range parts {
		part, err := unpack(p.Data)
		if err != nil {
			return t, fmt.Errorf("part of a trace: %w", err)
		}
		if part.After == 0 {
			have = 0
		}
		t.Gap = t.Gap || have != part.After
		have = part.After + len(part.Entries)
		t.Entries = append(t.Entries, part.Entries...)
		t.Dropped += part.Dropped
	}
	return t, nil
}
