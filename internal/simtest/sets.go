package simtest

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/ledger"
)

// In some worlds calls of the tool a say what is to be: one that is in doubt is asked about by sending it again, and whichever is sent
// last decides. So none is sent again over one that was recorded later and may have happened, unless a person said so, and none is recorded
// while another one is being sent again. The order of what was recorded is counted here, not told from times.

// slots is how many things calls set: few, so that many calls set the same one.
const slots = 2

// callSetters has most handlers of such a world call the tool a.
func (w *world) callSetters() {
	if !w.setting {
		return
	}
	rng := rand.New(rand.NewPCG(w.seed, 66))
	for _, f := range w.flows {
		for i := range f.consumers {
			if rng.IntN(4) > 0 {
				f.consumers[i].tool = "a"
			}
		}
		if f.job != nil && rng.IntN(4) > 0 {
			f.job.tool = "a"
		}
	}
}

// setsThings decides whether a world is one of these. The draw is its own, so that the other worlds are those of before; it
// leaves out those that have a test of their own, those whose configuration is edited, and those in which an identity is applied once.
func (w *world) setsThings() bool {
	return w.seed >= firstOrdered && !w.unique && !w.edits() && w.keyLasts == 0 && rand.New(rand.NewPCG(w.seed, 65)).IntN(3) == 0
}

// slot is what the call for id sets, the nth of those that belong together.
func slot(id string, n int) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return "slot " + strconv.Itoa((int(h.Sum32()%slots)+n)%slots)
}

// watchSet looks at a move of a call that sets something. One of which the last attempt was never in doubt is made again as ever.
func (w *world) watchSet(m keep.Mutation, move keep.Move) {
	if !w.setting || plainTool(m.Tool) != "a" {
		return
	}
	if move.To != keep.InFlight {
		w.unsure[m.Key] = w.unsure[m.Key] || ledger.Unsettled(move.To)
		return
	}
	if w.unsure[m.Key] {
		w.watchOver(m, w.sets[m.Key], "recorded to be sent again")
	}
	w.unsure[m.Key] = false
	for _, o := range w.othersOfSlot(m) {
		if until := o.SentAgainUntil(); until.After(move.At) {
			w.broken("once", "%s is recorded at %s, and %s of the same identity is being sent again until %s", m.Key, move.At.Format(time.TimeOnly), o.Key, until.Format(time.TimeOnly))
		}
	}
	w.made++
	w.sets[m.Key] = w.made
}

// watchSentAgain looks at a call that is sent again to find out what became of it.
func (w *world) watchSentAgain(m keep.Mutation) {
	if w.setting && plainTool(m.Tool) == "a" {
		w.saw("set: sent again")
		w.watchOver(m, w.sets[m.Key], "sent again")
	}
}

// watchOver looks whether a call would undo one that was recorded after it.
func (w *world) watchOver(m keep.Mutation, at int, what string) {
	for _, o := range w.othersOfSlot(m) {
		if o.State == keep.Failed || w.sets[o.Key] < at {
			continue
		}
		if w.saidAgain(m, o) {
			w.saw("set: over a later one, as a person said")
			continue
		}
		w.broken("once", "%s is %s over %s (%s) of the same identity, which was recorded later, and nobody said so", m.Key, what, o.Key, o.State)
	}
}

// othersOfSlot returns the other calls that set the same thing to something else.
func (w *world) othersOfSlot(m keep.Mutation) (others []keep.Mutation) {
	all, _, err := w.store.Mutations(context.Background(), keep.MutationFilter{Tool: m.Tool}, keep.Page{Limit: keep.MaxPage})
	w.must("read mutations", err)
	for _, o := range all {
		if o.Key != m.Key && string(o.Identity) == string(m.Identity) && o.PayloadHash != m.PayloadHash {
			others = append(others, o)
		}
	}
	return others
}
