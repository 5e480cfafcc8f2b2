package engine_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
)

// A tick that comes while the run before it is executed, or stopped, is not lost: all of them are one run after it, whoever
// caused the run before.
func TestTicksDuringARunAreOneRun(t *testing.T) {
	for _, c := range []struct {
		name  string
		takes []time.Duration // by run; the rest take none
		now   bool            // a person asks for the first run, at 00:15
		want  []string
	}{
		{"none is missed", []time.Duration{time.Hour - time.Second}, false, []string{"00:30", "01:30", "02:30", "03:30"}},
		{"one", []time.Duration{90 * time.Minute}, false, []string{"00:30", "02:00", "02:30", "03:30"}},
		{"two are one", []time.Duration{150 * time.Minute}, false, []string{"00:30", "03:00", "03:30"}},
		{"after a run that a person asked for", []time.Duration{30 * time.Minute}, true, []string{"00:15", "00:45", "01:30", "02:30", "03:30"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.def = keep.Definition{Name: "w", Handlers: []keep.Handler{{Name: "hourly", Kind: keep.Job, Schedule: keep.Schedule{Cron: "30 * * * *"}}}}
				var got []string
				w.script = script{"jobs.hourly": func(*call) any {
					if got = append(got, time.Now().UTC().Format("15:04")); len(got) <= len(c.takes) {
						time.Sleep(c.takes[len(got)-1])
					}
					return nil
				}}
				w.deploy()
				if c.now {
					w.runUntil(15 * time.Minute)
					if err := w.engine().Trigger(t.Context(), "w", "hourly", keep.Decision{By: "ann"}); err != nil {
						t.Fatal(err)
					}
				}
				w.runUntil(4*time.Hour - time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)))
				if !slices.Equal(got, c.want) {
					t.Errorf("runs at %v, want %v", got, c.want)
				}
			})
		})
	}
}
