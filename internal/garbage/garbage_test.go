package garbage

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		inUse uint64
		want  int
	}{{0, 300}, {1 << 20, 300}, {Most / 3, 300}, {Most / 2, 200}, {Most, 100}, {2 * Most, 50}, {100 * Most, 50}} {
		if got := percent(c.inUse); got != c.want {
			t.Errorf("percent(%d) = %d, want %d", c.inUse, got, c.want)
		}
	}
}

// The percentage falls when much is in use, rises again, and is as before at the end.
func TestPace(t *testing.T) {
	t.Setenv("GOGC", "")
	before := gogc()
	stop := Pace()
	large := make([]*[1 << 20]byte, Most>>20)
	for i := range large {
		large[i] = new([1 << 20]byte)
	}
	collectUntil(t, func(percent uint64) bool { return percent <= 100 })
	runtime.KeepAlive(large)
	large = nil
	collectUntil(t, func(percent uint64) bool { return percent == usual })
	stop()
	runtime.GC()
	if got := gogc(); got != before {
		t.Errorf("%d %% at the end, %d before", got, before)
	}
}

func TestPace_leaves_GOGC_alone(t *testing.T) {
	t.Setenv("GOGC", "77")
	before := gogc()
	defer Pace()()
	if got := gogc(); got != before {
		t.Errorf("%d %%, %d before", got, before)
	}
}

// collectUntil collects until the percentage is as wanted.
func collectUntil(t *testing.T, is func(percent uint64) bool) {
	t.Helper()
	for range 10_000 {
		if runtime.GC(); is(gogc()) {
			return
		}
		runtime.Gosched() // what a collection finds is told by another goroutine
	}
	t.Fatalf("%d %% with %d bytes in use", gogc(), inUse())
}

func gogc() uint64 {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
