package main

import (
	"encoding/binary"
	"os"
	"sync"
	"time"
)

// A walLog counts what is added to the log of a SQLite database. The log begins
// again at its start after each checkpoint, so its size says nothing; its index
// (https://sqlite.org/walformat.html, section 2.1) says how many pages are in it, and has
// another salt after each beginning.
type walLog struct {
	stop func()

	mu    sync.Mutex // protects all below
	file  *os.File   // nil: there is none
	salt  uint32
	pages uint32 // when last looked
	total int64  // bytes before those
}

const (
	logPage  = 4096 + 24 // with its header
	lookEach = 2 * time.Millisecond
)

// watchLog counts what is added to a log from now on, by its index; zero if there
// is none. A checkpoint takes longer than the time between two looks, so that little
// of what precedes it is missed.
func watchLog(index string, wanted bool) *walLog {
	l := &walLog{stop: func() {}}
	file, err := os.Open(index)
	if !wanted || err != nil {
		return l
	}
	l.file = file
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(lookEach)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				l.bytes()
			}
		}
	})
	l.stop = func() { close(done); wg.Wait(); file.Close() }
	return l
}

// bytes returns how much there was in all.
func (l *walLog) bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var header [40]byte
	if l.file == nil {
		return 0
	}
	if _, err := l.file.ReadAt(header[:], 0); err != nil {
		return l.total + int64(l.pages)*logPage
	}
	pages, salt := binary.NativeEndian.Uint32(header[16:]), binary.NativeEndian.Uint32(header[32:])
	if salt != l.salt {
		l.total += int64(l.pages) * logPage
	}
	l.salt, l.pages = salt, pages
	return l.total + int64(pages)*logPage
}

func (l *walLog) close() { l.stop() }
