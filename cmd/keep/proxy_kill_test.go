//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/key"
)

// kills is how often the proxy is killed; make torture sets more.
func kills(t testing.TB) int {
	if n, err := strconv.Atoi(os.Getenv("KEEP_TORTURE_CYCLES")); err == nil {
		return n
	}
	if testing.Short() {
		return 5
	}
	return 50
}

// TestProxyKilled kills keep proxy with SIGKILL again and again while clients send
// requests and retry them. No key may run twice, and none may stay stuck. Law:
// once, recorded-before-sent.
func TestProxyKilled(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, db string) {
		did := new(counter)
		up := httptest.NewServer(did)
		defer up.Close()
		s := &storm{db: db, upstream: up.URL}
		n := kills(t)
		for cycle := range n {
			s.cycle(t, cycle)
			if cycle%100 == 99 {
				t.Logf("%d kills: %d keys answered, %d unknown after a death", cycle+1, s.shown.Load(), s.unknown)
			}
		}
		s.retryAll(t, startProxy(t, db, up.URL, ""))
		did.mu.Lock()
		defer did.mu.Unlock()
		for k, n := range did.done {
			if n > 1 {
				t.Errorf("%s ran %d times", k, n)
			}
		}
		checkRecords(t, db, did.done)
		t.Logf("%d kills, %d keys ran, %d answered at once, %d unknown after a death", n, len(did.done), s.shown.Load(), s.unknown)
	})
}

// A storm is the clients of TestProxyKilled.
type storm struct {
	db, upstream string
	shown        atomic.Int64 // answers that a client saw
	left         sync.Map     // keys whose client got no answer
	unknown      int
}

// cycle starts a proxy, retries what the one before left, and kills it under load.
func (s *storm) cycle(t *testing.T, cycle int) {
	t.Helper()
	p := startProxy(t, s.db, s.upstream, "")
	s.retryAll(t, p)
	transport := newTransport(t)
	defer transport.CloseIdleConnections()
	var answered atomic.Int64
	enough := make(chan struct{})
	fatal := 20 + rand.Int64N(60) // a fact to wait for, not a duration
	var clients, killer sync.WaitGroup
	for c := range 16 {
		clients.Go(func() {
			for n := 0; ; n++ {
				k := fmt.Sprintf("c%d-%d-%d", cycle, c, n)
				if status, body := try(transport, p.url, k); status != 201 || body != "did "+k {
					s.left.Store(k, true)
					return // the proxy is dead
				}
				s.shown.Add(1)
				if answered.Add(1) == fatal {
					close(enough)
				}
			}
		})
	}
	killer.Go(func() {
		<-enough
		p.kill()
	})
	clients.Wait()
	killer.Wait()
}

// retryAll retries every key whose client got no answer: the proxy answers with
// the first answer, with a first run, or with what it cannot know.
func (s *storm) retryAll(t *testing.T, p *proxyProcess) {
	t.Helper()
	transport := newTransport(t)
	defer transport.CloseIdleConnections()
	s.left.Range(func(k, _ any) bool {
		s.left.Delete(k)
		switch status, body := settled(t, transport, p.url, k.(string)); {
		case status == 201 && body == "did "+k.(string):
		case status == 409 && strings.Contains(body, "outcome-unknown"):
			s.unknown++
		default:
			t.Errorf("%s is stuck: %d %s", k, status, body)
		}
		return true
	})
}

// checkRecords compares the records with what was done.
func checkRecords(t *testing.T, db string, done map[string]int) {
	t.Helper()
	store, closeStore, err := openKeys(t.Context(), db, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeStore() }()
	for cursor := ""; ; {
		page, next, err := store.List(t.Context(), key.Filter{}, keep.Page{Limit: 1000, After: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page {
			if r.State == key.Done && done[r.Key] != 1 || r.State == key.InProgress {
				t.Errorf("%s is %q and was done %d times", r.Key, r.State, done[r.Key])
			}
		}
		if cursor = next; cursor == "" {
			return
		}
	}
}
