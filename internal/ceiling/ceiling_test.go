package ceiling

import (
	"testing"
	"time"

	"github.com/keep-run/keep/internal/cputime"
)

var kept []byte

// The oracle sees what is taken, also if it is given back before the end.
func TestMeasures(t *testing.T) {
	if resident("VmHWM:") == 0 {
		t.Skip("this system does not say what a process takes")
	}
	resetPeak()
	before := resident("VmRSS:")
	kept = make([]byte, 64<<20)
	for i := range kept {
		kept[i] = 1
	}
	kept = nil
	if took := resident("VmHWM:") - before; took < 60<<20 {
		t.Errorf("64 MiB were counted as %d KiB", took>>10)
	}
	start := cputime.Used()
	for cputime.Used()-start < 20*time.Millisecond {
		kept = append(kept[:0], 1)
	}
}
