package sandbox

// linearMemory backs the memory of one wasm instance. The whole limit is
// reserved as address space at once, so that the memory never moves; only what
// the instance has grown to is backed by real memory. It lies outside of the
// Go heap: instances come and go by the dozen, and neither the collector nor
// its pacing should see them.
type linearMemory struct {
	reserved []byte
	size     int    // what is usable of it
	smaller  uint64 // what the next Reallocate answers, whatever it is asked for; 0: that
}

// newLinearMemory reserves limit bytes. An
// [experimental.MemoryAllocator] knows no errors: without address space the memory is
// nil, and then Reallocate refuses.
func newLinearMemory(limit uint64) *linearMemory {
	b, err := reserve(int(limit))
	if err != nil {
		b = nil
	}
	return &linearMemory{reserved: b}
}

// Reallocate grows the memory to size bytes, or returns nil. WebAssembly has no way to
// make a memory smaller, but the engine takes the length of what it gets for the length of
// the memory: see instance.resize.
func (m *linearMemory) Reallocate(size uint64) []byte {
	if m.smaller != 0 {
		size, m.smaller = m.smaller, 0
	}
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
