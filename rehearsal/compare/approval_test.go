package compare_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/rehearsal/compare"
)

// A call that waits for an approval was not made, and is known all the same: another one is no call more, and none is one less. One that a
// person treated as done is not made by doing the work again.
func TestCallThatWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.conns[0].Approve = map[string]string{"send": "always"}
	source := strings.Replace(shopWorkflow, between(shopWorkflow, "  jobs: {", "\n});"), "", 1)
	w.live(t, source)
	check := func(t *testing.T, done bool, remedy string) {
		for _, tt := range []struct {
			name, old, new string
			change         compare.Change
			want           string
		}{
			{"the same", `"n", 1`, `"n", 1`, compare.Same, ""},
			{"payload", `name: row.name`, `name: row.name.toUpperCase()`, compare.Changed, `- mutate payload {"id":"o00","name":"Zoë 2"}`},
			{"identity", `send({ id: prepared.data.id`, `send({ id: "x" + prepared.data.id`, compare.Changed, `- mutate identity {"target":"id=o00"`},
			{"another tool", `ctx.shop.send({ id: prepared`, `ctx.shop.post({ id: prepared`, compare.Changed, `- mutate call {"tool":"shop.send"`},
			{"no call", `await ctx.shop.send({ id: prepared`, `if (0) await ctx.shop.send({ id: prepared`, compare.Missing, `- mutate call {"tool":"shop.send"`},
			{"fails", `const row =`, `if (prepared.data.id === "o00") throw new Error("no"); const row =`, compare.Failed, "call shop.send"},
		} {
			r := w.compare(t, strings.Replace(source, tt.old, tt.new, 1))
			var first compare.Run
			for _, run := range r.Runs {
				if run.Handler == "send" && run.Done == done {
					first = run
				}
			}
			calls := slices.DeleteFunc(r.Mutations, func(m compare.Mutation) bool { return m.Run != first.Run })
			if first.Change != tt.change || !strings.Contains(said(r), tt.want) || (len(calls) == 1) != (tt.change != compare.Same) {
				t.Errorf("%s: %s with %d calls, want %s with %q:\n%s", tt.name, first.Change, len(calls), tt.change, tt.want, said(r))
			}
			for _, m := range calls {
				if m.Tool != "shop.send" || string(m.Remedy) != remedy || m.How != "" {
					t.Errorf("%s: %+v, want the remedy %s", tt.name, m, remedy)
				}
			}
		}
	}
	check(t, false, "nothing")
	people, err := operator.New(w.db, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	qs, _, err := w.db.Escalations(t.Context(), keep.EscalationFilter{Open: true}, keep.Page{})
	if err != nil || len(qs) != 1 {
		t.Fatalf("%d questions, %v; want one", len(qs), err)
	}
	d := keep.Decision{Action: keep.TreatAsDone, By: "ann", From: "test", Result: []byte(`{"ref":"r1"}`)}
	if err := people.Decide(t.Context(), qs[0].ID, d); err != nil {
		t.Fatal(err)
	}
	w.live(t, source)
	t.Run("treated as done", func(t *testing.T) { check(t, true, "by hand") })
}
