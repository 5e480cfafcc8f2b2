package rename_test

import (
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/rename"
)

// TestTools goes through what a configuration may be after records were made with
// crm.create of an http service.
func TestTools(t *testing.T) {
	used := []rename.Used{{Tool: "crm.create", Connector: "http"}}
	was := func(names ...keep.ToolName) func(*rename.ToolOf) {
		return func(t *rename.ToolOf) { t.Was = names }
	}
	tool := func(name keep.ToolName) rename.ToolOf {
		return rename.ToolOf{Name: name, Connector: "http", Called: true}
	}
	with := func(t rename.ToolOf, change func(*rename.ToolOf)) rename.ToolOf {
		change(&t)
		return t
	}
	for _, tt := range []struct {
		name       string
		configured []rename.ToolOf
		want       string // "" or the first doubt
	}{
		{"as it was", []rename.ToolOf{tool("crm.create"), tool("mail.send")}, ""},
		{"gone, and nothing new", nil, ""},
		{"connection", []rename.ToolOf{tool("crm2.create")}, "connection crm crm2"},
		{"connection, with another tool", []rename.ToolOf{tool("crm2.add")}, "connection crm crm2"},
		{"connection that no script calls", []rename.ToolOf{with(tool("crm2.create"), func(t *rename.ToolOf) { t.Called = false })}, ""},
		{"connection of another kind", []rename.ToolOf{with(tool("log.create"), func(t *rename.ToolOf) { t.Connector = "log" })}, ""},
		{"connection that is new", []rename.ToolOf{with(tool("crm2.create"), func(t *rename.ToolOf) { t.NewConn = true })}, ""},
		{"connection that was it", []rename.ToolOf{with(tool("crm2.create"), was("crm.create"))}, ""},
		{"connection that was another one", []rename.ToolOf{with(tool("crm2.create"), was("crn.create"))}, "connection crm crm2"},
		{"tool", []rename.ToolOf{tool("crm.add")}, "tool crm.create crm.add"},
		{"tool that is new", []rename.ToolOf{with(tool("crm.add"), func(t *rename.ToolOf) { t.New = true })}, ""},
		{"tool that was it", []rename.ToolOf{with(tool("crm.add"), was("crm.create"))}, ""},
		{"tool that was another one", []rename.ToolOf{with(tool("crm.add"), was("crm.new"))}, "tool crm.create crm.add"},
		{"tool, and the connection was", []rename.ToolOf{with(tool("crm2.add"), was("crm.add"))}, "tool crm.create crm2.add"},
		{"tool beside it", []rename.ToolOf{tool("crm.create"), tool("crm.add")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) { compare(t, rename.Tools(used, tt.configured), tt.want) })
	}
}

// TestToolsRenamedAgain goes through what a configuration may be after records were made with a.create, and with
// b.create when keep.toml said that it was a.create.
func TestToolsRenamedAgain(t *testing.T) {
	const unknown = "not known"
	names := func(list string) (out []keep.ToolName) {
		for _, name := range strings.Fields(list) {
			out = append(out, keep.ToolName(name))
		}
		return out
	}
	for _, tt := range []struct {
		name       string
		used       [][2]string // a tool, and what it was when it was applied last
		configured [][2]string // a tool, and what it was
		isNew      bool        // the first one
		want       string      // the doubts
	}{
		{"both names", [][2]string{{"a.create"}, {"b.create", "a.create"}}, [][2]string{{"c.create", "b.create a.create"}}, false, ""},
		{"the last one", [][2]string{{"a.create"}, {"b.create", "a.create"}}, [][2]string{{"c.create", "b.create"}}, false, `connection a c said ["b", "a"]`},
		{"the first one", [][2]string{{"a.create"}, {"b.create", "a.create"}}, [][2]string{{"c.create", "a.create"}}, false, `connection b c said ["a", "b"]`},
		{"none", [][2]string{{"a.create"}, {"b.create", "a.create"}}, [][2]string{{"c.create"}}, false, `connection a c "a"; connection b c "b"`},
		{"the last one, and no others", [][2]string{{"a.create"}, {"b.create", "a.create"}}, [][2]string{{"c.create", "b.create"}}, true, ""},
		{"the last one, after calls", [][2]string{{"a.create"}, {"b.create", "a.create"}, {"c.create", "b.create a.create"}}, [][2]string{{"c.create", "b.create"}}, false,
			`connection a c said ["b", "a"]`},
		{"no name, after calls", [][2]string{{"a.create"}, {"b.create", "a.create"}, {"c.create", "b.create a.create"}}, [][2]string{{"c.create"}}, false,
			`connection a c said ["a", "b"]; connection b c said ["a", "b"]`},
		{"the one name is taken back", [][2]string{{"a.create"}, {"b.create", "a.create"}}, [][2]string{{"b.create"}}, false, `connection a b said "a"`},
		{"its first name again", [][2]string{{"a.create"}, {"b.create", "a.create"}}, [][2]string{{"a.create"}}, false, `connection b a said "b"`},
		{"its first name again, said", [][2]string{{"a.create"}, {"b.create", "a.create"}}, [][2]string{{"a.create", "b.create"}}, false, ""},
		{"its first name is another one's", [][2]string{{"a.create"}, {"b.create", "a.create"}}, [][2]string{{"b.create"}, {"a.create"}}, false, `connection a b said "a"`},
		{"no call in between", [][2]string{{"a.create"}}, [][2]string{{"c.create", "b.create"}}, false, `connection a c ["b", "a"]`},
		{"records of an earlier version", [][2]string{{"a.create"}, {"b.create", unknown}}, [][2]string{{"c.create", "b.create"}}, false, `connection a c ["b", "a"]`},
		{"records of an earlier version, after calls", [][2]string{{"a.create"}, {"b.create", unknown}, {"c.create", "b.create"}}, [][2]string{{"c.create", "b.create"}}, false, ""},
		{"one beside it is gone", [][2]string{{"a.create"}, {"b.create"}}, [][2]string{{"c.create", "b.create"}}, false, ""},
		{"tool, both names", [][2]string{{"s.create"}, {"s.add", "s.create"}}, [][2]string{{"s.put", "s.add s.create"}}, false, ""},
		{"tool, the last one", [][2]string{{"s.create"}, {"s.add", "s.create"}}, [][2]string{{"s.put", "s.add"}}, false, `tool s.create s.put said ["add", "create"]`},
		{"tool, its first name is another one's", [][2]string{{"s.create"}, {"s.add", "s.create"}}, [][2]string{{"s.add"}, {"s.create"}}, false, `tool s.create s.add said "create"`},
		{"tool, and its connection once", [][2]string{{"a.create"}, {"b.add", "b.create a.add a.create"}}, [][2]string{{"b.add", "a.add"}}, false, `tool a.create b.add said "create"`},
		{"connection, and its tool once", [][2]string{{"a.create"}, {"b.add", "b.create a.add a.create"}}, [][2]string{{"b.add", "b.create"}}, false, `connection a b said "a"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var used []rename.Used
			for _, u := range tt.used {
				r := rename.Used{Tool: keep.ToolName(u[0]), Connector: "http", Was: append([]keep.ToolName{}, names(u[1])...)}
				if u[1] == unknown {
					r.Was = nil
				}
				used = append(used, r)
			}
			var configured []rename.ToolOf
			for i, c := range tt.configured {
				configured = append(configured, rename.ToolOf{Name: keep.ToolName(c[0]), Connector: "http", Was: names(c[1]), Called: true,
					New: tt.isNew && i == 0, NewConn: tt.isNew && i == 0})
			}
			var got []string
			for _, d := range rename.Tools(used, configured) {
				said := " "
				if d.Said {
					said = " said "
				}
				got = append(got, string(d.Kind)+" "+d.Gone+" "+d.Fresh+said+d.Names)
				if !strings.Contains(d.Fix(), "write was = "+d.Names+" in [connections.") {
					t.Errorf("the fix is %q, want one with %s", d.Fix(), d.Names)
				}
			}
			if text := strings.Join(got, "; "); text != tt.want {
				t.Errorf("got %s\nwant %s", text, tt.want)
			}
		})
	}
}

// TestNewIsAboutItsOwnNames goes through what new of a connection, and what that of a tool, is not about, after records
// were made with a.create, and with b.create and b.add when keep.toml said that they were a.create.
func TestNewIsAboutItsOwnNames(t *testing.T) {
	first := rename.Used{Tool: "a.create", Was: []keep.ToolName{}}
	second := rename.Used{Tool: "b.create", Was: []keep.ToolName{"a.create"}}
	third := rename.Used{Tool: "b.add", Was: []keep.ToolName{"b.create", "a.add", "a.create"}}
	for _, tt := range []struct {
		name string
		used []rename.Used
		now  rename.ToolOf
		want string // "" or the first doubt
	}{
		{"tool of a new connection", []rename.Used{first}, rename.ToolOf{Name: "a.add", NewConn: true}, "tool a.create a.add"},
		{"new tool", []rename.Used{first}, rename.ToolOf{Name: "a.add", New: true}, ""},
		{"tool of a connection that had no others", []rename.Used{first, second},
			rename.ToolOf{Name: "b.put", Was: []keep.ToolName{"b.create", "a.put", "a.create"}, NewConn: true}, ""},
		{"tool of a connection that had no others, renamed", []rename.Used{first},
			rename.ToolOf{Name: "b.add", Was: []keep.ToolName{"a.add"}, NewConn: true}, "tool a.create b.add"},
		{"tool of a connection that had no others, forgotten", []rename.Used{first, third},
			rename.ToolOf{Name: "b.add", Was: []keep.ToolName{"a.add"}, NewConn: true}, "tool a.create b.add"},
		{"new tool of a connection, forgotten", []rename.Used{first, second}, rename.ToolOf{Name: "b.create", New: true}, "connection a b"},
		{"tool of a new connection, forgotten", []rename.Used{first, second}, rename.ToolOf{Name: "b.create", NewConn: true}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.now.Called = true
			compare(t, rename.Tools(tt.used, []rename.ToolOf{tt.now}), tt.want)
		})
	}
}

// TestWorkflows goes through what a script may be after records were made by a workflow
// "invoices" with the job "remind" in a.js.
func TestWorkflows(t *testing.T) {
	job := func(name, of string) keep.Handler {
		return keep.Handler{Name: keep.HandlerName(name), Kind: keep.Job, Items: of}
	}
	stored := []rename.Stored{{Name: "invoices", Entry: "a.js", Handlers: []keep.Handler{job("remind", "remind")}, Worked: true,
		Did: []keep.ToolName{"mail.send"}, Jobs: []keep.HandlerName{"remind"}, Ran: []keep.HandlerName{"remind"}}}
	written := func(name, was string, isNew bool, entry string, handlers ...keep.Handler) []rename.Written {
		return []rename.Written{{Definition: keep.Definition{Name: keep.WorkflowName(name), Was: keep.WorkflowName(was), New: isNew, Handlers: handlers}, Entry: entry}}
	}
	calls := func(ws []rename.Written, tool keep.ToolName) []rename.Written {
		ws[0].Calls = []keep.ToolName{tool}
		return ws
	}
	fresh := job("chase", "chase")
	fresh.New = true
	for _, tt := range []struct {
		name    string
		written []rename.Written
		exists  bool
		want    string
	}{
		{"as it was", written("invoices", "", false, "a.js", job("remind", "remind")), true, ""},
		{"renamed in its file", written("bills", "", false, "a.js", job("remind", "remind")), true, "workflow invoices bills"},
		{"renamed, and its file", written("bills", "", false, "b.js", job("remind", "remind")), false, "workflow invoices bills"},
		{"another one beside it", written("bills", "", false, "b.js", job("remind", "remind")), true, ""},
		{"quite another one", calls(written("bills", "", false, "a.js", job("pay", "pay")), "bank.pay"), true, ""},
		{"renamed with its only job", calls(written("bills", "", false, "a.js", job("pay", "pay")), "mail.send"), true, "workflow invoices bills"},
		{"another one that calls the same tool, in its own file", calls(written("bills", "", false, "b.js", job("pay", "pay")), "mail.send"), true, ""},
		{"new, and calls the same tool", calls(written("bills", "", true, "a.js", job("pay", "pay")), "mail.send"), true, ""},
		{"new", written("bills", "", true, "a.js", job("remind", "remind")), true, ""},
		{"was", written("bills", "invoices", false, "a.js", job("remind", "remind")), true, ""},
		{"job", written("invoices", "", false, "a.js", job("chase", "chase")), true, "job remind chase"},
		{"job, and the workflow was", written("bills", "invoices", false, "a.js", job("chase", "chase")), true, "job remind chase"},
		{"job that was", written("invoices", "", false, "a.js", job("chase", "remind")), true, ""},
		{"job that is new", written("invoices", "", false, "a.js", fresh), true, ""},
		{"job beside it", written("invoices", "", false, "a.js", job("remind", "remind"), job("chase", "chase")), true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			compare(t, rename.Workflows(stored, tt.written, func(string) bool { return tt.exists }), tt.want)
		})
	}
}

// TestIdleWorkflow is about one that has done nothing yet, continues beside what it may be now.
func TestIdleWorkflow(t *testing.T) {
	poll := []keep.Handler{{Name: "poll", Kind: keep.Producer}}
	for name, c := range map[string]struct {
		goes, isNew bool
		was         keep.WorkflowName
		want        string
	}{
		"continues":   {goes: true, want: "workflow invoices bills"},
		"is paused":   {},
		"is the same": {goes: true, was: "invoices"},
		"is another":  {goes: true, isNew: true},
	} {
		stored := []rename.Stored{{Name: "invoices", Entry: "a.js", Handlers: poll, Goes: c.goes}}
		written := []rename.Written{{Definition: keep.Definition{Name: "bills", Was: c.was, New: c.isNew, Handlers: poll}, Entry: "a.js"}}
		t.Run(name, func(t *testing.T) {
			compare(t, rename.Workflows(stored, written, func(string) bool { return true }), c.want)
		})
	}
}

// TestParts goes through what a script of the workflow "shop" may be after the topic "order" had events, and
// the producer "poll" a checkpoint. The version in force declares the topic "spare", too, which never had any.
func TestParts(t *testing.T) {
	producer := func(name, of string, isNew bool) keep.Handler {
		return keep.Handler{Name: keep.HandlerName(name), Kind: keep.Producer, Items: of, New: isNew}
	}
	stored := rename.Stored{Name: "shop", Entry: "a.js", Topics: []keep.TopicName{"order", "spare"}, Handlers: []keep.Handler{producer("poll", "", false), producer("bare", "", false)},
		Events: []keep.TopicName{"order"}, Checkpoints: []keep.HandlerName{"poll"}}
	topics := func(names ...keep.TopicName) keep.Definition {
		return keep.Definition{Name: "shop", Topics: names, Handlers: stored.Handlers}
	}
	producers := func(hs ...keep.Handler) keep.Definition {
		return keep.Definition{Name: "shop", Topics: stored.Topics, Handlers: hs}
	}
	isNew := topics("orders", "spare")
	isNew.NewTopics = []keep.TopicName{"orders"}
	bills := topics("orders")
	bills.Name, bills.Was = "bills", "shop"
	for _, tt := range []struct {
		name    string
		written keep.Definition
		want    string
	}{
		{"as it was", topics("order", "spare"), ""},
		{"topic", topics("orders", "spare"), "topic order orders"},
		{"topic, and the workflow was", bills, "topic order orders"},
		{"topic that was", topics("orders", "spare").KeepAs(map[keep.TopicName]keep.TopicName{"orders": "order"}), ""},
		{"topic that was another one", topics("orders", "spare").KeepAs(map[keep.TopicName]keep.TopicName{"orders": "first"}), "topic order orders"},
		{"topic that has its first name, and was the one in between", topics("order", "spare").KeepAs(map[keep.TopicName]keep.TopicName{"order": "orders"}), "topic order order"},
		{"topic that is new", isNew, ""},
		{"topic beside it", topics("order", "orders", "spare"), ""},
		{"topic gone, and nothing new", topics("spare"), ""},
		{"topic without events renamed", topics("order", "other"), ""},
		{"producer", producers(producer("fetch", "", false)), "producer poll fetch"},
		{"producer that was", producers(producer("fetch", "poll", false)), ""},
		{"producer that was another one", producers(producer("read", "fetch", false)), "producer poll read"},
		{"producer that is new", producers(producer("fetch", "", true)), ""},
		{"producer beside it", producers(producer("poll", "", false), producer("bare", "", false), producer("fetch", "", false)), ""},
		{"producer without a checkpoint renamed", producers(producer("poll", "", false), producer("fetch", "", false)), ""},
		{"producer gone, and the other stays", producers(producer("bare", "", false)), ""},
		{"a job of that name", producers(keep.Handler{Name: "fetch", Kind: keep.Job, Items: "fetch"}), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			compare(t, rename.Workflows([]rename.Stored{stored}, []rename.Written{{Definition: tt.written, Entry: "a.js"}}, func(string) bool { return true }), tt.want)
		})
	}
}

func compare(t *testing.T, got []rename.Doubt, want string) {
	t.Helper()
	text := ""
	if len(got) > 0 {
		text = string(got[0].Kind) + " " + got[0].Gone + " " + got[0].Fresh
	}
	if text != want || len(got) > 1 {
		t.Errorf("got %+v, want %q", got, want)
	}
}
