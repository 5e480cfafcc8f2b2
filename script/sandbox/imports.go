package sandbox

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/keep-run/keep/script/sandbox/internal/fuel"
)

// addImports gives the engine what it imports. None of it reaches the outside:
// the clock stands at the phase's time, and no file can be opened.
func addImports(ctx context.Context, rt wazero.Runtime) error {
	const (
		i32 = api.ValueTypeI32
		i64 = api.ValueTypeI64

		badFile = 8  // WASI's EBADF
		noSys   = 52 // WASI's ENOSYS
	)
	type function struct {
		module, name string
		params       []api.ValueType
		result       bool
		call         func(in *instance, s []uint64)
	}
	constant := func(v uint64) func(*instance, []uint64) { return func(_ *instance, s []uint64) { s[0] = v } }
	params := func(t ...api.ValueType) []api.ValueType { return t }
	const wasi = "wasi_snapshot_preview1"
	modules := map[string]wazero.HostModuleBuilder{}
	for _, f := range []function{
		{fuel.Module, fuel.Function, nil, true, func(in *instance, s []uint64) { s[0] = truth(in.phase.tick(time.Now())) }},
		{"env", "host_interrupt", nil, true, func(in *instance, s []uint64) { s[0] = truth(in.phase.interrupt(time.Now())) }},
		{"env", "host_call", params(i32, i32, i32, i32, i32), true, hostCall},
		{"env", "host_get_timezone_offset", params(i32, i32), true, constant(0)}, // UTC
		{"env", "host_promise_rejection", params(i32, i32, i32), false, rejection},
		{"env", "host_module_normalize", params(i32, i32), true, constant(0)}, // no modules
		{"env", "host_module_load", params(i32, i32), true, constant(0)},
		{wasi, "clock_time_get", params(i32, i64, i32), true, clock},
		{wasi, "random_get", params(i32, i32), true, randomGet},
		{wasi, "fd_close", params(i32), true, constant(badFile)},
		{wasi, "fd_fdstat_get", params(i32, i32), true, constant(badFile)},
		{wasi, "fd_seek", params(i32, i64, i32, i32), true, constant(noSys)},
		{wasi, "fd_write", params(i32, i32, i32, i32), true, constant(badFile)},
	} {
		b := modules[f.module]
		if b == nil {
			b = rt.NewHostModuleBuilder(f.module)
			modules[f.module] = b
		}
		var results []api.ValueType
		if f.result {
			results = params(i32)
		}
		call := f.call
		b.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(ctx context.Context, s []uint64) {
			call(ctx.Value(instanceKey{}).(*instance), s)
		}), f.params, results).Export(f.name)
	}
	for _, b := range modules {
		if _, err := b.Instantiate(ctx); err != nil {
			return err
		}
	}
	return nil
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// clock answers every clock with the time at which the phase stands.
func clock(in *instance, s []uint64) {
	in.phase.asked = true
	in.mem.WriteUint64Le(uint32(s[2]), uint64(in.phase.now.UnixNano()))
	s[0] = 0
}

// randomGet fills memory with random bytes for the engine itself.
func randomGet(in *instance, s []uint64) {
	in.phase.asked = true
	if b, ok := in.mem.Read(uint32(s[0]), uint32(s[1])); ok {
		rand.Read(b)
	}
	s[0] = 0
}

// rejection is called for each promise that is rejected while nothing handles it,
// and again if something handles it later. Both handles belong to the host.
func rejection(in *instance, s []uint64) {
	promise, reason, handled := value(s[0]), value(s[1]), s[2] != 0
	in.phase.rejection(promise, reason, handled)
}
