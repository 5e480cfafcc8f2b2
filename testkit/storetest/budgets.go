package storetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
)

var budgetPromises = []promise{
	{"a call is refused for which its budget has no room, and one that fits exactly is not", func(w *world) {
		first := w.spending("first", 600)
		w.commit("first", within(first), putNew(w, first))
		second := w.spending("second", 401)
		w.refuse("second", overBudget("money", 600), within(second), putNew(w, second))
		second = w.spending("third", 400)
		w.commit("third", within(second), putNew(w, second))
		other := w.spending("fourth", 1000)
		other.Spent[0].Budget = "other"
		w.commit("fourth", within(other), putNew(w, other))
	}},
	{"what is known not to have happened is given back, and nothing else is", func(w *world) {
		for _, state := range keep.MutationStates() {
			name := keep.WorkflowName("w " + state)
			m := w.spending(name, 1000)
			m.Spent[0].Budget = string(state)
			w.commit(name, within(m), putNew(w, m))
			m.Rev, m.State, m.ResolvedBy = 1, state, "call"
			changes := []keep.Change{keep.PutMutation{Mutation: m, Moves: historyOf(w, state)[1:]}}
			if state == keep.Indeterminate {
				changes = append(changes, keep.OpenEscalation{Escalation: keep.Escalation{ID: keep.EscalationID("esc_" + m.Key),
					Kind: keep.AskUnknownOutcome, Workflow: name, Run: m.Run, Mutation: m.Key}})
			}
			w.commit(name, changes...)
			next := w.spending("next "+name, 1)
			next.Spent[0].Budget = string(state)
			if state != keep.Failed {
				w.refuse("next "+name, overBudget(string(state), 1000), within(next), putNew(w, next))
				continue
			}
			w.commit("next "+name, within(next), putNew(w, next))
			m.Rev, m.State, m.SpentAt = 2, keep.InFlight, w.now()
			w.refuse(name, overBudget(string(state), 1), within(m), keep.PutMutation{Mutation: m})
		}
	}},
	{"what was spent under a name that a budget had counts", func(w *world) {
		old := w.spending("old", 600)
		w.commit("old", within(old), putNew(w, old))
		renamed := w.spending("renamed", 401)
		renamed.Spent[0].Budget, renamed.Spent[0].Was = "cash", []string{"purse", "money"}
		w.refuse("renamed", overBudget("cash", 600), within(renamed), putNew(w, renamed))
		renamed.Spent[0].Amount = 400
		w.commit("renamed", within(renamed), putNew(w, renamed))
	}},
	{"what was spent leaves its window, and what is in doubt does not", func(w *world) {
		old := w.spending("old", 700)
		w.commit("old", within(old), putNew(w, old))
		old.Rev, old.State, old.ResolvedBy = 1, keep.Applied, "call"
		w.commit("old", keep.PutMutation{Mutation: old, Moves: []keep.Move{w.move(keep.InFlight, keep.Applied)}})
		doubt := w.spending("doubt", 300)
		w.commit("doubt", within(doubt), putNew(w, doubt))

		before, after := old.SpentAt.Add(time.Hour-time.Millisecond), doubt.SpentAt.Add(2*time.Hour)
		next := w.spending("next", 1)
		w.refuseAt(before, "next", overBudget("money", 1000), within(next), putNew(w, next))
		next.Spent[0].Amount, next.SpentAt = 701, after
		w.refuseAt(after, "next", overBudget("money", 300), within(next), putNew(w, next))
		next.Spent[0].Amount = 700
		w.commitAt(after, "next", within(next), putNew(w, next))

		spending := func(since time.Time) (keys []keep.MutationKey) {
			list, err := w.Spending(w.ctx, since)
			if err != nil {
				w.Fatal(err)
			}
			for _, m := range list {
				keys = append(keys, m.Key)
			}
			return keys
		}
		if got, want := spending(before.Add(-time.Hour)), []keep.MutationKey{old.Key, doubt.Key, next.Key}; !slices.Equal(got, want) {
			w.Errorf("Spending has %v, want %v", got, want)
		}
		if got, want := spending(after), []keep.MutationKey{doubt.Key, next.Key}; !slices.Equal(got, want) {
			w.Errorf("Spending of a later time has %v, want %v", got, want)
		}
	}},
	{"of calls that spend a budget at the same moment, as many are recorded as fit (law: within-budget)", func(w *world) {
		for round := range 5 {
			var calls []keep.Mutation
			for i := range 12 {
				m := w.spending(keep.WorkflowName(fmt.Sprint("w", round, "-", i)), 300)
				m.Spent[0].Budget = fmt.Sprint("round ", round)
				calls = append(calls, m)
			}
			errs := make([]error, len(calls))
			var wg sync.WaitGroup
			for i, m := range calls {
				changes := []keep.Change{within(m), putNew(w, m)}
				wg.Go(func() {
					errs[i] = w.Commit(w.ctx, keep.Commit{Workflow: m.Workflow, At: m.SpentAt, Changes: changes})
				})
			}
			wg.Wait()
			made := 0
			for _, err := range errs {
				if err == nil {
					made++
				} else if !overBudget(fmt.Sprint("round ", round), 900)(err) {
					w.Errorf("Commit = %v, want a *keep.OverBudgetError", err)
				}
			}
			if made != 3 {
				w.Fatalf("%d calls of 300 were recorded in a budget of 1000, want 3 (law: within-budget)", made)
			}
		}
	}},
	{"a call that was recorded beyond its budget is found (law: within-budget)", func(w *world) {
		first, over := w.spending("first", 600), w.spending("over", 401)
		w.commit("first", within(first), putNew(w, first))
		w.commit("over", putNew(w, over)) // nothing looked whether there is room
		found := Violations(w, w.Store)
		if len(found) != 1 || !strings.Contains(found[0], "within-budget") || !strings.Contains(found[0], string(over.Key)) {
			w.Errorf("Check found %q, want that %s breaks within-budget", found, over.Key)
		}
		over.Rev, over.State, over.ResolvedBy = 1, keep.Failed, "call"
		w.commit("over", keep.PutMutation{Mutation: over, Moves: []keep.Move{w.move(keep.InFlight, keep.Failed)}})
	}},
	{"of calls that nothing kept within budgets those are found after which there was too much in a window (law: within-budget)", func(w *world) {
		calls, random := make(map[keep.MutationKey]keep.Mutation), rand.New(rand.NewPCG(1, 2))
		later := make(map[keep.MutationKey]bool) // said not to have happened, and found later
		begin := w.at
		for i := range 120 {
			name := keep.WorkflowName(fmt.Sprint("w", i))
			m := w.newMutation(w.start(name, "t"))
			m.SpentAt = begin.Add(time.Duration(random.IntN(60)) * time.Second)
			if i < 2 { // the second is too much by itself, and found later
				m.Spent = []keep.Spent{{Budget: "c", Amount: 600 - 100*keep.Amount(i), Limit: 1000, Per: 2 * time.Minute}}
				m.SpentAt = begin.Add(time.Duration(i) * time.Second)
			} else {
				m.Spent = nil
			}
			for _, budget := range []string{"a", "b"}[:min(i/2, 1+random.IntN(2))] {
				s := keep.Spent{Budget: budget, Amount: keep.Amount(1 + random.IntN(1<<33)), Limit: 1<<35 + keep.Amount(random.IntN(4))<<31, Per: 10 * time.Second, Allowed: random.IntN(40) == 0}
				if random.IntN(30) == 0 {
					s.Per = 20 * time.Second
				}
				m.Spent = append(m.Spent, s)
			}
			w.commit(name, putNew(w, m))
			if m.Rev = 1; i == 1 || i > 1 && random.IntN(6) == 0 {
				m.Rev, m.State, m.ResolvedBy = 1, keep.Failed, "ann"
				w.commit(name, keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move(keep.InFlight, keep.Failed)}})
				if m.Rev = 2; i > 1 && random.IntN(3) == 0 {
					continue
				}
				m.State, m.ResolvedBy, later[m.Key] = keep.Applied, "lookup", true
				w.commit(name, keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move(keep.Failed, keep.Applied)}})
			}
			calls[m.Key] = m
		}
		broken := make(map[keep.MutationKey]bool)
		for key, m := range calls {
			for _, s := range m.Spent {
				var sum, limit keep.Amount
				judged := true
				for other, o := range calls {
					if later[other] && other != key || o.SpentAt.After(m.SpentAt) || !o.SpentAt.After(m.SpentAt.Add(-s.Per)) {
						continue
					}
					for _, e := range o.Spent {
						if e.Budget == s.Budget {
							sum, limit, judged = sum+e.Amount, max(limit, e.Limit), judged && !e.Allowed && e.Per == s.Per
						}
					}
				}
				broken[key] = broken[key] || judged && sum > limit
			}
		}
		found := Violations(w, w.Store)
		if n := len(slices.DeleteFunc(slices.Collect(maps.Values(broken)), func(b bool) bool { return !b })); n < 10 || n > len(broken)-10 {
			w.Errorf("%d of %d calls break it, too few or too many to test with", n, len(broken))
		}
		for key, want := range broken {
			got := slices.ContainsFunc(found, func(v string) bool {
				return strings.Contains(v, "within-budget") && strings.Contains(v, "mutation "+string(key)+":")
			})
			if got != want {
				w.Errorf("Check found that %s breaks within-budget: %t, want %t", key, got, want)
			}
		}
		for key, m := range calls { // none is left that breaks it
			if m.State == keep.InFlight {
				m.State, m.ResolvedBy = keep.Failed, "call"
				w.commit(m.Workflow, keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move(keep.InFlight, keep.Failed)}})
			}
			delete(calls, key)
		}
	}},
	{"what was said not to have happened, and was found later, counts again, and breaks no law", func(w *world) {
		first, second, third := w.spending("first", 600), w.spending("second", 600), w.spending("third", 1)
		w.commit("first", within(first), putNew(w, first))
		first.Rev, first.State, first.ResolvedBy = 1, keep.Failed, "ann"
		w.commit("first", keep.PutMutation{Mutation: first, Moves: []keep.Move{w.move(keep.InFlight, keep.Failed)}})
		w.commit("second", within(second), putNew(w, second))
		first.Rev, first.State, first.ResolvedBy = 2, keep.Applied, "lookup"
		w.commit("first", keep.PutMutation{Mutation: first, Moves: []keep.Move{w.move(keep.Failed, keep.Applied)}})
		w.refuse("third", overBudget("money", 1200), within(third), putNew(w, third))
		for _, v := range Violations(w, w.Store) {
			w.Errorf("Check: %s", v)
		}
	}},
	{"a question about a budget names it", func(w *world) {
		r := w.start("w", "t")
		q := keep.Escalation{ID: "esc_budget", Kind: keep.AskBudget, Workflow: "w", Run: r.ID, Budget: "money", CreatedAt: w.now()}
		w.commit("w", keep.OpenEscalation{Escalation: q})
		if got, err := w.Escalation(w.ctx, q.ID); err != nil || got.Budget != "money" || got.Kind != keep.AskBudget {
			w.Errorf("Escalation = %+v, %v", got, err)
		}
	}},
}

// spending returns a new record in flight that counts in the budget money, of 1000 within an hour.
func (w *world) spending(name keep.WorkflowName, amount keep.Amount) keep.Mutation {
	w.Helper()
	m := w.newMutation(w.start(name, "t"))
	m.Spent = []keep.Spent{{Budget: "money", Amount: amount, Limit: 1000, Per: time.Hour}}
	m.SpentAt = w.now()
	return m
}

func within(m keep.Mutation) keep.Within { return keep.Within{Key: m.Key, Spent: m.Spent[0]} }

func overBudget(name string, others keep.Amount) func(error) bool {
	return func(err error) bool {
		e, ok := errors.AsType[*keep.OverBudgetError](err)
		return ok && e.Budget == name && e.Others == others && errors.Is(err, keep.ErrStale)
	}
}

// commitAt makes changes at a time, and refuseAt ones of which the last must be refused.
func (w *world) commitAt(at time.Time, name keep.WorkflowName, changes ...keep.Change) {
	w.Helper()
	w.at = at.Add(-time.Second)
	w.commit(name, changes...)
}

func (w *world) refuseAt(at time.Time, name keep.WorkflowName, want func(error) bool, changes ...keep.Change) {
	w.Helper()
	w.at = at.Add(-time.Second)
	w.refuse(name, want, changes...)
}
