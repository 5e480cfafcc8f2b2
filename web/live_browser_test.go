package web_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/store/memory"
)

// A page that could not be read again does not say that it is live, and is read again without another change.
func TestLivePageThatCannotBeRead(t *testing.T) {
	for name, fail := range map[string]http.HandlerFunc{
		"half an answer": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<!doctype html>"))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"an error": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "busy", http.StatusTooManyRequests) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newLinkDesk(t, memory.New())
			var broken atomic.Bool
			pages := d.site.Config.Handler
			d.site.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if broken.Load() && r.Header.Get("HX-Request") != "" && !strings.HasPrefix(r.URL.Path, "/live") {
					fail(w, r)
					return
				}
				pages.ServeHTTP(w, r)
			})
			b := d.sit()
			b.opens("/inbox")
			broken.Store(true)
			q := d.asked("a", nil)
			d.feed.Publish(feed.Change{Kinds: []feed.Kind{feed.Escalation}})
			b.sees("document.querySelector('#live-state').textContent.startsWith('not up to date')")
			broken.Store(false)
			b.sees("!!document.querySelector('#q-" + string(q.ID) + "')")
			b.sees("document.querySelector('#live-state').textContent == 'live'")
		})
	}
}
