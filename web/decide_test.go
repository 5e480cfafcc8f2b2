package web_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/host/link"
	"github.com/keep-run/keep/internal/browsertest"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/web"
)

// A linkDesk is the pages behind a login, over a store with questions, and the links to them.
type linkDesk struct {
	testing.TB
	db    store.Store
	links *link.Links
	site  *httptest.Server
	feed  *feed.Feed
	now   func() time.Time // of who records answers
}

func newLinkDesk(tb testing.TB, db store.Store) *linkDesk {
	tb.Helper()
	d := &linkDesk{TB: tb, db: db, feed: feed.New(64), now: time.Now}
	actor, err := operator.New(db, operator.Config{Now: func() time.Time { return d.now() }})
	if err != nil {
		tb.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(tb.Output(), nil))
	pages, err := web.New(web.Config{Store: db, Actor: actor, Feed: d.feed, Logger: log})
	if err != nil {
		tb.Fatal(err)
	}
	d.site = httptest.NewUnstartedServer(nil)
	d.links = link.New(db, "http://"+d.site.Listener.Addr().String()+"/", []keep.Sink{"webhook", "on_escalation"})
	guard, err := access.New(access.Config{Store: db, Links: d.links, Logger: log})
	if err != nil {
		tb.Fatal(err)
	}
	d.site.Config.Handler = guard.Handler(pages)
	d.site.Start()
	tb.Cleanup(func() {
		d.site.CloseClientConnections() // streams do not end by themselves
		d.site.Close()
	})
	return d
}

// asked opens a question of a workflow of its own.
func (d *linkDesk) asked(id string, change func(*keep.Escalation)) keep.Escalation {
	d.Helper()
	now := time.Now().UTC().Truncate(time.Millisecond)
	w := keep.WorkflowName("w-" + strings.ReplaceAll(id, "_", "-"))
	run := keep.Run{ID: keep.RunID("run_" + id), Chain: keep.RunID("run_" + id), Workflow: w, Version: keep.Version{Major: 1}, Handler: "pay", Kind: keep.Consumer, Phase: keep.Prepared,
		Status: keep.StatusApproval, Error: keep.Failf(keep.ClassPermission, "approval-needed", "waits"), CreatedAt: now, UpdatedAt: now}
	q := keep.Escalation{ID: keep.EscalationID("esc_" + id), Kind: keep.AskApproval, Workflow: w, Run: run.ID, Question: "May pay call bank.pay?", Attempted: "bank.pay on to=bob with 7 EUR",
		PayloadHash: "c0ffee", Choices: []keep.Choice{{Action: keep.Approve, Label: "Approve", Effect: "makes this very call"}, {Action: keep.Reject, Label: "Reject", Effect: "sends nothing"}},
		CreatedAt: now, ExpiresAt: now.Add(time.Hour),
		Approval: &keep.Approval{Tool: "bank.pay", Target: "bob", Payload: []byte(`{"to":"bob@example.com","text":"<script>alert(1)</script>"}`), Version: keep.Version{Major: 1}}}
	if change != nil {
		change(&q)
	}
	if q.Run == "" {
		q.Run = run.ID
	}
	for _, c := range [][]keep.Change{{keep.Deploy{Deployment: keep.Deployment{Workflow: w, Version: keep.Version{Major: 1}, Hash: "h", Entry: "w.js", Code: []byte("x"), CreatedAt: now}}},
		{keep.PutRun{Run: run}, keep.OpenEscalation{Escalation: q}}} {
		if err := d.db.Commit(d.Context(), keep.Commit{Workflow: w, At: now, Changes: c}); err != nil {
			d.Fatal(err)
		}
	}
	d.feed.Publish(feed.Change{Workflow: w, Kinds: []feed.Kind{feed.Escalation}})
	return q
}

// to returns the link of a question, and its code.
func (d *linkDesk) to(q keep.Escalation, sink keep.Sink) link.Link {
	d.Helper()
	l, err := d.links.To(d.Context(), q, sink)
	if err != nil {
		d.Fatal(err)
	}
	return l
}

// ask sends a request, and follows nothing.
func (d *linkDesk) ask(method, page string, form url.Values) answer {
	d.Helper()
	r, err := http.NewRequestWithContext(d.Context(), method, page, strings.NewReader(form.Encode()))
	if err != nil {
		d.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(r)
	if err != nil {
		d.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		d.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, page, string(body)}
}

// press sends the form of a link's page.
func (d *linkDesk) press(l link.Link, action keep.Action) answer {
	d.Helper()
	page, _, _ := strings.Cut(l.URL, "?")
	return d.ask("POST", page, url.Values{"code": {l.Code}, "action": {string(action)}, "note": {"seen"}})
}

func (d *linkDesk) decision(q keep.Escalation) *keep.Decision {
	d.Helper()
	got, err := d.db.Escalation(d.Context(), q.ID)
	if err != nil {
		d.Fatal(err)
	}
	return got.Decision
}

// To look at a link decides nothing, however often and by whom; the press decides, once, and
// the page shows what was decided, and nothing else any more.
func TestLinkShowsAndPressDecides(t *testing.T) {
	d := newLinkDesk(t, memory.New())
	q, other := d.asked("1", nil), d.asked("2", nil)
	l := d.to(q, "webhook")
	for _, method := range []string{"GET", "HEAD", "GET"} {
		for _, page := range []string{l.URL, l.URL + "&action=approve", l.URL + "&action=approve&confirm=1"} {
			a := d.ask(method, page, url.Values{"action": {"approve"}, "code": {l.Code}})
			if a.status != http.StatusOK || a.header.Get("Referrer-Policy") != "no-referrer" || a.header.Get("Cache-Control") != "no-store" || a.header.Get("X-Robots-Tag") != "noindex" {
				t.Errorf("%s: %d %v", method, a.status, a.header)
			}
			if method == "GET" {
				a.want(t, http.StatusOK, "May pay call bank.pay?", "bob@example.com", "&lt;script&gt;", "c0ffee", "Approve", "Reject", "whoever has it may decide")
				for _, never := range []string{"<script", string(other.ID), "/inbox", "/workflows", "w-2"} {
					if strings.Contains(a.body, never) {
						t.Errorf("the page of one question has %q", never)
					}
				}
			}
		}
	}
	if got := d.decision(q); got != nil {
		t.Fatalf("looking decided: %+v", got)
	}
	d.press(l, keep.Approve).want(t, http.StatusSeeOther)
	if got := d.decision(q); got == nil || got.Action != keep.Approve || got.By != "link sent to webhook" || got.From != "link" || got.Note != "seen" {
		t.Errorf("the decision is %+v", got)
	}
	after := d.ask("GET", l.URL, nil)
	after.want(t, http.StatusOK, "link sent to webhook", "decided “Approve”", "cannot be used again")
	if strings.Contains(after.body, "bob@example.com") || strings.Contains(after.body, "<button") {
		t.Error("after the answer the page shows the call, or offers to decide")
	}
	d.press(l, keep.Reject).want(t, http.StatusConflict, "link sent to webhook decided “Approve” at", "your answer was not recorded")
	d.press(d.to(q, "on_escalation"), keep.Reject).want(t, http.StatusConflict, "link sent to webhook decided “Approve” at")
	if d.decision(other) != nil {
		t.Error("another question was decided")
	}
}

// Each refusal says why, and changes nothing.
func TestLinkRefused(t *testing.T) {
	d := newLinkDesk(t, memory.New())
	q, other := d.asked("1", nil), d.asked("2", nil)
	l := d.to(q, "webhook")
	page := func(q keep.Escalation) string { return d.site.URL + "/decide/" + string(q.ID) }
	wrong := "its code is not right, or its question is not there any more"
	for name, a := range map[string]answer{
		"another question's code": d.ask("GET", page(other)+"?code="+l.Code, nil),
		"no code":                 d.ask("GET", page(q), nil),
		"code in the address":     d.ask("POST", page(q)+"?code="+l.Code, url.Values{"action": {"approve"}}),
		"no such question":        d.ask("GET", d.site.URL+"/decide/esc_9?code="+l.Code, nil),
		"upper case":              d.ask("POST", page(q), url.Values{"code": {strings.ToUpper(l.Code)}, "action": {"approve"}}),
		"a sink that is not here": d.ask("POST", page(q), url.Values{"code": {d.to(q, "pager").Code}, "action": {"approve"}}),
	} {
		if a.status != http.StatusNotFound || !strings.Contains(a.body, wrong) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	d.press(l, "").want(t, http.StatusBadRequest, "no action was chosen")
	d.press(l, keep.Skip).want(t, http.StatusConflict, "it cannot be decided by a link")
	d.ask("PUT", l.URL, nil).want(t, http.StatusMethodNotAllowed, "decide with POST")
	for _, path := range []string{"/inbox", "/inbox/" + string(q.ID), "/api/v1/escalations", "/decide", "/decide/"} { // a code opens nothing else
		if a := d.ask("GET", d.site.URL+path+"?code="+l.Code, nil); a.status != http.StatusUnauthorized && a.status != http.StatusNotFound && a.status != http.StatusForbidden {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", page(q), strings.NewReader(url.Values{"code": {l.Code}, "action": {"approve"}}.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if res, err := http.DefaultClient.Do(r); err != nil || res.StatusCode != http.StatusForbidden {
		t.Errorf("a form of another site: %v, %v", res, err)
	}
	for _, q := range []keep.Escalation{q, other} {
		if got := d.decision(q); got != nil {
			t.Errorf("%s was decided: %+v", q.ID, got)
		}
	}
}

// A link ends with its question: at its end, with a deploy, and when it is closed.
func TestLinkEnds(t *testing.T) {
	d := newLinkDesk(t, memory.New())
	ended := d.asked("1", func(q *keep.Escalation) { q.ExpiresAt = q.CreatedAt.Add(-time.Second) })
	d.ask("GET", d.to(ended, "webhook").URL, nil).want(t, http.StatusOK, "it ended at", "the run asks again", "cannot be used again")
	d.press(d.to(ended, "webhook"), keep.Approve).want(t, http.StatusConflict, "it ended at", "the run asks again")
	deployed := d.asked("2", nil)
	if err := d.db.Commit(t.Context(), keep.Commit{Workflow: deployed.Workflow, At: time.Now(), Changes: []keep.Change{keep.Deploy{Deployment: keep.Deployment{
		Workflow: deployed.Workflow, Version: keep.Version{Major: 2}, Hash: "i", Entry: "w.js", Code: []byte("y"), CreatedAt: time.Now()}}}}); err != nil {
		t.Fatal(err)
	}
	d.ask("GET", d.to(deployed, "webhook").URL, nil).want(t, http.StatusOK, "version 2.0 is current")
	d.press(d.to(deployed, "webhook"), keep.Approve).want(t, http.StatusConflict, "version 2.0 is current")
	old := d.asked("3", func(q *keep.Escalation) {
		q.Kind, q.Approval, q.ExpiresAt, q.CreatedAt = keep.AskRetries, nil, time.Time{}, q.CreatedAt.Add(-8*24*time.Hour)
		q.Choices = []keep.Choice{{Action: keep.Retry, Label: "Retry"}, {Action: keep.Skip, Label: "Skip"}}
	})
	d.ask("GET", d.to(old, "webhook").URL, nil).want(t, http.StatusOK, "the link ended at")
	d.press(d.to(old, "webhook"), keep.Retry).want(t, http.StatusConflict, "the link ended at", "log in to answer")
	closed := d.asked("4", nil)
	if err := d.db.Commit(t.Context(), keep.Commit{Workflow: closed.Workflow, At: time.Now(), Changes: []keep.Change{keep.CloseEscalation{ID: closed.ID}}}); err != nil {
		t.Fatal(err)
	}
	d.press(d.to(closed, "webhook"), keep.Approve).want(t, http.StatusConflict, "since it no longer applied")
	huge := d.asked("5", func(q *keep.Escalation) { q.Attempted = strings.Repeat("x", 70<<10) })
	if a := d.ask("GET", d.to(huge, "webhook").URL, nil); strings.Contains(a.body, `value="approve"`) || !strings.Contains(a.body, `value="reject"`) {
		t.Error("a page that does not show all offers to approve it, or not to reject it")
	}
	d.press(d.to(huge, "webhook"), keep.Approve).want(t, http.StatusBadRequest, "does not show all of what would be sent")
	for _, q := range []keep.Escalation{ended, deployed, old, closed, huge} {
		if got := d.decision(q); got != nil {
			t.Errorf("%s was decided: %+v", q.ID, got)
		}
	}
}

// Who guesses has ten tries, and who has the right code is not held up by him.
func TestLinkGuessed(t *testing.T) {
	d := newLinkDesk(t, memory.New())
	q := d.asked("1", nil)
	got := map[int]int{}
	for i := range 15 {
		got[d.press(link.Link{URL: d.to(q, "webhook").URL, Code: fmt.Sprint("guess", i)}, keep.Approve).status]++
	}
	if got[http.StatusNotFound] != 10 || got[http.StatusTooManyRequests] != 5 || d.decision(q) != nil {
		t.Errorf("15 guesses: %v, decision %+v", got, d.decision(q))
	}
	d.press(d.to(q, "webhook"), keep.Reject).want(t, http.StatusSeeOther)
}

// Of presses at once, on two hosts that share a Postgres, one decides, and the others are
// told who was first. A link that one host sent is good on the other.
func TestLinkOnTwoHosts(t *testing.T) {
	where := pgtest.SchemaURL(t)
	var hosts [2]*linkDesk
	for i := range hosts {
		db := postgres.New(where, postgres.Config{Host: true, Conns: 5})
		if err := db.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		hosts[i] = newLinkDesk(t, db)
	}
	q := hosts[0].asked("1", nil)
	var mu sync.Mutex
	got := map[int]int{}
	var wg sync.WaitGroup
	for i := range 6 {
		h, action := hosts[i%2], []keep.Action{keep.Approve, keep.Reject}[i%2]
		l := hosts[0].to(q, "webhook")
		l.URL = h.site.URL + "/decide/" + string(q.ID)
		wg.Go(func() {
			a := h.press(l, action)
			mu.Lock()
			defer mu.Unlock()
			if got[a.status]++; a.status == http.StatusConflict && !strings.Contains(a.body, "link sent to webhook decided") {
				t.Errorf("who was second reads: %s", a.body)
			}
		})
	}
	wg.Wait()
	if got[http.StatusSeeOther] != 1 || got[http.StatusConflict] != 5 {
		t.Errorf("six presses: %v, want one that decides", got)
	}
}

// In a browser, on a phone and on a desk, the question fits, and the press decides.
func TestLinkInABrowser(t *testing.T) {
	d := newLinkDesk(t, memory.New())
	for i, width := range []int64{390, 1280} {
		q := d.asked(fmt.Sprint(i), nil)
		p := browsertest.Sit(t)
		if err := chromedp.Do(p.Context, chromedp.EmulateViewport(width, 844)); err != nil {
			t.Fatal(err)
		}
		p.Open(d.to(q, "webhook").URL)
		if wide := p.Script(`String(document.documentElement.scrollWidth <= window.innerWidth)`); wide != "true" {
			t.Errorf("at %d px the page is wider than the window", width)
		}
		if d.decision(q) != nil {
			t.Fatal("opening the link decided")
		}
		p.Click(`button[value="reject"]`)
		for deadline, done := context.WithTimeout(t.Context(), time.Minute); ; {
			text := p.Script(`document.body ? document.body.innerText : ""`)
			if strings.Contains(text, "cannot be used again") || deadline.Err() != nil {
				done()
				break
			}
		}
		if got := d.decision(q); got == nil || got.Action != keep.Reject || got.By != "link sent to webhook" {
			t.Errorf("at %d px the press decided %+v", width, got)
		}
		if from := p.Script(`document.referrer`); from != "" {
			t.Errorf("the referrer is %q", from)
		}
	}
}
