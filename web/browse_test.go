package web_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/web"
)

// views are the pages that everybody sees, with what has to be on them.
func (w *world) views() map[string]string {
	w.Helper()
	q := w.question("mails")
	return map[string]string{
		"home":        "/",
		"inputs":      "/inputs",
		"input":       "/inputs/" + string(w.inputOf(q)),
		"bulk":        "/skip-inputs?workflow=mails",
		"inbox":       "/inbox",
		"question":    "/inbox/" + string(q.ID),
		"approval":    "/inbox/" + string(w.question("refunds").ID),
		"changed":     "/inbox/" + string(w.question("letters").ID),
		"run-retried": "/runs/" + string(w.question("letters").Run),
		"runs":        "/runs",
		"run":         "/runs/" + string(q.Run),
		"run-failed":  "/runs/" + string(w.question("broken").Run),
		"workflows":   "/workflows",
		"workflow":    "/workflows/mails",
		"version":     "/workflows/mails/versions/1.0",
		"checkpoint":  "/workflows/mails/checkpoint?handler=poll",
		"events":      "/events?workflow=mails",
		"event":       "/event?workflow=mails&topic=mail.received&id=m1",
		"items":       "/items",
		"item":        "/item?workflow=reminders&id=order:17",
		"mutations":   "/mutations",
		"mutation":    "/mutations/" + string(q.Mutation),
		"connections": "/connections",
		"hooks":       "/hooks",
		"budgets":     "/budgets",
		"proposals":   "/proposals",
		"keys":        "/keys",
		"settings":    "/settings",
		"missing":     "/nowhere",
	}
}

// On a phone, a tablet, a laptop and a wide screen every page fits, and by day and by night it has nothing that
// axe-core finds fault with; it has at most 200 KB, and no script but ours and htmx.
func TestEveryViewIsAccessible(t *testing.T) {
	w := fullWorld(t)
	w.past("mails", "refunds", "reminders", "letters")
	b := w.tab("ada")
	views := w.views()
	views["confirm"] = "/inbox/" + string(w.question("mails").ID) + "/confirm?action=did-not-happen"
	views["confirm-together"] = "/inbox/together/confirm?action=did-not-happen&id=" + string(w.question("mails").ID)
	views["confirm-key"], views["key"] = w.unknownKey()+"/confirm?action=did-not-happen", w.unknownKey()
	views["confirm-item"] = "/item/confirm?workflow=reminders&id=order:17"
	views["together"], views["each-run"], views["home-hour"] = "/inbox/together", "/runs?each=1", "/?over=hour"
	views["redo"] = "/redo?input=" + string(w.inputOf(w.question("mails")))
	c := w.as("ada", access.Operator)
	for name, path := range views {
		if a := c.get(path); len(a.body) > 200<<10 || a.header.Get("Content-Security-Policy") == "" || strings.Contains(a.header.Get("Content-Security-Policy"), "unsafe") {
			t.Errorf("%s has %d bytes, and the policy %q", name, len(a.body), a.header.Get("Content-Security-Policy"))
		}
		b.size(1280, 900)
		b.open(path)
		b.looksGood(name)
		if high := eval[int64](b, `document.documentElement.scrollHeight`); strings.HasPrefix(name, "run-") && high > 5*844/2 {
			t.Errorf("%s is %d pixels high on a phone, want about two screens", name, high)
		}
	}

	// What an author gets when a button is pressed.
	w.give("mails", "desk.mails", "desk.reply")
	call(b, network.SetCookie, network.SetCookieParams{Name: "role", Value: string(access.Author), URL: w.site.URL})
	press := func(name, path, change, button string) {
		b.size(1280, 900)
		b.open(path)
		b.looksGood(name + "-before")
		b.size(1280, 900)
		eval[int](b, change+"; 0")
		b.leaves(button)
		b.looksGood(name)
	}
	const check = `button[value=check]`
	press("plan", "/workflows/mails", "", `form[action$="/plan"] button`)
	const text = `var t = document.querySelector("#d-text-0"); t.value = `
	press("deploy-checked", "/workflows/mails/deploy", text+`t.value.replace("Re: ", "Answer: ")`, check)
	press("deploy-wrong", "/workflows/mails/deploy", text+`"export default {"`, check)

	// What only an admin sees.
	w.site.Close()
	w.serve(web.Config{Store: w.db, Actor: w.host, Connections: w.conns, Accounts: shelved(), Secrets: filled(), Backups: &copies{}, Connector: offering{}})
	call(b, network.SetCookie, network.SetCookieParams{Name: "role", Value: string(access.Admin), URL: w.site.URL})
	admins := map[string]string{
		"secrets": "/secrets", "secret": "/secrets/bank", "secret-elsewhere": "/secrets/crm", "secret-unusable": "/secrets/github-hook", "secret-missing": "/secrets/slack",
		"settings-admin": "/settings", "audit": "/audit", "accounts": "/accounts", "account": "/accounts/work-mail",
		"connect": "/connect", "connect-key": "/connect/stripe", "connect-again": "/connect/gmail?name=work-mail", "connect-missing": "/connect/hubspot",
		"proposal": "/proposals/" + w.proposed("mails"),
	}
	for name, path := range admins {
		b.size(1280, 900)
		b.open(path)
		b.looksGood(name)
	}

	press("connecting", "/connect/gmail", "", `form[action="/connect/gmail"] button`)

	everyPage(t, slices.Concat(slices.Collect(maps.Values(views)), slices.Collect(maps.Values(admins)), []string{"/workflows/mails/deploy", "/deploy"}))
}

// An author finds the page for a new workflow, gives its script, looks at what the check says, and deploys it: in a
// browser, with nothing on the way that axe-core finds fault with.
func TestDeployNewInABrowser(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.began("mails", "poll")
	b := w.tab("anna")
	call(b, network.SetCookie, network.SetCookieParams{Name: "role", Value: string(access.Author), URL: w.site.URL})
	b.size(1280, 900)
	b.open("/workflows")
	says := func(what, words string) {
		t.Helper()
		if text := eval[string](b, "document.querySelector('main').innerText"); !strings.Contains(text, words) {
			t.Errorf("%s does not say %q:\n%s", what, words, text)
		}
	}
	typed := func(file, text string) {
		eval[int](b, fmt.Sprintf(`document.querySelector("#d-name").value = %q; document.querySelector("#d-text-0").value = %q; 0`, file, text))
	}
	const check = `button[value=check]`
	b.leaves(`a[href="/deploy"]`)
	says("the page", "Deploy a new workflow")
	b.looksGood("deploy-new")
	b.size(1280, 900)
	typed("mails.js", strings.Replace(fresh, `"fresh"`, `"mails"`, 1))
	b.leaves(check)
	says("the check of a name that is taken", "declares the workflow mails, which is there already, in version 1.0")
	b.looksGood("deploy-new-taken")
	b.size(1280, 900)
	b.leaves(`button[formaction]`)
	says("what was typed, as a version of the other", "What changes in mails.js")
	b.open("/deploy")
	typed("fresh.js", fresh)
	b.leaves(check)
	says("the check", "The script can be deployed, as the workflow fresh")
	b.looksGood("deploy-new-checked")
	b.size(1280, 900)
	b.leaves(`button[value=deploy]`)
	says("the proposal", "waits in Inbox until a person agrees")
	if _, err := w.db.Proposals(t.Context(), "fresh"); err != nil || w.question("fresh").ID == "" {
		t.Errorf("nothing waits: %v", err)
	}
}

// offering has packs of which accounts can be connected: by a page of the service, by a key, and
// not yet.
type offering struct{ web.Connector }

// Offers returns them.
func (offering) Offers(context.Context) ([]web.Offer, error) {
	return []web.Offer{
		{Pack: "gmail", Names: []string{"other-mail", "work-mail"}, Title: "Gmail", OAuth: true, Style: "oauth2", Docs: "https://developers.google.com/gmail/api"},
		{Pack: "hubspot", Title: "HubSpot", OAuth: true, Style: "oauth2", Missing: `packs.hubspot of keep.toml has no client_id <b>`},
		{Pack: "stripe", Title: "Stripe", Style: "bearer", Docs: "https://docs.stripe.com/api"},
	}, nil
}

// Begin returns a page of the service.
func (offering) Begin(context.Context, access.Identity, string, string, string, time.Time) (page string, scopes []string, err error) {
	return "https://accounts.example.com/allow?client=1", []string{"mail.read", "mail.send"}, nil
}

// proposed returns the id of a version of a workflow that a repair wrote, and that waits for a person.
func (w *world) proposed(name keep.WorkflowName) string {
	w.Helper()
	d, err := w.db.Deployment(w.Context(), name, w.version(name).Version)
	w.must(err)
	before := d.Version
	d.Hash, d.Code = "of-a-repair", append([]byte("// another\n"), d.Code...)
	out, err := w.host.Operator.DeployGranted(w.Context(), d, &before, operator.Consent{Giver: operator.Giver{By: "rep_1", From: string(keep.OriginRepair)}, Repair: true, Ask: true})
	w.must(err)
	return fmt.Sprintf("%s@%s", name, out.Waiting.Version)
}

// shownPage is the registration of a page that is reached by GET.
var shownPage = regexp.MustCompile(`s\.show(?:To)?\(mux, (?:access\.\w+, )?"(GET [^"]+)"`)

// everyPage fails for pages of the site that are not among those that were looked at.
func everyPage(t *testing.T, looked []string) {
	t.Helper()
	source, err := os.ReadFile("web.go")
	if err != nil {
		t.Fatal(err)
	}
	routes, seen := http.NewServeMux(), make(map[string]bool)
	for _, m := range shownPage.FindAllStringSubmatch(string(source), -1) {
		seen[m[1]] = false
		routes.HandleFunc(m[1], func(http.ResponseWriter, *http.Request) {})
	}
	if len(seen) < 30 {
		t.Fatalf("web.go has %d pages", len(seen))
	}
	for _, path := range looked {
		_, pattern := routes.Handler(httptest.NewRequest(http.MethodGet, path, http.NoBody))
		seen[pattern] = true
	}
	for pattern, seen := range seen {
		if !seen {
			t.Errorf("nobody looks at the page %s: add it to the views", pattern)
		}
	}
}

// looksGood reports what is wrong with the page, on every kind of screen, by day and by night.
func (b *tab) looksGood(name string) {
	b.Helper()
	if got := eval[string](b, `[...document.scripts].map(s => new URL(s.src).pathname.split("/").pop()).sort().join(" ")`); got != "app.js htmx.min.js hx-sse.min.js theme.js" {
		b.Errorf("%s has the scripts %s", name, got)
	}
	for _, width := range []int64{1920, 768, 1280, 390} { // the last is a phone
		if width == 390 {
			b.size(width, 844, chromedp.EmulateMobile)
		} else {
			b.size(width, 900)
		}
		b.fits(fmt.Sprintf("%s at %d", name, width))
		for _, scheme := range []string{"light", "dark"} {
			b.prefer(scheme)
			what := fmt.Sprintf("%s at %d, %s", name, width, scheme)
			wide := width == 1920 || width == 768 // styles know phones and all others: from 1280 differs only what fits
			switch {
			case wide && scheme == "light":
				b.accessible(what, "scrollable-region-focusable")
			case wide: // dark changes nothing but colours
			case scheme == "light":
				b.accessible(what)
			default:
				b.accessible(what, "color-contrast")
			}
			b.shot(fmt.Sprintf("%s-%d-%s", name, width, scheme))
		}
	}
}

// unknownKey returns the page of a key whose outcome nobody knows.
func (w *world) unknownKey() string {
	w.Helper()
	now := keepNow()
	r := key.Record{ID: key.NewID("h", "caller", "order-7"), Version: key.Version, Key: "order-7", Method: "POST", Path: "/orders",
		State: key.Unknown, Fence: 1, CreatedAt: now, UpdatedAt: now, ExpiresAt: now.Add(48 * time.Hour), DoubtAt: now}
	if old, err := w.keys.Read(w.Context(), r.ID); err != nil || old.Rev == 0 {
		w.must(w.keys.Write(w.Context(), r))
	}
	return "/keys/" + r.ID.String()
}

// fits reports a page that is wider than the window.
func (t *tab) fits(name string) {
	t.Helper()
	if wide := eval[int64](t, `document.documentElement.scrollWidth`); wide > t.width {
		t.Errorf("%s is %d pixels wide, and the window %d: %s", name, wide, t.width, eval[string](t, fmt.Sprintf(`
			[...document.querySelectorAll("#page *")].filter(e => e.getBoundingClientRect().right > %d)
				.slice(0, 5).map(e => e.outerHTML.slice(0, 120)).join("\n")`, t.width+1)))
	}
}

// What somebody else does appears without a reload, also in a form that is being
// filled in, and what is typed stays.
func TestLive(t *testing.T) {
	w := fullWorld(t)
	q := w.question("refunds")
	ada, bob := w.tab("ada"), w.tab("bob")
	ada.open("/inbox")
	bob.open("/inbox")
	note := "#note-" + string(w.question("mails").ID)
	ada.sees("document.querySelector('#live-state').textContent == 'live'")
	ada.click(note)
	ada.keys("looked at it")
	bob.sees("document.querySelector('#live-state').textContent == 'live'")
	bob.click(fmt.Sprintf("#q-%s [value=approve]", q.ID))
	bob.says("Your decision is recorded.")
	ada.sees(fmt.Sprintf("document.querySelector('#q-%s').innerText.includes('bob decided')", q.ID))
	ada.sees("document.querySelector('#open-count').textContent.includes('3')")
	if got := eval[string](ada, fmt.Sprintf("document.querySelector('%s').value", note)); got != "looked at it" {
		t.Errorf("the note is %q after the update", got)
	}
	if got := eval[string](ada, "document.activeElement.id"); "#"+got != note {
		t.Errorf("the cursor is in %q after the update", got)
	}
	ada.open("/inputs")
	ada.says("needs you")
	ada.sees("document.querySelector('#live-state').textContent == 'live'")
	w.desk.set(func(d *desk) { d.lose["/replies"] = false })
	bob.open("/inbox/" + string(w.question("mails").ID))
	bob.click("[value=did-not-happen]")
	bob.says("send it again?")
	bob.click("button.danger")
	ada.sees("[...document.querySelectorAll('#inputs .row')].filter(r => r.innerText.includes('mails')).every(r => r.innerText.includes('done'))")
	ada.open("/workflows/mails")
	ada.says("idle")
	ada.sees("document.querySelector('#live-state').textContent == 'live'")
	w.must(w.host.Pause(t.Context(), "mails", keep.Decision{By: "ann"}))
	ada.says("paused")
	ada.shot("live-paused")
}

// An answer that is no page leaves the page as it was, and says so.
func TestLiveAfterTheSession(t *testing.T) {
	w := newWorld(t, "refunds.js")
	w.question("refunds")
	b := w.tab("ada")
	b.open("/workflows/refunds")
	b.sees("document.querySelector('#live-state').textContent == 'live'")
	call(b, network.SetCookie, network.SetCookieParams{Name: "role", Value: "none", URL: w.site.URL})
	w.must(w.host.Pause(t.Context(), "refunds", keep.Decision{By: "ann"}))
	b.sees("document.querySelector('#live-state').textContent == 'not up to date: the server answers 403'")
	b.says("refund.wanted")
}

// Updates do not depend on which script arrives first: htmx does not begin before
// its extension is there.
func TestLiveWithSlowScripts(t *testing.T) {
	w := newWorld(t, "refunds.js")
	w.question("refunds")
	gate := make(chan struct{})
	pages := w.site
	w.site = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/static/hx-sse.min.js" {
			<-gate
		}
		pages.Config.Handler.ServeHTTP(rw, r)
	}))
	defer pages.Close()
	b := w.tab("ada")
	eval[string](b, fmt.Sprintf("location.href = '%s/workflows/refunds'", w.site.URL))
	b.sees("location.pathname == '/workflows/refunds' && window.htmx")
	eval[bool](b, "new Promise(done => setTimeout(done, 0, true))") // what htmx put off would be done now
	close(gate)
	b.sees("document.querySelector('#live-state').textContent == 'live'")
}

// A host that is restarted is found again.
func TestReconnect(t *testing.T) {
	w := newWorld(t, "refunds.js")
	w.question("refunds")
	b := w.tab("ada")
	b.open("/workflows/refunds")
	b.sees("document.querySelector('#live-state').textContent == 'live'")
	w.site.CloseClientConnections() // as a proxy or a restart does
	w.must(w.host.Pause(t.Context(), "refunds", keep.Decision{By: "ann"}))
	b.says("paused")
}

// All of it can be done with the keyboard.
func TestKeyboard(t *testing.T) {
	w := fullWorld(t)
	b := w.tab("ada")
	b.open("/")
	b.sees("document.documentElement.classList.contains('js')")
	b.keys("?")
	b.sees("document.querySelector('#help').open")
	b.shot("help")
	b.keys(kb.Escape)
	b.sees("!document.querySelector('#help').open")
	b.keys("j")
	b.keys("j")
	b.sees("document.querySelectorAll('[data-row]')[1].classList.contains('here')")
	b.keys("k")
	b.sees("document.querySelectorAll('[data-row]')[0].classList.contains('here')")
	b.keys(kb.Enter)
	b.lands("location.pathname.startsWith('/inbox/esc_')")
	b.keys("k", chromedp.KeyModifiers(chromedp.ModifierCtrl))
	b.sees("document.querySelector('#palette').open")
	b.keys("remind")
	b.sees("document.querySelectorAll('#palette li:not([hidden])').length == 3")
	b.shot("palette")
	b.keys(kb.Enter)
	b.lands("location.pathname == '/workflows/reminders'")
	b.keys("k", chromedp.KeyModifiers(chromedp.ModifierCtrl))
	b.sees("document.querySelector('#palette').open")
	b.keys("invoice 1002")
	b.sees("document.querySelectorAll('#palette li:not([hidden])').length == 2")
	b.keys(kb.Enter)
	b.lands("location.pathname == '/inputs' && location.search.includes('1002')")
	b.says("Invoice 1002")
	b.keys("/")
	b.sees("document.activeElement.type == 'search'")
	b.keys("refund" + kb.Enter)
	b.lands("location.search.includes('refund')")
	b.open("/inbox")
	q := w.question("refunds")
	for range 3 {
		b.keys("j")
		if eval[bool](b, fmt.Sprintf("document.querySelector('#q-%s').classList.contains('here')", q.ID)) {
			break
		}
	}
	b.shot("keyboard-row")
	b.keys("2") // reject
	b.says("Your decision is recorded.")
	got, err := w.db.Escalation(t.Context(), q.ID)
	w.must(err)
	if got.Decision == nil || got.Decision.Action != keep.Reject {
		t.Errorf("the key 2 decided %+v, want reject", got.Decision)
	}
	b.keys(kb.Tab)
	if got := eval[string](b, "document.activeElement.textContent"); got != "Skip to content" {
		t.Errorf("the first Tab leads to %q", got)
	}
}

// Without JavaScript everything is there, in UTC, and can be decided.
func TestWithoutJavaScript(t *testing.T) {
	w := fullWorld(t)
	b := w.tab("ada")
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.open("/inbox")
	b.sees("!document.documentElement.classList.contains('js')")
	b.says("UTC")
	b.shot("no-javascript")
	q := w.question("refunds")
	b.click(fmt.Sprintf("#q-%s [value=approve]", q.ID))
	b.says("Your decision is recorded.")
	b.open("/inputs")
	b.click("form.filters input[type=search]")
	b.keys("1002" + kb.Enter)
	b.sees("location.search.includes('1002')")
	b.says("Invoice 1002")
	b.click(".row a.title")
	b.sees("location.pathname.startsWith('/inputs/in_')")
	b.open("/workflows/mails")
	b.click("form[action$=pause] button")
	b.says("The workflow is paused.")
}

// The theme follows the system, or what was chosen, and stays.
func TestTheme(t *testing.T) {
	w := newWorld(t)
	b := w.tab("ada")
	color := func() string { return eval[string](b, "getComputedStyle(document.body).backgroundColor") }
	b.prefer("dark")
	b.open("/")
	dark := color()
	b.prefer("light")
	light := color()
	if dark == light {
		t.Errorf("the same colour %s by day and by night", dark)
	}
	b.click("#theme")
	b.sees("document.documentElement.dataset.theme == 'dark'")
	b.open("/settings")
	if got := color(); got != dark {
		t.Errorf("the next page has %s, want %s", got, dark)
	}
	b.open("/")
	b.says("There are no workflows yet")
	b.accessible("an empty home")
	b.shot("empty-home")
}

// Times are in the reader's zone, and exact in UTC on hover.
func TestTimes(t *testing.T) {
	w := newWorld(t, "refunds.js")
	q := w.question("refunds")
	b := w.tab("ada")
	call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"})
	b.open("/settings")
	b.open("/runs/" + string(q.Run))
	b.sees("!document.querySelector('.story time').textContent.includes('UTC')")
	if got := eval[string](b, "document.querySelector('.story time').title"); !strings.HasSuffix(got, " UTC") {
		t.Errorf("on hover there is %q", got)
	}
	if !eval[bool](b, `(() => {
		const t = document.querySelector(".story time"), d = new Date(t.dateTime);
		return t.textContent.includes(":" + String((d.getUTCMinutes() + 30) % 60).padStart(2, "0") + ":");
	})()`) {
		t.Errorf("%s is shown as %s in Kolkata", eval[string](b, "document.querySelector('.story time').title"), eval[string](b, "document.querySelector('.story time').textContent"))
	}
}

// What comes from outside can't run, hide, or break the page.
func TestHostileContent(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.began("mails", "poll")
	w.desk.set(func(d *desk) {
		d.lose["/replies"] = true
		d.mails = []mail{
			{"<img src=x onerror=alert(1)>", `"><script>alert(2)</script>`, `<script>document.title="owned"</script>`, "</pre><script>alert(3)</script>"},
			{"javascript:alert(4)", "javascript:alert(5)", "javascript:alert(6)", "x"},
			{"bidi", "b@example.com", "invoice\u202Efdp.exe \u2066hidden\u2069 \u200Bzero", "\u202Ereversed"},
			{"zalgo", "z@example.com", strings.Repeat("Z\u0310\u0352\u0346\u030a", 200), "x"},
			{"html", "h@example.com", `' onmouseover='alert(7)' x='{{.}}<!--`, "x"},
		}
	})
	w.trigger("mails", "poll")
	long := lateInput() // the host cuts titles; a page must not count on it
	in := long[0].(keep.PutInput)
	in.Input.Title = strings.Repeat("W", 10<<20)
	long[0] = in
	w.must(w.db.Commit(t.Context(), keep.Commit{Workflow: "mails", At: keepNow(), Changes: long}))
	q := w.question("mails")
	b := w.tab("ada")
	for _, path := range []string{"/", "/inputs", "/inputs/" + string(w.inputOf(q)), "/inputs/" + string(in.Input.ID), "/inbox", "/inbox/" + string(q.ID), "/runs/" + string(q.Run),
		"/mutations", "/mutations/" + string(q.Mutation), "/events?workflow=mails", "/inputs?q=%3Cscript%3Ealert(8)%3C/script%3E", "/event?workflow=mails&topic=mail.received&id=bidi",
		"/event?workflow=mails&topic=mail.received&id=" + url.QueryEscape("<img src=x onerror=alert(1)>")} {
		b.open(path)
		b.sees("document.readyState == 'complete'")
		if got := eval[string](b, "document.title"); !strings.HasSuffix(got, "Keep") {
			t.Errorf("%s has the title %q", path, got)
		}
		bad := eval[[]string](b, `[...document.querySelectorAll("*")].filter(e =>
			e.tagName == "SCRIPT" && (!e.src || new URL(e.src).origin != location.origin) || e.tagName == "IMG" || e.tagName == "IFRAME" ||
			[...e.attributes].some(a => a.name.startsWith("on")) || (e.href && String(e.href).startsWith("javascript:"))).map(e => e.outerHTML.slice(0, 200))`)
		for _, e := range bad {
			t.Errorf("%s has %s", path, e)
		}
		if text := eval[string](b, "document.body.innerText"); strings.ContainsAny(text, "\u202e\u2066\u200b") {
			t.Errorf("%s shows characters that hide", path)
		}
		if path == "/inputs" {
			b.says(`invoice⟨U+202E⟩fdp.exe`)
			b.shot("hostile")
			b.size(390, 844, chromedp.EmulateMobile)
			b.fits(path)
			b.size(1200, 900)
		}
		b.fits(path)
	}
}
