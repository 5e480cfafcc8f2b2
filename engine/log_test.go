package engine_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
)

// A journal is what the engine wrote to its log, as JSON.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer // protected by mu
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

// check fails the test for a line that does not say which run it is about, and which
// mutation where the run has one. It returns the messages.
func (j *journal) check(w *world) map[string]bool {
	w.t.Helper()
	seen := make(map[string]bool)
	for text := range strings.Lines(j.buf.String()) {
		var line struct{ Msg, Workflow, Run, Mutation, From, To string }
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			w.t.Errorf("not JSON: %s", text)
			continue
		}
		seen[line.Msg] = true
		if line.Workflow != "w" || line.Run == "" {
			w.t.Errorf("it does not say which run of which workflow it is about: %s", text)
			continue
		}
		if line.Msg == "step failed" {
			continue // what it was about may never have been recorded
		}
		r, err := w.store.Run(w.t.Context(), keep.RunID(line.Run))
		if err != nil {
			w.t.Errorf("%v: %s", err, text)
		}
		if line.Mutation == "" && (r.Mutation != "" || line.Msg == "mutation moved") {
			w.t.Errorf("it does not say which mutation it is about: %s", text)
		}
		if line.Mutation != "" {
			if _, err := w.store.Mutation(w.t.Context(), keep.MutationKey(line.Mutation)); err != nil {
				w.t.Errorf("%v: %s", err, text)
			}
		}
	}
	return seen
}

// listen makes the engines of a world write to a journal, at every level.
func (w *world) listen() *journal {
	j := new(journal)
	w.logger = slog.New(slog.NewJSONHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return j
}

// Whatever goes wrong, each line of the log says which run it is about, and which
// mutation.
func TestLogLines(t *testing.T) {
	seen := make(map[string]bool)
	for _, d := range dilemmas {
		for _, a := range slices.Sorted(maps.Keys(d.ends)) {
			t.Run(d.name+"/"+string(a), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, fixed := newWorld(t), false
					j := w.listen()
					d.set(w, &fixed)
					w.deploy()
					w.publish("in", "a")
					w.run()
					if err := w.decide(a); err != nil {
						t.Fatal(err)
					}
					fixed = true
					w.run()
					maps.Copy(seen, j.check(w))
				})
			})
		}
	}
	for _, p := range engine.Points() {
		t.Run("killed "+string(p), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				j := w.listen()
				w.deploy()
				w.publish("in", "a")
				w.dieAt = p
				if err := w.runFor(time.Minute); err != nil && w.dieAt != "" {
					t.Logf("%s was not passed", p)
				}
				w.run()
				maps.Copy(seen, j.check(w))
			})
		})
	}
	t.Run("the store fails", func(t *testing.T) {
		for n := range 3 {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				j := w.listen()
				w.deploy()
				w.publish("in", "a")
				w.onCommit = func(_ keep.Commit, do func() error) error {
					if n--; n == -1 {
						return errors.New("the disk is full")
					}
					return do()
				}
				w.run()
				w.onCommit = nil
				maps.Copy(seen, j.check(w))
			})
		}
	})
	for _, msg := range []string{"run stopped", "run over", "mutation moved", "recovering a run that the host left active", "step failed"} {
		if !seen[msg] {
			t.Errorf("no line says %q; the lines say %v", msg, slices.Sorted(maps.Keys(seen)))
		}
	}
}
