package engine

import "testing"

// What was read before is not believed after what was written since.
func TestBreakerKeepsTheNewestRow(t *testing.T) {
	var b breakers
	for _, step := range []struct {
		rev  int
		open bool
		want bool
	}{{1, false, false}, {2, true, true}, {1, false, true}, {2, false, false}, {3, true, true}, {3, true, true}, {4, false, false}} {
		if b.learn("svc.create", step.rev, step.open); b.mayBeOpen("svc.create") != step.want {
			t.Errorf("after row %d (open %t) calls are looked at: %t, want %t", step.rev, step.open, !step.want, step.want)
		}
	}
}
