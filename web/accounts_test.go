package web_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/web"
)

// A shelf keeps accounts as a host does, without a service behind them.
type shelf struct {
	mu    sync.Mutex
	list  []api.AccountDetail
	first func() // what happens right before one is revoked
}

func (s *shelf) List(context.Context) ([]api.AccountDetail, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]api.AccountDetail(nil), s.list...), nil
}

func (s *shelf) Test(_ context.Context, name string) error {
	if name == "work-mail" {
		return nil
	}
	return errors.New("the service answered <b>401</b>")
}

func (s *shelf) Renew(context.Context, string) error { return nil }

func (s *shelf) Revoke(_ context.Context, name string, of time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first != nil {
		s.first()
	}
	for i := range s.list {
		if at := time.Time(s.list[i].ConnectedAt); s.list[i].Name == name && !of.IsZero() && !of.Equal(at) {
			return fmt.Errorf("%s connected it since: %w", s.list[i].ConnectedBy, keep.ErrStale)
		}
		if s.list[i].Name == name {
			s.list[i].Status, s.list[i].Error = keep.AccountRevoked, nil
			if why := "the service was not told"; s.list[i].Style != "oauth2" {
				s.list[i].Error = &why
			}
		}
	}
	return nil
}

// shelved returns an account that works and one that needs a person.
func shelved() *shelf {
	now := time.Now()
	at, soon, why, whose := api.Time(now.Add(-time.Hour)), api.Time(now.Add(40*time.Minute)), `refused with "invalid_grant" <script>`, "ada@example.com"
	return &shelf{list: []api.AccountDetail{
		{Account: api.Account{Name: "crm", Pack: "hubspot", Style: "oauth2", Status: keep.AccountNeedsReconnect, Generation: 8, ConnectedBy: "ada", ConnectedAt: at,
			Error: &why, Workflows: []keep.WorkflowName{"mails"}}},
		{Account: api.Account{Name: "work-mail", Pack: "gmail", Style: "oauth2", Subject: &whose, Scopes: []string{"mail.read", "mail.send"}, Status: keep.AccountOK,
			Generation: 3, Renews: true, ExpiresAt: &soon, ConnectedBy: "ada", ConnectedAt: at, LastRefreshAt: &at, LastUsedAt: &at, Workflows: []keep.WorkflowName{"mails", "refunds"}},
			Refreshes: []api.Refresh{{Generation: 2, State: keep.RefreshDone, Host: "here", SentAt: at, EndedAt: &at}}},
	}}
}

// Everybody sees accounts; an admin tests, renews and revokes them.
func TestAccounts(t *testing.T) {
	w := newWorld(t)
	c := w.as("ada", access.Viewer)
	c.get("/accounts").want(t, 200, "No account is connected")
	w.site.Close()
	w.serve(web.Config{Store: w.db, Actor: w.host, Connections: w.conns, Accounts: shelved()})
	c = w.as("ada", access.Operator)
	c.get("/accounts").want(t, 200, "work-mail", "ada@example.com", "needs reconnect", "keep connect hubspot --name crm", "&lt;script&gt;", `href="/workflows/refunds"`)
	c.get("/accounts/work-mail").want(t, 200, "mail.send", "needs the role admin", "done")
	c.get("/accounts/nobody").want(t, 404, "nobody")
	c.post("/accounts/work-mail/revoke").want(t, 403, "admin")
	root := w.as("root", access.Admin)
	lost := root.get("/accounts/crm")
	if lost.want(t, 200, "Calls under it stop before anything is sent", "keep connect hubspot --name crm"); strings.Contains(lost.body, "/renew") {
		t.Error("an account that only a person can help is offered to be renewed")
	}
	root.post("/accounts/work-mail/sell").want(t, 404, "sell")
	root.post("/accounts/crm/test").want(t, 400, "&lt;b&gt;401")
	root.post("/accounts/work-mail/test").want(t, 200, "The service accepts the account.")
}

// Who connects an account finds the name under which keep.toml uses it and nobody connected one, and is offered nothing that is refused
// in any case; what a service refuses leads back to the account.
func TestConnectNamesWhatIsUsed(t *testing.T) {
	w := newWorld(t)
	w.site.Close()
	kept := shelved()
	kept.list = append(kept.list, api.AccountDetail{Account: api.Account{Name: "shop", Pack: "stripe", Style: "basic", Status: keep.AccountOK, Generation: 1, ConnectedBy: "ada", ConnectedAt: api.Time(time.Now())}},
		api.AccountDetail{Account: api.Account{Name: "typed", Pack: "slack", Style: "oauth2", Status: keep.AccountOK, Generation: 1, ConnectedBy: "ada", ConnectedAt: api.Time(time.Now())}})
	w.serve(web.Config{Store: w.db, Actor: w.host, Accounts: kept, Connector: offering{}})
	root := w.as("root", access.Admin)
	root.get("/connect").want(t, 200, "<code>keep.toml</code> uses <code>other-mail</code>, <code>work-mail</code>")
	root.get("/connect/gmail").want(t, 200, `name="name" value="other-mail"`, "<code>keep.toml</code> uses <code>other-mail</code>, <code>work-mail</code>")
	root.get("/connect/gmail?name=mine").want(t, 200, `name="name" value="mine"`)
	root.get("/connect/stripe").want(t, 200, `name="name" value="stripe"`)
	shop := root.get("/accounts/shop")
	if shop.want(t, 200, "/accounts/shop/test"); strings.Contains(shop.body, "/renew") {
		t.Error("new tokens are offered of a key that was typed")
	}
	typed := root.get("/accounts/typed")
	if typed.want(t, 200, "/accounts/typed/test", "end one that was typed in its settings"); strings.Contains(typed.body, "/renew") {
		t.Error("new tokens are offered of a token that was typed, where the service has OAuth")
	}
	root.get("/accounts/work-mail").want(t, 200, "/accounts/work-mail/renew")
	root.post("/accounts/shop/test").want(t, 400, "&lt;b&gt;401", `<a href="/accounts/shop">Show it</a>`)
	shop.want(t, 200, "The service cannot be told: end the key in its settings.")
	forgotten := root.post("/accounts/shop/revoke", formOf(t, shop.body)...)
	if forgotten.want(t, 200, "It was revoked here.", "the service was not told", "The service was not told: what it takes still stands below."); strings.Contains(forgotten.body, "the service was told") {
		t.Error("of a key the page says that the service was told that it ends")
	}
}

// In a browser, by day and by night and on a phone: an admin revokes an account, with a
// second press.
func TestAccountsInABrowser(t *testing.T) {
	w := newWorld(t)
	w.site.Close()
	w.serve(web.Config{Store: w.db, Actor: w.host, Connections: w.conns, Accounts: shelved()})
	b := w.tab("root")
	call(b, network.SetCookie, network.SetCookieParams{Name: "role", Value: string(access.Admin), URL: w.site.URL})
	for name, path := range map[string]string{"accounts": "/accounts", "account": "/accounts/work-mail", "account-lost": "/accounts/crm"} {
		b.open(path)
		for _, scheme := range []string{"light", "dark"} {
			b.prefer(scheme)
			b.accessible(name + ", " + scheme)
			b.shot(name + "-" + scheme)
		}
		b.size(390, 844, chromedp.EmulateMobile)
		b.shot(name + "-phone")
		b.fits(name)
		b.size(1200, 900)
	}
	b.open("/accounts/work-mail")
	b.click("form[action$='/test'] button")
	b.says("The service accepts the account.")
	b.click("details summary")
	b.click("form[action$='/revoke'] button")
	b.says("nothing of the account is kept here")
	b.sees("!document.querySelector('form[action$=\"/revoke\"]')")
}
