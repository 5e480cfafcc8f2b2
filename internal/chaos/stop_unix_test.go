//go:build unix

package chaos_test

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/sqlite"
)

// The host is stopped (SIGSTOP) while a call is out, and continues (SIGCONT) after
// the deadline of the call and its settle time, when an absence counts. Whatever
// became of the call meanwhile, the effect happens once. Laws: once,
// doubt-is-not-failure.
func TestStoppedDuringACall(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"a", "c", "d"} {
		for _, c := range []struct {
			name string
			step step
			late bool // the request is served after the host continues and looked for it, not while it is stopped
		}{
			{"the effect landed, and the answer waits", step{}, false},
			{"the effect landed, and there is no answer", step{Silent: true}, false},
			{"the effect did not land", step{Lose: true}, false},
			{"the host continues first, then the effect lands", step{}, true},
			{"the host continues first, and no effect lands", step{Lose: true}, true},
		} {
			t.Run(fmt.Sprintf("%s/%s", level, c.name), func(t *testing.T) {
				t.Parallel()
				p := newProject(t, level+"1", level+"2")
				if c.late {
					// It lands within the settle time of the moment in which the host
					// continues, on a busy machine as well.
					p.set("KEEP_CONNECTIONS_C_TOOLS_CREATE_SETTLE_AFTER=5s")
				}
				stopAtFirst(p, c.step, c.late)
				p.finish()
			})
		}
	}
}

// stopAtFirst runs the project. At the first call the host is stopped until an
// absence would count; the call ends as the step says, before or after that.
func stopAtFirst(p *project, s step, late bool) {
	p.Helper()
	arrived, serve, looked, over := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.Then = func() { close(over) }
	var first, again atomic.Bool
	p.service.follow(func(level, _ string) step {
		switch {
		case level == "feed":
		case level != "search" && first.CompareAndSwap(false, true):
			close(arrived)
			<-serve
			return s
		case again.CompareAndSwap(false, true):
			close(looked) // a search, or the call once more
		}
		return step{}
	})
	h := p.start()
	select {
	case <-arrived:
	case <-h.ended:
		p.Fatalf("the host ended before its first call\n%s", h.printed())
	}
	h.stop()
	settled := p.settlesAt()
	if !late {
		close(serve)
	}
	p.until(settled)
	h.resume()
	if late {
		select {
		case <-looked:
		case <-h.ended: // nobody can look at level D
		}
		close(serve)
	}
	<-over // a person looks after that
	h.wait(exitDone, exitNeedsPerson)
}

// stop stops the process, and returns when it has stopped.
func (h *host) stop() {
	h.p.Helper()
	h.signal(syscall.SIGSTOP)
}

// resume lets the process continue.
func (h *host) resume() {
	h.p.Helper()
	h.signal(syscall.SIGCONT)
}

func (h *host) signal(s syscall.Signal) {
	h.p.Helper()
	if err := h.cmd.Process.Signal(s); err != nil {
		h.p.Errorf("%s: %v", s, err)
	}
}

// settlesAt returns when the call that is out could be believed to be absent.
func (p *project) settlesAt() time.Time {
	p.Helper()
	db := sqlite.New(p.db, sqlite.Config{ReadOnly: true})
	p.must(db.Open(p.Context()))
	defer func() { p.must(db.Close()) }()
	out, _, err := db.Mutations(p.Context(), keep.MutationFilter{State: keep.InFlight}, keep.Page{Limit: 10})
	p.must(err)
	if len(out) != 1 {
		p.Fatalf("%d calls are recorded as in flight, want the one that is out (law: recorded-before-sent)", len(out))
	}
	return out[0].SettlesAt().Add(10 * time.Millisecond)
}
