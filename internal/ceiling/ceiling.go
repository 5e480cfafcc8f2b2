// Package ceiling is a resource oracle for tests: what a test does has to stay below so much
// memory and so much of the processors (law: bounded). It is for what somebody hostile sends:
// scripts, answers and requests.
package ceiling

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/keep-run/keep/internal/cputime"
)

// A Ceiling is what something may take.
type Ceiling struct {
	CPU    time.Duration // of all processors together
	Memory uint64        // resident bytes of the process above what it had before
}

// Check calls f, and fails the test if it takes more. Garbage is collected before it makes three
// quarters of the memory, so that what is counted is in use, and not what a collector that had to
// wait for a processor had not come to yet. What else the process does meanwhile
// counts, too: no test may be parallel to it, and the other side of a connection is in it.
// A system that does not say what is taken allows everything. Under the race detector, which
// takes a multiple, the test is skipped: test.sh runs it without.
func (c Ceiling) Check(t *testing.T, f func()) {
	t.Helper()
	Need(t)
	debug.FreeOSMemory() // what earlier cases left is not this one's
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(mapped() + int64(c.Memory)*3/4))
	resetPeak()
	before, start := resident("VmRSS:"), cputime.Used()
	f()
	cpu, peak := cputime.Used()-start, resident("VmHWM:")
	memory := peak - min(before, peak)
	t.Logf("%v of processor time, %d KiB", cpu, memory>>10)
	if cpu > c.CPU {
		t.Errorf("it took %v of processor time, want at most %v", cpu, c.CPU)
	}
	if memory > c.Memory {
		t.Errorf("it took %d KiB of memory, want at most %d", memory>>10, c.Memory>>10)
	}
}

// mapped returns what the Go runtime has of the system, in bytes.
func mapped() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased) //nolint:gosec // of a process
}

// Need skips a test whose program says nothing of what it would take: that of the race detector.
func Need(t *testing.T) {
	t.Helper()
	if Race {
		t.Skip("the race detector takes several times as much")
	}
}

// resetPeak makes VmHWM begin anew. Where that is not possible it only grows, and then the
// oracle is stricter than it says.
func resetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// resident returns a number of /proc/self/status in bytes; 0: the system does not say.
func resident(name string) uint64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(text, []byte(name))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseUint(string(fields[0]), 10, 64) // not a number: 0
	return kib << 10
}
