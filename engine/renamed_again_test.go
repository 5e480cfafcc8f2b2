package engine_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// Law: once. An unfinished item continues over two renames: each call is made under the name of its
// time, and none again. A name that is not said is asked about before a call.
func TestAnItemIsRenamedTwice(t *testing.T) {
	for _, tt := range []struct {
		name  string
		names [3]string // of the tool: at first, after the first rename, and after the second
		was   [2]connector.Names
		tool  bool   // its name within its connection is another one
		asks  string // part of the question's why, once for all that was says; empty: nothing is asked
	}{
		{"connection", [3]string{"svc", "crm", "people"}, [2]connector.Names{{"svc"}, {"crm", "svc"}}, false, ""},
		{"tool", [3]string{"create", "add", "put"}, [2]connector.Names{{"create"}, {"add", "create"}}, true, ""},
		{"and back", [3]string{"create", "add", "create"}, [2]connector.Names{{"create"}, {"add"}}, true, ""},
		{"connection, the last name alone", [3]string{"svc", "crm", "people"}, [2]connector.Names{{"svc"}, {"crm"}}, false, `was = ["crm", "svc"] in [connections.people]`},
		{"tool, the last name alone", [3]string{"create", "add", "put"}, [2]connector.Names{{"create"}, {"add"}}, true, `was = ["add", "create"] in [connections.svc.tools.put]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newJobWorld(t)
				now, was := tt.names[0], connector.Names(nil)
				tool := func(name string) string {
					if tt.tool {
						return "svc." + name
					}
					return name + ".create"
				}
				w.script["jobs.remind"] = func(c *call) any {
					c.withItem("a", func(c *call, done bool) {
						for _, id := range []string{"x", "y", "z"} {
							if !done {
								c.do(tool(now), map[string]any{"id": id, "text": "hello"})
							}
						}
					})
					return nil
				}
				w.service.onCall = func(n int) (bool, error) {
					if n == 2 || n == 4 { // y, and later z, is refused
						return false, keep.Failf(keep.ClassPermission, keep.CodeForbidden, "no")
					}
					return true, nil
				}
				w.rename(func(c *connector.Connection, s *connector.Spec) {
					if tt.tool {
						s.Name, s.Was = now, was
					} else {
						c.Name, c.Was = now, was
					}
				})
				w.deploy()
				w.run()
				for i := range 2 {
					now, was = tt.names[i+1], tt.was[i]
					if err := w.decide(keep.Retry); err != nil {
						t.Fatal(err)
					}
					w.run()
				}
				if tt.asks != "" {
					if qs := w.questions(); len(qs) != 1 || !strings.Contains(qs[0].Why, tt.asks) || w.service.calls != 4 {
						t.Fatalf("%d calls, questions %+v; want 4, and one with %s", w.service.calls, qs, tt.asks)
					}
					was = append(was, tt.names[0])
					if err := w.decide(keep.Retry); err != nil {
						t.Fatal(err)
					}
					w.run()
				}
				if qs := w.questions(); w.service.calls != 5 || w.service.total() != 3 || w.items()["a"] != keep.ItemDone || len(qs) != 0 {
					t.Errorf("%d calls, %d effects, the item is %s, questions %+v; want 5, 3, done and none", w.service.calls, w.service.total(), w.items()["a"], qs)
				}
				records, _, err := w.store.Mutations(t.Context(), keep.MutationFilter{}, keep.Page{})
				if err != nil || len(records) < 3 {
					t.Fatalf("%d records, %v", len(records), err)
				}
				for _, m := range records {
					said := m.SentAs().Was
					if first := keep.ToolName(tool(tt.names[0])); said == nil || m.Tool != first && !slices.Contains(said, first) {
						t.Errorf("the record of %s says that it was %q, want %s", m.Tool, said, first)
					}
				}
				w.check()
			})
		})
	}
}
