package engine

import (
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
)

// A service forgets keys, and a call that is sent again after that is another one. How old
// a key is, the clock by which records are kept tells: it may have been fast, and be set
// right. So a host also counts itself what passes while it runs, by a clock that nobody
// sets. After a restart only the records' clock is left, and it is believed unless the
// record shows that it was set back.

// maxAges bounds the keys whose age a host counts itself.
const maxAges = 10_000

// keyAges are the keys that a host has met, and when. What another host or process settles nobody says here: it is
// forgotten when half of maxAges others have come since it was met last. A doubt is met each time that it is read or asked about.
type keyAges struct {
	mu     sync.Mutex
	met    map[keep.MutationKey]keyMet // half of maxAges at most
	before map[keep.MutationKey]keyMet // that were met when met was full last, and not since
}

// A keyMet says how old a key was when the host met it.
type keyMet struct {
	at  time.Time // with the monotonic reading
	age time.Duration
}

// meet begins to count the age of a key, if it is not counted yet.
func (a *keyAges) meet(m keep.Mutation, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.met[m.Key]; known {
		return
	}
	first, known := a.before[m.Key]
	if !known {
		age, _ := ledger.KeyAge(m, now, -1) // Forever: the clock was set back
		first = keyMet{time.Now(), age}
	}
	if delete(a.before, m.Key); a.met == nil || len(a.met) >= maxAges/2 {
		a.met, a.before = make(map[keep.MutationKey]keyMet), a.met
	}
	a.met[m.Key] = first
}

// forget ends the counting for calls whose outcome is on record now. Before, the next host
// or this one may have to ask again.
func (a *keyAges) forget(made []keep.Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range made {
		if put, ok := c.(keep.PutMutation); ok && !lifecycle.Unknown(put.Mutation.State) {
			delete(a.met, put.Mutation.Key)
			delete(a.before, put.Mutation.Key)
		}
	}
}

// elapsed returns what the host counted; negative: it did not.
func (a *keyAges) elapsed(key keep.MutationKey) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	met, known := a.met[key]
	if !known {
		met, known = a.before[key]
	}
	if !known {
		return -1
	}
	return met.age + time.Since(met.at)
}

// meetKey begins to count the age of a call in doubt: of its key, or of the call itself for a tool that compares it. Done
// when the record is read, it sees a clock that was set back although the next lookup waits until that is past.
func (e *Engine) meetKey(m keep.Mutation) {
	if m.Level != keep.LevelNone && lifecycle.Unknown(m.State) {
		e.ages.meet(m, e.Now())
	}
}

// keyAge returns how old the key of m is at most.
func (e *Engine) keyAge(m keep.Mutation) time.Duration {
	age, _ := ledger.KeyAge(m, e.Now(), e.ages.elapsed(m.Key))
	return age
}

// aged returns m for a tool that sends again under its key, or compares how long ago the call was: CreatedAt is
// as long ago, by the clock of this machine, as that may be. The note is for people; empty: the
// clocks agree.
func (e *Engine) aged(t *tool, m keep.Mutation) (aged keep.Mutation, note string) {
	if t.spec.Level != keep.LevelKey && !t.spec.ComparesAge || m.CreatedAt.IsZero() {
		return m, ""
	}
	now := e.Now()
	e.ages.meet(m, now)
	age, agree := ledger.KeyAge(m, now, e.ages.elapsed(m.Key))
	m.CreatedAt = time.Now().UTC().Add(-age)
	if !agree {
		note = "; the clocks disagree about how old the call is, and the greater age counts"
	}
	return m, note
}

// noted returns an answer with a note.
func noted(a connector.Answer, note string) connector.Answer {
	a.Detail += note
	return a
}
