package lease_test

import (
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine/lease"
)

// A call has the whole of its time, however long the database took to tell its own: what took
// less than that was never sent, again and again, until the next answer.
func TestDeadline(t *testing.T) {
	start := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	local := start
	c := lease.NewClock(func() time.Time { return local })
	const d, rounding = 300 * time.Millisecond, 2 * time.Millisecond
	if got := c.Remaining(c.Deadline(c.Now(), d)); got != d {
		t.Errorf("on a database of one host %s remain of %s", got, d)
	}
	for _, took := range []time.Duration{time.Millisecond, d, 10 * time.Second, time.Millisecond} {
		sent := local
		local = local.Add(took)
		c.Set(keep.LeaseStatus{Now: local.Add(-took / 2).Add(time.Hour)}, sent)
		end := c.Deadline(c.Now(), d)
		if got := c.Remaining(end); got != d-rounding {
			t.Errorf("after an answer that took %s, %s remain of %s", took, got, d)
		}
		local = local.Add(d + time.Millisecond)
		if got := c.Remaining(end); got > 0 {
			t.Errorf("after an answer that took %s, %s remain of %s when it is over", took, got, d)
		}
	}
}
