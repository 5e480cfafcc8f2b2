package engine_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
)

// A renamedWorld is a job with one item of two calls, of which the second fails until the
// configuration changed. The tool is configured by the test.
func newRenamedWorld(t *testing.T, configure func(*connector.Connection, *connector.Spec)) (w *world, change func(script func(id string) (tool string, params map[string]any))) {
	w = newJobWorld(t)
	changed := false
	now := func(id string) (string, map[string]any) {
		return "svc.create", map[string]any{"id": id, "text": "hello"}
	}
	w.script["jobs.remind"] = func(c *call) any {
		c.withItem("a", func(c *call, done bool) {
			if done {
				return
			}
			for _, id := range []string{"x", "y"} {
				tool, params := now(id)
				c.do(tool, params)
			}
		})
		return nil
	}
	w.service.onCall = func(n int) (bool, error) {
		if n == 2 {
			return false, keep.Failf(keep.ClassPermission, keep.CodeForbidden, "no")
		}
		return true, nil
	}
	w.connect = func() []connector.Connection {
		c := w.service.connection()
		create := c.Tools[0].(asker)
		if changed {
			configure(&c, &create.spec)
		}
		c.Tools[0] = create
		return []connector.Connection{c}
	}
	return w, func(script func(id string) (string, map[string]any)) {
		changed = true
		if script != nil {
			now = script
		}
	}
}

// Law: once. An applied call of an unfinished item is not made again because the
// configuration has another name for it, or another identity.
func TestAnUnfinishedItemUnderAnotherConfiguration(t *testing.T) {
	as := func(tool string) func(string) (string, map[string]any) {
		return func(id string) (string, map[string]any) {
			return tool, map[string]any{"id": id, "text": "hello"}
		}
	}
	for _, tt := range []struct {
		name      string
		configure func(*connector.Connection, *connector.Spec)
		script    func(string) (string, map[string]any)
		calls     int    // with the first two
		asks      string // part of the question's why; empty: none
	}{
		{"connection with was", func(c *connector.Connection, _ *connector.Spec) { c.Name, c.Was = "crm", connector.Names{"svc"} }, as("crm.create"), 3, ""},
		{"connection with was, and the script of before", func(c *connector.Connection, _ *connector.Spec) { c.Name, c.Was = "crm", connector.Names{"svc"} }, nil, 3, ""},
		{"tool with was, and the script of before", func(_ *connector.Connection, s *connector.Spec) { s.Name, s.Was = "add", connector.Names{"create"} }, nil, 3, ""},
		{"connection without", func(c *connector.Connection, _ *connector.Spec) { c.Name = "crm" }, as("crm.create"), 2, `was = "svc"`},
		{"connection that is new", func(c *connector.Connection, _ *connector.Spec) { c.Name, c.New = "crm", true }, as("crm.create"), 4, ""},
		{"tool with was", func(_ *connector.Connection, s *connector.Spec) { s.Name, s.Was = "add", connector.Names{"create"} }, as("svc.add"), 3, ""},
		{"tool without", func(_ *connector.Connection, s *connector.Spec) { s.Name = "add" }, as("svc.add"), 2, `was = "create"`},
		{"tool that is new", func(_ *connector.Connection, s *connector.Spec) { s.Name, s.New = "add", true }, as("svc.add"), 4, ""},
		{"tool without, and the connection is new", func(c *connector.Connection, s *connector.Spec) { c.New, s.Name = true, "add" }, as("svc.add"), 2, `was = "create"`},
		{"tool without, and the connection had no others", func(c *connector.Connection, s *connector.Spec) {
			c.Name, c.Was, c.New = "crm", connector.Names{"svc"}, true
			s.Name = "add"
		}, as("crm.add"), 2, `was = "create" in [connections.crm.tools.add]`},
		{"connection without, and the tool is new", func(c *connector.Connection, s *connector.Spec) { c.Name, s.New = "crm", true }, as("crm.create"), 2, `was = "svc"`},
		{"wider identity, same content", func(_ *connector.Connection, s *connector.Spec) { s.Identity = []string{"id", "text"} }, nil, 3, ""},
		{"wider identity, other content", func(_ *connector.Connection, s *connector.Spec) { s.Identity = []string{"id", "text"} },
			func(id string) (string, map[string]any) {
				return "svc.create", map[string]any{"id": id, "text": "good morning"}
			}, 2, "differ"},
		{"narrower identity, same content", func(_ *connector.Connection, s *connector.Spec) { s.Identity = nil }, nil, 2, "differ"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, change := newRenamedWorld(t, tt.configure)
				w.deploy()
				w.run()
				if w.service.calls != 2 || len(w.questions()) != 1 {
					t.Fatalf("%d calls and questions %+v, want 2 and one", w.service.calls, w.questions())
				}
				change(tt.script)
				if err := w.decide(keep.Retry); err != nil {
					t.Fatal(err)
				}
				w.run()
				qs := w.questions()
				if w.service.calls != tt.calls {
					t.Errorf("%d calls, want %d; the questions are %+v", w.service.calls, tt.calls, qs)
				}
				switch {
				case tt.asks == "" && len(qs) > 0:
					t.Errorf("it asks %+v, want nothing", qs)
				case tt.asks != "" && (len(qs) != 1 || !strings.Contains(qs[0].Why, tt.asks)):
					t.Errorf("it asks %+v, want %q", qs, tt.asks)
				}
				w.check()
			})
		})
	}
}

// Once the configuration says which it is, the item continues where it was.
func TestAnItemGoesOnAfterTheRenameIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		was := ""
		w, change := newRenamedWorld(t, func(c *connector.Connection, _ *connector.Spec) { c.Name, c.Was = "crm", strings.Fields(was) })
		w.deploy()
		w.run()
		change(func(id string) (string, map[string]any) {
			return "crm.create", map[string]any{"id": id, "text": "hello"}
		})
		for _, was = range []string{"", "svc"} {
			if err := w.decide(keep.Retry); err != nil {
				t.Fatal(err)
			}
			w.run()
		}
		if w.service.calls != 3 || w.items()["a"] != keep.ItemDone || len(w.questions()) != 0 {
			t.Errorf("%d calls, the item is %s, questions %+v", w.service.calls, w.items()["a"], w.questions())
		}
	})
}

// A doubt of an unfinished item is asked about by the tool that was renamed.
func TestADoubtUnderAnotherName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t)
		name, was := "svc", ""
		w.script["jobs.remind"] = func(c *call) any {
			c.withItem("a", func(c *call, done bool) {
				if !done {
					c.do(name+".create", map[string]any{"id": "x", "text": "hello"})
				}
			})
			return nil
		}
		w.connect = func() []connector.Connection {
			c := w.service.connection()
			c.Name, c.Was = name, strings.Fields(was)
			return []connector.Connection{c}
		}
		w.service.loseTheAnswer()
		w.deploy()
		w.runUntil(time.Second)
		w.service.onAsk = nil
		name, was = "crm", "svc"
		w.run()
		if m := w.newest(); m.State != keep.Applied || w.service.calls != 1 || w.items()["a"] != keep.ItemDone {
			t.Errorf("the record is %s after %d calls, the item %s", m.State, w.service.calls, w.items()["a"])
		}
	})
}

// A name that is still taken is no former one.
func TestWasThatIsStillThere(t *testing.T) {
	s := newService()
	a, b := s.connection(), s.connection()
	b.Name, b.Was = "crm", connector.Names{"svc"}
	if _, err := engine.NewTools([]connector.Connection{a, b}); err == nil || !strings.Contains(err.Error(), "svc.create") {
		t.Errorf("the error is %v, want one about svc.create", err)
	}
}

// A call of a consumer that did not happen is made again, under its key, by the tool that
// was renamed meanwhile.
func TestARetryUnderAnotherName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.level = keep.LevelNone
		w.service.loseTheAnswer()
		name, was := "svc", ""
		w.connect = func() []connector.Connection {
			c := w.service.connection()
			c.Name, c.Was = name, strings.Fields(was)
			return []connector.Connection{c}
		}
		mutate := w.script["consumers.act.mutate"]
		if mutate == nil {
			t.Fatalf("no mutate among %v", w.script)
		}
		w.script["consumers.act.mutate"] = func(c *call) any {
			c.do(name+".create", map[string]any{"id": "a"})
			return nil
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		first := w.mutation()
		name, was = "crm", "svc"
		if err := w.decide(keep.DidNotHappen); err != nil {
			t.Fatal(err)
		}
		w.run()
		if m := w.mutation(); m.State != keep.Applied || m.Token != first.Token || w.service.calls != 2 {
			t.Errorf("the record is %s with token %s, want applied with %s; %d calls; %+v", m.State, m.Token, first.Token, w.service.calls, w.questions())
		}
	})
}

// Law: once. A record that was sent again under another configuration has the key of the
// first time still, and is found by it when the job runs once more.
func TestACallThatWasSentAgainUnderAnotherConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, change := newRenamedWorld(t, func(_ *connector.Connection, s *connector.Spec) { s.Identity = []string{"id", "text"} })
		w.script["jobs.remind"] = func(c *call) any {
			c.withItem("a", func(c *call, done bool) {
				for _, id := range []string{"x", "y", "z"} {
					if !done {
						c.do("svc.create", map[string]any{"id": id, "text": "hello"})
					}
				}
			})
			return nil
		}
		w.service.onCall = func(n int) (bool, error) {
			switch n {
			case 2: // y is in doubt
				return false, errors.New("connection reset")
			case 3, 5: // y, and later z, is refused
				return false, keep.Failf(keep.ClassPermission, keep.CodeForbidden, "no")
			}
			return true, nil
		}
		w.deploy()
		w.run()
		change(nil)
		for _, answer := range []keep.Action{keep.Retry, keep.Approve, keep.Retry} {
			if err := w.decide(answer); err != nil {
				t.Fatal(err)
			}
			w.run()
		}
		if qs := w.questions(); w.service.calls != 6 || w.service.total() != 3 || len(qs) != 0 {
			t.Errorf("%d calls, %d effects, questions %+v; want 6, 3 and none", w.service.calls, w.service.total(), qs)
		}
		w.check()
	})
}

// A job that is renamed again, or back, continues the run of its former name by the script of
// today. One that failed in the script of then would fail in it forever.
func TestAFailedRunOfAJobThatIsRenamedAgain(t *testing.T) {
	for _, name := range []keep.HandlerName{"remind", "pursue"} {
		synctest.Test(t, func(t *testing.T) {
			w := newJobWorld(t, "a")
			right := w.script["jobs.remind"]
			rename := func(name keep.HandlerName, f func(c *call) any) {
				w.def.Handlers = []keep.Handler{{Name: name, Kind: keep.Job, Schedule: keep.Schedule{Interval: time.Hour}}}
				if name != "remind" {
					w.def.Handlers[0].Items = "remind"
				}
				w.script = script{"jobs." + string(name): f}
				w.deploy()
			}
			rename("chase", func(c *call) any {
				c.withItem("a", func(c *call, _ bool) { c.do("kv.set", "a", 1) }) // not allowed in a job
				return nil
			})
			w.run()
			if r := w.lastRun(); r.Status != keep.StatusLogic {
				t.Fatalf("the run is %s, want failed:logic", r.Status)
			}
			tries := 0
			rename(name, func(c *call) any {
				if tries++; tries == 1 { // it is continued more than once
					c.do("item.begin", "a", "a")
					c.do("item.fail", map[string]string{"name": "Error", "message": "again"})
				}
				return right(c)
			})
			w.run()
			if err := w.decide(keep.Retry); err != nil {
				t.Fatal(err)
			}
			w.run()
			if r := w.lastRun(); r.Status != keep.StatusCommitted || w.items()["a"] != keep.ItemDone || w.service.total() != 1 {
				t.Errorf("after the rename to %s the run of %s is %s (%v), its item %q, with %d effects", name, r.Handler, r.Status, r.Error, w.items()["a"], w.service.total())
			}
		})
	}
}

// Law: once. A call that was refused under one name, and was made under another since, is not
// made again when the first name is back: its record there says that it failed.
func TestACallThatFailedUnderThisNameBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t)
		name, was := "create", ""
		w.script["jobs.remind"] = func(c *call) any {
			c.withItem("a", func(c *call, done bool) {
				for _, id := range []string{"x", "y"} {
					if !done {
						c.do("svc."+name, map[string]any{"id": id, "text": "hello"})
					}
				}
			})
			return nil
		}
		w.service.onCall = func(n int) (bool, error) {
			if n == 1 || n == 3 { // x, and later y, is refused
				return false, keep.Failf(keep.ClassPermission, keep.CodeForbidden, "no")
			}
			return true, nil
		}
		w.connect = func() []connector.Connection {
			c := w.service.connection()
			create := c.Tools[0].(asker)
			create.spec.Name, create.spec.Was = name, strings.Fields(was)
			c.Tools[0] = create
			return []connector.Connection{c}
		}
		w.deploy()
		w.run()
		for _, rename := range [][2]string{{"add", "create"}, {"create", "add"}} {
			name, was = rename[0], rename[1]
			if err := w.decide(keep.Retry); err != nil {
				t.Fatal(err)
			}
			w.run()
		}
		if qs := w.questions(); w.service.calls != 4 || w.service.total() != 2 || len(qs) != 0 {
			t.Errorf("%d calls, %d effects, questions %+v; want 4, 2 and none", w.service.calls, w.service.total(), qs)
		}
		w.check()
	})
}

// What is asked about the tool of a record is found by a name that it had, too.
func TestToolOfARecordOfBefore(t *testing.T) {
	w := newWorld(t)
	w.rename(func(c *connector.Connection, s *connector.Spec) {
		c.Name, c.Was, c.Secrets = "crm", connector.Names{"svc"}, "mark"
		s.Result, s.ResultFrom = json.RawMessage(`{"type":"object"}`), "get"
	})
	tools, err := engine.NewTools(w.connections())
	if err != nil {
		t.Fatal(err)
	}
	if mark, known := tools.Secrets("svc.create"); mark != "mark" || !known {
		t.Errorf("Secrets = %q, %t, want mark", mark, known)
	}
	if err := tools.CheckResult("svc.create", json.RawMessage("1")); err == nil || tools.ResultSchema("svc.create") == nil {
		t.Errorf("CheckResult = %v with schema %s, want a refusal by its schema", err, tools.ResultSchema("svc.create"))
	}
	if _, known, err := engine.NewResults(tools, w.store, nil).ReadResult(t.Context(), keep.Mutation{Tool: "svc.create", Identity: json.RawMessage(`{"id":"a"}`)}); !known || err != nil && !strings.Contains(err.Error(), "crm.get") {
		t.Errorf("ReadResult = %t, %v, want that of crm.get", known, err)
	}
}

// rename gives a tool of the service another name.
func (w *world) rename(configure func(*connector.Connection, *connector.Spec)) {
	w.connect = func() []connector.Connection {
		c := w.service.connection()
		create := c.Tools[0].(asker)
		configure(&c, &create.spec)
		c.Tools[0] = create
		return []connector.Connection{c}
	}
}

// creates makes the consumer call a tool for one and the same thing.
func (w *world) creates(tool string) {
	w.script["consumers.act.mutate"] = func(c *call) any {
		c.do(tool, map[string]any{"id": "same"})
		return nil
	}
}

// Law: once. An identity that was applied under a former name of its tool is asked about.
func TestUniqueAfterARename(t *testing.T) {
	for tool, configure := range map[string]func(*connector.Connection, *connector.Spec){
		"crm.create": func(c *connector.Connection, _ *connector.Spec) { c.Name, c.Was = "crm", connector.Names{"svc"} },
		"svc.add":    func(_ *connector.Connection, s *connector.Spec) { s.Name, s.Was = "add", connector.Names{"create"} },
		"people.put": func(c *connector.Connection, s *connector.Spec) {
			c.Name, c.Was, s.Name, s.Was = "people", connector.Names{"crm", "svc"}, "put", connector.Names{"add", "create"}
		},
		"crm.add": func(c *connector.Connection, s *connector.Spec) {
			c.Name, c.Was, s.Name, s.Was = "crm", connector.Names{"svc"}, "add", connector.Names{"create"}
		},
	} {
		t.Run(tool, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := uniqueWorld(t)
				w.rename(configure)
				w.creates(tool)
				w.publish("in", "b")
				w.run()
				if qs := w.questions(); w.service.calls != 1 || len(qs) != 1 || qs[0].Kind != keep.AskAlreadyDone {
					t.Fatalf("%d calls, questions %+v; want 1 and already_done", w.service.calls, qs)
				}
				if err := w.decide(keep.TreatAsDone); err != nil {
					t.Fatal(err)
				}
				w.run()
				if out := w.event("out", "out:b"); string(out.Payload) != `{"status":"applied"}` || w.service.calls != 1 {
					t.Errorf("next was given %s after %d calls, want applied after 1", out.Payload, w.service.calls)
				}
			})
		})
	}
}

// Law: once. A record that failed keeps its tool's former name when its call is made again;
// what was applied under today's name meanwhile is asked about, and found by the commit.
func TestUniqueOfARecordOfBefore(t *testing.T) {
	for _, when := range []string{"before it is asked", "before the commit"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.service.unique = true
				w.service.onCall = func(int) (bool, error) { return false, keep.Failf(keep.ClassPermission, keep.CodeForbidden, "no") }
				w.creates("svc.create")
				w.deploy()
				w.publish("in", "a")
				w.run()
				m := w.mutation()
				m.Rev, m.Key, m.Workflow, m.Run, m.State, m.Tool = 0, "mut_other", "other", "run_other", keep.Applied, "crm.create"
				m.ResolvedBy, m.Error = "call", nil
				w.service.onCall = nil
				w.rename(func(c *connector.Connection, _ *connector.Spec) { c.Name, c.Was = "crm", connector.Names{"svc"} })
				w.creates("crm.create")
				if when == "before it is asked" {
					w.other(m)
				} else {
					w.onCommit = func(c keep.Commit, do func() error) error {
						for _, change := range c.Changes {
							if put, ok := change.(keep.PutMutation); ok && put.Mutation.State == keep.InFlight {
								w.onCommit = nil
								w.other(m)
							}
						}
						return do()
					}
				}
				if err := w.decide(keep.Retry); err != nil {
					t.Fatal(err)
				}
				w.run()
				if qs := w.questions(); w.service.calls != 1 || len(qs) != 1 || qs[0].Kind != keep.AskAlreadyDone || qs[0].Mutation != m.Key {
					t.Errorf("%d calls, questions %+v; want 1 and already_done about the other record", w.service.calls, qs)
				}
			})
		})
	}
}
