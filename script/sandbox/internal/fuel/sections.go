package fuel

import "fmt"

// Kinds of imports and exports.
const (
	kindFunc   = 0
	kindTable  = 1
	kindMemory = 2
	kindGlobal = 3
)

const typeI32 = 0x7f

// typeList copies the types and appends () -> i32, the type of the tick. A
// second copy of a type that is there already is allowed.
func (rw *rewriter) typeList(r *reader) []byte {
	rw.types, rw.sawTypes = r.count(), true
	from := r.p
	for n := rw.types; n > 0; n-- {
		if form := r.byte(); form != 0x60 {
			r.fail(fmt.Errorf("type form %#x is not a function", form))
		}
		r.bytes()
		r.bytes()
	}
	out := uleb(make([]byte, 0, len(r.b)+8), rw.types+1)
	out = append(out, r.b[from:r.p]...)
	return append(out, 0x60, 0, 1, typeI32)
}

// imports copies the imports and appends the tick.
func (rw *rewriter) imports(r reader) []byte {
	rw.wroteImports = true
	n := r.count()
	from := r.p
	for i := n; i > 0; i-- {
		r.bytes()
		r.bytes()
		switch kind := r.byte(); kind {
		case kindFunc:
			r.leb()
			rw.funcImports++
		case kindTable:
			r.byte()
			limits(&r)
		case kindMemory:
			limits(&r)
		case kindGlobal:
			r.skip(2)
			rw.globals++
		default:
			r.fail(fmt.Errorf("import of kind %d", kind))
		}
	}
	if rw.ended(&r); rw.in.err != nil {
		return nil
	}
	out := uleb(make([]byte, 0, len(r.b)+16), n+1)
	out = append(out, r.b[from:r.p]...)
	for _, name := range []string{Module, Function} {
		out = uleb(out, uint32(len(name)))
		out = append(out, name...)
	}
	return uleb(append(out, kindFunc), rw.types)
}

// limits moves over the limits of a table or memory.
func limits(r *reader) {
	flags := r.byte()
	r.leb()
	if flags&1 != 0 {
		r.leb()
	}
}

// counter copies the globals and appends the one that counts. Initial values
// may name functions.
func (rw *rewriter) counter(r reader) []byte {
	rw.wroteGlobals = true
	n := r.count()
	out := uleb(make([]byte, 0, len(r.b)+16), n+1)
	for i := n; i > 0; i-- {
		from := r.p
		r.skip(2)
		if r.err == nil {
			out = append(out, r.b[from:r.p]...)
		}
		out = rw.expression(&r, out)
	}
	if rw.ended(&r); rw.in.err != nil {
		return nil
	}
	rw.globals += n
	out = append(out, typeI32, 1, 0x41) // a mutable i32
	return append(sleb(out, rw.every), 0x0b)
}

// ended takes over the reader's error, if any, into the module's.
func (rw *rewriter) ended(r *reader) {
	if r.err == nil && r.more() {
		r.fail(fmt.Errorf("%d bytes too many", len(r.b)-r.p))
	}
	if r.err != nil {
		rw.in.fail(r.err)
	}
}

// expression copies a constant expression up to its end, appended to out.
func (rw *rewriter) expression(r *reader, out []byte) []byte {
	for r.err == nil {
		from := r.p
		op := r.instruction()
		if r.err != nil {
			break
		}
		if op == 0xd2 { // ref.func
			fn := reader{b: r.b[from+1 : r.p]}
			out = uleb(append(out, op), rw.moved(fn.u32()))
			continue
		}
		out = append(out, r.b[from:r.p]...)
		if op == 0x0b {
			break
		}
	}
	return out
}

// exports copies the exports with the functions' new numbers.
func (rw *rewriter) exports(r *reader) []byte {
	n := r.count()
	out := uleb(make([]byte, 0, len(r.b)+64), n)
	for ; n > 0; n-- {
		name := r.bytes()
		kind, index := r.byte(), r.u32()
		if kind == kindFunc {
			index = rw.moved(index)
		}
		out = uleb(out, uint32(len(name)))
		out = append(append(out, name...), kind)
		out = uleb(out, index)
	}
	return out
}

// elements copies the element segments with the functions' new numbers. The
// low three bits of the flags say which parts a segment has: 1 it is not
// active, 2 it names its table (or is declarative), 4 it holds expressions.
func (rw *rewriter) elements(r *reader) []byte {
	n := r.count()
	out := uleb(make([]byte, 0, len(r.b)+len(r.b)/4), n)
	for ; n > 0 && r.err == nil; n-- {
		flags := r.u32()
		if flags > 7 {
			r.fail(fmt.Errorf("element segment with flags %d", flags))
			break
		}
		out = uleb(out, flags)
		if flags&1 == 0 {
			if flags&2 != 0 {
				out = uleb(out, r.u32())
			}
			out = rw.expression(r, out)
		}
		if flags&3 != 0 {
			out = append(out, r.byte()) // kind or type of the elements
		}
		items := r.count()
		out = uleb(out, items)
		for ; items > 0 && r.err == nil; items-- {
			if flags&4 != 0 {
				out = rw.expression(r, out)
			} else {
				out = uleb(out, rw.moved(r.u32()))
			}
		}
	}
	return out
}

// code copies the function bodies.
func (rw *rewriter) code(r *reader) []byte {
	n := r.count()
	out := uleb(make([]byte, 0, len(r.b)+len(r.b)/8), n)
	head := rw.loopHead()
	var body []byte
	for ; n > 0 && r.err == nil; n-- {
		fn := reader{b: r.bytes()}
		body = rw.body(&fn, body[:0], head)
		if fn.err != nil {
			r.fail(fmt.Errorf("function %d: %w", rw.stats.Functions, fn.err))
			break
		}
		rw.stats.Functions++
		out = uleb(out, uint32(len(body)))
		out = append(out, body...)
	}
	return out
}

// body appends one function to out: its locals, then its instructions, with
// calls renumbered and head after every loop instruction. What a loop takes
// from the operand stack lies under what head pushes and pops, untouched.
func (rw *rewriter) body(r *reader, out, head []byte) []byte {
	for n := r.count(); n > 0; n-- {
		r.leb()
		r.byte()
	}
	if r.err != nil {
		return out
	}
	from := 0 // start of what is not copied yet
	for r.more() {
		at := r.p
		switch op := r.instruction(); op {
		case 0x03: // loop
			rw.stats.Loops++
			out = append(out, r.b[from:r.p]...)
			out = append(out, head...)
			from = r.p
		case 0x10, 0x12, 0xd2: // call, return_call, ref.func
			if r.err != nil {
				return out
			}
			fn := reader{b: r.b[at+1 : r.p]}
			out = append(out, r.b[from:at+1]...)
			out = uleb(out, rw.moved(fn.u32()))
			if fn.err != nil {
				r.fail(fn.err)
			}
			from = r.p
		}
	}
	if r.err == nil && (len(r.b) == 0 || r.b[len(r.b)-1] != 0x0b) {
		r.fail(fmt.Errorf("no end"))
	}
	return append(out, r.b[from:r.p]...)
}

// loopHead is the code that counts: it subtracts one, and at zero refills the
// counter, ticks, and traps if told to.
func (rw *rewriter) loopHead() []byte {
	b := append([]byte(nil), 0x23)     // global.get counter
	b = uleb(b, rw.globals)            //
	b = append(b, 0x41, 1, 0x6b, 0x24) // i32.const 1; i32.sub; global.set counter
	b = uleb(b, rw.globals)            //
	b = append(b, 0x23)                // global.get counter
	b = uleb(b, rw.globals)            //
	b = append(b, 0x45, 0x04, 0x40)    // i32.eqz; if
	b = sleb(append(b, 0x41), rw.every)
	b = uleb(append(b, 0x24), rw.globals)     // global.set counter
	b = uleb(append(b, 0x10), rw.funcImports) // call tick
	return append(b, 0x04, 0x40, 0x00, 0x0b, 0x0b)
}
