package sandbox

import (
	"bytes"
	"fmt"
)

const (
	// stackTop is where the module's C stack ends and its data begins. Between
	// calls the stack is empty, and nothing on it means anything.
	stackTop = 1 << 20

	// deepStack is a depth of the C stack at which the native stack of compiled
	// code, which nothing shrinks, has grown to megabytes. An instance that was
	// used deeper is not used again, so no other has anything there to clear.
	deepStack = 64 << 10

	// deepWindow is the part of the stack below deepStack that is looked at
	// closely: more than any one frame leaves untouched.
	deepWindow = 8 * block

	// uncollected is by how much an evaluation may grow the memory before its garbage is collected. A collection
	// costs a third of a load, and most scripts leave no garbage.
	uncollected = wasmPage

	// firstCollection is how much a phase allocates before the engine first looks for
	// garbage: most end long before it pays.
	firstCollection = 256 << 10

	// block is the unit in which templates are compared with the base. Small
	// ones cost nothing at a restore, and a script changes little in many
	// places: with 4 KiB a template is four times as large.
	block = 256
)

// template is the memory of an engine that has evaluated something: the
// prelude only (the base), or also one script. It never changes.
//
// A script changes some of the base's memory, so a template keeps the blocks
// that differ and refers to the base for the others.
type template struct {
	size  int // of the whole linear memory
	stack uint64
	parts []part // of [stackTop, size), in order and without gaps
	own   int    // bytes that are not shared with the base
	used  int    // of a base: bytes that the engine has in use
	image []byte // of a base: the memory from stackTop on, as far as it holds data
}

// part is a run of memory: data, or zero bytes if data is nil.
type part struct {
	at, n int
	data  []byte
}

// freeze makes a template of what in holds. base may be nil.
func freeze(in *instance, base *template) (*template, error) {
	used, err := in.settle(base)
	if err != nil {
		return nil, err
	}
	mem, ok := in.mem.Read(0, in.mem.Size())
	if !ok {
		return nil, fmt.Errorf("sandbox: memory of %d bytes cannot be read", in.mem.Size())
	}
	t := &template{size: len(mem), stack: in.sp.Get(), used: used}
	if base == nil {
		t.image = bytes.TrimRight(mem[stackTop:], "\x00")
		t.image = bytes.Clone(t.image[:(len(t.image)+block-1)/block*block])
		base = t
	}
	kinds := make([]byte, 0, len(mem)/block)
	for at := stackTop; at < len(mem); at += block {
		b, k := mem[at:at+block], at-stackTop
		switch {
		case bytes.Equal(b, zeroBlock[:]):
			kinds = append(kinds, 'z')
		case k+block <= len(base.image) && bytes.Equal(b, base.image[k:k+block]):
			kinds = append(kinds, 'b')
		default:
			kinds = append(kinds, 'o')
			t.own += block
		}
	}
	own := make([]byte, 0, t.own)
	for i := 0; i < len(kinds); {
		j := i + 1
		for j < len(kinds) && kinds[j] == kinds[i] {
			j++
		}
		at, end := stackTop+i*block, stackTop+j*block
		p := part{at: at, n: end - at}
		switch kinds[i] {
		case 'b':
			p.data = base.image[at-stackTop : end-stackTop : end-stackTop]
		case 'o':
			k := len(own)
			own = append(own, mem[at:end]...)
			p.data = own[k:len(own):len(own)]
		}
		t.parts = append(t.parts, p)
		i = j
	}
	return t, nil
}

var zeroBlock [block]byte

// settle has a phase look for garbage once it allocated firstCollection, and returns the bytes that are in use, or somewhat more. The
// garbage that the evaluation left is freed first, if that can be much.
func (in *instance) settle(base *template) (used int, err error) {
	grown := -1
	if base != nil {
		grown = int(in.mem.Size()) - base.size
	}
	if used = wasmPage + grown; grown >= 0 && grown <= uncollected {
		used += base.used
	} else if used, err = in.collect(); err != nil {
		return 0, err
	}
	_, err = in.setup("qjs_set_gc_threshold", uint64(used+firstCollection))
	return used, err
}

// collect frees the garbage and returns the bytes that are in use.
func (in *instance) collect() (used int, err error) {
	if _, err := in.setup("qjs_run_gc"); err != nil {
		return 0, err
	}
	const room = 512 // for JSMemoryUsage, a list of 64-bit numbers
	p, err := in.do(in.fn.malloc, room)
	if err != nil {
		return 0, err
	}
	if p == 0 {
		return 0, errHeap
	}
	if _, err := in.setup("qjs_compute_memory_usage", uint64(p)); err != nil {
		return 0, err
	}
	n, _ := in.mem.ReadUint64Le(p) // its first number is malloc_size
	_, err = in.do(in.fn.free, uint64(p))
	return int(n), err
}

// resize makes the memory size bytes large. What is beyond the end of a memory is zero,
// as WebAssembly wants it of a memory that grows: so whatever a phase grew it by is cleared
// here, and nobody has to clear what no phase touched.
func (in *instance) resize(size int) error {
	was, by := int(in.mem.Size()), 1 // one page more is asked for, and fewer given
	switch {
	case size == was:
		return nil
	case size < was:
		b, ok := in.mem.Read(uint32(size), uint32(was-size))
		if !ok {
			return errHeap
		}
		clear(b)
		in.own.smaller = uint64(size)
	default:
		by = (size - was) / wasmPage
	}
	_, ok := in.mem.Grow(uint32(by))
	in.own.smaller = 0
	if !ok || int(in.mem.Size()) != size {
		in.broken = true
		return errHeap
	}
	return nil
}

// wentDeep reports whether a phase used much of the C stack since the restore,
// which cleared it: it looks for what the frames of a recursion left behind, below
// deepStack everywhere, and further down here and there.
func (in *instance) wentDeep() bool {
	const stride = 64 << 10
	b, ok := in.mem.Read(0, stackTop-deepStack)
	for at := len(b) - block; ok && at >= 0; at -= block {
		if at < len(b)-deepWindow {
			at = max(0, at-stride+block)
		}
		if !bytes.Equal(b[at:at+block], zeroBlock[:]) {
			return true
		}
	}
	return false
}

// restore makes in hold t, whatever it held before.
func (t *template) restore(in *instance) error {
	if err := in.resize(t.size); err != nil {
		return err
	}
	mem, ok := in.mem.Read(0, uint32(t.size))
	if !ok {
		return fmt.Errorf("sandbox: template of %d bytes in a memory of %d", t.size, in.mem.Size())
	}
	clear(mem[stackTop-deepStack-deepWindow : stackTop])
	for _, p := range t.parts {
		if p.data == nil {
			clear(mem[p.at : p.at+p.n])
		} else {
			copy(mem[p.at:], p.data)
		}
	}
	in.sp.Set(t.stack)
	return nil
}
