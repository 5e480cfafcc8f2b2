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

// Compare says what it was asked, with markup in everything.
func (r *replayer) Compare(_ context.Context, w keep.WorkflowName, q api.CompareRequest) (api.Comparison, error) {
	r.compared = append(r.compared, q)
	out := api.Comparison{Workflow: w, From: q.From, To: q.Version, Impact: "safe", Counts: map[string]int{"same": 1}, Whole: true,
		Runs: []api.ComparedRun{{Run: "run_1", Handler: "take", Done: true, Change: "same"}}}
	switch {
	case q.Script == nil:
		return out, nil
	case q.Script.Source == "broken":
		return api.Comparison{}, &api.ScriptError{Mistakes: []api.Mistake{{File: "pasted.ts", Line: 1, Column: 1, Message: "<i>what</i>"}}}
	case q.Script.Source == "unknown":
		out.Impact, out.Whole, out.Older = "inconclusive", false, true
		return out, nil
	}
	out.Impact, out.Declared = "impactful", []string{"the schedule of <b>poll</b> is another"}
	input := keep.InputID("in_1")
	changed := api.ComparedRun{Run: "run_2", Input: &input, Handler: "take", Change: "changed", Why: "<em>why</em>",
		Before: []api.ComparedEffect{{Phase: "mutate", What: "payload", Value: json.RawMessage(`{"a":"<b>x</b>"}`)}},
		After:  []api.ComparedEffect{{Phase: "mutate", What: "payload", Value: json.RawMessage(`{"a":"<script>1</script>"}`)}}}
	out.Runs = append([]api.ComparedRun{changed}, out.Runs...)
	out.Inputs = []api.ComparedInput{{ID: input, Title: "<u>Order</u>"}}
	out.Mutations = []api.ComparedMutation{{Key: "mut_1", Run: "run_2", Tool: "<s>crm.send</s>", Change: "changed", Remedy: "redo", How: "keep events redo w t '<x>'"},
		{Run: "run_2", Tool: "crm.send", Change: "added", Remedy: "by hand"}, {Key: "mut_3", Run: "run_2", Tool: "crm.send", Change: "missing", Remedy: "nothing"}}
	return out, nil
}

// The page of a workflow compares versions, for authors; all that comes of it is text, and what
// differs comes first.
func TestComparePage(t *testing.T) {
	w := newWorld(t, "counter.js")
	w.began("counter", "count")
	const form, path = `action="/workflows/counter/compare"`, "/workflows/counter/compare"
	author, operator := w.as("anna", access.Author), w.as("olaf", access.Operator)
	version := w.version("counter").Version.String()
	for _, page := range []string{"/workflows/counter", "/workflows/counter/versions/" + version} {
		author.get(page).want(t, http.StatusOK, form, "Nothing is sent")
		if a := operator.get(page); strings.Contains(a.body, form) {
			t.Errorf("%s offers an operator to compare", page)
		}
	}
	operator.post(path).want(t, http.StatusForbidden)
	author.post(path, "from", version, "version", "7.0").want(t, http.StatusOK, "Safe: every run", "with version 7.0", "1 run gone through", "1 same", "Nothing was sent")
	author.post(path, "from", version, "source", "unknown").want(t, http.StatusOK, "Not known: that is no pass", "There are older runs", "The time was over")
	a := author.post(path, "from", version, "source", "export default <b>", "version", "1.0")
	a.want(t, http.StatusOK, "Impactful", "the script that you pasted", "the schedule of &lt;b&gt;poll", "&lt;u&gt;Order", "&lt;s&gt;crm.send", "&lt;b&gt;x&lt;/b&gt;", "&lt;script&gt;1",
		"&lt;em&gt;why", "do it again with the newer version", "keep events redo w t &#39;&lt;x&gt;&#39;", "by hand: what happened stands", "nothing: it had no effect", "its work was not done")
	for _, word := range []string{"<b>x</b>", "<script>1", "<u>Order", "<em>why", "<s>crm", "<b>poll"} {
		if strings.Contains(a.body, word) {
			t.Errorf("the page has %q", word)
		}
	}
	if strings.Index(a.body, "/runs/run_2") > strings.Index(a.body, "/runs/run_1") {
		t.Error("a run that is the same comes before one that differs")
	}
	author.post(path, "source", "broken").want(t, http.StatusUnprocessableEntity, "The script is refused", "&lt;i&gt;what")
	author.post("/workflows/none/compare").want(t, http.StatusNotFound)
	if c := w.replays.compared; len(c) != 4 || c[0].From != version || c[0].Version != "7.0" || c[2].Script == nil || c[2].Version != "" {
		t.Errorf("asked %+v", c)
	}
}
