package web_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/store/memory"
)

// The list of runs begins with what needs a look, has one row for all attempts of a chain, with
// its last state, and one line for runs that found nothing, with how many.
func TestRunsAreFolded(t *testing.T) {
	w := newWorld(t, "counter.js")
	w.began("counter", "count")
	now := keepNow().Add(-time.Hour)
	put := func(r keep.Run) keep.Run {
		t.Helper()
		r.Workflow, r.Version, r.Kind, r.Phase = "counter", w.version("counter").Version, keep.Producer, keep.Running
		if r.Status == keep.StatusCommitted {
			r.Phase = keep.Committed
		}
		r.UpdatedAt = r.CreatedAt.Add(1500 * time.Millisecond)
		w.must(w.db.Commit(t.Context(), keep.Commit{Workflow: "counter", At: now, Changes: []keep.Change{keep.PutRun{Run: r}}}))
		return r
	}
	first := put(keep.Run{ID: "run_first", Chain: "run_first", Handler: "retried", Status: keep.StatusTransient, Closed: true, CreatedAt: now})
	put(keep.Run{ID: "run_last", Chain: first.ID, RetryOf: first.ID, Handler: "retried", Status: keep.StatusCommitted, Closed: true, CreatedAt: now})
	for i := range 7 {
		id := keep.RunID(fmt.Sprintf("run_idle%d", i))
		put(keep.Run{ID: id, Chain: id, Handler: keep.HandlerName(fmt.Sprintf("poll%d", i%2)), Status: keep.StatusCommitted, Closed: true, Idle: true, CreatedAt: now})
	}
	put(keep.Run{ID: "run_stuck", Chain: "run_stuck", Handler: "stuck", Status: keep.StatusTransient, RetryAt: keepNow().Add(time.Hour), Lane: keep.KeyLane("stuck", "k"), CreatedAt: now,
		Error: &keep.Failure{Class: keep.ClassTransient, Message: "the token expired"}})
	c := w.as("vera", access.Viewer)
	a := c.get("/runs")
	a.want(t, http.StatusOK, "Need a look", "the token expired", "2 attempts", "took 1.5 s", "7 runs found nothing to do", "4 times", "3 times")
	if strings.Contains(a.body, "/runs/run_first") || strings.Index(a.body, "run_stuck") > strings.Index(a.body, "run_last") {
		t.Error("the list has an attempt that was replaced, or what needs a look is not first")
	}
	a = c.get("/runs?each=1")
	a.want(t, http.StatusOK, "/runs/run_first", "/runs/run_idle6")
	if strings.Contains(a.body, "found nothing to do") {
		t.Error("each run is asked for, and some are folded")
	}
	a = c.get("/runs?handler=retried&since=2h")
	a.want(t, http.StatusOK, "/runs/run_last")
	if strings.Contains(a.body, "run_stuck") {
		t.Error("the filter of handlers leaves others")
	}
}

// The page of an input is one picture from it to its calls; a payload is read when somebody opens it.
func TestPayloadOnDemand(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.began("mails", "poll")
	w.desk.set(func(d *desk) { d.lose["/replies"] = true; d.mails = mails(1) })
	w.trigger("mails", "poll")
	in := w.inputOf(w.question("mails"))
	b := w.tab("ada")
	b.open("/inputs/" + string(in))
	if n := eval[int](b, "document.querySelectorAll('figure.wideonly .node').length"); n != 4 {
		t.Errorf("the picture has %d boxes, want input, event, run and call", n)
	}
	if strings.Contains(eval[string](b, "document.querySelector('#page').textContent"), "p1@example.com\"") {
		t.Error("the page has a payload that nobody asked for")
	}
	b.sees("window.htmx")
	b.click("details.lazy summary")
	b.sees("document.querySelector('details.lazy pre') && document.querySelector('details.lazy pre').textContent.includes('p1@example.com')")
	b.accessible("an open payload")
	b.shot("input-payload")
	b.size(390, 844, chromedp.EmulateMobile)
	b.fits("an open payload")
}

// The home page shows what was counted, groups questions by cause, and is for a reader of
// each span.
func TestHomeOverTime(t *testing.T) {
	w := newWorld(t, "counter.js")
	w.began("counter", "count")
	c := w.as("vera", access.Viewer)
	w.past("counter")
	a := c.get("/")
	a.want(t, http.StatusOK, "Runs for each hour", "9 failed", "polls found nothing", "half within", `class="heat"`, "24 hours")
	c.get("/?over=hour").want(t, http.StatusOK, "Runs for each minute")
	c.get("/?over=month").want(t, http.StatusOK, "Runs for each day", "9 failed")
}

// What is printed is found: whatever has an id, by all of it or by a part.
func TestFind(t *testing.T) {
	w := fullWorld(t)
	c := w.as("vera", access.Viewer)
	q := w.question("mails")
	in := string(w.inputOf(q))
	for text, want := range map[string]string{
		string(q.Run): "/runs/" + string(q.Run), string(q.ID): "/inbox/" + string(q.ID), string(q.Mutation): "/mutations/" + string(q.Mutation),
		in: "/inputs/" + in, in[len(in)-8:]: "/inputs/" + in, "mails@1.0": "/workflows/mails/versions/1.0", "order:17": "/item?id=order%3A17&workflow=reminders",
		"invoice 1002": "/inputs?q=invoice+1002", "nothing-like-it": "/inputs?q=nothing-like-it",
	} {
		if a := c.get("/find?q=" + url.QueryEscape(text)); a.path != want || a.status != http.StatusOK {
			t.Errorf("find %q leads to %s (%d), want %s", text, a.path, a.status, want)
		}
	}
	c.get("/nowhere").want(t, http.StatusNotFound, "Not found", `id="open-count"><span class="n">4`, `<li><a href="/workflows/mails">`)
}

// Questions with one cause are one card, and are answered together after a look at each.
func TestInboxByCause(t *testing.T) {
	db := memory.New()
	now := time.Now()
	for i := range 3 {
		name := keep.WorkflowName(fmt.Sprintf("w%d", i))
		run := keep.Run{ID: keep.RunID("run_" + name), Chain: keep.RunID("run_" + name), Workflow: name, Version: keep.Version{Major: 1}, Handler: "pay", Kind: keep.Consumer, Phase: keep.Prepared,
			Status: keep.StatusPerson, Error: &keep.Failure{Class: keep.ClassPermission, Code: "unauthenticated", Tool: "bank.pay", Message: "401"}, CreatedAt: now, UpdatedAt: now}
		q := keep.Escalation{ID: keep.EscalationID(fmt.Sprintf("esc_%d", i)), Kind: keep.AskPermission, Workflow: name, Run: run.ID, Question: "bank.pay was refused.", Attempted: fmt.Sprintf("bank.pay on to=%d", i),
			Choices: []keep.Choice{{Action: keep.Retry, Label: "Retry"}, {Action: keep.Happened, Label: "It happened"}}, CreatedAt: now}
		if i == 0 {
			q.Choices = append(q.Choices, keep.Choice{Action: keep.Skip, Label: "Skip"})
		}
		commit(t, db, name, now, keep.Deploy{Deployment: keep.Deployment{Workflow: name, Version: keep.Version{Major: 1}, Code: []byte("x"), CreatedAt: now}},
			keep.PutRun{Run: run}, keep.OpenEscalation{Escalation: q})
	}
	ask := pagesWith(t, db)
	list := ask("GET", "/inbox", nil)
	list.want(t, http.StatusOK, "3 questions", "with the same cause", "unauthenticated", "in 3 workflows")
	if n := strings.Count(list.body, "<article"); n != 1 {
		t.Errorf("the inbox has %d cards for one cause", n)
	}
	ask("GET", "/", nil).want(t, http.StatusOK, "and 2 more with the same cause")
	cause := "?cause=" + url.QueryEscape("permission bank.pay unauthenticated")
	if each := ask("GET", "/inbox"+cause, nil); strings.Count(each.body, "<article") != 3 {
		t.Errorf("the page of the cause has %d cards", strings.Count(each.body, "<article"))
	}
	preview := ask("GET", "/inbox/together"+cause, nil)
	preview.want(t, http.StatusOK, "bank.pay on to=0", "bank.pay on to=2", `value="esc_1" checked`, `name="action" value="retry"`)
	for _, never := range []string{`value="happened"`, `value="skip"`} { // it says more; not every one offers it
		if strings.Contains(preview.body, never) {
			t.Errorf("the preview offers %s", never)
		}
	}
	ask("POST", "/inbox/together", url.Values{"action": {"happened"}, "id": {"esc_0"}}).want(t, http.StatusBadRequest)
	ask("POST", "/inbox/together", url.Values{"action": {"skip"}, "id": {"esc_1"}}).want(t, http.StatusBadRequest, "does not offer that")
	ask("POST", "/inbox/together", url.Values{"action": {"retry"}, "id": {"esc_0", "esc_1"}, "note": {"new token"}}).want(t, http.StatusSeeOther)
	for i, decided := range []bool{true, true, false} {
		q, err := db.Escalation(t.Context(), keep.EscalationID(fmt.Sprintf("esc_%d", i)))
		if err != nil || (q.Decision != nil) != decided || decided && (q.Decision.Action != keep.Retry || q.Decision.Note != "new token") {
			t.Errorf("%s: %+v, %v; want decided %t", q.ID, q.Decision, err, decided)
		}
	}
}
