package engine_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
)

// A call waits in line, and for its connection, between the last look at its item and its
// record. A skip in that time holds: nothing is sent, and a new attempt sends once.
func TestSkippedBeforeItsCallIsRecorded(t *testing.T) {
	for name, effects := range map[string]int{"skip": 0, "skip and reprocess": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newRetriedItem(t)
				w.beforeRecord(func(do func() error) error {
					if err := w.engine().SkipItem(t.Context(), "w", "a", keep.Decision{By: "ann"}); err != nil {
						t.Error(err)
					}
					if effects > 0 {
						if err := w.engine().ReprocessItem(t.Context(), "w", "a", keep.Decision{By: "ann"}); err != nil {
							t.Error(err)
						}
					}
					return do()
				})
				w.deploy()
				w.run()
				w.run()
				want := map[int]keep.ItemStatus{0: keep.ItemSkipped, 1: keep.ItemDone}[effects]
				if got := w.items(); w.effectsOf("a") != effects || got["a"] != want || got["b"] != keep.ItemDone {
					t.Errorf("%d effects for a, items %v; want %d, a %s and b done", w.effectsOf("a"), got, effects, want)
				}
			})
		})
	}
}

// A person who skips an item while its call is being recorded is told that it is too late.
func TestSkippedAsItsCallIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRetriedItem(t)
		w.beforeRecord(func(do func() error) (recorded error) {
			before := w.onCommit
			w.onCommit = func(_ keep.Commit, skip func() error) error { // that of the skip, which was decided already
				w.onCommit = before
				recorded = do()
				return skip()
			}
			err := w.engine().SkipItem(t.Context(), "w", "a", keep.Decision{By: "ann"})
			if _, refused := errors.AsType[*operator.ItemError](err); !refused {
				t.Errorf("SkipItem = %v, want an *ItemError: its call is out", err)
			}
			return recorded
		})
		w.deploy()
		w.run()
		if got := w.items()["a"]; got != keep.ItemDone || w.effectsOf("a") != 1 {
			t.Errorf("a is %s with %d effects, want done with 1", got, w.effectsOf("a"))
		}
	})
}

// A person who skips an item just before the second call of an attempt is recorded, or just before
// its refusal is, ends the attempt: no host died, and nothing failed.
func TestSkippedBeforeTheSecondCall(t *testing.T) {
	for second, before := range map[string]func(keep.Change) bool{
		"svc.create": func(ch keep.Change) bool {
			p, ok := ch.(keep.PutMutation)
			return ok && strings.Contains(string(p.Mutation.Payload), "twice")
		},
		"svc.missing": func(ch keep.Change) bool {
			p, ok := ch.(keep.PutItem)
			return ok && p.Item.Status == keep.ItemFailed
		},
	} {
		t.Run(second, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newJobWorld(t)
				w.oneItem(func(c *call, isDone bool) {
					if !isDone {
						c.create("a", "once")
						c.do(second, map[string]any{"id": "a2", "text": "twice"})
					}
				})
				w.onCommit = func(c keep.Commit, do func() error) error {
					if slices.ContainsFunc(c.Changes, before) {
						w.onCommit = nil
						if err := w.engine().SkipItem(t.Context(), "w", "a", keep.Decision{By: "ann"}); err != nil {
							t.Error(err)
						}
					}
					return do()
				}
				w.deploy()
				w.run()
				var got []string
				for _, r := range w.runs() {
					got = append(got, string(r.Status))
				}
				if want := []string{"committed", "paused:transient"}; !slices.Equal(got, want) {
					t.Errorf("runs %q, want %q", got, want)
				} else if f := w.runs()[1].Error; f.Message != "a person changed the item" {
					t.Errorf("the attempt says %q", f.Message)
				}
				if w.service.calls != 1 || w.items()["a"] != keep.ItemSkipped {
					t.Errorf("%d calls, items %v; want 1 call and a skipped", w.service.calls, w.items())
				}
			})
		})
	}
}

// newRetriedItem returns a world whose job makes its first call, of item a, a second time.
func newRetriedItem(t *testing.T) *world {
	w := newJobWorld(t, "a", "b")
	w.service.onCall = func(n int) (bool, error) {
		if n == 1 {
			return false, keep.Failf(keep.ClassTransient, "refused", "connection refused")
		}
		return true, nil
	}
	return w
}

// beforeRecord lets a test stand before the commit that records the second try, once.
func (w *world) beforeRecord(f func(do func() error) error) {
	w.onCommit = func(c keep.Commit, do func() error) error {
		if !slices.ContainsFunc(c.Changes, func(ch keep.Change) bool {
			p, ok := ch.(keep.PutMutation)
			return ok && p.Mutation.State == keep.InFlight && p.Mutation.Attempts == 2
		}) {
			return do()
		}
		w.onCommit = nil
		return f(do)
	}
}

// effectsOf returns how often the service did what was asked for an item.
func (w *world) effectsOf(item string) (n int) {
	w.t.Helper()
	ms, _, err := w.store.Mutations(w.t.Context(), keep.MutationFilter{Workflow: "w", Item: item}, keep.Page{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range ms {
		n += w.service.effects[m.Token]
	}
	return n
}
