package oauth_test

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"

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
	b := browsertest.Sit(t)
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
		b.Sees(back+"?code=stolen&state=guessed", "belongs to another attempt")
		b.Sees(back+"?code=stolen", "belongs to another attempt")
		b.Sees(back+"?code=stolen&state="+url.QueryEscape(state)+"&state=twice", "belongs to another attempt")
		// A name of somebody else's that leads to this machine, as after DNS rebinding.
		b.Sees(strings.Replace(back, "127.0.0.1", "evil.localhost", 1)+"?code=stolen&state="+url.QueryEscape(state), "for this machine only")
		// A page of another origin cannot read the answer, and what it sends changes nothing.
		b.Open(srv.Issuer + "/.well-known/openid-configuration")
		if got := b.Script(`fetch(` + strconv.Quote(back+"?code=stolen&state=guessed") + `).then(r => "read " + r.status, e => "could not read")`); got != "could not read" {
			t.Errorf("a page of another origin %s", got)
		}
		b.Script(`fetch(` + strconv.Quote(back) + `, {method: "POST", mode: "no-cors", body: "code=stolen"}).then(r => r.type, e => "error")`)
		b.Open(page)
		code = b.Allow("ann", "Connected").Query().Get("code")
	})
	if err != nil || got.Refresh == "" || got.Subject != "ann@example.com" {
		t.Errorf("allowed: %+v, %v", got, err)
	}
	_, err = loopback(t.Context(), func(_, back, state string) {
		b.Sees(back+"?"+url.Values{"code": {code}, "state": {state}}.Encode(), "Nothing was connected")
	})
	if r, refused := errors.AsType[*oauth.RefusedError](err); !refused || r.Code != "invalid_grant" || code == "" {
		t.Errorf("a code that was used: %q gave %v", code, err)
	}
	_, err = loopback(t.Context(), func(page, _, _ string) {
		b.Open(page)
		b.Click(`a[href$="/abort"]`)
		b.Shows("Nothing was connected")
	})
	if !errors.Is(err, oauth.ErrDenied) {
		t.Errorf("a person who said no: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	closed := errors.New("nobody decided")
	_, err = loopback(ctx, func(page, _, _ string) {
		b.Open(page)
		if err := chromedp.Cancel(b.Context); err != nil { // closes the tab
			t.Error(err)
		}
		cancel(closed) // the time is over
	})
	if !errors.Is(err, closed) {
		t.Errorf("a closed tab: %v", err)
	}
}
