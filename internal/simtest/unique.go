package simtest

import (
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/ledger"
)

// watchUnique looks at a call that was just recorded, in a world in which an identity is applied
// once: none of the same identity, of whatever workflow, may have had its effect, unless a person
// said of that one to make this one, too. The names of tools are those of a world that is not edited.
func (w *world) watchUnique(m keep.Mutation) {
	if !w.unique || w.edited {
		return
	}
	all, _, err := w.store.Mutations(person, keep.MutationFilter{Tool: m.Tool}, keep.Page{Limit: keep.MaxPage})
	w.must("read mutations", err)
	for _, o := range all {
		if o.Key == m.Key || string(o.Identity) != string(m.Identity) || o.Subkey != m.Subkey || !o.State.Rivals() {
			continue
		}
		w.saw("unique: made again")
		if !w.saidAgain(m, o) {
			w.broken("once", "%s is recorded beside %s (%s) of the same identity, and nobody said to do it again", m.Key, o.Key, o.State)
		}
	}
}

// saidAgain reports whether a person said to make a call although another of its identity was made.
func (w *world) saidAgain(m, other keep.Mutation) bool {
	qs, _, err := w.store.Escalations(person, keep.EscalationFilter{Workflow: m.Workflow}, keep.Page{Limit: keep.MaxPage})
	w.must("read questions", err)
	want := ledger.Hash([]byte(string(m.Key) + ":" + m.PayloadHash))
	return slices.ContainsFunc(qs, func(q keep.Escalation) bool {
		return q.Kind == keep.AskAlreadyDone && q.Mutation == other.Key && q.PayloadHash == want && q.Decision != nil && q.Decision.Action == keep.DoAgain
	})
}
