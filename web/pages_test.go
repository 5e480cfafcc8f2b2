package web_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/web"
)

// mails returns n mails; those below want are what tests name.
func mails(n int) []mail {
	var out []mail
	for i := range n {
		out = append(out, mail{ID: fmt.Sprintf("m%d", i+1), From: fmt.Sprintf("p%d@example.com", i+1), Subject: fmt.Sprintf("Invoice %d", 1000+i), Text: "Hello"})
	}
	return out
}

// fullWorld has something to show on every page: an unknown outcome, an approval, a
// script that fails, a service that is down, and items.
func fullWorld(tb testing.TB) *world {
	w := newWorld(tb, "broken.js", "flaky.js", "refunds.js", "reminders.js", "mails.js")
	w.desk.set(func(d *desk) { d.orders = []order{{"17", "lee@northwind.test", 40}, {"18", "sam@fabrikam.test", 25}} })
	w.began("mails", "poll")
	w.began("reminders", "remind")
	w.began("refunds", "ask")
	w.desk.set(func(d *desk) { d.mails = mails(2) })
	w.trigger("mails", "poll")
	w.desk.set(func(d *desk) { d.lose["/replies"] = true; d.mails = mails(6) })
	w.trigger("mails", "poll")
	w.trigger("reminders", "remind")
	w.question("mails")
	w.question("refunds")
	w.question("broken")
	w.changedItem()
	return w
}

// changedItem deploys a job with an item that was sent, failed, and now says
// something else: a person is asked what should become of it.
func (w *world) changedItem() {
	w.desk.set(func(d *desk) { d.letters = []order{{"5", "kim@example.com", 10}} })
	w.deploy("letters.js")
	q := w.question("letters")
	w.desk.set(func(d *desk) { d.letters[0].Amount = 12 })
	w.must(w.host.Decide(w.Context(), q.ID, keep.Decision{Action: keep.Retry, By: "ada", From: "web"}))
	w.until("the item is asked about", func() bool { return w.question("letters").Kind == keep.AskItem })
}

var hrefs = regexp.MustCompile(`(?:href|action|src|hx-sse:connect)="([^"]*)"`)

// Every page that any page leads to is there, keeps the policy of content security,
// and has no script, style or handler of its own.
func TestEveryLinkLeadsSomewhere(t *testing.T) {
	w := fullWorld(t)
	c := w.as("vera", access.Viewer)
	seen, queue := map[string]bool{"/": true}, []string{"/"}
	for len(queue) > 0 {
		path := queue[0]
		queue = queue[1:]
		a := c.get(path)
		if a.status != http.StatusOK {
			t.Errorf("GET %s = %d:\n%s", path, a.status, a.body)
			continue
		}
		if !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
			continue
		}
		checkSafe(t, path, a)
		for _, m := range hrefs.FindAllStringSubmatch(a.body, -1) {
			link := strings.ReplaceAll(m[1], "&amp;", "&")
			if link == "" || strings.HasPrefix(link, "#") || strings.HasPrefix(link, "/live") || link == "/login" || link == "/logout" || seen[link] {
				continue
			}
			if !strings.HasPrefix(link, "/") {
				t.Errorf("%s has a link that leaves: %s", path, link)
				continue
			}
			seen[link] = true
			queue = append(queue, link)
		}
	}
	if len(seen) < 60 {
		t.Errorf("only %d links were found", len(seen))
	}
}

var inline = regexp.MustCompile(`(?i)<script>|<script [^>]*>[^<]|<style|\sstyle=|\son[a-z]+=|javascript:|<iframe|<object|<embed`)

// checkSafe reports what a page must not have.
func checkSafe(t *testing.T, path string, a answer) {
	t.Helper()
	if got := inline.FindString(a.body); got != "" {
		t.Errorf("%s has %q", path, got)
	}
	if !strings.HasPrefix(a.header.Get("Content-Security-Policy"), "default-src 'self';") {
		t.Errorf("%s has the policy %q", path, a.header.Get("Content-Security-Policy"))
	}
	if strings.Contains(a.body, "<no value>") || strings.Contains(a.body, "%!") || strings.Contains(a.body, "ZgotmplZ") {
		t.Errorf("%s was not made well:\n%s", path, a.body)
	}
}

// bareOnly is a store that fails a test when a list reads payloads.
type bareOnly struct {
	database
	tb testing.TB
}

func (s bareOnly) check(what string, p keep.Page) {
	if !p.Bare {
		s.tb.Errorf("a page of %d %s was read with payloads", p.Size(), what)
	}
}

func (s bareOnly) Mutations(ctx context.Context, f keep.MutationFilter, p keep.Page) ([]keep.Mutation, string, error) {
	s.check("mutations", p)
	return s.database.Mutations(ctx, f, p)
}

func (s bareOnly) Events(ctx context.Context, f keep.EventFilter, p keep.Page) ([]keep.Event, string, error) {
	s.check("events", p)
	return s.database.Events(ctx, f, p)
}

func (s bareOnly) Runs(ctx context.Context, f keep.RunFilter, p keep.Page) ([]keep.Run, string, error) {
	s.check("runs", p)
	return s.database.Runs(ctx, f, p)
}

// A host does what people decide on the pages.
var _ api.Actor = (*host.Host)(nil)

func TestListsReadNoPayloads(t *testing.T) {
	w := fullWorld(t)
	w.site.Close()
	w.serve(web.Config{Store: bareOnly{w.db, t}, Actor: w.host, Connections: w.conns})
	c := w.as("vera", access.Viewer)
	for name, path := range w.views() {
		if name != "missing" {
			c.get(path).want(t, http.StatusOK)
		}
	}
	c.get("/mutations.csv").want(t, http.StatusOK)
}

// A payload of more than 64 KiB is shown in part, and whole in a file that no
// browser runs.
func TestLargePayload(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.began("mails", "poll")
	text := strings.Repeat("0123456789", 30_000) + "<script>alert(1)</script>the end"
	w.desk.set(func(d *desk) { d.mails = []mail{{"big", "p@example.com", "Big", text}} })
	w.trigger("mails", "poll")
	c := w.as("vera", access.Viewer)
	a := c.get("/event?workflow=mails&topic=mail.received&id=big")
	a.want(t, http.StatusOK, "this is its beginning", "293.0 KiB")
	if len(a.body) > 80<<10 || strings.Contains(a.body, "the end") {
		t.Errorf("the page of a large payload has %d bytes", len(a.body))
	}
	file := c.get("/event/payload?workflow=mails&topic=mail.received&id=big")
	file.want(t, http.StatusOK, text[len(text)-7:])
	h := file.header
	if h.Get("Content-Type") != "application/json" || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") ||
		h.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(h.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("the file came with %v", h)
	}
	ms, _, err := w.db.Mutations(t.Context(), keep.MutationFilter{Tool: "desk.reply"}, keep.Page{})
	w.must(err)
	c.get("/mutations/"+string(ms[0].Key)).want(t, http.StatusOK, "this is its beginning")
	c.get("/mutations/"+string(ms[0].Key)+"/payload").want(t, http.StatusOK, "the end")
}

// The ledger can be taken away as a file, as the filter says, and no spreadsheet
// runs what is in it.
func TestExport(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.began("mails", "poll")
	w.desk.set(func(d *desk) {
		d.mails = append(mails(3), mail{ID: "=cmd()", From: "=HYPERLINK(1)", Subject: "x, \"y\"", Text: "t"})
	})
	w.trigger("mails", "poll")
	c := w.as("vera", access.Viewer)
	rows, err := csv.NewReader(strings.NewReader(c.get("/mutations.csv").body)).ReadAll()
	w.must(err)
	if len(rows) != 9 || rows[0][0] != "key" {
		t.Errorf("%d lines, the first %v; want 9, the first with names", len(rows), rows[0])
	}
	for _, row := range rows {
		for _, cell := range row {
			if cell != "" && strings.ContainsAny(cell[:1], "=+-@") {
				t.Errorf("a cell begins like a formula: %q", cell)
			}
		}
	}
	var all, some []api.Mutation
	w.must(json.Unmarshal([]byte(c.get("/mutations.json").body), &all))
	w.must(json.Unmarshal([]byte(c.get("/mutations.json?tool=desk.reply").body), &some))
	if len(all) != 8 || len(some) != 4 || !strings.Contains(string(some[0].Payload), "text") {
		t.Errorf("%d and %d objects, want 8 and 4 with payloads", len(all), len(some))
	}
	if got := c.get("/mutations.json?workflow=nobody").body; got != "[\n\n]\n" {
		t.Errorf("an export of nothing is %q", got)
	}
	c.get("/mutations.csv?state=eaten").want(t, http.StatusBadRequest)
}

// Keyset pages lead through everything once, whatever comes in meanwhile.
func TestPages(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.began("mails", "poll")
	w.desk.set(func(d *desk) { d.mails = mails(120) })
	w.trigger("mails", "poll")
	c := w.as("vera", access.Viewer)
	seen := make(map[string]int)
	path, pages := "/inputs?status=done", 0
	for next := regexp.MustCompile(`href="([^"]*)" rel="next"`); path != ""; pages++ {
		a := c.get(path)
		a.want(t, http.StatusOK, `done <b>12`)
		for _, m := range regexp.MustCompile(`id="row-(in_[a-z0-9]+)"`).FindAllStringSubmatch(a.body, -1) {
			seen[m[1]]++
		}
		path = ""
		if m := next.FindStringSubmatch(a.body); m != nil {
			path = html.UnescapeString(m[1])
		}
		if pages == 0 {
			w.desk.set(func(d *desk) { d.mails = append(d.mails, mail{"new", "n@example.com", "New", "-"}) })
			w.must(w.db.Commit(t.Context(), keep.Commit{Workflow: "mails", At: keepNow(), Changes: lateInput()[:1]}))
		}
		if pages > 5 {
			t.Fatal("the pages do not end")
		}
	}
	if len(seen) < 120 || pages != 3 {
		t.Errorf("%d inputs on %d pages, want 120 on 3", len(seen), pages)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("input %s was on %d pages", id, n)
		}
	}
	c.get("/events?workflow=mails&topic=mail.answered").want(t, http.StatusOK, "mail.answered")
	c.get("/inputs?after=x7").want(t, http.StatusBadRequest, "Begin at its first page")
	c.get("/inputs?status=eaten").want(t, http.StatusBadRequest)
	c.get("/inputs?q="+strings.Repeat("a", 300)).want(t, http.StatusBadRequest)
	c.get("/inputs?q=invoice+1007").want(t, http.StatusOK, `all <b>1</b>`, "Invoice 1007")
	c.get("/inputs?q=nowhere").want(t, http.StatusOK, "No input matches")
}
