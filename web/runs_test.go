package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
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
