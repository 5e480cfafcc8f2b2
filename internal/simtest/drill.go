package simtest

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/policy"
)

// A drill is a world in which one thing goes wrong with the first call, and the
// host dies once. It is for tables; seeds are for everything else.
type drill struct {
	tool  string // which decides the level
	job   bool   // the call is made in an item, not by a consumer
	fault fault
	lag   bool   // the index of the search lags
	dieAt string // see deaths; empty: nowhere
	died  bool
}

// deaths are the points between durable steps, in their order: what the turns
// there are called.
var deaths = []struct{ name, turn string }{
	{"nowhere", ""},
	{"before the ledger write", "at w0 before-call"},
	{"after the ledger write", "at w0 recorded"},
	{"sent", "call w0"},
	{"effect done", "answer to call w0"},
	{"answered", "at w0 answered"},
	{"recorded", "at w0 outcome-written"},
	{"emitted", "at w0 before-commit"},
	{"committed", "at w0 after-commit"},
}

// strikes reports whether the host dies here. Producers pass the last two points,
// too, before any call was made.
func (d *drill) strikes(w *world, what string) bool {
	if d == nil || w.calm || d.died || d.dieAt == "" || !strings.HasPrefix(what, d.dieAt) {
		return false
	}
	last := strings.HasSuffix(d.dieAt, "-commit")
	if last && w.result.Calls == 0 {
		return false
	}
	d.died = true
	return true
}

// runDrill simulates a drill, in a world with one event or one item.
func runDrill(t *testing.T, d drill) Result {
	w := newWorld(1, nil)
	w.drill, w.rates, w.policy = &d, rates{}, policy.Default()
	w.policy.Breaker.Failures = 0
	w.keyLasts, w.keyFound, w.tools = 0, false, []*engine.Tools{w.newTools(0, settings{})}
	f := &flow{name: "w0", behaviour: make(map[string]behaviour)}
	if d.job {
		f.job = &job{name: "remind", tool: d.tool, items: []item{{id: "i0", calls: 1}}}
	} else {
		f.sources = []*source{{producer: "poll", topic: "t0", arrivals: []time.Duration{0}}}
		f.consumers = []consumer{{name: "c0", subscribe: []keep.TopicName{"t0"}, tool: d.tool, out: "t1", batch: 1}}
	}
	w.flows = []*flow{f}
	synctest.Test(t, func(*testing.T) {
		w.bubble(0, func() {
			p := w.newCommand("")
			w.must("deploy", second(p.operator.Deploy(person, f.deployment(behaviour{}, w.settings))))
			for range 2 {
				w.rates.life = 3 * time.Hour
				w.live()
				w.inspect()
			}
		})
	})
	synctest.Test(t, func(*testing.T) { w.bubble(-1, w.settle) })
	w.withStore(w.verify)
	w.result.Seen, w.result.Problems = w.seen, w.problems
	return w.result
}

// String names a drill.
func (d drill) String() string {
	where := "a consumer"
	if d.job {
		where = "an item"
	}
	return fmt.Sprintf("tool %s in %s, %s, lag %t, death at %q", d.tool, where, d.fault.name, d.lag, d.dieAt)
}
