//go:build unix

package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
)

// TestBreakerOverHosts has two real hosts on one Postgres call a tool that refuses. What stops it stops it on
// both, and one answer lets all workflows continue by themselves.
func TestBreakerOverHosts(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	f.hosts = f.hosts[:2]
	f.crm.fill(1)
	f.write("keep.toml", strings.Replace(failoverConfig, "[policy]", "[policy]\nbreaker = { failures = 2, within = \"1h\" }", 1))
	var posts atomic.Int32
	var accepts atomic.Bool
	f.between(func(next http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || accepts.Load() {
				next.ServeHTTP(w, r)
				return
			}
			posts.Add(1)
			w.WriteHeader(http.StatusUnprocessableEntity)
			io.WriteString(w, `{}`)
		}
	})
	for _, h := range f.hosts {
		h.start()
	}
	waiting := func(is func(keep.Run) bool) func() string {
		return func() string {
			runs, _, err := f.db.Runs(t.Context(), keep.RunFilter{Open: true}, keep.Page{Limit: 100})
			n := 0
			for _, r := range runs {
				if is(r) {
					n++
				}
			}
			if err != nil || n < failoverWorkflows {
				return fmt.Sprintf("%d of %d runs (%v)", n, failoverWorkflows, err)
			}
			return ""
		}
	}
	keepDo := func(args ...string) {
		t.Helper()
		if out, err := f.hosts[1].command(append([]string{"inbox", "do"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("keep inbox do %v: %v\n%s", args, err, out)
		}
	}
	f.until("each workflow failed or is stopped", time.Minute, waiting(func(r keep.Run) bool { return r.Status == keep.StatusLogic || lifecycle.Stopped(r) }))
	n := posts.Load()
	if n < 2 || n > failoverWorkflows {
		t.Fatalf("%d calls, want from 2 to one for each workflow", n)
	}
	keepDo("--all", "retry", "--kind", "logic", "--yes")
	f.until("each workflow is stopped", time.Minute, waiting(lifecycle.Stopped))
	if got := posts.Load(); got != n {
		t.Errorf("%d calls after they were stopped", got-n)
	}
	accepts.Store(true)
	keepDo("esc_breaker_crm.witnessed_1", "retry")
	f.until("all of it is done", time.Minute, func() string {
		f.crm.mu.Lock()
		defer f.crm.mu.Unlock()
		if len(f.crm.created) < failoverWorkflows {
			return fmt.Sprintf("%d effects", len(f.crm.created))
		}
		return ""
	})
	for _, h := range f.hosts {
		h.signal(syscall.SIGTERM)
		h.wait()
	}
	for err := range f.db.Check(t.Context()) {
		t.Errorf("Check: %v", err)
	}
	qs, _, err := f.db.Escalations(t.Context(), keep.EscalationFilter{Open: true}, keep.Page{Limit: 100})
	if err != nil || len(qs) != 0 {
		t.Errorf("%d questions are open, %v", len(qs), err)
	}
	f.crm.mu.Lock()
	defer f.crm.mu.Unlock()
	for id, times := range f.crm.created {
		if times != 1 {
			t.Errorf("%s was made %d times (law: once)", id, times)
		}
	}
}
