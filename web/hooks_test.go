package web_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/web"
)

// The page of hooks says what came and what was refused; what a stranger sent shows as text.
func TestHooks(t *testing.T) {
	w := newWorld(t)
	w.site.Close()
	w.serve(web.Config{Store: w.db, Actor: w.host, Connections: w.conns})
	c := w.as("ada", access.Viewer)
	c.get("/hooks").want(t, 200, "No hook is configured")
	at, why := api.Time(time.Now()), "<b>the signature does not match</b>"
	w.site.Close()
	w.serve(web.Config{Store: w.db, Actor: w.host, Connections: w.conns, Hooks: func(context.Context) ([]api.Hook, error) {
		return []api.Hook{{Name: "pay", URL: "https://example.com/hooks/pay", Workflow: "shop", Topic: "paid", Verify: "stripe",
			Accepted: 41, Repeated: 7, Refused: 3, LastAt: &at, LastRefusedAt: &at, LastRefusal: &why}}, nil
	}})
	c = w.as("ada", access.Viewer)
	c.get("/hooks").want(t, 200, "https://example.com/hooks/pay", "/events?workflow=shop&amp;topic=paid", "stripe", "41", "&lt;b&gt;the signature")
	c.get("/connections").want(t, 200, `href="/hooks"`)
}

// A database that takes no commits is said on the first page.
func TestRefusingStore(t *testing.T) {
	w := newWorld(t)
	w.site.Close()
	now := &api.Refusal{Since: api.Time(time.Unix(1, 0)), Reason: "the disk is full"}
	w.serve(web.Config{Store: w.db, Actor: w.host, Connections: w.conns, Refusal: func() *api.Refusal { return now }})
	c := w.as("ada", access.Viewer)
	c.get("/").want(t, 200, "takes nothing that this host writes", "the disk is full")
	now = nil
	if body := c.get("/").body; strings.Contains(body, "takes nothing") {
		t.Error("the first page says that the database refuses, which it does not")
	}
}

// A change of keep.toml that was refused is said on the pages that tell what is in force, and goes when it is mended.
func TestRefusedSettings(t *testing.T) {
	w := newWorld(t)
	w.site.Close()
	now := api.Settings{Refused: &api.RefusedSetting{At: api.Time(time.Unix(1, 0)), Reason: `keep.toml:3: "<b>" is no key`}}
	w.serve(web.Config{Store: w.db, Actor: w.host, Connections: w.conns, Settings: func() *api.Settings { return &now }})
	c := w.as("ada", access.Viewer)
	for _, path := range []string{"/", "/settings"} {
		c.get(path).want(t, 200, "was refused", "the one of before is in force", "keep.toml:3: &#34;&lt;b&gt;&#34; is no key")
	}
	now.Refused = nil
	for _, path := range []string{"/", "/settings"} {
		if body := c.get(path).body; strings.Contains(body, "was refused") {
			t.Errorf("%s says that something was refused", path)
		}
	}
}
