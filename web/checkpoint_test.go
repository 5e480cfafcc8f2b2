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
