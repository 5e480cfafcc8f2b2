package web_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/web"
)

// sit logs an operator in at a new tab.
func (d *linkDesk) sit() *tab {
	d.Helper()
	if testing.Short() {
		d.TB.(*testing.T).Skip("needs a browser")
	}
	b := (&world{TB: d.TB, site: d.site}).tab("ada")
	d.login(b)
	return b
}

// login gives the browser a new session.
func (d *linkDesk) login(b *tab) keep.Credential {
	d.Helper()
	secret, c, err := access.Issue(d.Context(), d.db, keep.Credential{Kind: keep.CredentialSession, Name: "ada", Role: string(access.Operator)}, time.Now(), time.Hour)
	if err != nil {
		d.Fatal(err)
	}
	call(b, network.SetCookie, network.SetCookieParams{Name: "keep-local", Value: secret, URL: d.site.URL})
	return c
}

// decides answers a question elsewhere.
func (d *linkDesk) decides(q keep.Escalation, action keep.Action) {
	d.Helper()
	actor, err := operator.New(d.db, operator.Config{})
	if err != nil {
		d.Fatal(err)
	}
	if err := actor.Decide(d.Context(), q.ID, keep.Decision{Action: action, By: "bob", From: "cli"}); err != nil {
		d.Fatal(err)
	}
	d.feed.Publish(feed.Change{Workflow: q.Workflow, Kinds: []feed.Kind{feed.Escalation}})
}

// opens loads a page that is live.
func (t *tab) opens(path string) {
	t.Helper()
	t.open(path)
	t.sees("document.querySelector('#live-state').textContent == 'live'")
}

// spot returns the middle of an element, in the window.
func (t *tab) spot(selector string) (x, y float64) {
	t.Helper()
	at := eval[[]float64](t, fmt.Sprintf("(r => [r.x + r.width / 2, r.y + r.height / 2])(document.querySelector(%q).getBoundingClientRect())", selector))
	return at[0], at[1]
}

// mouse presses at a place of the window, whatever is there.
func (t *tab) mouse(x, y float64) {
	t.Helper()
	ctx, done := t.step()
	defer done()
	t.must(chromedp.Do(ctx, chromedp.MouseClickXY(x, y)))
}

const others = "document.querySelector('#others')"

// While a person writes about a question, or is about to press a button, a newer question takes neither its
// place nor the cursor, and what is pressed is an answer to what was read.
func TestAnswerIsToWhatWasRead(t *testing.T) {
	for _, list := range []string{"/inbox", "/inbox?show=each"} {
		t.Run(list, func(t *testing.T) {
			d := newLinkDesk(t, memory.New())
			early := func(q *keep.Escalation) { q.CreatedAt = q.CreatedAt.Add(-time.Minute) }
			d.asked("a", early)
			read := d.asked("b", nil)
			b := d.sit()
			b.opens(list)
			form := fmt.Sprintf("form[action='/inbox/%s'] ", read.ID)
			x, y := b.spot(form + "[value=approve]")
			b.click(form + "textarea")
			b.keys("agreed, ")
			last := d.asked("c", func(q *keep.Escalation) { q.CreatedAt = q.CreatedAt.Add(time.Minute) })
			d.feed.Publish(feed.Change{Kinds: []feed.Kind{feed.Escalation}})
			b.sees(others)
			b.keys("order 1 of 2")
			if got := eval[string](b, "document.activeElement.value + ''"); got != "agreed, order 1 of 2" {
				t.Errorf("the cursor is in what has %q", got)
			}
			if eval[bool](b, "!!document.querySelector('form[data-sent]')") || d.decision(read) != nil || d.decision(last) != nil {
				t.Fatal("a digit of the note answered a question")
			}
			b.mouse(x, y)
			b.says("Your decision is recorded.")
			if got := d.decision(read); got == nil || got.Action != keep.Approve || got.Note != "agreed, order 1 of 2" {
				t.Errorf("the answer to what was read is %+v", got)
			}
			if got := d.decision(last); got != nil {
				t.Errorf("what was not read got the answer %+v", got)
			}
		})
	}
}

// A question that another person answers meanwhile stays where it is, says so, and keeps what was written; no digit
// of that is an action of another card.
func TestAnsweredWhileWritten(t *testing.T) {
	d := newLinkDesk(t, memory.New())
	d.asked("a", nil)
	q := d.asked("b", func(q *keep.Escalation) { q.Approval.Tool = "bank.lend" })
	form := fmt.Sprintf("form[action='/inbox/%s'] ", q.ID)
	tabs := map[string]*tab{}
	for _, page := range []string{"/inbox", "/inbox/" + string(q.ID)} {
		b := d.sit()
		b.opens(page)
		b.click(form + "textarea")
		b.keys("seen at ")
		tabs[page] = b
	}
	d.decides(q, keep.Reject)
	for page, b := range tabs {
		b.says("bob decided")
		b.keys("12 and 11")
		if got := eval[string](b, "document.activeElement.value + ''"); got != "seen at 12 and 11" {
			t.Errorf("%s: the cursor is in what has %q", page, got)
		}
		if !eval[bool](b, fmt.Sprintf("[...document.querySelectorAll(%q)].every(b => b.disabled) && !document.querySelector('form[data-sent]')", form+"button")) {
			t.Errorf("%s: it can still be sent, or a digit of the note sent something", page)
		}
		b.accessible(page)
	}
}

// A digit acts on the row that was chosen, and on no other.
func TestDigitsWithoutARow(t *testing.T) {
	d := newLinkDesk(t, memory.New())
	q := d.asked("a", nil)
	b := d.sit()
	for _, page := range []string{"/inbox", "/inbox/" + string(q.ID)} {
		b.opens(page)
		b.keys("1")
		if eval[bool](b, "!!document.querySelector('form[data-sent]')") {
			t.Fatalf("%s: a digit answered a question that nobody chose", page)
		}
		b.click("textarea")
		b.keys("x")
		eval[int](b, "document.querySelector('textarea').remove(); 0")
		b.keys("1")
		if eval[bool](b, "!!document.querySelector('form[data-sent]')") {
			t.Fatalf("%s: a digit of a text whose field is gone answered a question", page)
		}
	}
	b.keys("j2")
	b.says("Your decision is recorded.")
	if got := d.decision(q); got == nil || got.Action != keep.Reject {
		t.Errorf("j and 2 decided %+v", got)
	}
}

// A note for a pause, while another person pauses, resumes nothing.
func TestPausedWhileWritten(t *testing.T) {
	w := newWorld(t, "refunds.js")
	w.question("refunds")
	b := w.tab("ada")
	b.opens("/workflows/refunds")
	x, y := b.spot("#do button")
	b.click("#pause-note")
	b.keys("stop since ")
	w.must(w.host.Pause(t.Context(), "refunds", keep.Decision{By: "ann", Note: "bob's"}))
	b.says("bob's")
	b.keys("order 11 is wrong")
	if got := eval[string](b, "document.activeElement.value + ''"); got != "stop since order 11 is wrong" {
		t.Errorf("the cursor is in what has %q", got)
	}
	b.mouse(x, y)
	b.mouse(b.spot("#do button"))
	if eval[bool](b, "!!document.querySelector('form[data-sent], #do [action$=resume]')") {
		t.Error("what was to pause it resumes it")
	}
	b.click("#do [role=status] a")
	b.lands("document.querySelector('#do [action$=resume]')")
	if wf, err := w.db.Workflow(context.Background(), "refunds"); err != nil || !wf.Paused {
		t.Errorf("paused: %v, %v", wf.Paused, err)
	}
}

// A list that is read again with the questions that it shows has these and no others, in their order, with what
// became of each, and says that there are others.
func TestListStays(t *testing.T) {
	d := newLinkDesk(t, memory.New())
	first, second := d.asked("a", nil), d.asked("b", func(q *keep.Escalation) { q.CreatedAt = q.CreatedAt.Add(time.Minute) })
	ask := pagesWith(t, d.db.(*memory.Store))
	shown := func(path string) (ids []string, body string) {
		t.Helper()
		a := ask("GET", path, nil)
		a.want(t, http.StatusOK)
		for _, m := range regexp.MustCompile(`name="on" value="([^"]*)"`).FindAllStringSubmatch(a.body, -1) {
			ids = append(ids, m[1])
		}
		return ids, a.body
	}
	for path, want := range map[string]string{"/inbox": "[esc_b]", "/inbox?on=esc_a": "[esc_a]", "/inbox?on=esc_a&on=esc_none&on=esc_b": "[esc_a esc_b]", "/inbox?show=each&on=esc_a": "[esc_a]"} {
		ids, body := shown(path)
		if fmt.Sprint(ids) != want || strings.Contains(body, `id="others"`) != (len(ids) == 1 && ids[0] == "esc_a") {
			t.Errorf("%s has %v, want %s:\n%s", path, ids, want, body)
		}
	}
	if _, body := shown("/inbox?on=esc_a"); !strings.Contains(body, "One of <b>2 questions</b>") {
		t.Errorf("a question that is not the newest is called that:\n%s", body)
	}
	d.decides(first, keep.Approve)
	ids, body := shown("/inbox?on=esc_a&on=esc_b")
	if fmt.Sprint(ids) != "[esc_a esc_b]" || !strings.Contains(body, "<strong>bob</strong> decided") || strings.Contains(body, `action="/inbox/esc_a"`) {
		t.Errorf("after one was answered the list has %v:\n%s", ids, body)
	}
	ask("POST", "/inbox/esc_a", url.Values{"action": {"reject"}, "from": {"inbox"}}).want(t, http.StatusConflict, "Already answered", "bob decided")
	if d.decision(second) != nil {
		t.Error("the other question was answered")
	}
}

// A session that ends leads to the login, but not away from what is being written; a form that is sent after it did
// nothing, says so, and has its text again after the login.
func TestWrittenWhenTheSessionEnds(t *testing.T) {
	d := newLinkDesk(t, memory.New())
	q := d.asked("a", nil)
	b := (&world{TB: t, site: d.site}).tab("ada")
	c := d.login(b)
	b.opens("/inbox?show=each")
	b.click("textarea")
	b.keys("looked at it")
	ends := func() {
		t.Helper()
		if err := d.db.DropCredential(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
	}
	ends()
	d.feed.Publish(feed.Change{Workflow: q.Workflow, Kinds: []feed.Kind{feed.Credential, feed.Escalation}})
	b.sees("document.querySelector('#ended').checkVisibility()")
	if got := eval[string](b, "document.querySelector('textarea').value"); got != "looked at it" {
		t.Fatalf("the field has %q after the session ended", got)
	}
	b.accessible("a page whose session ended")
	b.click("[value=approve]")
	b.lands("document.querySelector('h1')?.textContent == 'The session has ended'")
	b.accessible("the answer to a form whose session ended")
	if got := d.decision(q); got != nil {
		t.Fatalf("a form without a session decided %+v", got)
	}
	b.click("a.primary")
	b.lands("location.pathname == '/login'")
	token, _, err := access.Issue(t.Context(), d.db, keep.Credential{Kind: keep.CredentialToken, Name: "ada", Role: string(access.Operator)}, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	b.click("#token")
	b.keys(token + kb.Enter)
	b.lands("location.pathname == '/inbox' && !location.hash && document.querySelector('textarea')")
	if got := eval[string](b, "location.search + document.querySelector('textarea').value"); got != "?show=eachlooked at it" {
		t.Errorf("after the login the page has %q", got)
	}
	b.click("[value=approve]")
	b.says("Your decision is recorded.")
	if got := d.decision(q); got == nil || got.Note != "looked at it" {
		t.Errorf("the decision is %+v", got)
	}
	b.sees("sessionStorage.getItem('typed') === null") // which the page does when it is there
}

// What is answered with a file can be asked for again on the same page.
func TestBackupTwice(t *testing.T) {
	w := newWorld(t)
	w.site.Close()
	made := &copies{text: "the database"}
	w.serve(web.Config{Store: w.db, Actor: w.host, Backups: made})
	b := w.tab("root")
	call(b, network.SetCookie, network.SetCookieParams{Name: "role", Value: string(access.Admin), URL: w.site.URL})
	b.open("/settings")
	for i := range int32(2) {
		b.sees("!document.querySelector('form[action$=backup]').dataset.sent")
		b.click("form[action$=backup] button")
		w.until("a backup is downloaded", func() bool { return made.closed.Load() == i+1 })
	}
}

// On a phone the boxes of "Answer several" are large enough to be hit, and the palette leads to proposals.
func TestBoxesOnAPhone(t *testing.T) {
	d := newLinkDesk(t, memory.New())
	d.asked("a", func(q *keep.Escalation) { q.Question = strings.Repeat("May pay call bank.pay for a long time? ", 8) })
	b := d.sit()
	b.size(390, 844, chromedp.EmulateMobile)
	b.open("/inbox/together")
	if wide := eval[float64](b, "document.querySelector('.pick input').getBoundingClientRect().width"); wide < 18 {
		t.Errorf("a box is %v pixels wide", wide)
	}
	b.accessible("answer several")
	b.sees("document.querySelector('#palette a[href=\"/proposals\"]')")
	b.open("/inbox")
	b.accessible("inbox")
}

// Notes are as long as the field allows, in any script; an answer leads back to the list that it was given on, and
// to no other page.
func TestNotesAndLists(t *testing.T) {
	d := newLinkDesk(t, memory.New())
	ask := pagesWith(t, d.db.(*memory.Store))
	note := strings.TrimSpace(strings.Repeat("ж漢\r\n", 1333) + "ж") // 4000 characters, as a browser counts them
	for list, want := range map[string]string{
		"/inbox?workflow=w-b": "/inbox?workflow=w-b&did=decided", "/inbox?show=each&after=x": "/inbox?show=each&did=decided", "": "/inbox?did=decided",
		"https://elsewhere.example/?workflow=w&next=//x": "/inbox?workflow=w&did=decided", "/inbox?cause=a+b+c": "/inbox?cause=a+b+c&did=decided",
	} {
		q := d.asked(fmt.Sprint(len(list)), nil)
		ask("POST", "/inbox/"+string(q.ID), url.Values{"action": {"reject"}, "note": {note + "xx"}}).want(t, http.StatusBadRequest, "a note has at most 4000 characters")
		a := ask("POST", "/inbox/"+string(q.ID), url.Values{"action": {"reject"}, "from": {"inbox"}, "list": {list}, "note": {note}})
		a.want(t, http.StatusSeeOther)
		if got := a.header.Get("Location"); got != want {
			t.Errorf("from %q the answer leads to %s, want %s", list, got, want)
		}
		if got := d.decision(q); got == nil || got.Note != strings.ReplaceAll(note, "\r\n", "\n") {
			t.Errorf("the decision is %.100v", got)
		}
	}
}
