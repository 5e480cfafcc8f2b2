package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
)

// paying makes the script ask twice for what costs, in prepare and in mutate, and counts
// what was bought. Each purchase brings another answer.
func paying(w *world, bought *int, fail func(n int) error) {
	w.service.onRead = func() error {
		*bought++
		w.service.read = json.RawMessage(fmt.Sprintf(`{"n":%d}`, *bought))
		if fail != nil {
			return fail(*bought)
		}
		return nil
	}
	w.connect = func() []connector.Connection {
		conn := w.service.connection()
		for i, t := range conn.Tools {
			if r, ok := t.(reader); ok && r.spec.Name == "get" {
				r.spec.Cost = true
				conn.Tools[i] = r
			}
		}
		return []connector.Connection{conn}
	}
	ask := func(c *call) string {
		one, two := c.do("svc.get", map[string]any{"q": 1, "r": 2}), c.do("svc.get", map[string]any{"r": 2, "q": 1})
		if string(one) != string(two) {
			panic(fmt.Sprintf("bought twice: %s, %s", one, two))
		}
		return string(one)
	}
	w.script["consumers.act.prepare"] = func(c *call) any {
		out := reserveTrigger(c)
		if len(c.c.Args) > 0 && c.c.Args[0] != nil {
			ask(c)
		}
		return out
	}
	mutate := w.script["consumers.act.mutate"]
	w.script["consumers.act.mutate"] = func(c *call) any {
		ask(c)
		return mutate(c)
	}
}

// What was paid for and recorded is not bought again, wherever the host dies, and is
// forgotten when the chain is over. Law: once, settled-stays.
func TestPaidOnce(t *testing.T) {
	for _, p := range append(engine.Points(), "") {
		t.Run(string(p), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var bought int
				paying(w, &bought, nil)
				w.deploy()
				w.publish("in", "a")
				if w.dieAt = p; p != "" {
					_ = w.runFor(60e9)
					w.dieAt = ""
				}
				w.run()
				want := 1
				if p == engine.Bought {
					want = 2 // nobody had the answer
				}
				r := w.lastRun()
				if bought != want || r.Status != keep.StatusCommitted {
					t.Errorf("bought %d times, want %d; the run is %s", bought, want, r.Status)
				}
				if size, err := w.store.KVSize(t.Context(), "w", keep.PaidAnswers(r.Chain)); err != nil || size != 0 {
					t.Errorf("%d bytes of answers are left, %v", size, err)
				}
			})
		})
	}
}

// A refused purchase is made again, and an answer that can't be kept stops the run.
func TestPaidTrouble(t *testing.T) {
	for name, c := range map[string]struct {
		fail   func(w *world) func(n int) error
		bought int
		status keep.RunStatus
		code   string
	}{
		"no answer at first": {func(*world) func(int) error {
			return func(n int) error {
				if n == 1 {
					return errors.New("connection reset")
				}
				return nil
			}
		}, 2, keep.StatusCommitted, ""},
		"too large an answer": {func(w *world) func(int) error {
			return func(int) error {
				w.service.read = json.RawMessage(`"` + strings.Repeat("x", 64<<10) + `"`)
				return nil
			}
		}, 1, keep.StatusLogic, "answer-too-large"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var bought int
				paying(w, &bought, c.fail(w))
				w.deploy()
				w.publish("in", "a")
				_ = w.runFor(600e9)
				r := w.lastRun()
				code := ""
				if r.Error != nil {
					code = r.Error.Code
				}
				if bought != c.bought || r.Status != c.status || code != c.code {
					t.Errorf("bought %d times, want %d; the run is %s (%s), want %s (%s)", bought, c.bought, r.Status, code, c.status, c.code)
				}
			})
		})
	}
}
