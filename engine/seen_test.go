package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/trace"
)

// seen returns what is kept of the runs of the newest chain.
func (w *world) seen() (list []string, dropped int) {
	w.t.Helper()
	var all []keep.TracePart
	for _, r := range w.runs() {
		if r.Chain != w.lastRun().Chain {
			continue
		}
		parts, err := w.store.Trace(w.t.Context(), r.ID)
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, parts...)
	}
	t, err := trace.Join(all)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range t.Entries {
		s := fmt.Sprintf("%s %s %s %s %s", e.Phase, e.What, e.Tool, e.Params, e.Result)
		if e.Error != nil {
			s += " " + e.Error.Code
		}
		if e.Cut {
			s += " cut"
		}
		list = append(list, strings.TrimSpace(s))
	}
	return list, t.Dropped
}

// What a run saw is kept with it: what its script got from outside, its call, its phases.
func TestSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.script["consumers.act.prepare"] = func(c *call) any {
			c.do("svc.list", map[string]any{"id": 1})
			c.do("peek", "in", map[string]any{"limit": 1})
			return reserveTrigger(c)
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		got, _ := w.seen()
		m := w.mutation()
		key, _ := json.Marshal(m.Key)
		for i, want := range []string{
			`prepare read svc.list {"id":1}`, `prepare read peek ["in",{"limit":1}] [{`, "prepare phase", "mutate phase",
			"mutating call svc.create " + string(key), "next phase",
		} {
			if i >= len(got) || !strings.HasPrefix(got[i], want) {
				t.Fatalf("entry %d: want %q in\n%s", i, want, strings.Join(got, "\n"))
			}
		}
	})
}

// A host that dies has stored what was seen until its last commit, and the next one adds to it.
func TestSeenByTwoHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.script["consumers.act.prepare"] = func(c *call) any {
			c.do("svc.list", map[string]any{"id": 1})
			return reserveTrigger(c)
		}
		w.deploy()
		w.publish("in", "a")
		w.dieAt = engine.Answered
		_ = w.runFor(time.Hour) // it died, so it never became idle
		w.run()
		got, _ := w.seen()
		if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "prepare read svc.list") }) ||
			!slices.ContainsFunc(got, func(s string) bool {
				return strings.HasPrefix(s, "mutating lookup svc.create") && strings.HasSuffix(s, ` "happened"`)
			}) {
			t.Errorf("a run of two hosts saw\n%s", strings.Join(got, "\n"))
		}
		if n := w.service.total(); n != 1 {
			t.Errorf("%d effects", n)
		}
	})
}

// What a job read before a call is stored with the record of the call, not only when its run ends.
func TestSeenByAJobThatDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t, "a")
		remind, reads := w.script["jobs.remind"], 0
		w.script["jobs.remind"] = func(c *call) any {
			reads++
			c.do("svc.list", map[string]any{"id": reads})
			return remind(c)
		}
		w.deploy()
		w.dieAt = engine.Answered
		_ = w.runFor(time.Minute) // it died, so it never became idle
		w.run()
		got, _ := w.seen()
		for _, want := range []string{`read svc.list {"id":1}`, `read svc.list {"id":2}`} {
			if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, want) }) {
				t.Errorf("%s is not in what a job of two hosts saw:\n%s", want, strings.Join(got, "\n"))
			}
		}
	})
}

// What does not fit in is said, and fails nothing.
func TestSeenWithinLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.policy.Limits.Trace = 600
		w.script["consumers.act.prepare"] = func(c *call) any {
			for i := range 20 {
				c.do("svc.list", map[string]any{"id": i})
			}
			return reserveTrigger(c)
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		got, dropped := w.seen()
		if len(got)+dropped < 20 || dropped == 0 || w.lastRun().Status != keep.StatusCommitted {
			t.Errorf("%d entries, %d dropped, the run is %s:\n%s", len(got), dropped, w.lastRun().Status, strings.Join(got, "\n"))
		}

		w.policy.Limits.Trace = 0
		w.publish("in", "b")
		w.run()
		if got, dropped := w.seen(); len(got) != 0 || dropped != 0 {
			t.Errorf("nothing is to be kept, and there is %q", got)
		}
	})
}

// A run that is under way says within a second for which read it waits, for each of them;
// what it says later is the answer.
func TestWaitsForRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.script["consumers.act.prepare"] = func(c *call) any {
			for range 2 {
				c.do("svc.list", map[string]any{"id": 1})
			}
			return reserveTrigger(c)
		}
		var began []time.Time
		w.slow = 200 * time.Millisecond
		w.service.onRead = func() error {
			began = append(began, time.Now())
			time.Sleep(999 * time.Millisecond) // virtual
			parts, err := w.store.Trace(t.Context(), w.lastRun().ID)
			seen, _ := trace.Join(parts)
			e, under := seen.Under()
			if err != nil || !under || e.Tool != "svc.list" || !e.At.Equal(began[len(began)-1]) || w.lastRun().Status != keep.StatusActive {
				t.Errorf("after a second in read %d the run says %+v, %t, %v", len(began), e, under, err)
			}
			return nil
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		got, _ := w.seen()
		waits, answers := 0, 0
		for _, s := range got {
			if strings.Contains(s, " wait svc.list") {
				waits++
			} else if strings.Contains(s, " read svc.list") {
				answers++
			}
		}
		if len(began) != 2 || waits != 2 || answers != 2 || w.lastRun().Status != keep.StatusCommitted {
			t.Errorf("%d reads, %d waits, %d answers; the run is %s:\n%s", len(began), waits, answers, w.lastRun().Status, strings.Join(got, "\n"))
		}
	})
}

// A run that made its call says for which it waits.
func TestWaitsForCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.onCallContext = func(context.Context) error {
			wait := lifecycle.WaitOf(w.lastRun(), w.mutation())
			if s := wait.String(); !strings.HasPrefix(s, "Waits for svc.create on ") {
				t.Errorf("while the call is out, the run says %q", s)
			}
			return nil
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		w.wantOnce("a")
	})
}

// A phase says what a replay needs besides the reads: clock, chance, and what tells what came
// of it. The same work gives the same digests, other work gives others.
func TestSeenPhases(t *testing.T) {
	phases := func(t *testing.T, payload string, seed byte) map[string]trace.Script {
		out := make(map[string]trace.Script)
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.chance = func() []byte { return []byte{seed} }
			w.script["consumers.act.mutate"] = func(c *call) any {
				if c.c.Seed[0] != seed {
					t.Errorf("the script got the seed %v, want %d", c.c.Seed, seed)
				}
				return c.do("svc.create", map[string]any{"id": "x", "v": payload})
			}
			w.script["consumers.act.next"] = func(c *call) any {
				return c.do("publish", "out", map[string]any{"messageId": "m", "v": payload})
			}
			w.deploy()
			w.publish("in", "a")
			w.run()
			parts, err := w.store.Trace(t.Context(), w.lastRun().ID)
			if err != nil || len(parts) == 0 {
				t.Fatalf("%d parts, %v", len(parts), err)
			}
			for _, p := range parts {
				got, err := trace.Join([]keep.TracePart{p})
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range got.Entries {
					if e.What == trace.Phase {
						out[e.Phase] = *e.Script
					}
				}
			}
		})
		return out
	}
	first, other := phases(t, "1", 1), phases(t, "2", 2)
	for _, phase := range []string{"prepare", "mutate", "next"} {
		s := first[phase]
		if s.Clock.IsZero() || !slices.Equal(s.Seed, []byte{1}) || s.In == "" || s.Out == "" {
			t.Errorf("%s says %+v", phase, s)
		}
	}
	if first["prepare"].Out != other["prepare"].Out || first["mutate"].In != other["mutate"].In {
		t.Error("the same work has other digests")
	}
	if first["mutate"].Out == other["mutate"].Out || first["next"].Published == other["next"].Published || first["next"].Published == "" {
		t.Error("another call, or another event, has the same digest")
	}
}
