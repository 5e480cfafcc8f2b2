//go:build unix

package gateway_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
)

var (
	losses = flag.Int("losses", 12, "how many calls of each kind TestLosses makes")
	seed   = flag.Uint64("seed", 1, "of TestLosses")
)

// faults of the server of a call, beside an answer that is cut.
var serverFaults = []string{"", "", "die-before", "die-after", "error-after"}

// TestLosses makes calls by clients that obey the protocol: one that gets no answer makes the call again. At
// random points of each, the server dies or its answer is cut, the gateway is killed, or the client goes away. Laws:
// with a pairing each call is made once, without one at most once, and where nobody knows there is one question.
func TestLosses(t *testing.T) {
	for _, byHTTP := range []bool{false, true} {
		for _, isPaired := range []bool{true, false} {
			t.Run(fmt.Sprintf("http=%t,paired=%t", byHTTP, isPaired), func(t *testing.T) {
				t.Parallel()
				s := setup{Dir: t.TempDir(), Agent: "ann"}
				if isPaired {
					s.Rules = paired()
				}
				l := &loser{t: t, s: s, byHTTP: byHTTP, r: rand.New(rand.NewPCG(*seed, 1))}
				unknown := make(map[string]bool) // by title
				for i := range *losses {
					title := fmt.Sprintf("n%d", i)
					state := l.call(title)
					n := effects(t, s.Dir, title)
					switch {
					case isPaired && (n != 1 || state != "applied"), !isPaired && n > 1, !isPaired && state == "applied" && n != 1:
						t.Fatalf("seed %d, call %d: %d effects, %s", *seed, i, n, state)
					case state == "indeterminate":
						unknown[title] = true
					}
				}
				l.end(true)
				// What was given up comes late at times: it makes nothing twice, and asks nothing, either.
				for i := range *losses {
					if n := effects(t, s.Dir, fmt.Sprintf("n%d", i)); n > 1 {
						t.Errorf("seed %d, call %d: %d effects in the end", *seed, i, n)
					}
				}
				q := check(t, s.Dir)
				if len(q) != len(unknown) {
					t.Errorf("%d questions about %d unknown outcomes", len(q), len(unknown))
				}
				for _, q := range q {
					title := titleOf(q)
					if !unknown[title] {
						t.Errorf("a question about %s: %+v", title, q)
					}
					delete(unknown, title)
				}
				t.Logf("%d calls, %d answers lost, %d questions", *losses, l.lost, len(q))
			})
		}
	}
}

var titleIn = regexp.MustCompile(`\bn[0-9]+\b`)

// titleOf returns the title of the call that a question is about.
func titleOf(q keep.Escalation) string {
	return titleIn.FindString(q.Attempted)
}

// A loser is a client, its gateway, and what goes wrong.
type loser struct {
	t      *testing.T
	s      setup
	byHTTP bool
	r      *rand.Rand

	client *client // on stdin and stdout; nil: none
	agent  *httpAgent
	stop   func() // nil: no gateway by HTTP
	kill   func()
	lost   int // answers
}

// call makes a call, again while there is no answer, or none that is the last.
func (l *loser) call(title string) (state string) {
	l.t.Helper()
	fault := serverFaults[l.r.IntN(len(serverFaults))]
	if l.r.IntN(4) == 0 {
		fault = fmt.Sprintf("cut:%d", l.r.IntN(160))
	}
	fail(l.t, l.s.Dir, fault)
	for tries := 1; tries < 2000; tries++ {
		l.begin()
		breaks := -1 * time.Nanosecond // never
		if tries <= 3 && l.r.IntN(2) == 0 {
			breaks = time.Duration(l.r.IntN(6000)) * time.Microsecond
		}
		r, ok := l.try(title, breaks, l.r.IntN(2) == 0)
		switch {
		case !ok:
			l.lost++
		case r.state() == "applied" || r.state() == "indeterminate":
			return r.state()
		default: // a lookup is not settled, or the call is known not to have happened
			time.Sleep(5 * time.Millisecond)
		}
	}
	l.t.Fatalf("%s: no answer", title)
	return ""
}

// begin starts what is not there.
func (l *loser) begin() {
	l.t.Helper()
	switch {
	case !l.byHTTP && l.client == nil:
		l.client = start(l.t, l.s)
	case l.byHTTP && l.stop == nil:
		url, stop, kill := startKillable(l.t, l.s)
		l.stop, l.kill = stop, kill
		l.agent = newAgent(l.t, url, l.s.Agent)
		l.agent.begin()
	}
}

// end ends the gateway, in order or not.
func (l *loser) end(inOrder bool) {
	switch {
	case l.client != nil && inOrder:
		l.client.stop()
	case l.client != nil:
		_ = l.client.cmd.Process.Kill()
		l.client.stop()
	case l.stop != nil && inOrder:
		l.stop()
	case l.stop != nil:
		l.kill()
	}
	l.client, l.agent, l.stop, l.kill = nil, nil, nil, nil
}

// try makes the call once. After breaks, the gateway is killed, or the client goes away with what it did not read.
func (l *loser) try(title string, breaks time.Duration, kills bool) (reply, bool) {
	if breaks < 0 {
		if !l.byHTTP {
			r, ok := l.client.create(title)
			if !ok {
				l.client = nil
			}
			return r, ok
		}
		r := l.agent.create(title)
		return r, r.raw != ""
	}
	if !l.byHTTP {
		l.client.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":%s}`, createParams(title)))
		time.Sleep(breaks)
		l.end(!kills)
		return reply{}, false
	}
	ctx, cancel := context.WithCancel(l.t.Context())
	timer := time.AfterFunc(breaks, cancel)
	defer timer.Stop()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, l.agent.url, strings.NewReader(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":`+createParams(title)+`}`))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+agentTokens[l.s.Agent])
	req.Header.Set("Mcp-Session-Id", l.agent.session)
	if resp, err := l.agent.client.Do(req); err == nil {
		resp.Body.Close() // what it says is lost
	}
	if kills {
		l.end(false)
	}
	return reply{}, false
}
