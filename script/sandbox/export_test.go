package sandbox

import (
	"bytes"
	"errors"
	"time"
	"unsafe"
)

// Footprint is what a loaded program keeps in memory, in bytes: its own blocks,
// those that it shares with the base, and the size of an instance that runs it.
func (prog *Program) Footprint() (own, base, memory int) {
	parts := len(prog.template.parts) * int(unsafe.Sizeof(part{}))
	return prog.template.own + parts, len(prog.rt.base.image), prog.template.size
}

// Overtime reports whether a phase with a limit is to end, when times have passed and the process has used
// used of processors, one look after the other.
func Overtime(limit time.Duration, passed, used []time.Duration) (over []bool) {
	look := 0
	began := time.Now()
	p := &phase{limits: Limits{CPU: limit}, entered: began, rt: &Runtime{processor: func() time.Duration { return used[look] }}}
	for look = range passed {
		over = append(over, p.overtime(began.Add(passed[look])))
	}
	return over
}

// Idle is the number of instances that wait for work.
func (rt *Runtime) Idle() int {
	rt.pool.mu.Lock()
	defer rt.pool.mu.Unlock()
	return len(rt.pool.idle)
}

// Reap frees instances that have been idle since before t.
func (rt *Runtime) Reap(t time.Time) { rt.pool.reap(t) }

// BundleHere makes builds work as in a program that does not call BundlerMain, until
// the function that it returns is called.
func BundleHere() (undo func()) {
	was := offered.Swap(false)
	return func() { offered.Store(was) }
}

// BundleApart makes builds work as in a program that calls BundlerMain, until the function that it returns is called.
func BundleApart() (undo func()) {
	was := offered.Swap(true)
	return func() { offered.Store(was) }
}

// BundleSource bundles a script that is one file, in this process.
func BundleSource(name string, code []byte) (*Bundle, error) {
	return bundleRequest{Entry: name, One: true, Files: map[string][]byte{name: code}}.bundle()
}

// SetBundlerTime changes the time that bundling may take, until the function that it
// returns is called.
func SetBundlerTime(d time.Duration) (undo func()) {
	was := bundlerTime
	bundlerTime = d
	return func() { bundlerTime = was }
}

// Restored makes an idle instance hold the program, and returns how large its memory is
// then, how much of it the system has given, and how much of what is beyond its end is not
// zero, in bytes.
func (prog *Program) Restored() (size, given, left int, err error) {
	in, err := prog.rt.pool.take(prog.template.size)
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, prog.rt.pool.give(in, prog.template.size)) }()
	if err := prog.template.restore(in); err != nil {
		return 0, 0, 0, err
	}
	size, given = int(in.mem.Size()), in.own.size
	return size, given, given - size - bytes.Count(in.own.reserved[size:given], []byte{0}), nil
}
