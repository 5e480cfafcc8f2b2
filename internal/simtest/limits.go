package simtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/limit"
)

// limit draws how often the connection may be used, and whether its service is down at
// times. The draws are its own: see orders. A third of the worlds has no limits, and a
// third no outages.
func (w *world) limit() {
	rng := rand.New(rand.NewPCG(w.seed, 7))
	minute, second := limit.Rate{N: 20, Per: time.Minute}, limit.Rate{N: 1, Per: time.Second}
	w.limits = []limit.Rule{
		{}, {},
		{Rates: []limit.Rate{second, minute}, Burst: 2},
		{Concurrency: 1},
		{Concurrency: 2, Rates: []limit.Rate{second}},
		{Rates: []limit.Rate{minute}},
	}[rng.IntN(6)]
	w.downs = []float64{0, 0.02, 0.1}[rng.IntN(3)]
}

// isDown reports whether the service does not answer. An outage begins with a call, and
// lasts up to a few hours.
func (w *world) isDown() bool {
	if w.calm {
		return false
	}
	if w.now() < w.down {
		return true
	}
	if !w.maybe(w.downs) {
		return false
	}
	w.fault("the service is down")
	w.down = w.now() + w.span([]time.Duration{time.Minute, 3 * time.Hour}[w.below(2)])
	return true
}

// gate returns what is stored of the limits of the connection.
func (w *world) gate() (s limit.State) {
	name, _ := w.settings.connection()
	g, err := w.store.Gate(context.Background(), name)
	w.must("read the limits", err)
	if len(g.State) > 0 {
		w.must("read the limits", json.Unmarshal(g.State, &s))
	}
	return s
}

// onItsWay is how long after it was let in a call may arrive: its record was written
// meanwhile, and that took its time.
const onItsWay = time.Minute

// watchLimits looks at a request while nobody may use the connection: it was let in
// before, or is the probe of its workflow. What becomes of requests that a frozen host
// had let in is not watched, nor after an edit, which may give the connection a new name.
func (w *world) watchLimits(p *process, who keep.WorkflowName, what string) {
	s, well := w.gate(), w.group == nil || p.isWell(onItsWay)
	if s.Shut == nil || !well || w.edited || time.Since(s.Shut.Since) < onItsWay {
		return
	}
	w.saw("limit: a call while the connection is shut")
	if probe := s.Shut.Probe; probe == nil || probe.Who != string(who) {
		w.broken("bounded", "%s uses a connection that is %s since %s, and is not the probe %+v", what, s.Shut.Kind, s.Shut.Since, probe)
	}
}

// Gate implements store.Limits.
func (s *store) Gate(ctx context.Context, connection string) (keep.Gate, error) {
	if err := s.read(ctx, "gate", connection); err != nil {
		return keep.Gate{}, err
	}
	return s.Store.Gate(ctx, connection)
}

// Gates is read when a host begins, and after polls and decisions, which take a turn. In a group the
// poll may wake actors before, so this takes one more.
func (s *store) Gates(ctx context.Context) ([]keep.Gate, error) {
	if s.p.w.group != nil {
		s.p.turn("gates")
	}
	if s.p.cut {
		return nil, errCut
	}
	return s.Store.Gates(ctx)
}

// PutGate writes a gate, unless the seed has another fate for it.
func (s *store) PutGate(ctx context.Context, g keep.Gate) error {
	w, who := s.p.w, name(ctx, "limits of", g.Connection)
	s.p.point("before " + who)
	if s.p.cut {
		return s.p.noRoute(ctx, who)
	}
	fate := ""
	if w.maybe(w.rates.commit / 4) {
		fate = []string{"lost", "unknown"}[w.below(2)]
		w.fault("limits are " + fate)
		w.forget()
	}
	if fate == "lost" {
		return errDisk
	}
	err := s.Store.PutGate(ctx, g)
	w.note(fmt.Sprintf("%s %s: %v", who, g.State, err))
	if err != nil {
		return err
	}
	w.watchGate(g)
	s.p.mayDie("after " + who)
	if fate == "unknown" {
		return errDisk
	}
	return nil
}
