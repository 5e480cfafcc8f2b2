//go:build unix

package main

import (
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/internal/browsertest"
)

// served is a running host of the diary's project, and how to come in.
func (d *diary) served() *serving {
	d.Helper()
	d.write("one.js", `export default Keep.workflow({ name: "one", topics: {},
  producers: { read: { schedule: { cron: "0 0 1 1 *", timezone: "UTC" }, async handler(ctx) { await ctx.diary.days({}); } } } });`)
	s := &serving{t: d.T, bin: buildKeep(d.T), dir: d.dir, env: append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(d.T))}
	s.start()
	return s
}

// admitted returns an admin at a browser.
func (d *serving) admitted() browsertest.Person {
	d.t.Helper()
	b := browsertest.Sit(d.t)
	b.Open(d.keep("login"))
	b.Click("button")
	b.Shows("Workflows")
	return b
}

// An admin connects an account in Chromium, on the pages, with a real OAuth server. Whatever
// else comes to the address of the answer is a clear end, and connects nothing.
func TestConnectOnThePages(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	s := d.served()
	b := s.admitted()
	b.Sees(s.base+"/accounts", "No account is connected")
	b.Click(`main a[href="/connect"]`)
	b.Shows("Diary")
	b.Click(`a[href="/connect/diary"]`)
	b.Shows(s.base + "/callback")
	b.Write("#c-name", "diary")
	b.Click("main button.primary")
	b.Shows("One step is left")
	page, err := url.Parse(b.Script(`document.querySelector("#allow").href`))
	if err != nil {
		t.Fatal(err)
	}
	asked := page.Query()
	if asked.Get("code_challenge_method") != "S256" || len(asked.Get("state")) < 43 || asked.Get("redirect_uri") != s.base+"/callback" {
		t.Errorf("the service is asked with %v", asked)
	}
	back := s.base + "/callback?"
	b.Sees(back+"code=stolen&state=guessed", "belongs to another attempt")
	b.Sees(back+"code=stolen", "belongs to another attempt")
	b.Sees(back+"code=stolen&state="+url.QueryEscape(asked.Get("state"))+"&state=twice", "belongs to another attempt")

	// Neither another login of an admin, nor who is none, nor a page of another origin can
	// use the answer or begin anything.
	other := s.admitted()
	other.Sees(back+"code=stolen&state="+url.QueryEscape(asked.Get("state")), "belongs to another attempt")
	operator := browsertest.Sit(t)
	operator.Open(s.base + "/login")
	operator.Write("[name=token]", s.keep("token", "add", "op", "--role", "operator"))
	operator.Click("button")
	operator.Shows("Workflows")
	operator.Sees(s.base+"/connect", "needs the role admin")
	operator.Sees(back+"code=stolen&state="+url.QueryEscape(asked.Get("state")), "needs the role admin")
	b.Open(d.oauth.Issuer + "/.well-known/openid-configuration")
	for _, to := range []string{"/connect/diary", "/callback?code=stolen&state=guessed"} {
		if got := b.Script(`fetch(` + strconv.Quote(s.base+to) + `, {method: "POST", credentials: "include", body: new URLSearchParams({name: "evil"})}).then(r => "read " + r.status, e => "could not read")`); got != "could not read" {
			t.Errorf("a page of another origin %s of %s", got, to)
		}
	}
	if list := d.accounts(); len(list) != 0 {
		t.Fatalf("connected before anybody allowed it: %+v", list)
	}

	b.Open(page.String())
	b.Allow("ann", "Connected. What waited for the account continues.")
	list := d.accounts()
	if len(list) != 1 || list[0].Status != keep.AccountOK || *list[0].Subject != "ann@example.com" || list[0].Generation != 1 {
		t.Fatalf("accounts are %+v", list)
	}
	b.Shows("ann@example.com")
	b.Shows("mail.read")
	if at := b.Script(`location.href`); strings.Contains(at, "code=") {
		t.Errorf("the code is in the address: %s", at)
	}
	b.Sees(back+"code=stolen&state="+url.QueryEscape(asked.Get("state")), "was used already")
	b.Open(s.base + "/accounts/diary")
	b.Click("form[action$='/test'] button")
	b.Shows("The service accepts the account.")

	// A person who says no.
	b.Open(s.base + "/connect/diary?name=diary")
	b.Shows("takes its place")
	b.Click("main button.primary")
	b.Click("#allow")
	b.Click(`a[href$="/abort"]`)
	b.Shows("refused on the page of the service")
	if list := d.accounts(); len(list) != 1 || list[0].Generation != 1 {
		t.Errorf("after a person said no: %+v", list)
	}
}

// An admin pastes the key of a service on the pages. It is shown nowhere.
func TestConnectAKeyOnThePages(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	d.write("packs/keyed.toml", "name = \"keyed\"\nversion = \"1\"\ntitle = \"Keyed\"\ndocs = \"https://example.com\"\nbase_url = \"http://127.0.0.1:1\"\n[auth]\nstyle = \"basic\"\n"+
		"[tools.days]\neffect = \"list\"\ndescription = \"D.\"\npath = \"/days\"\nparams = { type = \"object\", properties = {} }\nresult = { type = \"array\" }\nexample = {}\n")
	d.write("keep.toml", "[connections.keyed]\nconnector = \"keyed\"\naccount = \"shop\"\n")
	s := &serving{t: t, bin: buildKeep(t), dir: d.dir, env: append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))}
	d.write("one.js", `export default Keep.workflow({ name: "one", topics: { t: {} }, jobs: { j: { schedule: { cron: "0 0 1 1 *" }, async handler(ctx) {} } } });`)
	s.start()
	b := s.admitted()
	b.Open(s.base + "/connect/keyed?name=shop")
	b.Write("#c-value", "no colon")
	b.Click("main button.primary")
	b.Shows("wants user:password")
	b.Open(s.base + "/connect/keyed?name=shop")
	b.Write("#c-value", "ann:canary-of-a-password")
	b.Click("main button.primary")
	b.Shows("Connected.")
	if page := b.Script(`document.documentElement.outerHTML`); strings.Contains(page, "canary") {
		t.Error("the page shows the key")
	}
	var list []api.Account
	if list = d.accounts(); len(list) != 1 || list[0].Name != "shop" || list[0].Status != keep.AccountOK {
		t.Errorf("accounts are %+v", list)
	}
	if res, _ := s.ask("GET", "/connect", ""); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("who is not logged in gets %s", res.Status)
	}
}
