package sandbox

import (
	"cmp"
	"fmt"
	"time"
)

// Limits bound one phase: one call of a handler, or the evaluation of a
// script's top level. The zero value of each field is its default.
type Limits struct {
	// Memory is the size that the WebAssembly memory of one instance may grow
	// to, in bytes, rounded down to 64 KiB. If zero, 64 MiB.
	Memory int

	// Heap is what the script's objects may take, in bytes; above it
	// JavaScript sees "out of memory". If zero, 32 MiB. Keep it well below
	// Memory, or the engine cannot even report that memory is short.
	Heap int

	// Stack is the depth of recursion, in bytes of the engine's C stack. If
	// zero, 256 KiB. At most 512 KiB: the module's whole stack is 1 MiB.
	Stack int

	// CPU is the time inside the VM, host calls not included; in a job, in each
	// item. If zero, 5 s.
	CPU time.Duration

	// Wall is the time from start to end, host calls and waiting for a CPU
	// included; in a job, of each item. If zero, 5 min.
	Wall time.Duration

	// HostCalls is how many host calls the script may make; in a job, in each
	// item. A publish is none: the host bounds what one run publishes. If zero,
	// 1000.
	HostCalls int

	// Result bounds the JSON that a handler returns, and the JSON of one host
	// call's arguments, in bytes. If zero, 1 MiB.
	Result int

	// LogLine is the length at which a log line is cut, in bytes. If zero,
	// 4 KiB.
	LogLine int

	// Items is how many items a job may begin in one run. If zero, 100,000.
	Items int
}

const (
	wasmPage = 64 << 10
	maxStack = 512 << 10
	minHeap  = 4 << 20 // the engine, its globals and a small script
)

// Validate returns an error that names the first field that cannot work.
func (l Limits) Validate() error {
	_, err := l.withDefaults()
	return err
}

// withDefaults returns l with every zero field set, or an error that names the
// first field that cannot work.
func (l Limits) withDefaults() (Limits, error) {
	l.Memory = cmp.Or(l.Memory, 64<<20) / wasmPage * wasmPage
	l.Heap = cmp.Or(l.Heap, min(32<<20, l.Memory/2))
	l.Stack = cmp.Or(l.Stack, 256<<10)
	l.CPU = cmp.Or(l.CPU, 5*time.Second)
	l.Wall = cmp.Or(l.Wall, 5*time.Minute)
	l.HostCalls = cmp.Or(l.HostCalls, 1000)
	l.Result = cmp.Or(l.Result, 1<<20)
	l.LogLine = cmp.Or(l.LogLine, 4<<10)
	l.Items = cmp.Or(l.Items, 100_000)
	switch {
	case l.Memory < 8<<20 || l.Memory > 1<<30:
		return l, fmt.Errorf("sandbox: memory must be between 8 MiB and 1 GiB: %d", l.Memory)
	case l.Heap < minHeap || l.Heap > l.Memory:
		return l, fmt.Errorf("sandbox: heap must be between 4 MiB and memory (%d): %d", l.Memory, l.Heap)
	case l.Stack < 32<<10 || l.Stack > maxStack:
		return l, fmt.Errorf("sandbox: stack must be between 32 KiB and 512 KiB: %d", l.Stack)
	case l.CPU < 0 || l.Wall < 0:
		return l, fmt.Errorf("sandbox: cpu and wall must be positive: %v, %v", l.CPU, l.Wall)
	case l.HostCalls < 0 || l.Result < 0 || l.LogLine < 0 || l.Items < 0:
		return l, fmt.Errorf("sandbox: host_calls, result and log limits must be positive")
	}
	return l, nil
}
