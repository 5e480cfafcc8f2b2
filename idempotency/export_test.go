package idempotency

import "time"

// SetClock gives a guard that is not used yet the clock of another machine.
func SetClock(g *Guard, local func() time.Time) { g.clock = newClock(g.store, local) }
