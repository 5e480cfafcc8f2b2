//go:build unix

package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What a person pauses while keep pause --all or resume --all is at work stays paused, with the note of that person: --all
// changes a workflow only if it is as it was in the list.
func TestPauseAllBesideAPerson(t *testing.T) {
	_, p := newPlaces(t)
	p.must(0, "resume", "--all")
	for _, c := range []struct{ action, before string }{{"pause", "resume"}, {"resume", "pause"}} {
		p.between = nil
		p.must(0, c.before, "--all")
		done := false
		p.between = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if at, ok := strings.CutSuffix(r.URL.Path, "/mail/"+c.action); ok && !done {
				done = true
				body := []byte(`{"note":"the bank calls"}`)
				own := r.Clone(r.Context())
				own.URL.Path, own.Body, own.ContentLength = at+"/mail/pause", io.NopCloser(bytes.NewReader(body)), int64(len(body))
				own.Header.Set("Content-Type", "application/json")
				own.Header.Del("Idempotency-Key")
				rec := httptest.NewRecorder()
				if next.ServeHTTP(rec, own); rec.Code != http.StatusOK {
					t.Errorf("a person pauses: %d %s", rec.Code, rec.Body)
				}
			}
			next.ServeHTTP(w, r)
		}
		o := p.keep(c.action, "--all")
		if o.Status != 0 || !strings.Contains(o.Talk, "Workflow mail: stays paused (the bank calls)") {
			t.Errorf("keep %s --all: %+v", c.action, o)
		}
		if shown := p.must(0, "workflows", "show", "mail"); !strings.Contains(shown, "the bank calls") {
			t.Errorf("after keep %s --all: %s", c.action, shown)
		}
		p.must(0, "resume", "mail")
	}
}
