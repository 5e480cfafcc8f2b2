package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/host/account"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/web"
)

// diaryOf returns a configuration with a service at an address.
func diaryOf(t *testing.T, at string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	pack := "name = \"diary\"\nversion = \"1\"\ntitle = \"Diary\"\ndocs = \"https://example.com\"\nbase_url = \"" + at + "\"\n[auth]\nstyle = \"oauth2\"\nauthorize_url = \"" + at + "/auth\"\n" +
		"token_url = \"" + at + "/token\"\n[tools.days]\neffect = \"list\"\ndescription = \"D.\"\npath = \"/days\"\nscopes = []\nparams = { type = \"object\", properties = {} }\nresult = { type = \"array\" }\nexample = {}\n"
	for name, text := range map[string]string{"packs/diary.toml": pack, "keep.toml": "[packs.diary]\nclient_id = \"id\"\n"} {
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
	answer := begin()
	ends(bob, answer, "belongs to another attempt")
	ends(ann, url.Values{"code": {"a-code"}}, "belongs to another attempt")
	ends(ann, answer, "gave no tokens") // nothing listens there
	ends(ann, answer, "used already")
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
