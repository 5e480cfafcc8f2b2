package oauth_test

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/keep-run/keep/host/account/oauth"
	"github.com/keep-run/keep/internal/browsertest"
	"github.com/keep-run/keep/internal/oidctest"
)

// A person allows access in Chromium, at a real OAuth server. Whatever else comes to the
// address that waits, and however the person ends it, is a clear end: in the browser, and of
// the call.
func TestLoopbackInBrowser(t *testing.T) {
	srv := oidctest.Start(t, oidctest.Options{Rotate: true})
	b := browser{t, browsertest.Tab(t)}
	c := client(srv, "public")
	// loopback does act while it waits for the answer, with the page, the address of the
	// answer and its state.
	loopback := func(ctx context.Context, act func(page, back, state string)) (oauth.Tokens, error) {
		return c.Loopback(ctx, oauth.LoopbackOptions{Open: func(page string) error {
			u, err := url.Parse(page)
			if err != nil {
				return err
			}
			act(page, u.Query().Get("redirect_uri"), u.Query().Get("state"))
			return nil
		}})
	}
	var code string // of an answer that was used
	got, err := loopback(t.Context(), func(page, back, state string) {
		b.sees(back+"?code=stolen&state=guessed", "belongs to another attempt")
		b.sees(back+"?code=stolen", "belongs to another attempt")
		b.sees(back+"?code=stolen&state="+url.QueryEscape(state)+"&state=twice", "belongs to another attempt")
		// A name of somebody else's that leads to this machine, as after DNS rebinding.
		b.sees(strings.Replace(back, "127.0.0.1", "evil.localhost", 1)+"?code=stolen&state="+url.QueryEscape(state), "for this machine only")
		// A page of another origin cannot read the answer, and what it sends changes nothing.
		b.open(srv.Issuer + "/.well-known/openid-configuration")
		if got := b.script(`fetch(` + strconv.Quote(back+"?code=stolen&state=guessed") + `).then(r => "read " + r.status, e => "could not read")`); got != "could not read" {
			t.Errorf("a page of another origin %s", got)
		}
		b.script(`fetch(` + strconv.Quote(back) + `, {method: "POST", mode: "no-cors", body: "code=stolen"}).then(r => r.type, e => "error")`)
		code = b.allow(page, "ann")
	})
	if err != nil || got.Refresh == "" || got.Subject != "ann@example.com" {
		t.Errorf("allowed: %+v, %v", got, err)
	}
	_, err = loopback(t.Context(), func(_, back, state string) {
		b.sees(back+"?"+url.Values{"code": {code}, "state": {state}}.Encode(), "Nothing was connected")
	})
	if r, refused := errors.AsType[*oauth.RefusedError](err); !refused || r.Code != "invalid_grant" || code == "" {
		t.Errorf("a code that was used: %q gave %v", code, err)
	}
	_, err = loopback(t.Context(), func(page, _, _ string) {
		b.open(page)
		b.click(`a[href$="/abort"]`)
		b.shows("Nothing was connected")
	})
	if !errors.Is(err, oauth.ErrDenied) {
		t.Errorf("a person who said no: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	closed := errors.New("nobody decided")
	_, err = loopback(ctx, func(page, _, _ string) {
		b.open(page)
		if err := chromedp.Cancel(b.ctx); err != nil { // closes the tab
			t.Error(err)
		}
		cancel(closed) // the time is over
	})
	if !errors.Is(err, closed) {
		t.Errorf("a closed tab: %v", err)
	}
}

// A browser is a tab of Chromium.
type browser struct {
	*testing.T
	ctx context.Context
}

func (b browser) open(page string) {
	b.Helper()
	if err := chromedp.Do(b.ctx, chromedp.Navigate(page)); err != nil {
		b.Fatal(err)
	}
}

// script returns what JavaScript in the page comes to.
func (b browser) script(code string) string {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](code, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("%s: %v", code, err)
	}
	return v
}

// click waits for an element and clicks it.
func (b browser) click(selector string) {
	b.Helper()
	if err := chromedp.Do(b.ctx, chromedp.Click(chromedp.CSS(selector))); err != nil {
		b.Fatalf("click %s: %v", selector, err)
	}
}

// sees opens a page that says something.
func (b browser) sees(page, text string) {
	b.Helper()
	b.open(page)
	b.shows(text)
}

// shows waits until the page says something.
func (b browser) shows(text string) {
	b.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); ; <-tick.C {
		// While a page is loaded there may be nothing to ask.
		got, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body.innerText`))
		if err == nil && strings.Contains(got, text) {
			return
		}
		if time.Now().After(end) {
			b.Fatalf("the page says %q, %v; want %q", got, err, text)
		}
	}
}

// allow logs in and allows what is asked for. It returns the code of the answer.
func (b browser) allow(page, who string) string {
	b.Helper()
	b.open(page)
	b.script(`document.querySelector("[name=login]").value = ` + strconv.Quote(who) + `; document.querySelector("[name=password]").value = "any"`)
	b.click("button[type=submit]")
	b.shows("Continue")
	b.click("button[type=submit]")
	b.shows("Connected")
	u, err := url.Parse(b.script(`location.href`))
	if err != nil {
		b.Fatal(err)
	}
	return u.Query().Get("code")
}
