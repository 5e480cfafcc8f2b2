package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/store"
)

// A town is a store of leases that has nothing but news.
type town struct {
	mu   sync.Mutex // protects the fields below
	ears []chan keep.News
	n    uint64
	told []string
	lost bool // news are counted, and do not arrive
	down bool
}

func (s *town) Tell(_ context.Context, text string) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return 0, errors.New("the database is away")
	}
	s.n++
	s.told = append(s.told, text)
	for _, ear := range s.ears {
		if !s.lost {
			ear <- keep.News{N: s.n, Text: text}
		}
	}
	return s.n, nil
}

func (s *town) Poll(context.Context, keep.HostID) (keep.LeaseStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return keep.LeaseStatus{News: s.n, Hosts: 2}, nil
}

// set changes what the town does.
func (s *town) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// A house is the town as one host sees it.
type house struct {
	store.Leaser
	*town
	ear chan keep.News // nil: it hears nothing
}

func (h house) News() <-chan keep.News { return h.ear }

func (h house) Poll(ctx context.Context, id keep.HostID) (keep.LeaseStatus, error) {
	return h.town.Poll(ctx, id)
}

// A resident is a host of a town, and what those who look at it are told.
type resident struct {
	*peers
	t   *testing.T
	sub *feed.Subscription
}

func (s *town) resident(t *testing.T, ctx context.Context, wg *sync.WaitGroup, hears bool) *resident {
	f := feed.New(64)
	h := house{town: s}
	if hears {
		h.ear = make(chan keep.News, 10)
		s.set(func() { s.ears = append(s.ears, h.ear) })
	}
	r := &resident{newPeers(h, func() map[string]string { return nil }, func() []string { return nil }, f, slog.New(slog.NewTextHandler(t.Output(), nil))), t, f.Subscribe(ctx, "")}
	wg.Go(func() { r.broadcast(ctx) })
	wg.Go(func() { r.listen(ctx) })
	r.look()
	r.said("[reset]") // the first look
	return r
}

// change is a commit on this host.
func (r *resident) change(w keep.WorkflowName) {
	r.publish(feed.Change{Workflow: w, Kinds: []feed.Kind{feed.Run}})
}

func (r *resident) look() {
	r.t.Helper()
	if _, err := r.Poll(r.t.Context(), "me"); err != nil {
		r.t.Fatal(err)
	}
}

// said checks what was told since it was asked last.
func (r *resident) said(want string) {
	r.t.Helper()
	synctest.Wait()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Nanosecond)
	defer cancel()
	batch, _ := r.sub.Next(ctx) // the error is that there is nothing
	var list []string
	for _, c := range batch {
		list = append(list, fmt.Sprint(c.Workflow, c.Kinds))
	}
	if got := strings.Join(list, " "); got != want {
		r.t.Errorf("told %q, want %q", got, want)
	}
}

// inTown runs a test with two hosts.
func inTown(t *testing.T, s *town, hear bool, test func(a, b *resident)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	test(s.resident(t, ctx, &wg, hear), s.resident(t, ctx, &wg, hear))
	cancel()
	wg.Wait()
}

// Each host is told once of what the others do, and of what it missed; who does
// nothing tells nothing.
func TestHostsTellOneAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &town{}
		inTown(t, s, true, func(a, b *resident) {
			time.Sleep(time.Minute)
			a.look()
			b.look()
			a.said("")
			b.said("")
			if len(s.told) > 0 {
				t.Errorf("hosts that do nothing told %q", s.told)
			}
			a.change("w")
			a.said("w[run]")
			b.said("w[run]")
			a.change("u")
			a.change("v")
			a.said("u[run] v[run]")
			time.Sleep(time.Second)
			b.said("u[run] v[run]")
			for range 3 { // nothing is told twice
				a.look()
				b.look()
			}
			a.said("")
			b.said("")
			if len(s.told) != 2 {
				t.Errorf("told %q, want two news: what comes together is told together", s.told)
			}

			s.set(func() { s.lost = true }) // the connection of the listener is broken
			a.change("w")
			time.Sleep(time.Second)
			b.said("")
			b.look()
			b.said("") // perhaps on their way
			b.look()
			b.said("[reset]")
			b.look()
			b.said("")
			a.change("w")
			time.Sleep(time.Second)
			s.set(func() { s.lost = false })
			a.change("x")
			time.Sleep(time.Second)
			b.said("[reset]") // some are missing before these

			s.set(func() { s.down = true })
			a.change("w")
			time.Sleep(time.Second)
			s.set(func() { s.down = false })
			time.Sleep(time.Minute)
			b.said("[reset]")
		})
	})
}

// Where nothing is heard the next look says that there was something; what a host
// told itself is no news to it.
func TestHostsThatHearNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &town{}
		inTown(t, s, false, func(a, b *resident) {
			for range 3 {
				a.change("w")
				a.said("w[run]")
				time.Sleep(time.Second)
				a.look()
				a.said("")
				b.said("")
				b.look()
				b.said("[reset]")
				b.look()
				b.said("")
			}
		})
	})
}
