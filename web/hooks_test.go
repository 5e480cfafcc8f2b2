package web_test

import (
	"context"
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
