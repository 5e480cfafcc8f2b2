//go:build unix

package gateway_test

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/store/sqlite"
)

var everyByte = flag.Bool("every-byte", false, "lose answers at every byte, and not at some")

func testContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}

// untilKnown makes the same call again, as a client does that lost its answer, until it gets one
// that is about what happened.
func untilKnown(t *testing.T, s setup, title string) reply {
	t.Helper()
	c := start(t, s)
	defer c.stop()
	for range 200 {
		r, ok := c.create(title)
		if !ok {
			t.Fatalf("the gateway died: %s", c.err.String())
		}
		if s := r.state(); s == "needs_reconcile" || s == "failed" {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		return r
	}
	t.Fatal("the outcome was never known")
	return reply{}
}

// check opens the database of a gateway that has ended, checks its laws, and returns its open questions.
func check(t *testing.T, dir string) []keep.Escalation {
	t.Helper()
	ctx, cancel := testContext()
	defer cancel()
	db := sqlite.New(filepath.Join(dir, "keep.db"), sqlite.Config{})
	if err := db.Open(ctx); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for err := range db.Check(ctx) {
		t.Errorf("check: %v", err)
	}
	var all []keep.Escalation
	for p := (keep.Page{Limit: 100}); ; {
		list, next, err := db.Escalations(ctx, keep.EscalationFilter{Open: true}, p)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, list...)
		if p.After = next; next == "" {
			return all
		}
	}
}

func TestCall(t *testing.T) {
	s := setup{Dir: t.TempDir(), Agent: "a", Rules: paired()}
	c := start(t, s)
	tools, _ := c.ask(2, "tools/list", `{}`)
	var names []string
	for _, tool := range tools.Result.Tools {
		names = append(names, tool["name"].(string))
	}
	if got := strings.Join(names, " "); got != "keep_outcome notes__create notes__list" {
		t.Errorf("tools are %s", got)
	}
	if !strings.Contains(tools.raw, `adds\\u{200B} a note`) {
		t.Errorf("the hidden character is not marked: %s", tools.raw)
	}
	r, _ := c.create("one")
	if r.Error != nil || r.Result.IsError || r.state() != "applied" || r.Result.StructuredContent["Title"] != "one" || !strings.Contains(r.raw, `"x":12345678901234567000`) {
		t.Errorf("create: %s", r.raw)
	}
	// The same call at once is the answer lost: nothing shows that the client has it.
	if again, _ := c.create("one"); again.Result.Meta["keep/replayed"] != true || effects(t, s.Dir, "one") != 1 {
		t.Errorf("again: %s, %d effects", again.raw, effects(t, s.Dir, "one"))
	}
	// Another message shows that the answer arrived: an equal call is another call.
	if _, ok := c.ask(3, "ping", `{}`); !ok {
		t.Fatal("no answer to ping")
	}
	if third, _ := c.create("one"); third.state() != "applied" || effects(t, s.Dir, "one") != 2 {
		t.Errorf("after ping: %s, %d effects", third.raw, effects(t, s.Dir, "one"))
	}
	for _, n := range []string{"9007199254740993", "100.00000000000000000001"} {
		if r, _ := c.ask(4, "tools/call", `{"name":"notes__create","arguments":{"title":"one","n":`+n+`}}`); r.Error == nil || r.Error.Code != -32602 {
			t.Errorf("a number that would be rounded: %s", r.raw)
		}
	}
	for name, code := range map[string]int{"notes__gone": -32602, "other__create": -32602, "create": -32602} {
		if r, _ := c.ask(5, "tools/call", fmt.Sprintf(`{"name":%q}`, name)); r.Error == nil || r.Error.Code != code {
			t.Errorf("%s: %s", name, r.raw)
		}
	}
	if r, _ := c.ask(6, "tools/call", `{"name":"notes__list","arguments":{}}`); len(r.Result.StructuredContent["notes"].([]any)) != 2 {
		t.Errorf("list: %s", r.raw)
	}
	c.stop()
	if q := check(t, s.Dir); len(q) != 0 {
		t.Errorf("questions: %v", q)
	}
}

// Two agents that make the same call make two; neither gets the answer of the other.
func TestTwoAgents(t *testing.T) {
	s := setup{Dir: t.TempDir(), Agent: "a", Rules: paired()}
	one := start(t, s)
	first, _ := one.create("same")
	one.stop()
	s.Agent = "b"
	two := start(t, s)
	second, _ := two.create("same")
	if first.state() != "applied" || second.state() != "applied" || second.Result.Meta["keep/replayed"] != nil || effects(t, s.Dir, "same") != 2 {
		t.Errorf("%s\n%s\n%d effects", first.raw, second.raw, effects(t, s.Dir, "same"))
	}
	ref, _ := first.Result.Meta["keep/ref"].(string)
	if r, _ := two.ask(9, "tools/call", fmt.Sprintf(`{"name":"keep_outcome","arguments":{"ref":%q}}`, ref)); !r.Result.IsError {
		t.Errorf("an agent sees the call of another: %s", r.raw)
	}
}

// The gateway is killed at every point of a call, and a client that obeys the protocol issues the
// call again. Laws: once, recorded-before-sent, nothing-lost.
func TestKilledAtEachPoint(t *testing.T) {
	for _, p := range []engine.Point{engine.BeforeCall, engine.Recorded, engine.Answered, engine.AfterCommit} {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			t.Run("paired", func(t *testing.T) {
				s := setup{Dir: t.TempDir(), Agent: "a", Rules: paired()}
				dying := s
				dying.KillAt = p
				c := start(t, dying)
				if r, ok := c.create("x"); ok {
					t.Fatalf("it was to die: %s", r.raw)
				}
				r := untilKnown(t, s, "x")
				if n := effects(t, s.Dir, "x"); n != 1 || r.state() != "applied" || r.Result.IsError {
					t.Errorf("%d effects, %s", n, r.raw)
				}
				if q := check(t, s.Dir); len(q) != 0 {
					t.Errorf("%d questions", len(q))
				}
			})
			t.Run("unpaired", func(t *testing.T) {
				s := setup{Dir: t.TempDir(), Agent: "a"}
				dying := s
				dying.KillAt = p
				c := start(t, dying)
				if r, ok := c.create("x"); ok {
					t.Fatalf("it was to die: %s", r.raw)
				}
				r := untilKnown(t, s, "x")
				n, q := effects(t, s.Dir, "x"), check(t, s.Dir)
				inDoubt := p == engine.Recorded || p == engine.Answered
				switch {
				case inDoubt && (n > 1 || len(q) != 1 || q[0].Kind != keep.AskUnknownOutcome || r.state() != "indeterminate" || !r.Result.IsError):
					t.Errorf("%d effects, %d questions, %s", n, len(q), r.raw)
				case !inDoubt && (n != 1 || len(q) != 0 || r.state() != "applied"):
					t.Errorf("%d effects, %d questions, %s", n, len(q), r.raw)
				}
			})
		})
	}
}

// The server dies, or answers nonsense, before or after its effect.
func TestServerFails(t *testing.T) {
	for _, fault := range []string{"die-before", "die-after", "error-after", "refuse", "cut:1", "cut:40", "cut:100"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			for _, rules := range []string{"paired", "unpaired"} {
				s := setup{Dir: t.TempDir(), Agent: "a"}
				if rules == "paired" {
					s.Rules = paired()
				}
				fail(t, s.Dir, fault)
				r := untilKnown(t, s, "x")
				n, q := effects(t, s.Dir, "x"), check(t, s.Dir)
				switch {
				case rules == "paired" && (n != 1 || len(q) != 0 || r.state() != "applied"):
					t.Errorf("%s: %d effects, %d questions, %s", rules, n, len(q), r.raw)
				case rules == "unpaired" && (n > 1 || len(q) != 1 || !strings.Contains(r.text(), "The outcome of notes.create is unknown; do not repeat it; ask keep_outcome with mut_")):
					t.Errorf("%s: %d effects, %d questions, %s", rules, n, len(q), r.raw)
				}
				if rules == "unpaired" && (fault == "refuse" || fault == "error-after") && !strings.Contains(r.text(), "upstream timed out") {
					t.Errorf("the server's text is lost: %s", r.raw)
				}
			}
		})
	}
}

// The gateway dies after each byte of its answer, and the server after each byte of its own.
func TestAnswerLostAtEachByte(t *testing.T) {
	step := 41
	if *everyByte {
		step = 1
	}
	whole := start(t, setup{Dir: t.TempDir(), Agent: "a", Rules: paired()})
	r, _ := whole.create("x")
	whole.stop()
	for at := 1; at <= len(r.raw); at += step {
		s := setup{Dir: t.TempDir(), Agent: "a", Rules: paired()}
		dying := s
		dying.CutAt = at
		c := start(t, dying)
		if _, ok := c.create("x"); ok {
			t.Fatalf("byte %d: the whole answer came", at)
		}
		again := untilKnown(t, s, "x")
		if n := effects(t, s.Dir, "x"); n != 1 || again.state() != "applied" || again.Result.Meta["keep/replayed"] != true {
			t.Errorf("gateway, byte %d: %d effects, %s", at, n, again.raw)
		}
		check(t, s.Dir)
	}
}
