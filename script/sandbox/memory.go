package sandbox

import "github.com/tetratelabs/wazero/experimental"

// linearMemory backs the memory of one wasm instance. The whole limit is
// reserved as address space at once, so that the memory never moves; only what
// the instance has grown to is backed by real memory. It lies outside of the
// Go heap: instances come and go by the dozen, and neither the collector nor
// its pacing should see them.
type linearMemory struct {
	reserved []byte
	size     int
}

// newLinearMemory reserves limit bytes. It matches
// [experimental.MemoryAllocator], which knows no errors: without address space
// the memory is nil, and then Reallocate refuses.
func newLinearMemory(_, limit uint64) experimental.LinearMemory {
	b, err := reserve(int(limit))
	if err != nil {
		b = nil
	}
	return &linearMemory{reserved: b}
}

// Reallocate grows the memory to size bytes, or returns nil.
func (m *linearMemory) Reallocate(size uint64) []byte {
	if size > uint64(len(m.reserved)) {
		return nil
	}
	if n := int(size); n > m.size {
		if err := commit(m.reserved[:n:n]); err != nil {
			return nil
		}
		m.size = n
	}
	return m.reserved[:size:size]
}

// Free gives the memory back to the system. Slices of it must be gone.
func (m *linearMemory) Free() {
	if m.reserved != nil {
		release(m.reserved)
		m.reserved = nil
	}
}
