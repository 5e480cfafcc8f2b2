package web_test

import (
	"fmt"
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

// A page that takes long to be read is read to its end and shown, however much changes meanwhile, and then once more.
func TestLivePageOfABusyHost(t *testing.T) {
	d := newLinkDesk(t, memory.New())
	var slow atomic.Bool
	var aborted atomic.Int64
	begun, release := make(chan struct{}, 100), make(chan struct{})
	pages := d.site.Config.Handler
	d.site.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slow.Load() && r.Header.Get("HX-Request") != "" && !strings.HasPrefix(r.URL.Path, "/live") {
			begun <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
				aborted.Add(1)
			}
		}
		pages.ServeHTTP(w, r)
	})
	b := d.sit()
	b.opens("/inbox")
	b.sees("document.querySelector('#live-state').textContent == 'live'")
	eval[bool](b, "window.told = 0; document.querySelector('#live').addEventListener('keep-changed', function () { window.told++; }); true")
	slow.Store(true)
	first := d.asked("a", nil)
	changed := feed.Change{Kinds: []feed.Kind{feed.Escalation}}
	d.feed.Publish(changed)
	<-begun
	for i := range 8 { // messages are a quarter of a second apart at least
		d.feed.Publish(changed)
		b.sees(fmt.Sprintf("window.told > %d", i))
	}
	if n := aborted.Load(); n > 0 {
		t.Errorf("%d readings of the page were given up for later ones, which take as long", n)
	}
	slow.Store(false)
	close(release)
	b.sees("!!document.querySelector('#q-" + string(first.ID) + "')")
	second := d.asked("b", nil)
	d.feed.Publish(changed)
	b.sees("!!document.querySelector('#others') || !!document.querySelector('#q-" + string(second.ID) + "')")
}
