// Package garbage says how much garbage a process of Keep holds before it collects.
//
// What a run allocates is garbage at once, so a host collects most cheaply if it
// does so rarely: with a small heap, three times what is in use costs some tens of
// MB and saves processor. A host of thousands of workflows has hundreds of MB in use,
// and would hold a gigabyte of garbage for no gain. So the garbage is bounded.
//
// A process that links this package in begins so, before main calls Pace. What is initialized before main allocates nearly
// the 4 MiB at which Go collects for the first time, most of it garbage at once: each command had two collections
// by then, a sixth of the processor time of keep version.
package garbage

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// Most is how much garbage Pace allows, in bytes, as long as less is in use.
const Most = 128 << 20

// In percent of what is in use, garbage is at most usual, and may be least however
// much that is: collecting more often would cost more than memory does.
const usual, least = 300, 50

// init is early: packages are initialized in the order of their paths once what they import is, and this one
// imports little.
func init() {
	if !chosen() {
		debug.SetGCPercent(usual)
	}
}

// chosen reports whether a person says by GOGC how much garbage there may be.
func chosen() bool { return os.Getenv("GOGC") != "" }

// Pace bounds the garbage of this process by Most, after each collection anew, until
// the returned function is called. It does nothing if GOGC is set, by which a
// person says what they want.
func Pace() (stop func()) {
	if chosen() {
		return func() {}
	}
	was := debug.SetGCPercent(usual)
	var over atomic.Bool
	after(func() bool {
		if over.Load() {
			return false
		}
		debug.SetGCPercent(percent(inUse()))
		return true
	})
	return func() { over.Store(true); debug.SetGCPercent(was) }
}

// percent returns how much garbage there may be beside that many bytes, in percent
// of them.
func percent(inUse uint64) int {
	if inUse == 0 {
		return usual
	}
	return int(min(usual, max(least, 100*Most/inUse)))
}

// inUse returns what the last collection left, and what it looked through besides.
func inUse() (n uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	for _, s := range samples {
		if s.Value.Kind() == metrics.KindUint64 {
			n += s.Value.Uint64()
		}
	}
	return n
}

// after calls f when the next collection is over, and so on while f returns true.
func after(f func() bool) {
	type mark struct{ _ *byte } // nobody holds it, so each collection finds it
	runtime.AddCleanup(new(mark), func(struct{}) {
		if f() {
			after(f)
		}
	}, struct{}{})
}
