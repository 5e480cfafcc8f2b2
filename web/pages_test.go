package web_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/keep-run/keep/access"
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
	return w
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
			if link == "" || strings.HasPrefix(link, "#") || strings.HasPrefix(link, "/live") || seen[link] {
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
