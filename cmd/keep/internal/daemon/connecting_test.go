package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/host/account"
	"github.com/keep-run/keep/host/account/seal"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/web"
)

// diaryOf returns a configuration with a service at an address.
func diaryOf(t *testing.T, at string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	pack := "name = \"diary\"\nversion = \"1\"\ntitle = \"Diary\"\ndocs = \"https://example.com\"\nbase_url = \"" + at + "\"\n[auth]\nstyle = \"oauth2\"\nauthorize_url = \"" + at + "/auth\"\n" +
		"token_url = \"" + at + "/token\"\n[tools.days]\neffect = \"list\"\ndescription = \"D.\"\npath = \"/days\"\nscopes = []\nparams = { type = \"object\", properties = {} }\nresult = { type = \"array\" }\nexample = {}\n"
	for name, text := range map[string]string{"packs/diary.toml": pack, "keep.toml": "[packs.diary]\nclient_id = \"id\"\n[connections.b]\nconnector = \"diary\"\naccount = \"work\"\n[connections.a]\nconnector = \"diary\"\naccount = \"home\"\n[connections.c]\nconnector = \"diary\"\naccount = \"work\"\n"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := config.Load(config.Options{File: filepath.Join(dir, "keep.toml"), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// An answer counts once, in the login that began it, within ten minutes; and what is begun is
// bounded.
func TestConnecting(t *testing.T) {
	cfg := diaryOf(t, "http://127.0.0.1:1")
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := &Connecting{Accounts: account.New(account.Config{Store: memory.New(), Ring: cfg.Ring}), Config: func() *config.Config { return cfg }, Now: func() time.Time { return now }}
	ann, bob := access.Identity{Name: "ann", ID: "login-1"}, access.Identity{Name: "ann", ID: "login-2"}
	begin := func() url.Values {
		t.Helper()
		page, _, err := c.Begin(t.Context(), ann, "diary", "mail", "http://127.0.0.1:7433/callback", time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(page)
		if err != nil {
			t.Fatal(err)
		}
		return url.Values{"state": {u.Query().Get("state")}, "code": {"a-code"}}
	}
	ends := func(by access.Identity, answer url.Values, want string) {
		t.Helper()
		_, err := c.Finish(t.Context(), by, answer)
		if u, ok := errors.AsType[*web.UnconnectedError](err); !ok || !strings.Contains(u.Error(), want) {
			t.Errorf("it ended with %v, want %s", err, want)
		}
	}
	if offers, err := c.Offers(t.Context()); err != nil || len(offers) != 1 || !slices.Equal(offers[0].Names, []string{"home", "work"}) {
		t.Errorf("it offers %+v, %v", offers, err)
	}
	answer := begin()
	ends(bob, answer, "belongs to another attempt")
	ends(ann, url.Values{"code": {"a-code"}}, "belongs to another attempt")
	ends(ann, answer, "gave no tokens") // nothing listens there
	ends(ann, answer, "used already")
	refused := begin()
	refused.Del("code")
	refused.Set("error", "access_denied")
	ends(ann, refused, `It was refused on the page of the service: the service sent you back: refused with "access_denied"`)
	late := begin()
	now = now.Add(connectFor + time.Second)
	ends(ann, late, "came too late")
	now = now.Add(usedStaysAs)
	ends(ann, late, "belongs to another attempt")
	for range maxBegun {
		begin()
	}
	if _, _, err := c.Begin(t.Context(), ann, "diary", "mail", "http://127.0.0.1/callback", time.Time{}); err == nil {
		t.Errorf("%d are begun, and another one is", len(c.begun))
	}
	now = now.Add(connectFor + usedStaysAs + time.Second)
	if begin(); len(c.begun) != 1 {
		t.Errorf("%d are remembered", len(c.begun))
	}
	if _, _, err := c.Begin(t.Context(), ann, "diary", "../mail", "", time.Time{}); err == nil {
		t.Error("a name that is none")
	}
	if err := c.Put(t.Context(), ann, "diary", "mail", "", time.Time{}); err == nil || len(fmt.Sprint(err)) == 0 {
		t.Error("an empty credential")
	}
}

// Who began to connect an account, and ends that when somebody else has connected one of its name, replaces nothing.
func TestConnectingOverWhatWasConnectedMeanwhile(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token":"a","token_type":"Bearer","expires_in":3600}`)
	}))
	t.Cleanup(service.Close)
	cfg := diaryOf(t, service.URL)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	clock := func() time.Time { now = now.Add(time.Second); return now }
	c := &Connecting{Accounts: account.New(account.Config{Store: memory.New(), Ring: cfg.Ring, Clock: clock}), Config: func() *config.Config { return cfg }, Now: clock}
	ann, bob := access.Identity{Name: "ann", ID: "login-1"}, access.Identity{Name: "bob", ID: "login-2"}
	over := func() time.Time { // as a page shows it
		all, err := c.Accounts.Accounts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			return a.ConnectedAt
		}
		return time.Time{}
	}
	begin := func(who access.Identity) func(want string) {
		page, _, err := c.Begin(t.Context(), who, "diary", "mail", "http://127.0.0.1:7433/callback", over())
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(page)
		if err != nil {
			t.Fatal(err)
		}
		return func(want string) {
			t.Helper()
			_, err := c.Finish(t.Context(), who, url.Values{"state": {u.Query().Get("state")}, "code": {"a-code"}})
			if by := c.by(t, "mail"); want == "" && (err != nil || by != who.Name) || want != "" && (err == nil || !strings.Contains(err.Error(), want) || by == who.Name) {
				t.Errorf("%s ended with %v, and the account is of %s", who.Name, err, by)
			}
		}
	}
	slow, quick := begin(ann), begin(bob)
	quick("")
	slow("was connected by bob")
	slow, quick = begin(ann), begin(bob)
	quick("")
	slow("was connected by bob")
	begin(ann)("")

	shown := over()
	for _, who := range []access.Identity{bob, ann} { // ann's form was checked before bob's was stored
		err := c.Put(t.Context(), who, "diary", "mail", "key of "+who.Name, shown)
		if by := c.by(t, "mail"); by != "bob" || (err == nil) != (who.Name == "bob") || err != nil && !strings.Contains(err.Error(), "was connected by bob") {
			t.Errorf("%s put a key: %v, and the account is of %s", who.Name, err, by)
		}
	}
}

// by returns who connected an account.
func (c *Connecting) by(t *testing.T, name string) string {
	t.Helper()
	all, err := c.Accounts.Accounts(t.Context())
	if err != nil || len(all) != 1 || all[0].Name != name {
		t.Fatalf("accounts are %+v, %v", all, err)
	}
	return all[0].ConnectedBy
}

// A secret that another admin, or a command, sets or removes between the look at it and the writing is neither replaced nor
// removed.
func TestASecretIsSetMeanwhile(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := account.New(account.Config{Store: memory.New(), Ring: seal.Ring{Path: filepath.Join(t.TempDir(), "keep.key")}, Clock: func() time.Time { now = now.Add(time.Second); return now }})
	served := ServedSecrets{&Session{Accounts: m}}
	shown := func() (at time.Time) {
		all, err := m.Secrets(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			at = a.ConnectedAt
		}
		return at
	}
	ann, bob := access.Identity{Name: "ann"}, access.Identity{Name: "bob"}
	set := func(by access.Identity, over time.Time) error {
		return served.SetSecret(t.Context(), by, "crm", "value of "+by.Name, over)
	}
	remove := func(of time.Time) error { return served.RemoveSecret(t.Context(), "crm", of) }
	check := func(what string, err error, wantStale bool, want string) {
		t.Helper()
		got, _ := m.Secret(t.Context(), "crm")
		if errors.Is(err, keep.ErrStale) != wantStale || !wantStale && err != nil || got != want {
			t.Errorf("%s: %v, and the secret is %q; want stale %t, %q", what, err, got, wantStale, want)
		}
	}
	nothing := shown()
	check("the first", set(bob, nothing), false, "value of bob")
	check("over nothing, where bob's is", set(ann, nothing), true, "value of bob")
	bobs := shown()
	check("over bob's", set(ann, bobs), false, "value of ann")
	check("remove bob's", remove(bobs), true, "value of ann")
	anns := shown()
	if _, err := m.Rekey(t.Context(), false); err != nil { // which changes the row, and not the secret
		t.Fatal(err)
	}
	check("remove ann's", remove(anns), false, "")
	check("over what was removed", set(bob, anns), true, "")
	if err := remove(anns); !errors.Is(err, keep.ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
}
