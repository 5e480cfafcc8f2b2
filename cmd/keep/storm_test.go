//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep/law/limit"
)

// A requestStorm counts the requests that arrive, and answers one of them with 429.
type requestStorm struct {
	f    *failover
	next http.Handler

	mu    sync.Mutex
	at    []time.Time
	late  int                 // requests that came after everyone could know that none is wanted
	hosts map[string]int      // requests, by host
	made  map[string][]string // ids in the order in which they were made, by workflow
}

const (
	stormEvery  = 100 * time.Millisecond // between two requests, by the limit of the connection
	stormPlaces = 3                      // its concurrency
	stormRefuse = 25                     // which request is answered with 429
)

// ServeHTTP counts a request, and refuses one of them.
func (s *requestStorm) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	now := time.Now()
	isShut := s.isShut(now)
	s.mu.Lock()
	s.at = append(s.at, now)
	s.hosts[sentBy(r)]++
	if isShut {
		s.late++
	}
	refuse := len(s.at) == stormRefuse
	if id := idOf(body); !refuse && r.Method == http.MethodPost && id != "" {
		workflow, _, _ := strings.Cut(id, "-")
		s.made[workflow] = append(s.made[workflow], id)
	}
	s.mu.Unlock()
	if refuse {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	s.next.ServeHTTP(w, r)
}

// isShut reports whether the row of the connection says that nobody may use it now.
func (s *requestStorm) isShut(now time.Time) bool {
	var state limit.State
	g, err := s.f.db.Gate(s.f.Context(), "crm")
	if err == nil && len(g.State) > 0 {
		err = json.Unmarshal(g.State, &state)
	}
	if err != nil {
		s.f.Errorf("read the limits: %v", err)
	}
	return state.Shut != nil && state.Shut.Probe == nil && now.Before(state.Shut.Until)
}

func idOf(body []byte) string {
	var v struct{ ID string }
	_ = json.Unmarshal(body, &v)
	return v.ID
}

// TestStorm runs two real hosts, one with a clock that is wrong by an hour, on a real
// Postgres, over one connection with a rate: all requests of all workflows and hosts
// together stay under it, a Retry-After holds for all hosts, each workflow keeps its order,
// and everything is done once.
func TestStorm(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	f.write("keep.toml", strings.Replace(failoverConfig, "connector = \"http\"\n",
		fmt.Sprintf("connector = \"http\"\nrate = \"%d/min\"\nconcurrency = %d\n", time.Minute/stormEvery, stormPlaces), 1))
	s := &requestStorm{f: f, hosts: map[string]int{}, made: map[string][]string{}}
	f.between(func(next http.Handler) http.HandlerFunc {
		s.next = next
		return s.ServeHTTP
	})
	f.hosts = f.hosts[:2]
	for _, h := range f.hosts {
		h.start()
	}
	f.until("each host has work", time.Minute, func() string {
		for _, h := range f.hosts {
			if h.holds() == 0 {
				return fmt.Sprintf("host %d has none", h.n)
			}
		}
		return f.unheld(nil)
	})
	f.crm.more(2)
	f.finish()
	s.mu.Lock()
	defer s.mu.Unlock()
	ahead := 0 // requests more than the rate allows, in any time
	for i, at := range s.at {
		for n, other := range s.at[i:] {
			ahead = max(ahead, n-int(other.Sub(at)/stormEvery))
		}
	}
	// A request arrives later than it began, and what a host takes for the time of the database
	// is somewhat less. Two hosts with a limit each would be ahead by half of the requests.
	if ahead > stormPlaces+3 {
		t.Errorf("%d requests more than the rate allows, want at most %d", ahead, stormPlaces+3)
	}
	if len(s.hosts) != len(f.hosts) {
		t.Errorf("requests by host: %v, want some of each", s.hosts)
	}
	if s.late > stormPlaces { // those that were out
		t.Errorf("%d requests came when the connection was shut, want at most %d", s.late, stormPlaces)
	}
	if len(s.at) < stormRefuse {
		t.Errorf("%d requests, want enough for a refusal", len(s.at))
	}
	for workflow, ids := range s.made {
		last := 0
		for _, id := range ids {
			n, err := strconv.Atoi(id[strings.LastIndex(id, "c")+1:])
			if err != nil || n < last {
				t.Errorf("%s made %v, want them in order", workflow, ids)
				break
			}
			last = n
		}
	}
	t.Logf("%d requests, %d ahead, %d when it was shut, by host %v", len(s.at), ahead, s.late, s.hosts)
}

// outageSteps are the backoff of a connection in TestOutage: a call each second.
const outageSteps = `retry     = { first = "1s", max = "1s", attempts = 3 }
`

// TestOutage takes the service of six workflows away from two real hosts on a real
// Postgres: that costs a call each second, and one question for all, which closes by
// itself when the service is back. Then everything is done, once.
func TestOutage(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	var lines []string
	for line := range strings.Lines(failoverConfig) {
		if strings.HasPrefix(line, "retry ") {
			line = outageSteps
		}
		lines = append(lines, line)
	}
	f.write("keep.toml", strings.Join(lines, ""))
	var mu sync.Mutex
	isDown, requests := false, 0
	f.between(func(next http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			down := isDown
			if down {
				requests++
			}
			mu.Unlock()
			if down {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, r)
		}
	})
	set := func(down bool) int {
		mu.Lock()
		defer mu.Unlock()
		isDown = down
		return requests
	}
	f.hosts = f.hosts[:2]
	for _, h := range f.hosts {
		h.start()
	}
	f.settled("at first")
	began := time.Now()
	set(true)
	f.crm.more(2)
	f.until("one question for all", time.Minute, func() string { return f.outage(6) })
	f.sayWhoWaits()
	took := time.Since(began)
	n := set(false)
	// Each workflow may have had a call on its way when the others learned of the outage.
	if most := 3 + 2*failoverWorkflows + int(took/time.Second); n > most {
		t.Errorf("%d requests in an outage of %s, want at most %d", n, took, most)
	}
	t.Logf("%d requests in an outage of %s", n, took)
	f.until("the question is closed", time.Minute, func() string {
		if s := f.status(); len(s.NeedsYou) > 0 || len(s.Connections) != 1 || s.Connections[0].State != "up" {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	f.finish()
}

// An outageStatus is what keep status --json says of connections.
type outageStatus struct {
	NeedsYou []struct {
		Kind, Connection string
		Count            int
	} `json:"needs_you"`
	Connections []struct {
		Name, State string
		Since       *time.Time
		NextProbeAt *time.Time `json:"next_probe_at"`
		Waiting     int
	}
}

// status returns what keep status --json says.
func (f *failover) status() (s outageStatus) {
	f.Helper()
	out, err := f.hosts[0].command("status", "--json").Output()
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	if err != nil {
		f.Fatalf("keep status: %v\n%s", err, out)
	}
	return s
}

// outage says what is missing until all workflows wait for the connection, and one question
// is asked for all of them.
func (f *failover) outage(waiting int) string {
	s := f.status()
	if len(s.NeedsYou) != 1 || len(s.Connections) != 1 {
		return fmt.Sprintf("%+v", s)
	}
	q, c := s.NeedsYou[0], s.Connections[0]
	if c.Name != "crm" || c.State != "down" || c.Since == nil || c.NextProbeAt == nil || c.Waiting < waiting ||
		q.Kind != "connection" || q.Connection != "crm" || q.Count != c.Waiting {
		return fmt.Sprintf("%+v", s)
	}
	return ""
}

// sayWhoWaits compares what each command says of the runs that wait for the connection: since
// when, until when, and why.
func (f *failover) sayWhoWaits() {
	f.Helper()
	say := func(args ...string) string {
		out, err := f.hosts[0].command(args...).CombinedOutput()
		if err != nil {
			f.Fatalf("keep %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	type run struct {
		ID   string
		Wait struct {
			Kind         string
			Since, Until *time.Time
			Why          string
		}
	}
	open := func() (runs []run) {
		if err := json.Unmarshal([]byte(say("runs", "--open", "--json")), &runs); err != nil {
			f.Fatal(err)
		}
		return runs
	}
	n, runs := 0, open()
	for _, r := range runs {
		w := r.Wait
		if w.Kind != "limit" && w.Kind != "lookup" { // a run whose call was on its way is to be looked up
			continue // it is the probe
		}
		if n++; w.Since == nil || w.Until == nil || !strings.HasPrefix(w.Why, "crm, which does not answer") {
			f.Errorf("run %s waits: %+v", r.ID, w)
		}
	}
	if n < failoverWorkflows-1 {
		f.Errorf("%d runs say that they wait for the connection, want at least %d: %+v", n, failoverWorkflows-1, runs)
	}
	if text := say("status"); !strings.Contains(text, "the service answered 503") || !strings.Contains(text, "Failing: nothing") {
		f.Errorf("keep status says of runs about whose connection a person is asked:\n%s", text)
	}
	for _, args := range [][]string{{"why"}, {"runs", "show"}} {
		f.until(fmt.Sprintf("keep %v says for what a run waits", args), time.Minute, func() (text string) {
			for _, r := range open() { // one is the probe, and ends with it
				text = say(append(slices.Clone(args), r.ID)...)
				if strings.Contains(text, "crm, which does not answer") {
					return ""
				}
			}
			return text
		})
	}
}
