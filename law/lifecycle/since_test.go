package lifecycle

import (
	"testing"
	"time"

	"github.com/keep-run/keep"
)

// TestSinceOfADoubt is about a call that is looked up again and again: since when its outcome is not known does not move.
func TestSinceOfADoubt(t *testing.T) {
	over := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	m := keep.Mutation{Key: "m", State: keep.NeedsReconcile, CallDeadline: over}
	r := keep.Run{Status: keep.StatusReconciliation, Phase: keep.Mutating}
	for _, c := range []struct{ looked, want time.Time }{
		{over.Add(-20 * time.Second), over.Add(-20 * time.Second)}, // refused by the network before its time was over
		{over.Add(time.Hour), over},
		{over.Add(48 * time.Hour), over},
	} {
		m.UpdatedAt, r.UpdatedAt = c.looked, c.looked
		if got, alone := WaitOf(r, m).Since, WaitOfDoubt(m).Since; !got.Equal(c.want) || !alone.Equal(c.want) {
			t.Errorf("looked up at %s: since %s, and without a run %s; want %s", c.looked, got, alone, c.want)
		}
	}
}
