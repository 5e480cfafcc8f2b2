package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
)

// Who resets a checkpoint is told first what that does. Then the producer begins
// anew, and what it publishes again is no new event.
func TestResetCheckpoint(t *testing.T) {
	w := newWorld(t, "counter.js")
	w.began("counter", "count")
	w.trigger("counter", "count")
	counted := func(n string) {
		t.Helper()
		w.as("vera", access.Viewer).get("/runs/"+string(w.ran("counter", "count"))).want(t, http.StatusOK, "counted to "+n)
	}
	counted("2")
	const page = "/workflows/counter/checkpoint"
	viewer, c := w.as("vera", access.Viewer), w.as("ada", access.Operator)
	c.get("/workflows/counter").want(t, http.StatusOK, page+"?handler=count")
	if a := viewer.get(page + "?handler=count"); strings.Contains(a.body, "<form method=\"post\" action=\""+page) {
		t.Error("a viewer gets a button")
	}
	viewer.post(page, "handler", "count").want(t, http.StatusForbidden)
	plan := c.get(page + "?handler=count")
	plan.want(t, http.StatusOK, "What a reset does", "no new event", "/events?workflow=counter&amp;topic=counted", "Reset the checkpoint of count")
	if strings.Contains(plan.body, "topic=elsewhere") {
		t.Error("a topic is named to which it does not publish")
	}
	counted("2") // nothing is done yet
	c.post(page, formOf(t, plan.body)...).want(t, http.StatusOK, "The checkpoint is empty")
	w.trigger("counter", "count")
	counted("1")
	counts, err := w.db.TopicCounts(t.Context(), "counter")
	w.must(err)
	for _, n := range counts {
		if n.Topic == "counted" && (n.Consumed != 2 || n.Pending != 0) {
			t.Errorf("after the reset there are %+v, want the two events of before", n)
		}
	}
	for _, handler := range []string{"take", "nothing", ""} {
		c.get(page+"?handler="+handler).want(t, http.StatusNotFound)
		c.post(page, "handler", handler).want(t, http.StatusNotFound)
	}
	c.post("/workflows/nothing/checkpoint", "handler", "count").want(t, http.StatusNotFound)
}

// While the producer runs there is nothing to reset: it stores its checkpoint when it
// ends.
func TestResetCheckpointOfABusyProducer(t *testing.T) {
	w := newWorld(t, "counter.js")
	w.began("counter", "count")
	v := w.version("counter").Version
	now := keepNow()
	run := keep.Run{ID: "run_busy", Chain: "run_busy", Workflow: "counter", Version: v, Handler: "count", Kind: keep.Producer,
		Phase: keep.Running, Status: keep.StatusActive, CreatedAt: now, UpdatedAt: now}
	w.must(w.db.Commit(t.Context(), keep.Commit{Workflow: "counter", At: now, Changes: []keep.Change{keep.PutRun{Run: run}}}))
	c := w.as("ada", access.Operator)
	c.get("/workflows/counter/checkpoint?handler=count").want(t, http.StatusOK, "It runs just now", "disabled")
	c.post("/workflows/counter/checkpoint", "handler", "count").want(t, http.StatusConflict, "unfinished run")
	run.Rev, run.Status, run.Phase, run.Closed = 1, keep.StatusCommitted, keep.Committed, true
	w.must(w.db.Commit(t.Context(), keep.Commit{Workflow: "counter", At: now, Changes: []keep.Change{keep.PutRun{Run: run}}}))
}

// An admin sees what is in a checkpoint and sets it; nobody else does either.
func TestSetCheckpoint(t *testing.T) {
	w := newWorld(t, "counter.js")
	w.began("counter", "count")
	w.trigger("counter", "count")
	const page = "/workflows/counter/checkpoint"
	w.ran("counter", "count")
	for _, role := range []access.Role{access.Viewer, access.Operator, access.Author} {
		c := w.as("ada", role)
		if a := c.get(page + "?handler=count"); strings.Contains(a.body, "Value, as JSON") || strings.Contains(a.body, "What it has") {
			t.Errorf("%s sees the checkpoint", role)
		}
		c.post(page+"/values", "handler", "count", "key", "n", "value", "41", "verb", "set").want(t, http.StatusForbidden)
	}
	root := w.as("root", access.Admin)
	shown := func() []string { return formOf(t, root.get(page+"?handler=count").body) }
	root.get(page+"?handler=count").want(t, http.StatusOK, "What it has", `<th scope="row">n</th><td class="mono">2</td>`)
	for _, wrong := range []string{"", "x", "{"} {
		root.post(page+"/values", append(shown(), "key", "n", "value", wrong, "verb", "set")...).want(t, http.StatusBadRequest, "no JSON")
	}
	root.post(page+"/values", "handler", "take", "key", "n", "value", "1", "verb", "set").want(t, http.StatusNotFound)
	root.post(page+"/values", "handler", "count", "key", "other", "verb", "delete").want(t, http.StatusBadRequest, "not set")
	root.post(page+"/values", append(shown(), "key", "n", "value", " 41 ", "verb", "set", "note", "the feed was restored")...).want(t, http.StatusOK,
		"The value is changed", `<td class="mono">41</td>`)
	root.get("/workflows/counter").want(t, http.StatusOK, `<dt>Checkpoint changed</dt><dd>by <bdi>root</bdi> (web)`, "value &#34;n&#34; set; the feed was restored</bdi> · count</dd>")
	w.trigger("counter", "count")
	root.get("/runs/"+string(w.ran("counter", "count"))).want(t, http.StatusOK, "counted to 42")
	root.post(page+"/values", append(shown(), "key", "n", "verb", "delete")...).want(t, http.StatusOK, "Nothing: its next run begins as the first one.")
}
