//go:build unix

package port_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/keep-run/keep/internal/port"
)

// A port refuses, and nobody else is given it, whenever nobody listens.
func TestHold(t *testing.T) {
	p, err := port.Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	for range 2 {
		if c, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("Dial while nobody listens: %v, %v", c, err)
		}
		// What asks for any free port has this option only once it has one.
		plain := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			var set error
			if err := c.Control(func(fd uintptr) { set = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0) }); err != nil {
				return err
			}
			return set
		}}
		if ln, err := plain.Listen(t.Context(), "tcp", p.Addr()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("another one listens: %v, %v", ln, err)
		}
		ln, err := p.Listen()
		if err != nil {
			t.Fatal(err)
		}
		if c, err := net.Dial("tcp", p.Addr()); err != nil {
			t.Errorf("Dial: %v", err)
		} else {
			c.Close()
		}
		ln.Close()
	}
	p.Release()
	p.Release()
}
