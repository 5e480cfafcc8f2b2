package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/handler"
)

// wantCutOff fails the test unless the newest run was committed, and each attempt before it was cut
// off, which is a failure of its phase.
func (w *world) wantCutOff(err error, cutOff int) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("the workflow is not worked on: %v", err)
	}
	runs := w.runs()
	if len(runs) != cutOff+1 || runs[0].Status != keep.StatusCommitted || runs[0].Retries != cutOff || runs[0].Crashes != 0 {
		w.t.Fatalf("runs %+v, want %d that were cut off and a committed one", runs, cutOff)
	}
	for _, r := range runs[1:] {
		if r.Status != keep.StatusTransient || r.Error == nil || r.Error.Code != "timeout" {
			w.t.Errorf("run %s is %s (%v), want that it failed by a timeout", r.ID, r.Status, r.Error)
		}
	}
}

// A handler in Go ends a read that waits for the rate of its connection, by a deadline of its own.
// That is a failure of the run, and not of the host.
func TestReadCutOffInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.connect = func() []connector.Connection {
			c := w.service.connection()
			c.Limits = rate("1/min")
			return []connector.Connection{c}
		}
		h, tries := acting, 0
		h.Prepare = func(ctx context.Context, r *handler.Reader, ev *handler.Event) (handler.Prepared[thing], error) {
			if tries++; tries <= 2 {
				if err := r.Read(ctx, "svc.get", nil, nil); err != nil {
					return handler.Prepared[thing]{}, err
				}
				own, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
				defer cancel()
				if err := r.Read(own, "svc.get", nil, nil); err != nil {
					return handler.Prepared[thing]{}, err
				}
			}
			return acting.Prepare(ctx, r, ev)
		}
		flow := &handler.Workflow{Name: "w", Topics: []keep.TopicName{"in", "out"}, Handlers: []handler.Handler{h}}
		_, def, err := flow.Declare()
		if err != nil {
			t.Fatal(err)
		}
		w.def, w.native = def, flow.Script(handler.Limits{})
		w.deploy()
		w.publish("in", "a")
		w.wantCutOff(w.runFor(6*time.Hour), 2)
	})
}

// held is a store whose reads of items wait for the end of their context, until it lets go.
type held struct {
	database
	holds bool
}

func (s *held) Item(ctx context.Context, w keep.WorkflowName, id string) (keep.Item, error) {
	if s.holds {
		s.holds = false
		<-ctx.Done()
		return keep.Item{}, errors.New("interrupted (9)") // as a driver may say it
	}
	return s.database.Item(ctx, w, id)
}

// The time of an item ends while its call is prepared, or while the store is read. That is a failure
// of the run too, after which the item is done once.
func TestItemCutOff(t *testing.T) {
	for _, at := range []string{"start", "store"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newJobWorld(t, "a")
				w.cutsOff(t, 1)
				if at == "store" {
					w.store = &held{w.store, true}
				} else {
					w.service.onStart = func() error { time.Sleep(time.Second); return nil }
				}
				w.deploy()
				w.wantCutOff(w.runFor(6*time.Hour), 1)
				if w.service.calls != 1 || w.items()["a"] != keep.ItemDone {
					t.Errorf("%d calls, items %v; want 1, and a done", w.service.calls, w.items())
				}
			})
		})
	}
}

// cutsOff makes the job of newJobWorld give the host calls of its first n runs half a second.
func (w *world) cutsOff(t *testing.T, n int) {
	job := w.script["jobs.remind"]
	w.script["jobs.remind"] = func(c *call) any {
		if n--; n < 0 {
			return job(c)
		}
		own, cancel := context.WithTimeoutCause(c.ctx, 500*time.Millisecond, errors.New("the item took too long"))
		t.Cleanup(cancel)
		c.ctx = own
		return job(c)
	}
}

// The time of an item ends while its call is recorded, and that commit fails: this is the store's failure,
// which is logged, and the run believes nothing that it has in memory.
func TestCutOffWhileTheCallIsRecorded(t *testing.T) {
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprint("written ", written), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newJobWorld(t, "a")
				w.cutsOff(t, 1)
				var log bytes.Buffer
				w.logger = slog.New(slog.NewTextHandler(&log, nil))
				lost := false
				w.onCommit = func(c keep.Commit, do func() error) error {
					if lost || !records(c) {
						return do()
					}
					lost = true
					time.Sleep(time.Second)
					if written {
						if err := do(); err != nil {
							return err
						}
					}
					return errors.New("disk I/O error")
				}
				w.deploy()
				if err := w.runFor(6 * time.Hour); err != nil {
					t.Fatal(err)
				}
				if n := strings.Count(log.String(), `msg="step failed"`); n != 1 || !strings.Contains(log.String(), "disk I/O error") {
					t.Errorf("the log says %d times that a step failed, want once by the disk:\n%s", n, &log)
				}
				if w.service.calls != 1 || w.items()["a"] != keep.ItemDone {
					t.Errorf("%d calls, items %v; want 1, and a done", w.service.calls, w.items())
				}
			})
		})
	}
}

// records reports whether c records a call.
func records(c keep.Commit) bool {
	for _, change := range c.Changes {
		if put, ok := change.(keep.PutMutation); ok && put.Mutation.State == keep.InFlight {
			return true
		}
	}
	return false
}
