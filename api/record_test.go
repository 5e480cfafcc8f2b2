package api_test

import (
	"context"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
)

// A recorder makes tests of runs, which have values of a checkpoint or not.
type recorder struct {
	api.Replayer
	checkpoint bool
}

func (r *recorder) Record(_ context.Context, id keep.RunID, _ api.RecordRequest) (api.RecordedTest, error) {
	return api.RecordedTest{Run: id, Text: "kv = { since = 7 }", Checkpoint: r.checkpoint}, nil
}

// A test of a run has what the run read of its checkpoint, and that is for admins.
func TestRecordHidesCheckpoints(t *testing.T) {
	r := new(recorder)
	w := newWorld(t, func(c *api.Config) { c.Replayer = r })
	const path = api.Prefix + "/runs/run_1/test"
	w.ask("ann author", "POST", path, `{}`).want(t, 200, "since")
	r.checkpoint = true
	w.ask("ann admin", "POST", path, `{}`).want(t, 200, "since")
	got := w.ask("ann author", "POST", path, `{}`)
	if got.want(t, 403, "forbidden", "checkpoint"); strings.Contains(got.Body, "since") {
		t.Errorf("the author sees %s", got.Body)
	}
}
