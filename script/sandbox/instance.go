package sandbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// instance is one WebAssembly instance of the engine. All of its state is in
// its linear memory and one global, the stack pointer, so a template can be
// copied over whatever the last phase left there, and any instance can run any
// program.
//
// An instance belongs to one goroutine at a time.
type instance struct {
	mod api.Module
	mem api.Memory
	own *linearMemory // behind mem
	sp  api.MutableGlobal
	fn  exports

	// ctx brings the instance to the imported functions. It lives as long as
	// the instance; deadlines of a phase are the phase's business.
	ctx context.Context

	phase  *phase // what runs now; nil between phases
	broken bool   // not to be used again: a call trapped, or recursed deeply

	stack [5]uint64 // arguments and result of one call
	buf   []byte    // text on its way in
}

// exports are the engine's functions. A wazero function must not be called
// while it is running already, so those that the imports use (which run inside
// of eval, call and job) are never the outer ones.
type exports struct {
	eval, call, apply, job api.Function // outer: JavaScript runs inside
	inner                  api.Function // call once more, for inside of the others

	malloc, free                        api.Function
	newString, newBytes                 api.Function
	toBytes, toFree, bufferOf           api.Function
	dup, drop, prop, exception, isThrow api.Function
	newError, throw, uncatchable        api.Function
	float, parse, dropRaw               api.Function
}

// value is a handle: the address of a cell that holds a JavaScript value.
type value uint32

// instanceKey is the context key under which imports find their instance.
type instanceKey struct{}

// errTrap is wrapped when the engine trapped: it was stopped by its counter,
// ran off its stack, or touched memory that it does not have.
var errTrap = errors.New("engine trapped")

// newInstance makes an instance that holds nothing yet.
func newInstance(rt wazero.Runtime, mod wazero.CompiledModule) (*instance, error) {
	in := &instance{}
	in.ctx = context.WithValue(context.Background(), instanceKey{}, in)
	ctx := experimental.WithMemoryAllocator(in.ctx, experimental.MemoryAllocatorFunc(func(_, limit uint64) experimental.LinearMemory {
		in.own = newLinearMemory(limit)
		return in.own
	}))
	m, err := rt.InstantiateModule(ctx, mod, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return nil, fmt.Errorf("sandbox: new instance: %w", err)
	}
	in.mod, in.mem = m, m.Memory()
	in.sp = m.ExportedGlobal("__stack_pointer").(api.MutableGlobal)
	for name, fn := range map[string]*api.Function{
		"qjs_eval": &in.fn.eval, "qjs_call": &in.fn.call, "qjs_execute_pending_job": &in.fn.job,
		"wasm_malloc": &in.fn.malloc, "wasm_free": &in.fn.free,
		"qjs_new_string": &in.fn.newString, "JS_ParseJSON": &in.fn.parse, "JS_Call": &in.fn.apply, "JS_FreeValue": &in.fn.dropRaw, "qjs_new_uint8_array": &in.fn.newBytes,
		"qjs_get_string_len": &in.fn.toBytes, "qjs_free_cstring": &in.fn.toFree, "qjs_get_array_buffer": &in.fn.bufferOf,
		"qjs_dup_value": &in.fn.dup, "qjs_free_value": &in.fn.drop, "qjs_get_prop_string": &in.fn.prop,
		"qjs_get_exception": &in.fn.exception, "qjs_is_exception": &in.fn.isThrow,
		"qjs_new_error": &in.fn.newError, "qjs_throw": &in.fn.throw, "qjs_get_float64": &in.fn.float, "JS_SetUncatchableError": &in.fn.uncatchable,
	} {
		if *fn = m.ExportedFunction(name); *fn == nil {
			m.Close(in.ctx)
			return nil, fmt.Errorf("sandbox: the engine does not export %s", name)
		}
	}
	in.fn.inner = m.ExportedFunction("qjs_call") // a new one, with a stack of its own
	return in, nil
}

// close frees the instance and its memory.
func (in *instance) close() error { return in.mod.Close(in.ctx) }

// do calls an exported function of at most five arguments.
func (in *instance) do(fn api.Function, args ...uint64) (uint32, error) {
	copy(in.stack[:], args)
	if err := fn.CallWithStack(in.ctx, in.stack[:]); err != nil {
		in.broken = true
		return 0, fmt.Errorf("%w: %w", errTrap, err)
	}
	return uint32(in.stack[0]), nil
}

// setup calls an exported function that is needed only while a base or a
// template is made.
func (in *instance) setup(name string, args ...uint64) (uint32, error) {
	fn := in.mod.ExportedFunction(name)
	if fn == nil {
		return 0, fmt.Errorf("sandbox: the engine does not export %s", name)
	}
	r, err := fn.Call(in.ctx, args...)
	if err != nil {
		in.broken = true
		return 0, fmt.Errorf("%w: %s: %w", errTrap, name, err)
	}
	if len(r) == 0 {
		return 0, nil
	}
	return uint32(r[0]), nil
}

// errHeap is returned when the engine has no memory for what the host wants to
// put into it.
var errHeap = errors.New("engine out of memory")

// write puts text and a zero byte after it into new memory.
func (in *instance) write(text []byte) (uint32, error) {
	p, err := in.do(in.fn.malloc, uint64(len(text)+1))
	if err != nil {
		return 0, err
	}
	if p == 0 {
		return 0, errHeap
	}
	b, ok := in.mem.Read(p, uint32(len(text)+1))
	if !ok {
		return 0, errHeap
	}
	b[copy(b, text)] = 0
	return p, nil
}

// newString makes a JavaScript string.
func (in *instance) newString(text []byte) (value, error) {
	return in.fromBytes(in.fn.newString, text)
}

// newBytes makes a Uint8Array.
func (in *instance) newBytes(b []byte) (value, error) {
	return in.fromBytes(in.fn.newBytes, b)
}

func (in *instance) fromBytes(fn api.Function, b []byte) (value, error) {
	p, err := in.write(b)
	if err != nil {
		return 0, err
	}
	v, err := in.do(fn, uint64(p), uint64(len(b)))
	if err != nil {
		return 0, err
	}
	if _, err := in.do(in.fn.free, uint64(p)); err != nil {
		return 0, err
	}
	if v == 0 {
		return 0, errHeap
	}
	return value(v), nil
}

// text returns the bytes of a JavaScript string where they lie in the engine,
// valid until done is called, which must happen before anything else runs.
// out is the address of four bytes of scratch.
func (in *instance) text(v value, out uint32) (b []byte, done func() error, err error) {
	p, err := in.do(in.fn.toBytes, uint64(v), uint64(out))
	if err != nil {
		return nil, nil, err
	}
	if p == 0 {
		return nil, nil, errHeap
	}
	n, _ := in.mem.ReadUint32Le(out)
	b, ok := in.mem.Read(p, n)
	if !ok {
		return nil, nil, errHeap
	}
	return b, func() error { _, err := in.do(in.fn.toFree, uint64(p)); return err }, nil
}

// string copies a JavaScript string, at most limit bytes of it, and tells how
// long it is.
func (in *instance) string(v value, out uint32, limit int) (string, int, error) {
	b, done, err := in.text(v, out)
	if err != nil {
		return "", 0, err
	}
	s, n := string(b[:min(len(b), limit)]), len(b)
	return s, n, done()
}

// number reads a JavaScript number as an integer.
func (in *instance) number(v value) (int, error) {
	if _, err := in.do(in.fn.float, uint64(v)); err != nil {
		return 0, err
	}
	return int(api.DecodeF64(in.stack[0])), nil
}

// invoke calls a function of the prelude and frees the arguments. A JavaScript
// exception is a *thrown.
func (in *instance) invoke(scratch uint32, fn, this value, args ...value) (value, error) {
	argv := scratch + 8 // room for maxArgs handles
	if len(args) > maxArgs {
		panic("sandbox: too many arguments")
	}
	for i, a := range args {
		in.mem.WriteUint32Le(argv+uint32(4*i), uint32(a))
	}
	r, err := in.do(in.fn.call, uint64(fn), uint64(this), uint64(len(args)), uint64(argv))
	if err != nil {
		return 0, err
	}
	for _, a := range args {
		if err := in.free(a); err != nil {
			return 0, err
		}
	}
	return in.checked(value(r))
}

// A raw is a JavaScript value as the engine itself passes it, without a cell: the tag is the
// upper half, and what it means the lower one.
type raw uint64

const (
	rawException = 6 // a tag
	rawUndefined = raw(3) << 32
)

// rawInt returns a small integer.
func rawInt(n int) raw { return raw(uint32(n)) }

// tag is negative for values that are counted and must be dropped.
func (v raw) tag() int32 { return int32(v >> 32) }

// parse makes a JavaScript value of JSON, as JSON.parse does.
func (in *instance) parse(e *entries, text []byte) (raw, error) {
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
	}
	p, err := in.write(text)
	if err != nil {
		return 0, err
	}
	if _, err := in.do(in.fn.parse, uint64(e.context), uint64(p), uint64(len(text)), uint64(e.origin)); err != nil {
		return 0, err
	}
	v := raw(in.stack[0])
	if _, err := in.do(in.fn.free, uint64(p)); err != nil {
		return 0, err
	}
	if v.tag() == rawException {
		return 0, in.pending()
	}
	return v, nil
}

// apply calls a function of the prelude that returns nothing, and drops the arguments. It
// is what invoke is, for values without cells.
func (in *instance) apply(e *entries, fn value, args ...raw) error {
	argv := e.scratch + 8 // room for maxArgs values
	if len(args) > maxArgs {
		panic("sandbox: too many arguments")
	}
	for i, a := range args {
		in.mem.WriteUint64Le(argv+uint32(8*i), uint64(a))
	}
	f, _ := in.mem.ReadUint64Le(uint32(fn))
	if _, err := in.do(in.fn.apply, uint64(e.context), f, uint64(rawUndefined), uint64(len(args)), uint64(argv)); err != nil {
		return err
	}
	result := raw(in.stack[0])
	for _, v := range append(args, result) {
		if v.tag() < 0 {
			if _, err := in.do(in.fn.dropRaw, uint64(e.context), uint64(v)); err != nil {
				return err
			}
		}
	}
	if result.tag() == rawException {
		return in.pending()
	}
	return nil
}

// maxArgs is how many arguments an entry of the prelude takes at most.
const maxArgs = 2

// scratchSize is what invoke and text need: a length, and the arguments.
const scratchSize = 8 + 8*maxArgs

// free drops a handle. An error also makes the instance broken, so that those
// who cannot do anything about it may ignore it.
func (in *instance) free(v value) error {
	_, err := in.do(in.fn.drop, uint64(v))
	return err
}

// thrown is an exception that reached the host as such, not through the
// prelude: script code at top level, or the engine's own trouble.
type thrown struct{ value value }

// Error says nothing: whoever shows the error asks the prelude what it was.
func (*thrown) Error() string { return "script threw" }

// checked returns v, or the pending exception as a *thrown.
func (in *instance) checked(v value) (value, error) {
	if v == 0 {
		return 0, errHeap
	}
	is, err := in.do(in.fn.isThrow, uint64(v))
	if err != nil || is == 0 {
		return v, err
	}
	return 0, in.pending()
}

// pending takes the engine's pending exception.
func (in *instance) pending() error {
	e, err := in.do(in.fn.exception)
	if err != nil {
		return err
	}
	if e == 0 {
		return errHeap
	}
	return &thrown{value(e)}
}

// eval runs a script in the global scope and returns its last value.
func (in *instance) eval(code []byte, file string) (value, error) {
	p, err := in.write(code)
	if err != nil {
		return 0, err
	}
	f, err := in.write([]byte(file))
	if err != nil {
		return 0, err
	}
	r, err := in.do(in.fn.eval, uint64(p), uint64(len(code)), uint64(f), 0)
	if err != nil {
		return 0, err
	}
	for _, a := range []uint32{p, f} {
		if _, err := in.do(in.fn.free, uint64(a)); err != nil {
			return 0, err
		}
	}
	return in.checked(value(r))
}

// compile turns a script into bytecode without source text and positions.
func (in *instance) compile(code []byte) ([]byte, error) {
	const stripSource, stripDebug = 1 << 4, 1 << 5
	p, err := in.write(code)
	if err != nil {
		return nil, err
	}
	length, err := in.write(make([]byte, 8))
	if err != nil {
		return nil, err
	}
	name, err := in.write([]byte("keep"))
	if err != nil {
		return nil, err
	}
	out, err := in.setup("qjs_compile", uint64(p), uint64(len(code)), uint64(name), 0, stripSource|stripDebug, uint64(length))
	if err != nil {
		return nil, err
	}
	if out == 0 {
		return nil, in.pending()
	}
	n, _ := in.mem.ReadUint32Le(length)
	b, ok := in.mem.Read(out, n)
	if !ok {
		return nil, errHeap
	}
	return bytes.Clone(b), nil
}

// evalCompiled runs what compile made and returns its last value.
func (in *instance) evalCompiled(code []byte) (value, error) {
	p, err := in.write(code)
	if err != nil {
		return 0, err
	}
	v, err := in.setup("qjs_eval_bytecode", uint64(p), uint64(len(code)))
	if err != nil {
		return 0, err
	}
	if _, err := in.do(in.fn.free, uint64(p)); err != nil {
		return 0, err
	}
	return in.checked(value(v))
}

// handles reads the handles that JavaScript passes to a host function.
func (in *instance) handles(argc, argv uint32, to []value) error {
	b, ok := in.mem.Read(argv, 4*argc)
	if !ok || int(argc) != len(to) {
		return fmt.Errorf("sandbox: host function takes %d arguments, got %d", len(to), argc)
	}
	for i := range to {
		to[i] = value(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return nil
}
