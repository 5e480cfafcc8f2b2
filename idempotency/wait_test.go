package idempotency

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep/store/memory"
)

// Who waits for an owner in another process, which wakes nobody here, leaves nothing behind.
func TestWaitersLeaveNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, over := new(memory.Keys), make(chan struct{})
		process := func() (*Guard, http.Handler) {
			g, err := New(store, Config{Rules: []Rule{{Wait: time.Minute}}})
			if err != nil {
				t.Fatal(err)
			}
			return g, g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
		}
		_, owner := process()
		g, other := process()
		post := func(h http.Handler) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("order"))
			r.Header.Set("Idempotency-Key", "k")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		go post(owner)
		synctest.Wait()
		var waiters sync.WaitGroup
		for range 2 {
			waiters.Go(func() {
				if got := post(other); got.Header().Get(ReplayedHeader) != "true" {
					t.Errorf("who waited got %d %v", got.Code, got.Header())
				}
			})
		}
		time.Sleep(time.Second)
		close(over)
		waiters.Wait()
		if n := len(g.waiting.moved); n != 0 {
			t.Errorf("%d records are awaited still", n)
		}
	})
}
