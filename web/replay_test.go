package web_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
)

// A replayer says what it was asked, with markup in everything.
type replayer struct {
	asked    []api.ReplayRequest
	compared []api.CompareRequest
}

func (r *replayer) Replay(_ context.Context, run keep.RunID, q api.ReplayRequest) (api.Replay, error) {
	r.asked = append(r.asked, q)
	if q.Script != nil && q.Script.Source == "broken" {
		return api.Replay{}, &api.ScriptError{Mistakes: []api.Mistake{{File: "pasted.ts", Line: 1, Column: 1, Message: "<i>what</i>"}}}
	}
	out := api.Replay{Run: run, Verdict: "equal", Phases: []string{"prepare"}}
	if q.Script != nil {
		out.Verdict = "different"
		out.Differences = []api.Difference{{Phase: "mutate", What: "payload", Recorded: json.RawMessage(`{"a":"<b>x</b>"}`), Now: json.RawMessage(`{"a":"<script>1</script>"}`)}}
		out.Missing = []api.Missing{{Phase: "next", Tool: "<u>crm</u>", Why: "the <em>run</em> did not ask this"}}
	}
	return out, nil
}

func (r *replayer) Record(context.Context, keep.RunID, api.RecordRequest) (api.RecordedTest, error) {
	return api.RecordedTest{}, nil
}

// The page of a run replays it with a version or a script, for authors; all that comes of it is
// text.
func TestReplayPage(t *testing.T) {
	w := newWorld(t, "counter.js")
	w.began("counter", "count")
	now := keepNow()
	run := keep.Run{ID: "run_again", Chain: "run_again", Workflow: "counter", Version: w.version("counter").Version, Handler: "take", Kind: keep.Consumer,
		Phase: keep.Committed, Status: keep.StatusCommitted, Closed: true, CreatedAt: now, UpdatedAt: now}
	w.must(w.db.Commit(t.Context(), keep.Commit{Workflow: "counter", At: now, Changes: []keep.Change{keep.PutRun{Run: run}}}))
	r := &w.replays
	lacks := func(a answer, words ...string) {
		t.Helper()
		for _, word := range words {
			if strings.Contains(a.body, word) {
				t.Errorf("the page has %q", word)
			}
		}
	}
	author, operator := w.as("anna", access.Author), w.as("olaf", access.Operator)
	author.get("/runs/run_again").want(t, http.StatusOK, `action="/runs/run_again/replay"`, "Nothing is sent")
	lacks(operator.get("/runs/run_again"), `action="/runs/run_again/replay"`)
	operator.post("/runs/run_again/replay").want(t, http.StatusForbidden)
	author.post("/runs/run_again/replay", "version", run.Version.String()).want(t, http.StatusOK, "It does the same", "its own version", "Nothing was sent")
	author.post("/runs/run_again/replay", "version", "7.0").want(t, http.StatusOK, "version 7.0")
	a := author.post("/runs/run_again/replay", "source", "export default <b>", "version", "1.0")
	a.want(t, http.StatusOK, "It does something else", "&lt;b&gt;x&lt;/b&gt;", "&lt;script&gt;1", "&lt;u&gt;crm", "the &lt;em&gt;run")
	lacks(a, "<b>x</b>", "<script>1", "<u>crm", "<em>run")
	author.post("/runs/run_again/replay", "source", "broken").want(t, http.StatusUnprocessableEntity, "The script is refused", "&lt;i&gt;what")
	author.post("/runs/run_none/replay").want(t, http.StatusNotFound)
	if len(r.asked) != 4 || r.asked[0].Version != "" || r.asked[1].Version != "7.0" || r.asked[2].Script == nil || r.asked[2].Version != "" {
		t.Errorf("asked %+v", r.asked)
	}
}
