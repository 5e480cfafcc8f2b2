//go:build unix

package port_test

import (
	"os/exec"
	"sync"
	"testing"

	"github.com/keep-run/keep/internal/port"
)

// A listener that is closed keeps the port from nobody, also while processes are started, which have copies of all sockets until
// they execute their program.
func TestListenAgainBesideForks(t *testing.T) {
	p, err := port.Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	var forks sync.WaitGroup
	defer forks.Wait()
	over := make(chan struct{})
	defer close(over)
	for range 4 {
		forks.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					_ = exec.Command("true").Run()
				}
			}
		})
	}
	for n := range 300 {
		l, err := p.Listen()
		if err != nil {
			t.Fatalf("listener %d: %v", n, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
