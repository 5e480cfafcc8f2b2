package web_test

import (
	"errors"
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

// A chain can have more attempts than its page shows. Each page says which of all its run is.
func TestRunOfALongChain(t *testing.T) {
	w := newWorld(t, "counter.js")
	w.began("counter", "count")
	now := keepNow().Add(-time.Hour)
	const made = 103
	for i := range made {
		r := keep.Run{ID: keep.RunID(fmt.Sprintf("run_%03d", i+1)), Chain: "run_001", Workflow: "counter", Version: w.version("counter").Version, Handler: "again", Kind: keep.Producer,
			Phase: keep.Running, Status: keep.StatusTransient, Closed: true, CreatedAt: now, UpdatedAt: now}
		if i > 0 {
			r.RetryOf = keep.RunID(fmt.Sprintf("run_%03d", i))
		}
		w.must(w.db.Commit(t.Context(), keep.Commit{Workflow: "counter", At: now, Changes: []keep.Change{keep.PutRun{Run: r}}}))
	}
	c := w.as("vera", access.Viewer)
	c.get("/runs/run_103").want(t, http.StatusOK, "attempt 103 of 103")
	c.get("/runs/run_004").want(t, http.StatusOK, "attempt 4 of 103")
	c.get("/runs/run_003").want(t, http.StatusOK, "one of 103 attempts")
}

// What may send something again is confirmed once more, for several questions as for one, and
// only those that are shown then are answered.
func TestSeveralSentAgain(t *testing.T) {
	db := memory.New()
	now := time.Now()
	for i := range 4 {
		name := keep.WorkflowName(fmt.Sprintf("w%d", i))
		run := keep.Run{ID: keep.RunID("run_" + name), Chain: keep.RunID("run_" + name), Workflow: name, Version: keep.Version{Major: 1}, Handler: "pay", Kind: keep.Consumer, Phase: keep.Mutated,
			Status: keep.StatusPerson, Error: &keep.Failure{Class: keep.ClassInternal, Code: "unknown", Tool: "bank.pay", Message: "lost"}, CreatedAt: now, UpdatedAt: now}
		m := keep.Mutation{Key: keep.MutationKey(fmt.Sprintf("mut_%d", i)), Workflow: name, Run: run.ID, Tool: "bank.pay", Level: keep.LevelNone, Token: "t", Identity: []byte(`{}`), Payload: []byte(`{}`),
			State: keep.Indeterminate, Attempts: 1, CallDeadline: now, Doubted: true, CreatedAt: now, UpdatedAt: now}
		run.Mutation = m.Key
		q := keep.Escalation{ID: keep.EscalationID(fmt.Sprintf("esc_%d", i)), Kind: keep.AskUnknownOutcome, Workflow: name, Run: run.ID, Mutation: m.Key, Question: "Was it paid?", Attempted: fmt.Sprintf("bank.pay on to=%d", i),
			Choices: []keep.Choice{{Action: keep.DidNotHappen, Label: "It did not happen", Effect: fmt.Sprintf("pays %d again", i)}, {Action: keep.Skip, Label: "Skip"}}, CreatedAt: now}
		if i == 2 { // it offers something else by now
			q.Choices = q.Choices[1:]
		}
		if i == 3 { // the list cuts it
			q.Attempted = strings.Repeat("x", 3000)
		}
		commit(t, db, name, now, keep.Deploy{Deployment: keep.Deployment{Workflow: name, Version: keep.Version{Major: 1}, Code: []byte("x"), CreatedAt: now}},
			keep.PutRun{Run: run}, keep.PutMutation{Mutation: m, Moves: []keep.Move{{At: now, By: "call", To: keep.InFlight}, {At: now, By: "call", From: keep.InFlight, To: keep.Indeterminate}}},
			keep.OpenEscalation{Escalation: q})
	}
	ask := pagesWith(t, db)
	form := url.Values{"action": {"did-not-happen"}, "note": {"seen & checked"}, "id": {"esc_0", "esc_1", "esc_2", "esc_3"}}
	first := ask("POST", "/inbox/together", form)
	first.want(t, http.StatusSeeOther)
	decided := func() (n int) {
		for i := range 4 {
			if q, err := db.Escalation(t.Context(), keep.EscalationID(fmt.Sprintf("esc_%d", i))); err != nil {
				t.Fatal(err)
			} else if q.Decision != nil {
				n++
			}
		}
		return n
	}
	if n := decided(); n != 0 {
		t.Fatalf("%d questions were answered by one press", n)
	}
	to := first.header.Get("Location")
	second := ask("GET", to, nil)
	second.want(t, http.StatusOK, "It did not happen: send 2 calls again?", "pays 0 again", "bank.pay on to=1", `name="confirm" value="1"`, `value="seen &amp; checked"`, `name="id" value="esc_1"`, "Yes, send all 2 again")
	for _, never := range []string{`value="esc_2"`, `value="esc_3"`} {
		if strings.Contains(second.body, never) {
			t.Errorf("the second press would answer %s", never)
		}
	}
	form["id"], form["confirm"] = []string{"esc_0", "esc_1"}, []string{"1"}
	ask("POST", "/inbox/together", form).want(t, http.StatusSeeOther)
	if n := decided(); n != 2 {
		t.Errorf("%d questions are answered, want 2", n)
	}
	ask("GET", to, nil).want(t, http.StatusBadRequest, "none of these questions offers")
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
	ref := w.unknownKey()
	for text, want := range map[string]string{
		string(q.Run): "/runs/" + string(q.Run), string(q.ID): "/inbox/" + string(q.ID), string(q.Mutation): "/mutations/" + string(q.Mutation),
		in: "/inputs/" + in, in[len(in)-8:]: "/inputs/" + in, "mails@1.0": "/workflows/mails/versions/1.0", "order:17": "/item?id=order%3A17&workflow=reminders",
		"invoice 1002": "/inputs?q=invoice+1002", "nothing-like-it": "/inputs?q=nothing-like-it",
		strings.TrimPrefix(ref, "/keys/"): ref, "key_nothing": "/inputs?q=key_nothing",
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
	if strings.Contains(preview.body, `value="skip"`) { // not every one offers it
		t.Error("the preview offers to skip")
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

// What waits now is said as it is now, and not as it was at most in the hour.
func TestHomeSaysWhatWaitsNow(t *testing.T) {
	db := memory.New()
	now := time.Now()
	run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Version: keep.Version{Major: 1}, Handler: "pay", Kind: keep.Consumer, Phase: keep.Prepared,
		Status: keep.StatusPerson, Error: keep.Failf(keep.ClassPermission, "x", "x"), CreatedAt: now, UpdatedAt: now}
	q := keep.Escalation{ID: "esc_1", Kind: keep.AskPermission, Workflow: "w", Run: run.ID, Question: "It was refused.", Choices: []keep.Choice{{Action: keep.Skip, Label: "Skip"}}, CreatedAt: now}
	commit(t, db, "w", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Code: []byte("x"), CreatedAt: now}},
		keep.PutRun{Run: run}, keep.OpenEscalation{Escalation: q})
	counted, err := db.Standing(t.Context())
	for i := range counted {
		counted[i].Step, counted[i].At, counted[i].Failed = keep.Hour, now.UTC().Truncate(time.Hour), 1
	}
	if err = errors.Join(err, db.PutCounters(t.Context(), counted, nil)); err != nil {
		t.Fatal(err)
	}
	ask := pagesWith(t, db)
	ask("GET", "/", nil).want(t, http.StatusOK, "now 1 run waits and 1 open question",
		"<title>"+now.UTC().Truncate(time.Hour).Format("15:04")+" UTC: 0 committed, 1 failed</title>") // the axis is in the zone of the reader
	ask("POST", "/inbox/esc_1", url.Values{"action": {"skip"}}).want(t, http.StatusSeeOther)
	ask("GET", "/", nil).want(t, http.StatusOK, "now 0 runs wait and 0 open questions")
}
