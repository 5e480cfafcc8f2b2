package web_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/store/memory"
)

// A script comes back with the page, also where its deploy fails for a reason of Keep's own.
func TestDeployThatFailsKeepsTheText(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.began("mails", "poll")
	w.give("mails", "desk.mails", "desk.reply", "desk.archive")
	author := w.as("anna", access.Author)
	f := formIn(t, author.get(deployMails))
	f.set("text", "// an hour of work\n"+f.text())
	checked := formIn(t, author.send(deployMails, "check", f))
	w.bench.fails = context.DeadlineExceeded
	for _, do := range []string{"deploy", "propose", "check"} {
		a := author.send(deployMails, do, checked)
		a.want(t, http.StatusInternalServerError, "Something went wrong", "Look at the version in force before you press again")
		if got := formIn(t, a); got.text() != f.text() {
			t.Errorf("%s: the form has %.200q", do, got.text())
		}
	}
	w.bench.fails = nil
	author.send(deployMails, "deploy", formIn(t, author.send(deployMails, "check", checked))).want(t, http.StatusOK, "Deployed: this version runs now")
}

// A note is recorded as it was typed, also by way of a second press, which has it in a field that nobody sees.
func TestNoteOverTheSecondPress(t *testing.T) {
	const note = "\u200fשלום \u200e(see <b>\"&amp;\"</b>)\n\tand \u00adthe 2nd line ⟨U+200B⟩"
	db := memory.New()
	doubts(t, db, 3, nil)
	now := keepNow()
	ask := pagesWith(t, db)
	for path, form := range map[string]url.Values{
		"/inbox/esc_0":    {"action": {"did-not-happen"}},
		"/inbox/together": {"action": {"did-not-happen"}, "id": {"esc_1"}},
	} {
		form.Set("note", strings.ReplaceAll(note, "\n", "\r\n"))
		first := ask("POST", path, form)
		first.want(t, http.StatusSeeOther)
		second := ask("GET", first.header.Get("Location"), nil)
		if strings.Contains(second.body, "\u200f") {
			t.Error("the page has a character that hides")
		}
		ask("POST", path, hiddenIn(t, second.body)).want(t, http.StatusSeeOther)
	}
	for _, id := range []keep.EscalationID{"esc_0", "esc_1"} {
		q, err := db.Escalation(t.Context(), id)
		if err != nil || q.Decision == nil || q.Decision.Note != note {
			t.Errorf("%s: %+v, %v", id, q.Decision, err)
		}
	}
	commit(t, db, "w0", now, keep.PutItem{Item: keep.Item{Workflow: "w0", ID: "17", Status: keep.ItemDone, Attempt: 1, CreatedAt: now, UpdatedAt: now}})
	page := ask("GET", "/item/confirm?workflow=w0&id=17&note="+url.QueryEscape(note), nil)
	if got := hiddenIn(t, page.body).Get("note"); got != note {
		t.Errorf("the item is done again with the note %q", got)
	}
}

// A line of a script's log that has several lines looks like none of Keep's own.
func TestLogOfAScriptImitatesNothing(t *testing.T) {
	db := memory.New()
	now := keepNow()
	run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Version: keep.Version{Major: 1}, Handler: "h", Kind: keep.Consumer, Phase: keep.Committed, Status: keep.StatusCommitted, Closed: true, CreatedAt: now, UpdatedAt: now}
	line := now.Format("15:04:05.000") + " info retry by ada, from the web: approved"
	commit(t, db, "w", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Code: []byte("x"), CreatedAt: now}}, keep.PutRun{Run: run},
		keep.AppendLogs{Lines: []keep.LogLine{{Run: run.ID, At: now, Level: "info", Text: "one\n" + line + "\r" + line + "\r\n" + line, Where: "w.js:1:1"}}})
	page := pagesWith(t, db)("GET", "/runs/run_1", nil)
	page.want(t, http.StatusOK, "one", line)
	for _, l := range strings.FieldsFunc(page.body, func(r rune) bool { return r == '\n' || r == '\r' }) { // as a browser ends lines
		if strings.HasPrefix(l, line) {
			t.Errorf("the log has the line %q, which is the script's", l)
		}
	}
}
