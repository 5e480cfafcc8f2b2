package engine

import (
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/limit"
)

// A probe that fails between the refusal of another run and its wait is known to that one: it does not wait until the probe
// would have been over.
func TestAProbeFailsBeforeTheOthersWait(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name   string
		is     *limit.Shut
		claims bool
	}{
		{"it is still out", &limit.Shut{Until: now, Probe: &limit.Probe{Until: now.Add(time.Hour)}}, false},
		{"it failed", &limit.Shut{Until: now.Add(time.Second)}, true},
		{"it opened the connection", nil, true},
	} {
		out := limit.State{Shut: &limit.Shut{Until: now, Probe: &limit.Probe{Until: now.Add(time.Hour)}}}
		_, ans := limit.Take(out, limit.Rule{}, limit.Claim{Who: "w"}, now)
		e := &Engine{}
		g := &gate{e: e, parked: make(map[*actor]struct{}), state: limit.State{Shut: c.is}}
		a := &actor{e: e, wakeup: make(chan struct{}, 1), name: keep.WorkflowName("w")}
		if g.park(a, ans.Wait); ans.Granted || a.stale != c.claims || len(g.parked) != 0 == c.claims {
			t.Errorf("%s: granted %t, claims again %t, parked %d; want claims %t", c.name, ans.Granted, a.stale, len(g.parked), c.claims)
		}
	}
}
