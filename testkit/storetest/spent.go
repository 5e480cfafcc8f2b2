package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/keep-run/keep"
)

// Stores keep sums of what calls count, in whatever way. They are compared with the plain sum of all records.
var spentPromises = []promise{
	{"what is spent is the sum of what each call counts, whatever became of it, and whoever asked before", func(w *world) {
		b := &book{world: w, rng: rand.New(rand.NewPCG(1, 2)), records: make(map[keep.MutationKey]keep.Mutation)}
		old := b.record("old", 260)
		b.compare("in flight")
		b.move(0.9)
		b.compare("settled")
		b.compare("settled, and asked before")
		b.record("new", 10)
		b.move(0.3)
		b.compare("some moved again")
		b.refuses()
		b.move(1)
		b.end(old)
		latest(w)
		w.sweep("old", old.Chain, w.now())
		for key, m := range b.records {
			if m.Workflow == "old" {
				delete(b.records, key)
			}
		}
		b.compare("swept")
	}},
	{"sums of the largest amounts are exact, and never overflow", func(w *world) {
		b := &book{world: w, rng: rand.New(rand.NewPCG(3, 4)), records: make(map[keep.MutationKey]keep.Mutation), largest: true}
		b.record("w", 140)
		b.move(1)
		b.compare("settled")
		b.compare("settled, and asked before")
	}},
}

// A book has all records of a world that count in budgets.
type book struct {
	*world
	rng     *rand.Rand
	records map[keep.MutationKey]keep.Mutation
	keys    []keep.MutationKey
	largest bool
}

var spentNames = []string{"money", "cash", "other"}

// record makes calls of a new run, each in up to three budgets, begun within two years.
func (b *book) record(name keep.WorkflowName, n int) keep.Run {
	b.Helper()
	r := jobRun(b.world, name) // one of a consumer has one call
	var changes []keep.Change
	for i := range n {
		m := b.newMutation(r)
		m.Key = keep.MutationKey(fmt.Sprint(m.Key, "_", i))
		m.Token = string(m.Key)
		b.spend(&m)
		changes = append(changes, putNew(b.world, m))
		b.keep(m)
	}
	b.commit(name, changes...)
	return r
}

func (b *book) keep(m keep.Mutation) {
	if _, known := b.records[m.Key]; !known {
		b.keys = append(b.keys, m.Key)
	}
	m.Rev++
	b.records[m.Key] = m
}

// spend begins a call: now, seconds, hours or months ago.
func (b *book) spend(m *keep.Mutation) {
	m.SpentAt = kept(b.at.Add(-time.Duration(b.rng.Int64N(int64([]time.Duration{
		time.Second, time.Minute, 3 * time.Hour, 60 * 24 * time.Hour, 700 * 24 * time.Hour}[b.rng.IntN(5)])))))
	m.Spent = nil
	for _, name := range spentNames[:1+b.rng.IntN(len(spentNames))] {
		amount := keep.Amount(b.rng.Int64N(5_000_000_000))
		if b.largest {
			amount = keep.MaxAmount - keep.Amount(b.rng.IntN(2))
		}
		m.Spent = append(m.Spent, keep.Spent{Budget: name, Amount: amount, Limit: keep.MaxAmount, Per: time.Hour, Allowed: true})
	}
}

// move has things become of calls, and begins anew some that failed or were skipped.
func (b *book) move(chance float64) {
	b.Helper()
	changes := make(map[keep.WorkflowName][]keep.Change)
	for _, key := range b.keys {
		m, there := b.records[key]
		if !there || b.rng.Float64() > chance {
			continue
		}
		moves := []keep.Move{b.world.move(m.State, keep.InFlight)}
		switch m.State {
		case keep.InFlight:
			m.State, m.ResolvedBy = []keep.MutationState{keep.Applied, keep.Applied, keep.Failed, keep.Skipped}[b.rng.IntN(4)], "call"
			moves = historyOf(b.world, m.State)[1:]
		case keep.Failed, keep.Skipped:
			if chance == 1 {
				continue
			}
			m.State, m.ResolvedBy, m.Attempts = keep.InFlight, "", m.Attempts+1
			b.spend(&m)
		default:
			continue
		}
		changes[m.Workflow] = append(changes[m.Workflow], keep.PutMutation{Mutation: m, Moves: moves})
		b.keep(m)
	}
	for name, list := range changes {
		b.commit(name, list...)
	}
}

// sum is what a store must say.
func (b *book) sum(names []string, since time.Time, except keep.MutationKey) (sum keep.SpentSum) {
	for key, m := range b.records {
		if key == except {
			continue
		}
		n := m.Counts(names, since)
		if sum.All = sum.All.Plus(n); m.State.InDoubt() {
			sum.InDoubt = sum.InDoubt.Plus(n)
		}
	}
	return sum
}

// compare asks at the edges of what calls there are, and of what a store may have summed.
func (b *book) compare(when string) {
	b.Helper()
	times := []time.Time{{}, b.at, b.at.Add(time.Hour)}
	for range 12 {
		at := b.records[b.keys[b.rng.IntN(len(b.keys))]].SpentAt
		piece := time.UnixMilli(at.UnixMilli() >> 16 << 16)
		times = append(times, at, at.Add(-time.Millisecond), at.Add(time.Millisecond), piece, piece.Add(-time.Millisecond))
	}
	for i, since := range times {
		names, except := spentNames[i%3:][:1], b.keys[b.rng.IntN(len(b.keys))]
		if i%2 == 0 {
			names = spentNames[:2]
		}
		if got := get[keep.SpentSum](b.world)(b.Spent(b.ctx, names, since, except)); got != b.sum(names, since, except) {
			b.Fatalf("%s: %v since %v without %s: %+v is spent, want %+v", when, names, since, except, got, b.sum(names, since, except))
		}
	}
}

// refuses looks at what commits know: that of a new call, and that of one which is begun anew.
func (b *book) refuses() {
	b.Helper()
	for i := range 20 {
		m := b.newMutation(b.start(keep.WorkflowName(fmt.Sprint("more ", i)), "t"))
		if i%2 == 0 {
			m = b.records[b.keys[b.rng.IntN(len(b.keys))]]
		}
		s := keep.Spent{Budget: "money", Was: []string{"cash"}, Amount: 1, Per: []time.Duration{time.Second, time.Hour, 24 * time.Hour, 366 * 24 * time.Hour}[i%4]}
		b.refuse(m.Workflow, func(err error) bool {
			others := b.sum(s.Names(), b.at.Add(-s.Per), m.Key)
			if !overBudget("money", others.All)(err) {
				b.Errorf("a call that counts 1 within %v is refused by %v, want others %d", s.Per, err, others.All)
			}
			return true
		}, keep.Within{Key: m.Key, Spent: s})
	}
}

// end settles what is left of a run, and closes it.
func (b *book) end(r keep.Run) {
	b.Helper()
	r.Rev, r.Phase, r.Status, r.Closed, r.UpdatedAt = 1, keep.Committed, keep.StatusCommitted, true, b.now()
	b.commit(r.Workflow, keep.PutRun{Run: r})
}
