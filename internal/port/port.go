// Package port gives tests ports of the loopback on which a server may start, end and start again, or never be.
package port

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A Port is one that nobody else is given until it is released. While nobody listens on it, connections to it
// are refused; one listener at a time may have it, of this process or of another one.
type Port struct {
	held
	once sync.Once
}

// Hold returns a port that is free.
func Hold() (*Port, error) {
	h, err := hold()
	if err != nil {
		return nil, fmt.Errorf("hold a port: %w", err)
	}
	return &Port{held: h}, nil
}

// Addr returns host:port.
func (p *Port) Addr() string { return p.addr }

// Listen listens on the port. A process that is being started has a copy of each socket until it executes its program, also of a
// listener that was closed: Listen waits for it, for ten seconds at most.
func (p *Port) Listen() (net.Listener, error) {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		l, err := net.Listen("tcp", p.addr)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return l, err
		}
	}
}

// Release lets others have the port. It may be called again.
func (p *Port) Release() { p.once.Do(p.release) }

// Addr returns host:port of a port that is held until the test ends.
func Addr(tb testing.TB) string {
	tb.Helper()
	p, err := Hold()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Release)
	return p.Addr()
}
