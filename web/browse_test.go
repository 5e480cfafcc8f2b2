package web_test

import (
	"testing"

	"github.com/chromedp/chromedp"
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
		"runs":        "/runs",
		"run":         "/runs/" + string(q.Run),
		"run-failed":  "/runs/" + string(w.question("broken").Run),
		"workflows":   "/workflows",
		"workflow":    "/workflows/mails",
		"version":     "/workflows/mails/versions/1.0",
		"events":      "/events?workflow=mails",
		"event":       "/event?workflow=mails&topic=mail.received&id=m1",
		"items":       "/items",
		"item":        "/item?workflow=reminders&id=order:17",
		"mutations":   "/mutations",
		"mutation":    "/mutations/" + string(q.Mutation),
		"connections": "/connections",
		"keys":        "/keys",
		"settings":    "/settings",
		"missing":     "/nowhere",
	}
}

// Every page, on a wide screen and on a phone, by day and by night, has nothing
// that axe-core finds fault with, and fits.
func TestEveryViewIsAccessible(t *testing.T) {
	w := fullWorld(t)
	b := w.tab("ada")
	for name, path := range w.views() {
		b.open(path)
		for _, scheme := range []string{"light", "dark"} {
			b.prefer(scheme)
			b.accessible(name + ", " + scheme)
			b.shot(name + "-" + scheme)
		}
		b.prefer("light")
		b.size(390, 844, chromedp.EmulateMobile)
		b.shot(name + "-phone")
		b.fits(name)
		b.size(1200, 900)
	}
}

// fits reports a page that is wider than the window.
func (t *tab) fits(name string) {
	t.Helper()
	if over := eval[float64](t, `document.documentElement.scrollWidth - screen.width`); over > 0 {
		t.Errorf("%s is %v pixels wider than the window: %s", name, over, eval[string](t, `
			[...document.querySelectorAll("#page *")].filter(e => e.getBoundingClientRect().right > screen.width + 1)
				.slice(0, 5).map(e => e.outerHTML.slice(0, 120)).join("\n")`))
	}
}
