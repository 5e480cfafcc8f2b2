package web_test

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/keep-run/keep/internal/browsertest"
	"github.com/keep-run/keep/internal/pgtest"
)

func TestMain(m *testing.M) {
	code := pgtest.Main(m)
	browsertest.Stop()
	if rt, err := sandboxes(); err == nil {
		rt.Close()
	}
	os.Exit(code)
}

// A tab is somebody at a browser. What the browser complains about fails the test.
type tab struct {
	*world
	ctx   context.Context
	width int64
	axe   bool // its pages have axe-core
}

// tab opens a tab of somebody who may act.
func (w *world) tab(who string) *tab {
	w.Helper()
	t := &tab{world: w, ctx: browsertest.Tab(w)}
	w.must(chromedp.Listen(t.ctx, t.hear))
	call(t, log.Enable, cdp.Empty{})
	call(t, network.SetCookie, network.SetCookieParams{Name: "who", Value: who, URL: w.site.URL})
	t.size(1200, 900)
	return t
}

// hear takes what the browser says: errors of scripts, and what was refused.
func (t *tab) hear(ev any) {
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		t.Errorf("a script failed: %s", ev.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		if ev.Entry.Level == "error" && !strings.Contains(ev.Entry.Text, "the server responded with a status of 4") && !strings.Contains(ev.Entry.Text, "ERR_INCOMPLETE_CHUNKED_ENCODING") {
			t.Errorf("the browser says: %s (%s)", ev.Entry.Text, ev.Entry.URL)
		}
	}
}

// step returns the context of one thing that is done in the tab. A browser that hangs ends the test within a minute,
// however many pages it goes through.
func (t *tab) step() (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.ctx, time.Minute)
}

// call sends a command of the protocol.
func call[P, R any](t *tab, c cdp.Command[P, R], params P) {
	t.Helper()
	ctx, done := t.step()
	defer done()
	_, err := chromedp.Run(ctx, chromedp.Action[R](func(ctx context.Context, target *chromedp.Target) (R, error) {
		return cdp.Call(ctx, target, c, params)
	}))
	t.must(err)
}

// size sets the size of the window.
func (t *tab) size(w, h int64, opts ...chromedp.EmulateViewportOption) {
	t.Helper()
	t.width = w
	ctx, done := t.step()
	defer done()
	t.must(chromedp.Do(ctx, chromedp.EmulateViewport(w, h, opts...)))
}

// prefer sets what the system asks for, light or dark.
func (t *tab) prefer(scheme string) {
	t.Helper()
	call(t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
}

// open loads a page.
func (t *tab) open(path string) {
	t.Helper()
	ctx, done := t.step()
	defer done()
	t.must(chromedp.Do(ctx, chromedp.Navigate(t.site.URL+path)))
}

// eval evaluates JavaScript in the page.
func eval[T any](t *tab, code string) T {
	t.Helper()
	ctx, done := t.step()
	defer done()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](code, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", code, err)
	}
	return v
}

// sees waits until a condition holds in the page.
func (t *tab) sees(condition string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	ctx, done := t.step()
	defer done()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		// While a page is loaded there may be nothing to ask.
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`!!(`+condition+`)`))
		if err == nil && ok {
			return
		}
		if time.Now().After(deadline) {
			t.shot("failed")
			t.Fatalf("waited a minute for %s (%v); the page is %s:\n%s", condition, err, eval[string](t, "location.href"), eval[string](t, "document.body.innerText"))
		}
	}
}

// lands waits until another page is there as a whole.
func (t *tab) lands(condition string) {
	t.Helper()
	t.sees(condition + " && document.readyState == 'complete'")
}

// leaves presses what a selector finds, and waits until the page to which that leads is there as a whole. The mark
// is of the window: what is in the document, a live page may replace.
func (t *tab) leaves(selector string) {
	t.Helper()
	eval[int](t, "window.left = 1")
	t.click(selector)
	t.lands("!window.left && document.querySelector('h1')")
}

// says waits until the page shows a text.
func (t *tab) says(text string) {
	t.Helper()
	t.sees(fmt.Sprintf("document.querySelector('#main').innerText.includes(%q)", text))
}

// click presses what a selector finds.
func (t *tab) click(selector string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, time.Minute)
	defer cancel()
	if err := browsertest.Click(ctx, selector); err != nil {
		t.Fatalf("click %s: %v", selector, err)
	}
}

// keys presses keys.
func (t *tab) keys(keys string, opts ...chromedp.KeyOption) {
	t.Helper()
	ctx, done := t.step()
	defer done()
	t.must(chromedp.Do(ctx, chromedp.KeyEvent(keys, opts...)))
}

// shot saves a picture of the whole page, if KEEP_SCREENSHOTS names a directory.
func (t *tab) shot(name string) {
	t.Helper()
	dir := os.Getenv("KEEP_SCREENSHOTS")
	if dir == "" {
		return
	}
	ctx, done := t.step()
	defer done()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	t.must(err)
	t.must(os.MkdirAll(dir, 0o755))
	t.must(os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
}

//go:embed testdata/axe.min.js
var axe string

// accessible reports what axe-core finds wrong with the page: all of it, or by some rules.
func (t *tab) accessible(name string, rules ...string) {
	t.Helper()
	only := ""
	if len(rules) > 0 {
		only = fmt.Sprintf(`runOnly: ["%s"], `, strings.Join(rules, `", "`))
	}
	if !t.axe { // given once, for this page and all that follow
		t.axe = true
		call(t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: axe, RunImmediately: new(true)})
	}
	found := eval[[]string](t, `axe.run({`+only+`resultTypes: ["violations"]}).then(r => r.violations.flatMap(v => v.nodes.map(n => v.id + ": " + n.html.slice(0, 160) + " " + (n.any[0] ? n.any[0].message : ""))))`)
	for _, f := range found {
		t.Errorf("%s: %s", name, f)
	}
}
