//go:build unix

package gateway_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/repeat"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/sqlite"
)

// A desk is a gateway in this process, with a client and a person.
type desk struct {
	*client
	dir string
	db  *sqlite.DB
	op  *operator.Operator
}

// open starts a desk.
func open(t *testing.T, s setup, change func(*gateway.Config)) *desk {
	t.Helper()
	return openOver(t, s, func(db *sqlite.DB) gateway.Store { return db }, change)
}

// openOver starts a desk over a store that is made of its database.
func openOver(t *testing.T, s setup, over func(*sqlite.DB) gateway.Store, change func(*gateway.Config)) *desk {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) // a gateway that ends early reads no more, and its client waits without end
	db := sqlite.New(filepath.Join(s.Dir, "keep.db"), sqlite.Config{Host: true})
	if err := db.Open(ctx); err != nil {
		t.Fatal(err)
	}
	cfg := gateway.Config{Servers: []mcp.ServerConfig{s.serverConfig()}, Rules: s.Rules, Repeat: s.Repeat, Policy: testPolicy(), Alone: true, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	g, err := gateway.New(ctx, over(db), cfg)
	if err != nil {
		t.Fatal(err)
	}
	op, err := operator.New(db, operator.Config{Policy: testPolicy(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	toGateway, in := io.Pipe()
	out, fromGateway := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- g.ServeStdio(ctx, s.Agent, toGateway, fromGateway) }()
	d := &desk{&client{t: t, in: in, out: bufio.NewReader(out)}, s.Dir, db, op}
	t.Cleanup(func() {
		in.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		for err := range db.Check(ctx) {
			t.Errorf("check: %v", err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		cancel()
	})
	return d
}

// make calls the tool that adds a note.
func (d *desk) make(title string) reply {
	d.t.Helper()
	r, ok := d.create(title)
	if !ok {
		d.t.Fatal("no answer")
	}
	return r
}

// question returns the one open question.
func (d *desk) question(kind keep.EscalationKind) keep.Escalation {
	d.t.Helper()
	ctx, cancel := testContext()
	defer cancel()
	list, _, err := d.db.Escalations(ctx, keep.EscalationFilter{Open: true}, keep.Page{})
	if err != nil || len(list) != 1 || list[0].Kind != kind {
		d.t.Fatalf("%v: %d questions, want one of kind %s: %+v", err, len(list), kind, list)
	}
	if asksFirst := kind == keep.AskApproval || kind == keep.AskBudget || kind == keep.AskAlreadyDone; asksFirst && !strings.Contains(list[0].Question, "the agent a ") {
		d.t.Errorf("the question does not say who calls: %s", list[0].Question)
	}
	return list[0]
}

// decide answers the one open question.
func (d *desk) decide(kind keep.EscalationKind, action keep.Action) {
	d.t.Helper()
	ctx, cancel := testContext()
	defer cancel()
	if err := d.op.Decide(ctx, d.question(kind).ID, keep.Decision{Action: action, By: "ann"}); err != nil {
		d.t.Fatal(err)
	}
}

// want fails unless an answer has a state, and a title has that many effects.
func (d *desk) want(what string, r reply, state string, n int, texts ...string) {
	d.t.Helper()
	if got := effects(d.t, d.dir, "x"); r.state() != state || got != n {
		d.t.Errorf("%s: %d effects, want %d, and state %s, want %s: %s", what, got, n, r.state(), state, r.raw)
	}
	for _, text := range texts {
		if !strings.Contains(r.raw, text) {
			d.t.Errorf("%s: the answer does not say %q: %s", what, text, r.raw)
		}
	}
}

func (d *desk) ping() { d.t.Helper(); d.ask(3, "ping", `{}`) }

func TestDecisions(t *testing.T) {
	for _, c := range []struct {
		action keep.Action
		state  string
		n      int
		text   string
	}{
		{keep.DidNotHappen, "applied", 1, `"created"`},
		{keep.Happened, "applied", 0, `"keep/replayed":true`},
		{keep.Skip, "skipped", 0, "without an answer"},
	} {
		t.Run(string(c.action), func(t *testing.T) {
			t.Parallel()
			s := setup{Dir: t.TempDir(), Agent: "a"}
			d := open(t, s, nil)
			fail(t, s.Dir, "die-before")
			first := d.make("x")
			d.want("first", first, "indeterminate", 0, "do not repeat it")
			d.ping()
			again := d.make("x")
			d.want("again", again, "indeterminate", 0)
			if first.Result.Meta["keep/ref"] != again.Result.Meta["keep/ref"] {
				t.Errorf("the reference changed: %s", again.raw)
			}
			d.want("another call of the agent", must(d.ask(8, "tools/call", createParams("y"))), "applied", 0)
			d.decide(keep.AskUnknownOutcome, c.action)
			d.ping()
			d.want("after the decision", d.make("x"), c.state, c.n, c.text)
			ref := first.Result.Meta["keep/ref"].(string)
			out, _ := d.ask(9, "tools/call", `{"name":"keep_outcome","arguments":{"ref":"`+ref+`"}}`)
			if !strings.Contains(out.text(), `"state":"`+c.state+`"`) || !strings.Contains(out.text(), `"tool":"notes.create"`) {
				t.Errorf("keep_outcome: %s", out.raw)
			}
			if list, _, err := d.db.Mutations(t.Context(), keep.MutationFilter{}, keep.Page{}); err != nil || len(list) != 2 {
				t.Errorf("%d records, want two, %v", len(list), err)
			}
		})
	}
}

func must(r reply, _ bool) reply { return r }

func TestApproval(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Agent: "a", Rules: map[keep.ToolName]gateway.Rule{"notes.create": {Pairing: mcp.Pairing{Tool: "create", Approve: "params.title == 'x'"}}}}
	d := open(t, s, nil)
	d.want("first", d.make("x"), "waiting", 0, "waits for a person")
	d.ping()
	d.want("again", d.make("x"), "waiting", 0)
	d.decide(keep.AskApproval, keep.Approve)
	d.want("approved", d.make("x"), "applied", 1)
	d.ping()
	d.want("another one", d.make("x"), "waiting", 1)
	d.decide(keep.AskApproval, keep.Reject)
	d.want("rejected", d.make("x"), "rejected", 1, "rejected", `"isError":true`)
	d.ping()
	d.want("a third one", d.make("x"), "waiting", 1)
	d.decide(keep.AskApproval, keep.TreatAsDone)
	d.want("done already", d.make("x"), "applied", 1)
	if r := d.make("free"); r.state() != "applied" {
		t.Errorf("a call that needs no approval: %s", r.raw)
	}
}

// A call that a person says was done already, and that the agent then makes with other content: a person is asked
// about that, and what he approves is sent.
func TestOtherContentAfterDoneAlready(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Agent: "a", Rules: map[keep.ToolName]gateway.Rule{"notes.create": {Pairing: mcp.Pairing{Tool: "create", Approve: "always", Identity: []string{"title"}}}}}
	d := open(t, s, nil)
	d.want("first", d.make("x"), "waiting", 0)
	d.decide(keep.AskApproval, keep.TreatAsDone)
	const other = `{"name":"notes__create","arguments":{"title":"x","body":"other"}}`
	d.want("other content", must(d.ask(5, "tools/call", other)), "waiting", 0)
	d.decide(keep.AskApproval, keep.Approve)
	d.want("approved", must(d.ask(6, "tools/call", other)), "applied", 1)
	if list, _, err := d.db.Escalations(t.Context(), keep.EscalationFilter{Open: true}, keep.Page{}); err != nil || len(list) != 0 {
		t.Errorf("questions %+v, %v; want none", list, err)
	}
}

// What a person says of a call holds for no other content of it, before and after the agent was told: it is sent by nobody, and
// the agent is not told that it was. Law: doubt-is-not-failure.
func TestPersonSpeaksOfOneContent(t *testing.T) {
	approved := map[keep.ToolName]gateway.Rule{"notes.create": {Pairing: mcp.Pairing{Tool: "create", Approve: "always", Identity: []string{"title"}}}}
	unique := map[keep.ToolName]gateway.Rule{"notes.create": {Pairing: mcp.Pairing{Tool: "create", Unique: true, Identity: []string{"title"}}}}
	content := func(d *desk, body string) reply {
		return must(d.ask(7, "tools/call", `{"name":"notes__create","arguments":{"title":"x","body":"`+body+`"}}`))
	}
	const other = "An equal call of notes.create with other content was made before"
	for _, c := range []struct {
		action keep.Action
		state  string
	}{{keep.TreatAsDone, "applied"}, {keep.Reject, "rejected"}} {
		t.Run(string(c.action), func(t *testing.T) {
			t.Parallel()
			d := open(t, setup{Dir: t.TempDir(), Agent: "a", Rules: approved}, nil)
			first := content(d, "1")
			d.want("first", first, "waiting", 0)
			d.want("another while it waits", content(d, "2"), "", 0, other)
			d.decide(keep.AskApproval, c.action)
			told := content(d, "1")
			d.want("told", told, c.state, 0)
			d.want("another after that", content(d, "2"), "", 0, other)
			again := content(d, "1")
			d.want("told again", again, c.state, 0)
			if !strings.HasPrefix(again.text(), told.text()) {
				t.Errorf("%s\n%s", told.raw, again.raw)
			}
			ref := first.Result.Meta["keep/ref"].(string)
			if out := must(d.ask(9, "tools/call", `{"name":"keep_outcome","arguments":{"ref":"`+ref+`"}}`)); !strings.Contains(out.text(), `"state":"`+c.state+`"`) {
				t.Errorf("keep_outcome: %s", out.raw)
			}
			d.want("once the answer was delivered", content(d, "2"), "waiting", 0)
			d.decide(keep.AskApproval, keep.Approve)
			d.want("approved", content(d, "2"), "applied", 1)
		})
	}
	t.Run("unique", func(t *testing.T) {
		t.Parallel()
		d := open(t, setup{Dir: t.TempDir(), Agent: "a", Rules: unique}, nil)
		d.want("first", content(d, "1"), "applied", 1)
		d.ping()
		d.want("second", content(d, "2"), "waiting", 1)
		d.decide(keep.AskAlreadyDone, keep.TreatAsDone)
		told := content(d, "2")
		d.want("told", told, "applied", 1, "created")
		d.want("a third", content(d, "3"), "", 1, other)
		d.want("told again", content(d, "2"), "applied", 1, "created")
	})
	t.Run("after one that did not happen", func(t *testing.T) {
		t.Parallel()
		d := open(t, setup{Dir: t.TempDir(), Agent: "a", Rules: map[keep.ToolName]gateway.Rule{"notes.create": {Pairing: mcp.Pairing{Tool: "create", Identity: []string{"title"}}}}}, nil)
		fail(t, d.dir, "die-before")
		d.want("first", content(d, "1"), "indeterminate", 0)
		d.decide(keep.AskUnknownOutcome, keep.DidNotHappen)
		d.want("another", content(d, "2"), "failed", 0, "waits for a person")
		d.want("the same", content(d, "2"), "failed", 0, "waits for a person")
		d.want("the first again", content(d, "1"), "", 0, other)
		d.decide(keep.AskApproval, keep.Reject)
		rejected := content(d, "2")
		d.want("the other is rejected", rejected, "rejected", 0, "A person rejected this call")
		if out := must(d.ask(9, "tools/call", `{"name":"keep_outcome","arguments":{"ref":"`+rejected.Result.Meta["keep/ref"].(string)+`"}}`)); !strings.Contains(out.text(), `"state":"rejected"`) {
			t.Errorf("keep_outcome: %s", out.raw)
		}
		d.want("once more", content(d, "2"), "failed", 0, "waits for a person")
		d.decide(keep.AskApproval, keep.Approve)
		d.want("approved", content(d, "2"), "applied", 1)
		if list, _, err := d.db.Mutations(t.Context(), keep.MutationFilter{}, keep.Page{}); err != nil || len(list) != 1 {
			t.Errorf("%d records, want one, %v", len(list), err)
		}
	})
}

func TestBudget(t *testing.T) {
	t.Parallel()
	one, err := budget.FromFloat(1)
	if err != nil {
		t.Fatal(err)
	}
	rule, err := budget.New(budget.Rule{Name: "notes", Tools: []string{"notes.create"}, Limit: one, Per: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, setup{Dir: t.TempDir(), Agent: "a"}, func(cfg *gateway.Config) { cfg.Budgets = []budget.Rule{rule} })
	d.want("first", d.make("x"), "applied", 1)
	d.ping()
	d.want("over it", d.make("x"), "waiting", 1, "budget", `"isError":true`)
	d.decide(keep.AskBudget, keep.Allow)
	d.want("allowed", d.make("x"), "applied", 2)
}

func TestUnique(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Agent: "a", Rules: map[keep.ToolName]gateway.Rule{"notes.create": {Pairing: mcp.Pairing{Tool: "create", Unique: true}}}}
	d := open(t, s, nil)
	d.want("first", d.make("x"), "applied", 1)
	d.ping()
	d.want("again", d.make("x"), "waiting", 1, "waits for a person")
	if q := d.question(keep.AskAlreadyDone).Question; !strings.Contains(q, "was already done, by the agent a. Should the agent a do it again") {
		t.Errorf("the question is %s", q)
	}
	d.decide(keep.AskAlreadyDone, keep.DoAgain)
	d.want("once more", d.make("x"), "applied", 2)
}

func TestRepeatPolicies(t *testing.T) {
	for policy, state := range map[repeat.Policy]string{repeat.Ask: "waiting", repeat.Replay: "applied"} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			rules := repeat.DefaultRules()
			rules.Repeat = policy
			d := open(t, setup{Dir: t.TempDir(), Agent: "a", Repeat: rules}, nil)
			d.want("first", d.make("x"), "applied", 1)
			d.ping()
			again := d.make("x")
			d.want("again", again, state, 1)
			if replayed := again.Result.Meta["keep/replayed"] == true; replayed != (policy == repeat.Replay) {
				t.Errorf("again: %s", again.raw)
			}
			if policy == repeat.Ask {
				d.decide(keep.AskApproval, keep.Approve)
				d.want("approved", d.make("x"), "applied", 2)
			}
		})
	}
}

// A call with an intent of its own is another call, and one without content of its own is refused.
func TestIdentity(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Agent: "a", Rules: map[keep.ToolName]gateway.Rule{"notes.create": {Pairing: mcp.Pairing{Tool: "create", Identity: []string{"title"}}}}}
	d := open(t, s, nil)
	d.want("first", d.make("x"), "applied", 1)
	other, _ := d.ask(5, "tools/call", `{"name":"notes__create","arguments":{"title":"x","body":"other"}}`)
	d.want("other content", other, "", 1, "with other content", `"isError":true`)
	meant, _ := d.ask(5, "tools/call", `{"name":"notes__create","arguments":{"title":"x","body":"other"},"_meta":{"keep/intent":"two"}}`)
	d.want("named intent", meant, "applied", 2)
}

// Requests that are made at once: equal ones share an effect, others do not wait for each other.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	d := open(t, setup{Dir: t.TempDir(), Agent: "a"}, nil)
	go func() {
		for _, id := range []string{"21", "22", "23"} {
			d.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":` + createParams("x") + `}`)
		}
	}()
	for range 3 {
		line, err := d.out.ReadString('\n')
		if err != nil || !strings.Contains(line, `"keep/state":"applied"`) {
			t.Fatalf("%v: %s", err, line)
		}
	}
	if n := effects(t, d.dir, "x"); n != 1 {
		t.Errorf("%d effects of one call", n)
	}
}

// Frames of a hostile client are refused, and the next one is answered.
func TestHostileFrames(t *testing.T) {
	t.Parallel()
	d := open(t, setup{Dir: t.TempDir(), Agent: "a"}, func(cfg *gateway.Config) { cfg.MessageLimit = 10_000 })
	for frame, want := range map[string]string{
		`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"notes__create","arguments":{"title":"` + strings.Repeat("a", 20_000) + `"}}}`: `"id":5,"error":{"code":-32600`,
		`{"jsonrpc":"2.0","params":{"id":6,"x":"` + strings.Repeat(`\"id\":7`, 5000) + `"},"id":"late","method":"ping"}`:                               `"id":"late","error":{"code":-32600`,
		`[]`:   `-32600`,
		`nope`: `-32700`,
		`{"jsonrpc":"1.0","id":1,"method":"ping"}`:                                                                             `-32600`,
		`{"jsonrpc":"2.0","id":{},"method":"ping"}`:                                                                            `-32600`,
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`:                                                                          `-32600`,
		`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":[]}`:                                                           `-32602`,
		`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"notes__create","arguments":[1]}}`:                     `-32602`,
		`{"jsonrpc":"2.0","id":10,"method":"tools/call","params":{"name":"keep_outcome","arguments":{"ref":"mut_1' OR 1=1"}}}`: `There is no call`,
	} {
		d.send(frame)
		line, err := d.out.ReadString('\n')
		if err != nil || !strings.Contains(line, want) {
			t.Errorf("%.80s: %v %s, want %s", frame, err, line, want)
		}
	}
	d.want("after all that", d.make("x"), "applied", 1)
}
