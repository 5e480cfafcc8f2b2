//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/keep-run/keep/api"
)

// A person replays a run of a real keep serve in Chromium, with its own version and with another
// script: what that would have done otherwise is there as a diff, and nothing is sent or read.
func TestReplayOnThePages(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `[{"id":"o1","mail":"ada@example.com"}]`)
	}))
	t.Cleanup(shop.Close)
	// The producer is not due, so that the shop receives calls only.
	script := strings.NewReplacer("async poll(ctx) {", `poll: { schedule: { cron: "0 0 1 1 *" }, async handler(ctx) {`, "mail: o.mail }); } },", "mail: o.mail }); } } },").Replace(recordedScript)
	s := &serving{t: t, bin: buildKeep(t), dir: t.TempDir(), env: append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))}
	for name, text := range map[string]string{"w.js": script, "keep.toml": shopToml(shop.URL)} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.keep("deploy", ".")
	s.keep("publish", "w", "t", "--id", "o1", `{"mail":"ada@example.com"}`)
	s.keep("run", ".")
	var runs []api.Run
	if err := json.Unmarshal([]byte(s.keep("runs", "--handler", "send", "--json")), &runs); err != nil || len(runs) != 1 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	before := asked.Load()
	s.start()
	b := s.admitted()
	replay := func(source, says string) {
		b.Open(s.base + "/runs/" + string(runs[0].ID))
		b.Click(`details:has(#replay-source) > summary`)
		b.Write("#replay-source", source)
		b.Click(`form[action$="/replay"] button`)
		b.Shows(says)
	}
	replay("", "It does the same")
	replay(strings.Replace(script, `to: prepared.data.mail`, `to: prepared.data.mail, copy: "boss@example.com"`, 1), "It does something else")
	for _, want := range []string{`"copy": "boss@example.com"`, `"to": "ada@example.com"`} {
		b.Shows(want)
	}
	if dir := os.Getenv("KEEP_SCREENSHOTS"); dir != "" {
		png, err := chromedp.Run(b.Context, chromedp.FullScreenshot(100))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "replay-diff.png"), png, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	replay("export default {", "The script is refused")
	if n := asked.Load() - before; n != 0 || before != 1 {
		t.Errorf("the shop was asked %d times by replays, after %d", n, before)
	}
}
