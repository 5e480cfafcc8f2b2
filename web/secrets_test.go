package web_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/web"
)

// A safe keeps secrets as a host does, and what they were set to.
type safe struct {
	mu     sync.Mutex
	list   web.SecretList
	values map[string]string
}

func (s *safe) Secrets(context.Context) (web.SecretList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.list
	list.All = slices.Clone(list.All)
	return list, nil
}

func (s *safe) SetSecret(_ context.Context, by access.Identity, name, value string, over time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.setAt(name).Equal(over) {
		return keep.ErrStale
	}
	if value == "" {
		return &web.SecretError{Why: "nothing was given"}
	}
	s.values[name] = value
	i := slices.IndexFunc(s.list.All, func(one web.Secret) bool { return one.Name == name })
	if i < 0 {
		i = len(s.list.All)
		s.list.All = append(s.list.All, web.Secret{Name: name})
	}
	one := &s.list.All[i]
	one.Stored, one.SetBy, one.SetAt, one.Problem = true, by.Name, time.Now(), ""
	return nil
}

func (s *safe) RemoveSecret(_ context.Context, name string, of time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.setAt(name); !at.IsZero() && !at.Equal(of) {
		return keep.ErrStale
	}
	i := slices.IndexFunc(s.list.All, func(one web.Secret) bool { return one.Name == name && one.Stored })
	if i < 0 {
		return &keep.NotFoundError{What: "secret", ID: name}
	}
	if s.list.All[i].Stored = false; len(s.list.All[i].UsedBy) == 0 {
		s.list.All = slices.Delete(s.list.All, i, i+1)
	}
	delete(s.values, name)
	return nil
}

// setAt returns when a secret was set; zero: it is not. The caller holds mu.
func (s *safe) setAt(name string) (at time.Time) {
	for _, one := range s.list.All {
		if one.Name == name && one.Stored {
			at = one.SetAt
		}
	}
	return at
}

// filled returns secrets in every state.
func filled() *safe {
	at := time.Now().Add(-26 * time.Hour)
	return &safe{values: map[string]string{}, list: web.SecretList{Key: "/srv/keep/keep.key", All: []web.Secret{
		{Name: "bank", UsedBy: []string{"connections.bank", "connections.fax"}, Stored: true, SetBy: "ada", SetAt: at},
		{Name: "crm", UsedBy: []string{"connections.crm"}, Place: "KEEP_SECRET_CRM", Stored: true, SetBy: "ada", SetAt: at},
		{Name: "github-hook", UsedBy: []string{"hooks.github"}, Place: "/srv/keep/.secrets/github-hook", Problem: "/srv/keep/.secrets/github-hook can be read by others (mode 0644); run: chmod 600 <b>"},
		{Name: "old-token", Stored: true, SetBy: "bob", SetAt: at},
		{Name: "slack", UsedBy: []string{"connections.slack"}},
	}}}
}

// An admin sees which secrets there are and sets them; others see neither them nor a link.
func TestSecrets(t *testing.T) {
	w := newWorld(t)
	root := w.as("root", access.Admin)
	root.get("/secrets").want(t, 404)
	root.post("/secrets", "name", "a", "value", "b").want(t, 404)
	if strings.Contains(root.get("/connections").body, "/secrets") {
		t.Error("a host without secrets has a link to them")
	}
	w.site.Close()
	keeps, said := filled(), new(bytes.Buffer)
	w.serve(web.Config{Store: w.db, Actor: w.host, Connections: w.conns, Accounts: shelved(), Secrets: keeps, Logger: slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	for _, role := range []access.Role{access.Viewer, access.Operator, access.Author} {
		c := w.as("ann", role)
		for _, path := range []string{"/connections", "/accounts", "/settings"} {
			if strings.Contains(c.get(path).body, "/secrets") {
				t.Errorf("%s of a %s leads to the secrets", path, role)
			}
		}
		c.get("/secrets").want(t, 403, "admin")
		c.get("/secrets/bank").want(t, 403, "admin")
		c.post("/secrets", "name", "bank", "value", "x").want(t, 403, "admin")
		c.post("/secrets/bank/remove").want(t, 403, "admin")
	}
	root = w.as("root", access.Admin)
	for _, path := range []string{"/connections", "/accounts", "/settings"} {
		root.get(path).want(t, 200, `href="/secrets"`)
	}
	root.get("/secrets").want(t, 200, `href="/connections#c-fax"`, "KEEP_SECRET_CRM", "does not count", "<code>[hooks.github]</code>", "chmod 600 &lt;b&gt;", "unusable", "not set", `href="/secrets/old-token"`)
	root.get("/secrets/crm").want(t, 200, "counts before what is set here", "nothing changes for")
	root.get("/secrets/bank").want(t, 200, "Replace the secret", "does not start again until the secret is set", `href="/connections#c-bank"`)
	root.get("/secrets/old-token").want(t, 200, "Nothing in <code>keep.toml</code> refers to it")
	if strings.Contains(root.get("/secrets/slack").body, "Remove") {
		t.Error("a secret that is not set can be removed")
	}
	root.get("/secrets/nobody").want(t, 404, "nobody")

	value := `Kanari/en+7&vogel=Z9<q>"w'x`
	root.post("/secrets", "name", " slack ", "value", value).want(t, 200, "Calls use it within a second", "by <bdi>root</bdi>")
	if keeps.values["slack"] != value {
		t.Errorf("the secret is %q", keeps.values["slack"])
	}
	shown := func(name string) []string { return formOf(t, root.get("/secrets/"+name).body) }
	root.post("/secrets", append(shown("crm"), "value", "x")...).want(t, 200, "Calls do not use it")
	root.post("/secrets", shown("slack")...).want(t, 400, "The secret is not set", "Nothing was given")
	root.post("/secrets/old-token/remove", shown("old-token")...).want(t, 200, "The secret is removed")
	root.post("/secrets/old-token/remove").want(t, 404, "old-token")
	root.post("/secrets", append(shown("slack"), "value", value+strings.Repeat("x", 64<<10))...).want(t, 400, "more than 65536 bytes")
	res, err := root.http.Post(w.site.URL+"/secrets", "application/x-www-form-urlencoded", strings.NewReader("name=slack&value=%%Kanari"))
	root.read(res, err).want(t, 400, "cannot be read")
	for _, path := range []string{"/secrets", "/secrets/slack", "/settings", "/connections"} {
		for where, text := range map[string]string{path: root.get(path).body, "the log": said.String()} {
			if strings.Contains(text, "Kanari") || strings.Contains(text, "%K") {
				t.Errorf("%s holds the value", where)
			}
		}
	}
	keeps.list.Trouble, keeps.list.Refused = "the key /srv/keep/keep.key can be read by others; run: chmod 600", "keep.toml:3: no"
	troubled := root.get("/secrets")
	if troubled.want(t, 200, "No secret can be set", "chmod 600", "continues with those of before", "keep.toml:3: no"); strings.Contains(troubled.body, "password") {
		t.Error("a host that cannot seal asks for a value")
	}
}

// In a browser, by day and by night and on a phone: an admin replaces a secret, and removes
// one with a second press.
func TestSecretsInABrowser(t *testing.T) {
	w := newWorld(t)
	w.site.Close()
	keeps := filled()
	w.serve(web.Config{Store: w.db, Actor: w.host, Connections: w.conns, Secrets: keeps, Backups: &copies{}})
	b := w.tab("root")
	call(b, network.SetCookie, network.SetCookieParams{Name: "role", Value: string(access.Admin), URL: w.site.URL})
	for name, path := range map[string]string{"secrets": "/secrets", "secret": "/secrets/bank", "secret-elsewhere": "/secrets/crm", "secret-missing": "/secrets/slack", "settings-admin": "/settings"} {
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
	b.prefer("light")
	b.open("/secrets/bank")
	b.click("#s-value")
	b.keys("new-token")
	b.click("form.fields button.primary")
	b.says("Calls use it within a second.")
	b.says("by root")
	b.shot("secret-set")
	if keeps.values["bank"] != "new-token" {
		t.Errorf("the secret is %q", keeps.values["bank"])
	}
	if strings.Contains(eval[string](b, "document.documentElement.outerHTML"), "new-token") {
		t.Error("the page shows the value")
	}
	b.click("details summary")
	b.shot("secret-remove")
	b.click("form[action$='/remove'] button")
	b.says("The secret is removed.")
	b.sees("location.pathname == '/secrets'")
}

// copies are backups of a text.
type copies struct {
	instead string
	err     error
	text    string
	closed  atomic.Int32
}

func (c *copies) Instead() string { return c.instead }

func (c *copies) Make(context.Context) (*web.Copy, error) {
	if c.err != nil {
		return nil, c.err
	}
	return &web.Copy{ReadCloser: closing{strings.NewReader(c.text), c}, Size: int64(len(c.text)), At: time.Date(2026, 11, 26, 13, 10, 9, 0, time.UTC)}, nil
}

// closing counts how often it is closed.
type closing struct {
	io.Reader
	of *copies
}

func (c closing) Close() error { c.of.closed.Add(1); return nil }

// An admin downloads a backup; others see nothing of it.
func TestBackupIsDownloaded(t *testing.T) {
	w := newWorld(t)
	root := w.as("root", access.Admin)
	if strings.Contains(root.get("/settings").body, "Backup") {
		t.Error("a host without backups offers one")
	}
	root.post("/settings/backup").want(t, 400, "no backup")
	w.site.Close()
	made := &copies{text: strings.Repeat("0123456789", 100_000)}
	w.serve(web.Config{Store: w.db, Actor: w.host, Connections: w.conns, Backups: made})
	for _, role := range []access.Role{access.Viewer, access.Operator, access.Author} {
		c := w.as("ann", role)
		if strings.Contains(c.get("/settings").body, "backup") {
			t.Errorf("the settings of a %s speak of backups", role)
		}
		c.post("/settings/backup").want(t, 403, "admin")
	}
	root = w.as("root", access.Admin)
	root.get("/settings").want(t, 200, "Download a backup")
	got := root.post("/settings/backup")
	if got.want(t, 200); got.body != made.text {
		t.Errorf("%d bytes, want %d", len(got.body), len(made.text))
	}
	w.until("the copy is closed", func() bool { return made.closed.Load() == 1 })
	if name := got.header.Get("Content-Disposition"); name != "attachment; filename=keep-2026-11-26T1310Z.db" {
		t.Errorf("the file is %q", name)
	}
	if got.header.Get("Content-Length") != fmt.Sprint(len(made.text)) || got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers are %v", got.header)
	}
	made.err = &web.BackupError{What: "There is no room for a backup", Why: "4 MB are free <b>", Next: "Make room."}
	root.post("/settings/backup").want(t, http.StatusConflict, "no room", "&lt;b&gt;", "Make room.")
	made.err, made.instead = nil, "Copy it with pg_dump."
	instead := root.get("/settings")
	if instead.want(t, 200, "Copy it with pg_dump."); strings.Contains(instead.body, "/settings/backup") {
		t.Error("a button for what cannot be done")
	}
	root.post("/settings/backup").want(t, 400)
}
