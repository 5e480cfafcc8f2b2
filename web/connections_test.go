package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/law/limit"
)

// While a service is down the pages say so of its connection, of each run that waits for it and
// in the one question, with the runs that the answer is for (law: explained).
func TestConnectionThatIsDown(t *testing.T) {
	w := newWorld(t, "counter.js")
	w.began("counter", "count")
	now := keepNow()
	until := now.Add(30 * time.Minute)
	const question = "esc_down"
	state, err := json.Marshal(limit.State{Shut: &limit.Shut{Kind: limit.ByDown, Since: now, Until: until, Why: "connection refused", Tries: 5, Asked: question}})
	w.must(err)
	w.must(w.db.PutGate(t.Context(), keep.Gate{Connection: "desk", State: state}))
	r := keep.Run{ID: "run_waits", Chain: "run_waits", Workflow: "counter", Version: w.version("counter").Version, Handler: "take", Kind: keep.Consumer,
		Phase: keep.Preparing, Status: keep.StatusTransient, RetryAt: now.Add(10 * time.Minute), CreatedAt: now, UpdatedAt: now,
		Error: &keep.Failure{Class: keep.ClassTransient, Code: "http-503", Tool: "desk.mails", Message: "the desk was closed"}}
	q := keep.Escalation{ID: question, Kind: keep.AskConnection, Connection: "desk", Workflow: "counter", Run: r.ID, Question: "The service of the connection desk does not answer. Try now?",
		Choices: []keep.Choice{{Action: keep.Retry, Label: "Try now"}}, CreatedAt: now}
	w.must(w.db.Commit(t.Context(), keep.Commit{Workflow: "counter", At: now, Changes: []keep.Change{keep.PutRun{Run: r}, keep.OpenEscalation{Escalation: q}}}))
	c := w.as("vera", access.Viewer)
	sentence, next := "desk, which does not answer: connection refused", until.UTC().Format("2006-01-02 15:04:05")
	c.get("/connections").want(t, http.StatusOK, `<span class="pill bad">down</span>`, "It does not answer, since <time", ": connection refused; the next call is made at <time", next, "1 run of workflows waits for it", "/inbox/"+question)
	for _, path := range []string{"/", "/runs?open=1", "/runs/run_waits", "/workflows/counter"} {
		c.get(path).want(t, http.StatusOK, sentence, next)
	}
	// When the time of the next try is over and nobody made a call, there is no such time.
	state, err = json.Marshal(limit.State{Shut: &limit.Shut{Kind: limit.ByDown, Since: now.Add(-time.Hour), Until: now.Add(-time.Minute), Why: "connection refused", Tries: 5, Asked: question}})
	w.must(err)
	w.must(w.db.PutGate(t.Context(), keep.Gate{Connection: "desk", State: state, Rev: 1}))
	late := c.get("/connections")
	if late.want(t, http.StatusOK, ": connection refused; whoever makes a call next tries it. <"); strings.Contains(late.body, "is made at") {
		t.Error("a time that is over is said to be the next")
	}
	c.get("/inbox/"+question).want(t, http.StatusOK, "<dt>Waiting</dt><dd>1 run:", fmt.Sprintf(`href="/runs/%s"`, r.ID), "Service down")
	r.Rev, r.Status, r.Phase, r.Closed, r.Error, r.RetryAt = 1, keep.StatusCommitted, keep.Committed, true, nil, time.Time{}
	w.must(w.db.Commit(t.Context(), keep.Commit{Workflow: "counter", At: now, Changes: []keep.Change{keep.PutRun{Run: r}, keep.CloseEscalation{ID: question}}}))
	state, err = json.Marshal(limit.State{})
	w.must(err)
	w.must(w.db.PutGate(t.Context(), keep.Gate{Connection: "desk", State: state, Rev: 2}))
	if a := c.get("/connections"); strings.Contains(a.body, "does not answer") {
		t.Error("the service answers again, and the page says that it does not")
	}
}
