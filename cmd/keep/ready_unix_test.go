//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/internal/pgtest"
)

// A host that has nothing to do notices that Postgres is frozen, or gone, and says so to who probes it and to a
// scraper, in a time that both wait for; and that it answers again.
func TestReadyAsksPostgres(t *testing.T) {
	t.Parallel()
	server := pgtest.StartDurable(t)
	noError(t, server.CreateDatabase(t.Context(), "keep"))
	d := newServingOn(t, server.URL("keep"))
	noError(t, os.WriteFile(filepath.Join(d.dir, "keep.toml"), []byte("[server]\nmetrics_listen = \"127.0.0.1:0\"\n"), 0o600))
	d.writeScript()
	d.keep("deploy", ".")
	d.start()
	d.keep("pause", "w")
	is := func(what string, status int, reason, refuses string) {
		t.Helper()
		var got, text string
		fact := func(address, want string, code int) {
			t.Helper()
			waitFor(t, func() bool {
				asked := time.Now()
				var n int
				n, text = fetch(t, address)
				if took := time.Since(asked); took > 6*time.Second {
					t.Fatalf("%s: %s took %s", what, address, took)
				}
				got = fmt.Sprintf("%s: %s: %d, %s", what, address, n, text)
				return n == code && strings.Contains(text, want)
			}, func() string { return got })
		}
		fact(strings.TrimSuffix(d.metrics, "/metrics")+"/readyz", reason, status)
		fact(d.metrics, "\nkeep_store_refuses "+refuses+"\n", 200)
	}
	is("at first", 200, "ready", "0")
	thaw, err := server.Freeze(t.Context())
	noError(t, err)
	defer thaw()
	is("frozen", 503, "the database has not answered for ", "1")
	thaw()
	is("continued", 200, "ready", "0")
	server.Kill()
	is("gone", 503, "the database does not answer", "1")
	noError(t, server.Restart(t.Context()))
	is("back", 200, "ready", "0")
}
