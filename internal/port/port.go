// Package port gives tests ports of the loopback on which a server may start, end and start again, or never be.
package port

import (
	"fmt"
	"net"
	"sync"
	"testing"
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

// Listen listens on the port.
func (p *Port) Listen() (net.Listener, error) { return net.Listen("tcp", p.addr) }

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
