//go:build unix

package chaos_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep/testkit/connectortest"
)

var stormSeed = flag.Uint64("storm", 20261120, "seed of TestStorm")

// The host is killed, stopped, stopped and killed, and let continue after an absence
// would count, at points that the seed chooses, while connections are cut at
// random bytes and calls are lost. Laws: once, all-or-nothing, nothing-lost.
func TestStorm(t *testing.T) {
	t.Parallel()
	rounds := 32
	if testing.Short() {
		rounds = 8
	}
	s := storm{project: newProject(t), rng: rand.New(rand.NewPCG(*stormSeed, 1))}
	for _, level := range []string{"A", "C", "D"} {
		proxy := s.proxy()
		s.proxies = append(s.proxies, proxy)
		s.set(level + "_URL=http://" + proxy.Addr())
	}
	ids, done := 0, map[string]int{}
	for i := range rounds {
		for _, level := range "aaccd" {
			ids++
			s.service.add(fmt.Sprintf("%c%d", level, ids))
		}
		done[s.round(i)]++
		s.doctor()
		s.decide()
	}
	t.Logf("seed %d: %v", *stormSeed, done)
	s.service.follow(well)
	for _, proxy := range s.proxies {
		proxy.Next()
	}
	s.finish()
	if done["kill"] == 0 || done["stop and resume"] == 0 || done["stop and kill"] == 0 {
		t.Errorf("actions %v: want each of kill, stop and resume, stop and kill at least once", done)
	}
}

// A storm is a project to which bad things happen.
type storm struct {
	*project
	rng     *rand.Rand
	proxies []*connectortest.Proxy
}

// round runs the host until the action of the round was done to it, or until it
// has nothing to do. It returns the action.
func (s *storm) round(i int) string {
	s.Helper()
	action := []string{"kill", "kill", "stop and kill", "stop and resume"}[s.rng.IntN(4)]
	if i%4 == 3 {
		action = "nothing" // ten crashes of one run in a row would be a question
	}
	left, lose := int64(s.rng.IntN(6)), s.rng.IntN(3) == 0
	for _, proxy := range s.proxies {
		proxy.Next(s.cut(), s.cut(), s.cut())
	}
	var h *host
	ready, over := make(chan struct{}), make(chan struct{})
	var passed atomic.Int64
	s.service.follow(func(level, _ string) step {
		<-ready
		if action == "nothing" || passed.Add(1)-1 != left {
			return step{}
		}
		if level == "feed" || level == "search" {
			s.strike(h, action)
			close(over)
			return step{}
		}
		if lose { // before the effect, which never comes
			s.strike(h, action)
			return step{Lose: true, Then: func() { close(over) }}
		}
		return step{Then: func() {
			s.strike(h, action)
			close(over)
		}}
	})
	h = s.start()
	close(ready)
	<-h.ended
	if passed.Load() > left && action != "nothing" {
		<-over
		return action
	}
	if code := h.cmd.ProcessState.ExitCode(); code != exitDone && code != exitNeedsPerson {
		s.Fatalf("keep run ended with %v\n%s", h.cmd.ProcessState, h.printed())
	}
	return "nothing"
}

// strike does something to the host.
func (s *storm) strike(h *host, action string) {
	if action != "kill" {
		h.stop()
		s.until(time.Now().Add(callLimit))
	}
	if action == "stop and resume" {
		h.resume()
		return
	}
	if err := h.cmd.Process.Kill(); err != nil {
		s.Errorf("kill: %v", err)
	}
}

// callLimit is longer than the timeout and the settle time of every tool.
const callLimit = 800 * time.Millisecond

// cut returns what becomes of one connection; of two, one passes.
func (s *storm) cut() connectortest.Cut {
	c := connectortest.Pass
	switch s.rng.IntN(4) {
	case 0:
		c.Request = s.rng.IntN(230)
	case 1:
		c.Response = s.rng.IntN(150)
	}
	c.Reset = s.rng.IntN(2) == 0
	return c
}
