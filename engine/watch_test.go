package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
)

// A bell is the watch of a connection, as a test rings it.
type bell struct {
	mu      sync.Mutex // protects the fields below
	waiting int        // goroutines that wait now
	begun   int        // that ever did
	ring    func()     // of the last one
	err     error      // with which the next one ends at once; nil: it waits
	stop    chan error // ends the one that waits
}

func (b *bell) watch(ctx context.Context, changed func()) error {
	b.mu.Lock()
	b.begun++
	if err := b.err; err != nil {
		b.mu.Unlock()
		return err
	}
	b.waiting++
	b.ring = changed
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.waiting--
	}()
	select {
	case <-ctx.Done():
		return nil
	case err := <-b.stop:
		return err
	}
}

// rings makes the watch tell of news.
func (b *bell) rings() {
	b.mu.Lock()
	ring := b.ring
	b.mu.Unlock()
	if ring != nil {
		ring()
	}
}

// counts returns how many wait, and how many ever did.
func (b *bell) counts() (waiting, begun int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting, b.begun
}

// watchedWorld is a world whose handlers are producers that list the service, which rings
// b. It runs until the returned function is called.
func watchedWorld(t *testing.T, b *bell, handlers ...keep.Handler) (w *world, e *host, stop func()) {
	w = newWorld(t)
	w.def.Handlers = handlers
	for _, h := range handlers {
		w.script["producers."+string(h.Name)] = func(c *call) any { c.do("svc.list"); return nil }
	}
	w.connect = func() []connector.Connection {
		c := w.service.connection()
		c.Watch = b.watch
		return []connector.Connection{c}
	}
	w.deploy()
	e = w.engine()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := e.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return w, e, func() { cancel(); wg.Wait(); w.check() }
}

// runsOf counts the runs of a handler.
func (w *world) runsOf(h keep.HandlerName) (n int) {
	for _, r := range w.runs() {
		if r.Handler == h {
			n++
		}
	}
	return n
}

var daily = keep.Schedule{Interval: 24 * time.Hour}

// A producer that reads a connection at an interval is run when the connection has news, and
// at its interval as before. One that runs by the calendar is not.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bell{stop: make(chan error)}
		w, _, stop := watchedWorld(t, b,
			keep.Handler{Name: "poll", Kind: keep.Producer, Schedule: daily},
			keep.Handler{Name: "digest", Kind: keep.Producer, Schedule: keep.Schedule{Cron: "0 9 * * *"}})
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		polls, digests := w.runsOf("poll"), w.runsOf("digest")
		if waiting, begun := b.counts(); waiting != 1 || begun != 1 || polls == 0 || digests == 0 {
			t.Fatalf("%d of %d wait after %d polls and %d digests; want one", waiting, begun, polls, digests)
		}
		for range 3 {
			b.rings()
			b.rings() // before the run of the first began, or while it runs
			synctest.Wait()
		}
		if n := w.runsOf("poll") - polls; n < 3 || n > 6 {
			t.Errorf("%d runs after three times news", n)
		}
		if n := w.runsOf("digest"); n != digests {
			t.Errorf("the producer of a calendar ran %d times more", n-digests)
		}
		polls = w.runsOf("poll")
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		if n := w.runsOf("poll") - polls; n != 1 {
			t.Errorf("%d runs in a day without news, want the one of its interval", n)
		}
		stop()
		if waiting, _ := b.counts(); waiting != 0 {
			t.Error("a goroutine waits after the end of Run")
		}
		b.rings() // nobody is there
	})
}

// A watch that fails begins again, later each time, and tells of what is new then; one that
// says that the service tells nothing does not.
func TestWatchThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bell{stop: make(chan error), err: errors.New("no way")}
		w, _, stop := watchedWorld(t, b, keep.Handler{Name: "poll", Kind: keep.Producer, Schedule: daily})
		time.Sleep(time.Hour)
		synctest.Wait()
		if _, begun := b.counts(); begun < 10 || begun > 30 {
			t.Errorf("it began %d times in an hour", begun)
		}
		b.mu.Lock()
		b.err = nil
		b.mu.Unlock()
		time.Sleep(10 * time.Minute)
		b.stop <- errors.New("the connection ended")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if waiting, _ := b.counts(); waiting != 1 {
			t.Error("nobody waits two seconds after a session of ten minutes ended")
		}
		before := w.runsOf("poll")
		b.rings()
		synctest.Wait()
		if w.runsOf("poll") == before {
			t.Error("no run after news")
		}
		b.stop <- errors.ErrUnsupported
		time.Sleep(time.Hour)
		synctest.Wait()
		if waiting, _ := b.counts(); waiting != 0 {
			t.Error("somebody waits for a service that tells nothing")
		}
		stop()
	})
}

// A watch ends when its connection is replaced, which waits for it, and when no producer
// reads it any more.
func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bell{stop: make(chan error)}
		w, e, stop := watchedWorld(t, b, keep.Handler{Name: "poll", Kind: keep.Producer, Schedule: daily})
		defer stop()
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		closed := false
		old := w.tools
		tools, err := engine.NewTools(w.connections())
		if err != nil {
			t.Fatal(err)
		}
		old.Replace(tools, func() {
			if waiting, _ := b.counts(); waiting != 0 {
				t.Error("the connection is closed while somebody waits on it")
			}
			closed = true
		})
		synctest.Wait()
		if waiting, _ := b.counts(); waiting != 0 || !closed {
			t.Fatalf("%d wait, closed %t", waiting, closed)
		}
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		if waiting, begun := b.counts(); waiting != 1 || begun != 2 {
			t.Errorf("%d of %d wait for the new connection", waiting, begun)
		}
		w.def.Handlers = []keep.Handler{{Name: "other", Kind: keep.Producer, Schedule: daily}}
		w.script["producers.other"] = func(*call) any { return nil }
		w.running = e
		w.deploy()
		synctest.Wait()
		if waiting, _ := b.counts(); waiting != 0 {
			t.Error("somebody waits for a producer that is gone")
		}
	})
}
