package fuel

import (
	"errors"
	"fmt"
)

var errShort = errors.New("ends too early")

// reader walks through a part of a module. After its first error it stays at
// the end of its bytes, so that loops over it finish, and keeps that error.
type reader struct {
	b   []byte
	p   int
	err error
}

func (r *reader) more() bool { return r.p < len(r.b) }

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.p = len(r.b)
}

func (r *reader) byte() byte {
	if r.p >= len(r.b) {
		r.fail(errShort)
		return 0
	}
	r.p++
	return r.b[r.p-1]
}

// skip moves over n bytes.
func (r *reader) skip(n int) {
	if n < 0 || n > len(r.b)-r.p {
		r.fail(errShort)
		return
	}
	r.p += n
}

// bytes reads a length and that many bytes.
func (r *reader) bytes() []byte {
	n := r.u32()
	from := r.p
	if uint64(n) > uint64(len(r.b)-r.p) {
		r.fail(errShort)
		return nil
	}
	r.p += int(n)
	return r.b[from:r.p]
}

// u32 reads an unsigned LEB128 number of at most 32 bits.
func (r *reader) u32() uint32 {
	var v uint64
	for shift := 0; shift < 35; shift += 7 {
		c := r.byte()
		v |= uint64(c&0x7f) << shift
		if c&0x80 == 0 {
			if v > 1<<32-1 {
				break
			}
			return uint32(v)
		}
	}
	r.fail(errors.New("number over 32 bits"))
	return 0
}

// count reads the length of a list and refuses what cannot fit the rest, each
// element being at least one byte.
func (r *reader) count() uint32 {
	n := r.u32()
	if uint64(n) > uint64(len(r.b)-r.p) {
		r.fail(errShort)
		return 0
	}
	return n
}

// leb moves over a LEB128 number of any sign and at most 64 bits.
func (r *reader) leb() {
	for range 10 {
		if r.byte()&0x80 == 0 {
			return
		}
	}
	r.fail(errors.New("number over 64 bits"))
}

// instruction moves over one instruction with its operands and returns its
// opcode. Blocks are not nested here: their ends are instructions too.
func (r *reader) instruction() byte {
	op := r.byte()
	switch {
	case op >= 0x02 && op <= 0x04, // block, loop, if
		op == 0x0c, op == 0x0d, // br, br_if
		op == 0x10, op == 0x12, // call, return_call
		op >= 0x20 && op <= 0x26, // locals, globals, table.get, table.set
		op == 0x41, op == 0x42,   // i32.const, i64.const
		op == 0xd2: // ref.func
		r.leb()
	case op == 0x0e: // br_table
		for n := r.count(); n > 0; n-- {
			r.leb()
		}
		r.leb()
	case op == 0x1c: // select with types
		for n := r.count(); n > 0; n-- {
			r.leb()
		}
	case op == 0x11, op == 0x13, // call_indirect, return_call_indirect
		op >= 0x28 && op <= 0x3e: // loads and stores
		r.leb()
		r.leb()
	case op == 0x3f, op == 0x40, op == 0xd0: // memory.size, memory.grow, ref.null
		r.skip(1)
	case op == 0x43: // f32.const
		r.skip(4)
	case op == 0x44: // f64.const
		r.skip(8)
	case op == 0xfc:
		r.prefixed()
	case op <= 0x01, op == 0x05, op == 0x0b, op == 0x0f, op == 0x1a, op == 0x1b,
		op >= 0x45 && op <= 0xc4, op == 0xd1: // no operands
	default:
		r.fail(fmt.Errorf("opcode %#x is not known here", op))
	}
	return op
}

// prefixed moves over the rest of a 0xfc instruction.
func (r *reader) prefixed() {
	switch sub := r.u32(); {
	case sub <= 7: // saturating conversions
	case sub == 8, sub == 10, sub == 12, sub == 14: // init and copy of memory and table
		r.leb()
		r.leb()
	case sub == 9, sub == 11, sub == 13, sub >= 15 && sub <= 17: // drop, fill, grow, size
		r.leb()
	default:
		r.fail(fmt.Errorf("opcode 0xfc %d is not known here", sub))
	}
}

// uleb appends v as unsigned LEB128.
func uleb(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// sleb appends v as signed LEB128.
func sleb(b []byte, v int32) []byte {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}
