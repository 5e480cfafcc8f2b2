package browsertest

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// A Person is somebody at a tab of Chromium.
type Person struct {
	testing.TB
	Context context.Context // of the tab
}

// Sit returns a person at a new tab.
func Sit(tb testing.TB) Person {
	tb.Helper()
	return Person{tb, Tab(tb)}
}

// step returns the context of one thing that is done in the tab: what never comes fails the test within two minutes.
func (b Person) step() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.Context, 2*time.Minute)
}

// Open opens a page.
func (b Person) Open(page string) {
	b.Helper()
	ctx, done := b.step()
	defer done()
	if err := chromedp.Do(ctx, chromedp.Navigate(page)); err != nil {
		b.Fatalf("open %s: %v", page, err)
	}
}

// Script returns what JavaScript in the page comes to.
func (b Person) Script(code string) string {
	b.Helper()
	ctx, done := b.step()
	defer done()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[string](code, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("%s: %v", code, err)
	}
	return v
}

// Click waits for an element and clicks it.
func (b Person) Click(selector string) {
	b.Helper()
	ctx, done := b.step()
	defer done()
	if err := Click(ctx, selector); err != nil {
		b.Fatalf("click %s: %v", selector, err)
	}
}

// Click waits for an element in the page of a tab and clicks it. One that a live page replaces
// between the two was not clicked, and is looked for again.
func Click(ctx context.Context, selector string) error {
	for {
		err := chromedp.Do(ctx, chromedp.Click(chromedp.CSS(selector)))
		if err == nil || !strings.Contains(err.Error(), "Could not find node with given id") {
			return err
		}
	}
}

// Write puts a text into a field.
func (b Person) Write(selector, text string) {
	b.Helper()
	b.Script(`document.querySelector(` + strconv.Quote(selector) + `).value = ` + strconv.Quote(text))
}

// Sees opens a page that says something.
func (b Person) Sees(page, text string) {
	b.Helper()
	b.Open(page)
	b.Shows(text)
}

// Shows waits until a page that was read to its end says something.
func (b Person) Shows(text string) {
	b.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	ctx, done := b.step()
	defer done()
	for end := time.Now().Add(time.Minute); ; <-tick.C {
		// While a page is loaded there may be nothing to ask.
		got, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.readyState == "loading" ? "" : document.body.innerText`))
		if err == nil && strings.Contains(got, text) {
			return
		}
		if time.Now().After(end) {
			b.Fatalf("the page says %q, %v; want %q", got, err, text)
		}
	}
}

// Allow logs in at the server of package oidctest, whose page is open, and allows what is
// asked for. It returns the address to which that leads, which says something.
func (b Person) Allow(who, says string) *url.URL {
	b.Helper()
	b.Shows("Sign-in")
	b.Write("[name=login]", who)
	b.Write("[name=password]", "any")
	b.Click("button[type=submit]")
	b.Shows("Continue")
	b.Click("button[type=submit]")
	b.Shows(says)
	u, err := url.Parse(b.Script(`location.href`))
	if err != nil {
		b.Fatal(err)
	}
	return u
}
