//go:build unix

package daemon

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/keep-run/keep/gateway"
)

// countedGate returns a gate whose gateway does not open at some of the tries.
func countedGate(t *testing.T, fails func(try int) bool) (g *gate, tries *int) {
	t.Helper()
	h := holdDatabase(t)
	tries = new(int)
	g = newGate(slog.New(slog.DiscardHandler), func() (*gateway.Gateway, string, error) {
		if *tries++; fails(*tries) {
			return nil, "", errors.New("it does not open")
		}
		opened, err := h.env.OpenGateway(t.Context(), h.cfg, h.db)
		return opened, "", err
	})
	t.Cleanup(func() {
		if err := g.end(); err != nil {
			t.Error(err)
		}
	})
	return g, tries
}

// A gateway that ended after a change of the configuration has a successor, which asks about calls in doubt, though no agent
// comes; one that does not open is tried again.
func TestRenewOpensTheNext(t *testing.T) {
	t.Parallel()
	g, tries := countedGate(t, func(try int) bool { return try == 2 })
	if err := g.begin(); err != nil {
		t.Fatal(err)
	}
	was := g.now
	g.renew()
	g.renewing.Wait()
	if g.now == nil || g.now == was || *tries != 3 {
		t.Errorf("after %d tries the gateway is %p, want another one than %p after 3", *tries, g.now, was)
	}
}

// A gateway that is to be there before an agent comes is tried again, until it opens or is not wanted any more.
func TestBeginAgain(t *testing.T) {
	t.Parallel()
	g, tries := countedGate(t, func(try int) bool { return try < 3 })
	g.beginSoon()
	g.renewing.Wait()
	if g.now == nil || *tries != 3 {
		t.Errorf("after %d tries the gateway is %p, want one after 3", *tries, g.now)
	}
	never, _ := countedGate(t, func(int) bool { return true })
	never.beginSoon()
	if err := never.end(); err != nil || never.now != nil {
		t.Errorf("end = %v, and the gateway is %p, want none", err, never.now)
	}
}

// A gateway that was never opened, or is over, has no successor.
func TestRenewOpensNoFirst(t *testing.T) {
	t.Parallel()
	g, tries := countedGate(t, func(int) bool { return false })
	g.renew()
	g.renewing.Wait()
	if err := g.end(); err != nil {
		t.Fatal(err)
	}
	g.renew()
	g.renewing.Wait()
	if g.now != nil || *tries != 0 {
		t.Errorf("after %d tries the gateway is %p, want none", *tries, g.now)
	}
}
