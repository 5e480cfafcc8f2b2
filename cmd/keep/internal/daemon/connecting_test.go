package daemon

import (
	"errors"
	"fmt"
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

// An answer counts once, in the login that began it, within ten minutes; and what is begun is
// bounded.
func TestConnecting(t *testing.T) {
	dir := t.TempDir()
	pack := "name = \"diary\"\nversion = \"1\"\ntitle = \"Diary\"\ndocs = \"https://example.com\"\nbase_url = \"http://127.0.0.1:1\"\n[auth]\nstyle = \"oauth2\"\nauthorize_url = \"http://127.0.0.1:1/auth\"\n" +
		"token_url = \"http://127.0.0.1:1/token\"\n[tools.days]\neffect = \"list\"\ndescription = \"D.\"\npath = \"/days\"\nscopes = []\nparams = { type = \"object\", properties = {} }\nresult = { type = \"array\" }\nexample = {}\n"
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
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := &Connecting{Accounts: account.New(account.Config{Store: memory.New(), Ring: cfg.Ring}), Config: func() *config.Config { return cfg }, Now: func() time.Time { return now }}
	ann, bob := access.Identity{Name: "ann", ID: "login-1"}, access.Identity{Name: "ann", ID: "login-2"}
	begin := func() url.Values {
		t.Helper()
		page, _, err := c.Begin(t.Context(), ann, "diary", "mail", "http://127.0.0.1:7433/callback")
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
	if _, _, err := c.Begin(t.Context(), ann, "diary", "mail", "http://127.0.0.1/callback"); err == nil {
		t.Errorf("%d are begun, and another one is", len(c.begun))
	}
	now = now.Add(connectFor + usedStaysAs + time.Second)
	if begin(); len(c.begun) != 1 {
		t.Errorf("%d are remembered", len(c.begun))
	}
	if _, _, err := c.Begin(t.Context(), ann, "diary", "../mail", ""); err == nil {
		t.Error("a name that is none")
	}
	if err := c.Put(t.Context(), ann, "diary", "mail", ""); err == nil || len(fmt.Sprint(err)) == 0 {
		t.Error("an empty credential")
	}
}
