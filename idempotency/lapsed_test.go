package idempotency_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/memory"
)

// An owner whose clock is far ahead dies. Its lease ends for a host that saw no renewal for as long as that, and not for one that
// renews it by that clock: then a person can say what happened.
func TestLeaseOfAClockFarAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memory.Keys)
		g, err := idempotency.New(store, idempotency.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		const lease, ahead = 30 * time.Second, 10 * 365 * 24 * time.Hour
		begin := func(name string) key.Record {
			claim := key.Claim{ID: key.NewID("", "", name), Key: name, Method: "POST", Path: "/", TTL: time.Hour}
			rec, err := key.Apply(key.Record{}, key.Fact{Evidence: key.Begun, Fence: 7, Claim: claim, Lease: lease}, time.Now().Add(ahead))
			if err == nil {
				err = store.Write(t.Context(), rec)
			}
			if err != nil {
				t.Fatal(err)
			}
			return rec
		}
		died, lives := begin("died"), begin("lives")
		for i, want := range []key.State{key.InProgress, key.InProgress, key.Unknown} {
			if _, err := g.Sweep(t.Context(), time.Now()); err != nil {
				t.Fatal(err)
			}
			for rec, want := range map[key.ID]key.State{died.ID: want, lives.ID: key.InProgress} {
				if now, err := store.Read(t.Context(), rec); err != nil || now.State != want {
					t.Errorf("after %d leases and a half: %s is %s, %v; want %s", i, now.Key, now.State, err, want)
				}
			}
			now, err := store.Read(t.Context(), lives.ID)
			if err == nil {
				now, err = key.Apply(now, key.Fact{Evidence: key.Renewed, Fence: 7, Lease: lease}, time.Now().Add(ahead))
			}
			if err == nil {
				err = store.Write(t.Context(), now)
			}
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(lease / 2)
		}
		v, err := idempotency.NewKeys(store).Resolve(t.Context(), died.ID.String(), idempotency.Resolution{By: "ann"}, time.Now())
		if err != nil || v.State != key.Released {
			t.Errorf("a person resolves it: %s, %v", v.State, err)
		}
		if late, err := store.Read(t.Context(), died.ID); err != nil || late.DoubtAt.After(time.Now()) {
			t.Errorf("it is in doubt since %s, %v", late.DoubtAt, err)
		}
	})
}

// A clock that is set forward ends leases at once. A process knows of the requests that it executes itself: none of them is executed a second time beside
// the first, nor asked about, nor free, whatever its lease says.
func TestClockSetForward(t *testing.T) {
	t.Parallel()
	absent := func(context.Context, idempotency.Question) (idempotency.Finding, error) {
		return idempotency.Finding{}, nil
	}
	for name, r := range map[string]idempotency.Rule{
		"retries": {AfterCrash: idempotency.AfterCrashRetry}, "probe": {Probe: absent}, "atomic": {Atomic: true}, "no more": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				goOn := make(chan struct{})
				var w *world
				w = newWorld(t, rule(r), func(http.ResponseWriter, *http.Request) {
					if w.runs.Load() == 1 {
						<-goOn
					}
				})
				first := make(chan int, 1)
				go func() { first <- w.do(with("k")).Code }()
				synctest.Wait()
				rec := w.record("k")
				for _, at := range []*time.Time{&rec.LeaseUntil, &rec.CreatedAt, &rec.UpdatedAt} { // as a clock has it that is an hour further
					*at = at.Add(-time.Hour)
				}
				must(t, w.store.Write(t.Context(), rec))
				for range 2 {
					w.problem(w.do(with("k")), 409, idempotency.KindInProgress)
					_, err := w.guard.Sweep(t.Context(), time.Now())
					must(t, err)
				}
				if got := w.record("k").State; got != key.InProgress {
					t.Errorf("the key is %s", got)
				}
				close(goOn)
				if code := <-first; code != 200 {
					t.Errorf("the first one gets %d", code)
				}
				w.ran(1)
			})
		})
	}
}
