//go:build unix

package gateway_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/gateway"
)

// A call that Keep makes again under its key, to find out what became of it, and for which the server needs more, is not complete: it was not
// made, and nobody is told that it was. Law: doubt-is-not-failure.
func TestDoubtThatNeedsMore(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Agent: "a", Rules: map[keep.ToolName]gateway.Rule{"notes.create": {Pairing: mcp.Pairing{Tool: "create", Sets: true, Timeout: 200 * time.Millisecond}}}}
	var asked *atomic.Int64
	s.URL, asked = serveModern(t, s.Dir)
	d := open(t, s, func(cfg *gateway.Config) {
		cfg.Policy = testPolicy()
		cfg.Policy.Reconcile.Inline = 200 * time.Millisecond
	})
	r := d.make("x") // its client is asked, and does not answer
	if r.state() != "needs_reconcile" || asked.Load() == 0 {
		t.Fatal(r.raw)
	}
	for before := asked.Load(); asked.Load() < before+2; {
		if r = d.make("x"); r.state() != "needs_reconcile" {
			break
		}
	}
	d.want("after it was asked about again", r, "needs_reconcile", 0, "unknown")
}
