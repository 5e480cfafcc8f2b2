//go:build unix

package gateway_test

import (
	"math/rand/v2"
	"time"
)

// A clock that is wrong. In some worlds the clock of the machine of the gateways and of the people is set back, or jumps ahead, while no gateway is there. The server keeps its time.

// A clockKind is what a world with such a clock is like.
type clockKind struct {
	rng  *rand.Rand
	back time.Duration // by how much it was set back so far

	ahead time.Duration // of the time of the server; w.mu protects it
}

// mostBack is by how much a clock is set back in all: less than agents wait for an answer, and than what a server remembers of a key beyond any key_lasts.
const mostBack = 8 * time.Minute

func newClockKind(seed uint64) *clockKind {
	if r := rand.New(rand.NewPCG(seed, 50)); chance(r, 0.7) {
		return nil
	}
	return &clockKind{rng: rand.New(rand.NewPCG(seed, 51))}
}

// now is what the clock of the gateways shows. mu is not held.
func (w *world) now() time.Time {
	if w.clock == nil {
		return time.Now()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.clock.ahead)
}

// set sets the clock, perhaps, before a gateway begins. It jumps ahead only when nothing is at the server any more that a gateway sent: that an
// absence may be believed after settle_after is true of a clock that does not leap meanwhile (docs/GUARANTEES.md).
func (k *clockKind) set(w *world) {
	if k == nil || len(w.gatewaysNow()) > 0 || w.started == 0 || !chance(k.rng, 0.5) {
		return
	}
	by := -span(k.rng, 4*time.Minute)
	if chance(k.rng, 0.4) {
		time.Sleep(longestWork + longestLag + 5*time.Second)
		by = span(k.rng, pick(k.rng, 3*time.Minute, time.Hour))
	} else if k.back-by > mostBack {
		return
	} else {
		k.back -= by
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k.ahead += by
	w.note("the clock is set by %s", by)
	if by < 0 {
		w.saw("clock: set back")
	} else {
		w.saw("clock: jumps ahead")
	}
}
