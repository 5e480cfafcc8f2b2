package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/policy"
)

// An incident is something that happens to a job, between two stretches of time.
type incident struct {
	Kind string
	N    int // which point, commit, call, item, question or choice
	M    int // how long before it strikes
}

var incidentKinds = []string{
	"die", "lost", "unknown", "die-before", "die-after", // to the host and its store
	"refuse", "forbid", "lose-call", "lose-answer", "deaf", // to the service
	"repair", "decide", "reprocess", "skip", "wait",
}

// A plot is a job and what happens to it.
type plot struct {
	Items, Calls int
	Level        keep.Level
	Loose        bool // on_item_blocked = "continue"
	Compares     bool // the tool can compare payloads, and finds differences minor
	Incidents    []incident
}

func drawPlot(t *rapid.T) plot {
	one := rapid.Custom(func(t *rapid.T) incident {
		return incident{rapid.SampledFrom(incidentKinds).Draw(t, "kind"), rapid.IntRange(0, 7).Draw(t, "n"), rapid.IntRange(0, 5).Draw(t, "m")}
	})
	return plot{
		Items: rapid.IntRange(1, 3).Draw(t, "items"), Calls: rapid.IntRange(1, 3).Draw(t, "calls"),
		Level: rapid.SampledFrom([]keep.Level{keep.LevelKey, keep.LevelWitness, keep.LevelNone}).Draw(t, "level"),
		Loose: rapid.Bool().Draw(t, "loose"), Compares: rapid.Bool().Draw(t, "compares"),
		Incidents: rapid.SliceOfN(one, 0, 12).Draw(t, "incidents"),
	}
}

// For handlers that are a function of their item, any interleaving of crashes,
// failures, repairs that change payloads, and people's decisions gives each
// (item, attempt) the effects of an undisturbed run, each once, or the item is
// escalated (laws once and nothing-lost).
func TestItemsHaveTheEffectsOfAnUndisturbedRun(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlot(rt)
		var found []string
		synctest.Test(t, func(t *testing.T) {
			tb := &collector{TB: t}
			defer func() { found = tb.found }()
			defer tb.end()
			p.play(tb)
		})
		if len(found) > 0 {
			rt.Fatalf("%+v:\n%s", p, found)
		}
	})
}

// A collector collects failures, so that rapid can look for a shorter plot.
type collector struct {
	testing.TB
	found []string
}

type aborted struct{}

func (c *collector) Errorf(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

func (c *collector) Fatalf(format string, args ...any) {
	c.Errorf(format, args...)
	panic(aborted{})
}

func (c *collector) Fatal(args ...any) { c.Fatalf("%s", fmt.Sprint(args...)) }

func (c *collector) end() {
	if p := recover(); p != nil && p != any(aborted{}) {
		panic(p)
	}
}

// A stage is a plot while it is played.
type stage struct {
	plot
	*world
	text     string               // what the script says now
	finished map[string]bool      // attempts that were done when a person reprocessed them
	trouble  func() (bool, error) // the next call, once; nil: it goes well
}

func (p plot) play(tb testing.TB) {
	s := &stage{plot: p, world: newJobWorld(tb), text: "v0", finished: make(map[string]bool)}
	if p.Loose {
		s.policy.OnItemBlocked = policy.Continue
	}
	s.service.level = p.Level
	s.service.compare = func(_, _ []byte) connector.Difference { return connector.Minor }
	s.service.onCall = func(int) (bool, error) {
		if f := s.trouble; f != nil {
			s.trouble = nil
			return f()
		}
		return true, nil
	}
	tool := "svc.create"
	if p.Compares {
		tool = "svc.edit"
	}
	s.script["jobs.remind"] = func(c *call) any {
		for i := range p.Items {
			id := fmt.Sprintf("i%d", i)
			c.withItem(id, func(c *call, isDone bool) {
				for k := range p.Calls {
					if !isDone {
						c.do(tool, map[string]any{"id": fmt.Sprintf("%s/%d", id, k), "text": s.text})
					}
				}
			})
		}
		return nil
	}
	s.deploy()
	for _, in := range p.Incidents {
		s.happens(in)
	}
	s.onCommit, s.dieAt, s.trouble, s.service.onAsk = nil, "", nil, nil
	s.settle()
	s.verify()
}

func (s *stage) happens(in incident) {
	points := engine.Points()
	struck := false
	switch in.Kind {
	case "die":
		s.dieAt, s.skipPoints = points[in.N%len(points)], in.M
	case "lost", "unknown", "die-before", "die-after":
		s.strike(1+in.N, fate(in.Kind), &struck)
	case "refuse":
		s.trouble = func() (bool, error) { return false, transient() }
	case "forbid":
		s.trouble = func() (bool, error) { return false, permission() }
	case "lose-call":
		s.trouble = func() (bool, error) { return false, errReset }
	case "lose-answer":
		s.trouble = func() (bool, error) { return true, errReset }
	case "deaf":
		s.service.onAsk = func(int) (connector.Verdict, error) { return "", errReset }
	case "repair":
		s.text = fmt.Sprint("v", in.N)
		s.deploy()
	case "decide":
		s.answer(in.N, in.M)
	case "reprocess":
		id := fmt.Sprintf("i%d", in.N%s.Items)
		before, err := s.store.Item(s.t.Context(), "w", id)
		if err == nil && s.engine().ReprocessItem(s.t.Context(), "w", id, keep.Decision{By: "ann"}) == nil && before.Status == keep.ItemDone {
			s.finished[attemptName(id, before.Attempt)] = true
		}
	case "skip":
		_ = s.engine().SkipItem(s.t.Context(), "w", fmt.Sprintf("i%d", in.N%s.Items), keep.Decision{By: "ann"}) // refused in some states
	case "wait":
		time.Sleep(time.Duration(in.N) * 20 * time.Minute)
	}
	_ = s.runFor(time.Duration(1+in.M*in.M) * 10 * time.Second) // the dead are never idle
	s.onCommit, s.dieAt = nil, ""
	if in.Kind != "deaf" {
		s.service.onAsk = nil
	}
}

func attemptName(id string, attempt int) string { return fmt.Sprintf("%s attempt %d", id, attempt) }

// answer decides an open question as a person would who looked at the service.
func (s *stage) answer(which, choice int) bool {
	qs := s.questions()
	if len(qs) == 0 {
		return false
	}
	q := qs[which%len(qs)]
	a := q.Choices[choice%len(q.Choices)].Action
	if a == keep.DidNotHappen {
		m, err := s.store.Mutation(s.t.Context(), q.Mutation)
		if err != nil {
			s.t.Fatal(err)
		}
		if s.service.effects[m.Token] > 0 {
			a = keep.Skip
		}
	}
	d := keep.Decision{Action: a, By: "ann"}
	if a == keep.Happened {
		m, err := s.store.Mutation(s.t.Context(), q.Mutation)
		if err != nil {
			s.t.Fatal(err)
		}
		if d.Result = json.RawMessage("null"); s.service.effects[m.Token] == 0 {
			d.Action = keep.Skip
		}
	}
	if a == keep.TreatAsDone && q.Approval != nil { // a call that would differ from one that was in doubt
		m, err := s.store.Mutation(s.t.Context(), q.Approval.Key)
		if err != nil {
			s.t.Fatal(err)
		}
		if d.Result = json.RawMessage("null"); s.service.effects[m.Token] == 0 {
			d.Action = keep.Reject
		}
	}
	if err := s.engine().Decide(s.t.Context(), q.ID, d); err != nil {
		s.t.Errorf("%s of %q: %v", a, q.Question, err)
	}
	return true
}

// settle lets everything come to its end in a world where all is well again.
func (s *stage) settle() {
	for i := range 50 {
		s.run()
		if len(s.questions()) == 0 {
			time.Sleep(2 * time.Hour)
			s.run()
			if len(s.questions()) == 0 {
				return
			}
		}
		s.answer(0, i)
	}
	s.t.Fatalf("questions are still open: %+v", s.questions())
}

// verify compares the effects with those of an undisturbed run.
func (s *stage) verify() {
	ms, _, err := s.store.Mutations(s.t.Context(), keep.MutationFilter{Workflow: "w"}, keep.Page{Limit: 10_000})
	if err != nil {
		s.t.Fatal(err)
	}
	effects := make(map[string][]string) // identities by attempt
	tokens := 0
	for _, m := range ms {
		n := s.service.effects[m.Token]
		if n > 0 {
			tokens++
		}
		for range n {
			name := attemptName(m.Item, m.Attempt)
			effects[name] = append(effects[name], string(m.Identity))
		}
	}
	if tokens != len(s.service.effects) {
		s.t.Errorf("%d tokens had effects, %d of them are on record (law: recorded-before-sent)", len(s.service.effects), tokens)
	}
	for i := range s.Items {
		it := s.item(fmt.Sprintf("i%d", i))
		for n := 1; n <= it.Attempt; n++ {
			name := attemptName(it.ID, n)
			got := slices.Sorted(slices.Values(effects[name]))
			if once := slices.Compact(slices.Clone(got)); len(once) != len(got) {
				s.t.Errorf("%s had an effect twice: %v (law: once)", name, got)
			}
			done := s.finished[name] || n == it.Attempt && it.Status == keep.ItemDone
			if done && len(got) != s.Calls {
				s.t.Errorf("%s is done with the effects %v, want %d", name, got, s.Calls)
			}
		}
		if it.Status != keep.ItemDone && it.Status != keep.ItemSkipped {
			s.t.Errorf("item %s is %s in the end, want done, or skipped by a person", it.ID, it.Status)
		}
	}
	if r := s.lastRun(); r.Status != keep.StatusCommitted {
		s.t.Errorf("the last run is %s (%v), want committed", r.Status, r.Error)
	}
}
