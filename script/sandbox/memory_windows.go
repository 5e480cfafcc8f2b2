package sandbox

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// reserve takes address space that cannot be touched yet and is not charged to
// the process.
func reserve(n int) ([]byte, error) {
	addr, err := windows.VirtualAlloc(0, uintptr(n), windows.MEM_RESERVE, windows.PAGE_NOACCESS)
	if err != nil {
		return nil, err
	}
	// The range belongs to the system, not to the Go heap, so its address may
	// become a pointer. Reading it through &addr says that to go vet, which
	// otherwise suspects an integer that outlived its object.
	p := *(*unsafe.Pointer)(unsafe.Pointer(&addr))
	return unsafe.Slice((*byte)(p), n), nil
}

// commit makes b, a prefix of a reservation, usable. Pages that were committed
// before keep their contents, new ones are zero.
func commit(b []byte) error {
	addr := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	_, err := windows.VirtualAlloc(addr, uintptr(len(b)), windows.MEM_COMMIT, windows.PAGE_READWRITE)
	return err
}

// release undoes reserve. Nothing could handle a failure, and the only
// possible one is a bug: a range that was never reserved.
func release(b []byte) {
	addr := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	if err := windows.VirtualFree(addr, 0, windows.MEM_RELEASE); err != nil {
		panic("sandbox: VirtualFree: " + err.Error())
	}
}
