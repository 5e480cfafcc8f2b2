package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/limit"
)

// A direct call that waits for a limit ends when a person pauses the calls, and when its caller must give up what is in flight. It is
// not sent, and leaves its place in line. Law: explained.
func TestDirectCallStopsWaiting(t *testing.T) {
	for _, name := range []string{"paused", "given up"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.def.Name = keep.DirectWorkflow
				w.limit(limit.Rule{Concurrency: 1})
				w.service.onCall = func(n int) (bool, error) {
					time.Sleep(8 * time.Second)
					return true, nil
				}
				hard, giveUp := context.WithCancel(t.Context())
				defer giveUp()
				e := w.directEngine()
				first := make(chan error, 1)
				go func() {
					_, err := e.Caller(t.Context()).Call(t.Context(), directCall())
					first <- err
				}()
				time.Sleep(100 * time.Millisecond)
				d := directCall()
				d.Lane, d.Params, d.Identity = keep.KeyLane(engine.DirectHandler, "l"), []byte(`{"id":"y"}`), []byte(`{"id":"y"}`)
				type ended struct {
					out engine.DirectOutcome
					err error
				}
				done := make(chan ended, 1)
				go func() {
					out, err := e.Caller(hard).Call(t.Context(), d)
					done <- ended{out, err}
				}()
				time.Sleep(3 * time.Second)
				if name == "paused" {
					if err := w.store.Commit(t.Context(), keep.Commit{Workflow: keep.DirectWorkflow, At: e.Now(), Changes: []keep.Change{keep.SetPaused{Paused: true}}}); err != nil {
						t.Fatal(err)
					}
				} else {
					giveUp()
				}
				time.Sleep(3 * time.Second)
				select {
				case got := <-done:
					if paused := got.out.Failure != nil && got.out.Failure.Code == "paused"; paused != (name == "paused") || (got.err == nil) != paused || got.out.Mutation.Key != "" {
						t.Errorf("%+v, %v", got.out, got.err)
					}
				default:
					t.Error("it waits on")
				}
				if err := <-first; err != nil || w.service.total() != 1 {
					t.Errorf("%v, and %d calls were sent; want one", err, w.service.total())
				}
			})
		})
	}
}
