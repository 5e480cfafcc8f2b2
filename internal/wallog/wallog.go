// Package wallog counts, for benchmarks, what is added to the log of a SQLite database.
package wallog

import (
	"encoding/binary"
	"os"
	"sync"
	"time"
)

// A Log counts what is added to the log of a SQLite database. The log begins
// again at its start after each checkpoint, so its size says nothing; its index
// (https://sqlite.org/walformat.html, section 2.1) says how many pages are in it, and has
// another salt after each beginning.
type Log struct {
	stop func()

	mu    sync.Mutex // protects all below
	file  *os.File   // nil: there is none
	salt  uint32
	pages uint32 // when last looked
	total int64  // bytes before those
}

const (
	page     = 4096 + 24 // with its header
	lookEach = 2 * time.Millisecond
)

// Watch counts what is added to a log from now on, by its index, a file whose name ends in
// -shm; zero if there is none. A checkpoint takes longer than the time between two looks, so
// that little of what precedes it is missed.
func Watch(index string) *Log {
	l := &Log{stop: func() {}}
	file, err := os.Open(index)
	if err != nil {
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
				l.Bytes()
			}
		}
	})
	l.stop = func() { close(done); wg.Wait(); file.Close() }
	return l
}

// header is the beginning of the index.
func (l *Log) header() (b [40]byte, ok bool) {
	if l.file == nil {
		return b, false
	}
	_, err := l.file.ReadAt(b[:], 0)
	return b, err == nil
}

// Bytes returns how much there was in all.
func (l *Log) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	header, ok := l.header()
	if !ok {
		return l.total + int64(l.pages)*page
	}
	pages, salt := binary.NativeEndian.Uint32(header[16:]), binary.NativeEndian.Uint32(header[32:])
	if salt != l.salt {
		l.total += int64(l.pages) * page
	}
	l.salt, l.pages = salt, pages
	return l.total + int64(pages)*page
}

// Transactions returns a number that grows by one with each transaction, and wraps. With
// synchronous=FULL each has one fsync; those of checkpoints are besides.
func (l *Log) Transactions() uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	header, _ := l.header()
	return binary.NativeEndian.Uint32(header[8:])
}

// Close ends the counting.
func (l *Log) Close() { l.stop() }
