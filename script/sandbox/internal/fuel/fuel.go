// Package fuel rewrites a WebAssembly module so that it can always be stopped.
//
// Compiled WebAssembly runs as native code without a single point at which Go
// could pre-empt it: a loop inside it can neither be cancelled nor paused for
// a garbage collection, and one goroutine in such a loop hangs the process.
// [Rewrite] puts a counter at the head of every loop. When it has counted down,
// the module calls an imported function, "keep" "tick" () -> i32. That call is
// Go code, so it is a safe point for the runtime, and it decides: 0 lets the
// module continue, anything else is a trap.
//
// # Guarantees
//
//   - No more than N loop heads pass between two ticks, whatever the module
//     does. Straight code and recursion without loops are bounded by the size
//     of the module and of the stack, and so need no counter.
//   - The rewritten module computes what the original computed. The counter is
//     a global of its own that no other code can name.
//   - Anything that the package does not know (a section, an opcode, an import
//     kind) is an error, never copied blindly.
//
// The package reads WebAssembly 2.0 without SIMD, which is what QuickJS uses.
package fuel

import (
	"errors"
	"fmt"
)

// Module and Function name the import that a rewritten module calls.
const (
	Module   = "keep"
	Function = "tick"
)

// ErrMalformed is wrapped by every error about the input module.
var ErrMalformed = errors.New("malformed wasm module")

// Stats counts what a rewrite met.
type Stats struct {
	Functions int // function bodies
	Loops     int // loop heads, each of which now counts
}

// Section numbers of the binary format.
const (
	secCustom  = 0
	secType    = 1
	secImport  = 2
	secFunc    = 3
	secTable   = 4
	secMemory  = 5
	secGlobal  = 6
	secExport  = 7
	secStart   = 8
	secElement = 9
	secCode    = 10
	secData    = 11
	secCount   = 12
)

const header = "\x00asm\x01\x00\x00\x00"

// Rewrite returns module with a tick after at most every loop heads. The
// counter starts full and is refilled at each tick. every must be positive.
func Rewrite(module []byte, every int32) ([]byte, Stats, error) {
	if every <= 0 {
		return nil, Stats{}, fmt.Errorf("fuel: ticks must be a positive number of loops apart: %d", every)
	}
	if len(module) < len(header) || string(module[:len(header)]) != header {
		return nil, Stats{}, fmt.Errorf("fuel: %w: no wasm 1 header", ErrMalformed)
	}
	rw := rewriter{every: every, in: reader{b: module, p: len(header)}}
	rw.out = make([]byte, 0, len(module)+len(module)/8)
	rw.out = append(rw.out, header...)
	if err := rw.module(); err != nil {
		return nil, Stats{}, fmt.Errorf("fuel: %w: %w", ErrMalformed, err)
	}
	return rw.out, rw.stats, nil
}

// rewriter copies a module section by section. Adding an imported function
// moves every function that the module itself defines up by one, and adding a
// type and a global at the end of their lists moves nothing.
type rewriter struct {
	in    reader
	out   []byte
	every int32
	stats Stats

	types        uint32 // declared types; the tick's type comes after them
	funcImports  uint32 // imported functions; the tick comes after them
	globals      uint32 // imported globals, then also the module's own
	sawTypes     bool
	wroteImports bool
	wroteGlobals bool
}

// module copies all sections, and adds those that the original does not have.
func (rw *rewriter) module() error {
	last := 0 // place in the prescribed order of the last section
	for rw.in.more() {
		id := int(rw.in.byte())
		body := reader{b: rw.in.bytes()}
		if rw.in.err != nil {
			return rw.in.err
		}
		if id == secCustom {
			rw.custom(body)
			continue
		}
		at := order(id)
		if at <= last {
			return fmt.Errorf("section %d out of place", id)
		}
		if err := rw.fill(last, at); err != nil {
			return err
		}
		last = at
		if err := rw.section(id, body); err != nil {
			return fmt.Errorf("section %d: %w", id, err)
		}
	}
	return rw.fill(last, order(secData))
}

// order is the place of a section in a module; 0 if there is no such section.
// The data count (12) stands before the code.
func order(id int) int {
	switch {
	case id >= secType && id <= secElement:
		return id
	case id == secCount:
		return 10
	case id == secCode:
		return 11
	case id == secData:
		return 12
	}
	return 0
}

// fill writes the sections between two places that must exist and do not.
func (rw *rewriter) fill(last, next int) error {
	if next > order(secType) && !rw.sawTypes {
		return errors.New("no type section")
	}
	if last < order(secImport) && next > order(secImport) && !rw.wroteImports {
		rw.emit(secImport, rw.imports(reader{b: []byte{0}}))
	}
	if last < order(secGlobal) && next > order(secGlobal) && !rw.wroteGlobals {
		rw.emit(secGlobal, rw.counter(reader{b: []byte{0}}))
	}
	return nil
}

// section copies one section, changed where it has to be.
func (rw *rewriter) section(id int, body reader) error {
	var out []byte
	switch id {
	case secType:
		out = rw.typeList(&body)
	case secImport:
		out = rw.imports(body)
		return rw.done(id, out, nil)
	case secGlobal:
		out = rw.counter(body)
		return rw.done(id, out, nil)
	case secExport:
		out = rw.exports(&body)
	case secStart:
		out = uleb(nil, rw.moved(body.u32()))
	case secElement:
		out = rw.elements(&body)
	case secCode:
		out = rw.code(&body)
	default:
		out, body.p = body.b, len(body.b)
	}
	return rw.done(id, out, &body)
}

// done writes a section after checking that its reader came to the end.
func (rw *rewriter) done(id int, out []byte, body *reader) error {
	if body != nil {
		if body.err != nil {
			return body.err
		}
		if body.more() {
			return fmt.Errorf("%d bytes too many", len(body.b)-body.p)
		}
	}
	if rw.in.err != nil {
		return rw.in.err
	}
	rw.emit(id, out)
	return nil
}

func (rw *rewriter) emit(id int, body []byte) {
	rw.out = append(rw.out, byte(id))
	rw.out = uleb(rw.out, uint32(len(body)))
	rw.out = append(rw.out, body...)
}

// custom copies a custom section, except those whose function numbers or code
// offsets are wrong from here on: names, and everything for debuggers.
func (rw *rewriter) custom(body reader) {
	name := string(body.bytes())
	if body.err == nil && name == "target_features" {
		rw.emit(secCustom, body.b)
	}
}

// moved is a function's number after the rewrite.
func (rw *rewriter) moved(fn uint32) uint32 {
	if fn >= rw.funcImports {
		return fn + 1
	}
	return fn
}
