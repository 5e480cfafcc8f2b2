package web_test

import (
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
)

// The page of an input has every run that worked on it and every call that they made, those
// that failed too: before a person retries, and after that. So has the page of its event.
func TestInputShowsFailedWork(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.began("mails", "poll")
	w.desk.set(func(d *desk) { d.refuse["/replies"] = true; d.mails = mails(1) })
	w.trigger("mails", "poll")
	q := w.question("mails")
	c := w.as("ada", access.Operator)
	shows := func(runs, calls int, says ...string) {
		t.Helper()
		input := c.get("/inputs/" + string(w.inputOf(q)))
		input.want(t, 200, says...)
		event := c.get("/event?workflow=mails&topic=mail.received&id=m1")
		event.want(t, 200)
		for _, a := range []answer{input, event} {
			if n := strings.Count(a.body, `">reply</a>`); n != runs {
				t.Errorf("%s shows %d runs of reply, want %d", a.path, n, runs)
			}
		}
		if n := strings.Count(input.body, "<code>desk.reply</code>"); n != calls {
			t.Errorf("%s shows %d calls, want %d", input.path, n, calls)
		}
	}
	shows(1, 1, `">failed<`, "the box of that person is full", "pending")

	w.desk.set(func(d *desk) { d.refuse["/replies"] = false })
	w.must(w.host.Decide(t.Context(), q.ID, keep.Decision{Action: keep.Retry, By: "ada", From: "test"}))
	w.settle("mails")
	w.until("the retry is done", func() bool { return w.desk.done("/replies") == 1 })
	w.settle("mails")
	shows(2, 2, `">failed<`, `">applied<`, "done")
}

// An input whose event was skipped, as by who rejects its call, is done, and nothing of it was: its list and its page say so.
func TestInputSaysThatItWasSkipped(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.began("mails", "poll")
	w.desk.set(func(d *desk) { d.refuse["/replies"] = true; d.mails = mails(1) })
	w.trigger("mails", "poll")
	q := w.question("mails")
	c, page := w.as("ada", access.Operator), "/inputs/"+string(w.inputOf(q))
	if a := c.get(page); strings.Contains(a.body, "all skipped") {
		t.Error("the page of an input that waits speaks of what was skipped")
	}
	if _, err := w.host.SkipEvents(t.Context(), "mails", "mail.received", []keep.MessageID{"m1"}, keep.Decision{}); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{page, "/inputs", "/inputs?status=done"} {
		c.get(at).want(t, 200, "done, all skipped")
	}
}

// The page of an input whose call was skipped says by whom, with the question where that was decided.
func TestInputSaysWhoSkippedIt(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.began("mails", "poll")
	w.desk.set(func(d *desk) { d.refuse["/replies"] = true; d.mails = mails(1) })
	w.trigger("mails", "poll")
	q := w.question("mails")
	c, page := w.as("ada", access.Operator), "/inputs/"+string(w.inputOf(q))
	w.must(w.host.Decide(t.Context(), q.ID, keep.Decision{Action: keep.Skip, By: "bob", Note: "he moved", From: "test"}))
	w.settle("mails")
	c.get(page).want(t, 200, "done, all skipped", "<strong>bob</strong> decided “Skip”", "he moved", "/inbox/"+string(q.ID))
}
