package config_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/pgtest"
)

// TestPostgresServerWrites writes by the tool of the real server that calls itself read-only, as its owner
// and as a role that may only SELECT. The pairing must say that it changes something. Law: once.
func TestPostgresServerWrites(t *testing.T) {
	t.Parallel()
	argv := npmServer(t, "server-postgres")
	url := pgtest.URL(t)
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	reader := "reader_of_" + db.Config().Database
	if _, err := db.Exec(t.Context(), fmt.Sprintf("CREATE TABLE payments (id int); CREATE ROLE %[1]s LOGIN; GRANT SELECT ON payments TO %[1]s", reader)); err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, as := range []struct {
		role string
		want int
	}{{reader, 0}, {db.Config().User, 1}} {
		args, _ := json.Marshal(append(argv[1:len(argv):len(argv)], strings.Replace(url, "//"+db.Config().User+"@", "//"+as.role+"@", 1)))
		conn := openPack(t, fmt.Sprintf("[connections.svc]\nconnector = \"mcp\"\npairing = \"postgres\"\ncommand = %q\nargs = %s\n[connections.svc.tools.query]\neffect = \"list\"\nidentity = []\n", argv[0], args), "x")
		t.Cleanup(func() { conn.Close() })
		query := conn.Tools[0].(connector.Reader)
		if got, err := query.Read(t.Context(), json.RawMessage(`{"sql":"SELECT count(*) FROM payments"}`)); err != nil || !strings.Contains(string(got), `"0"`) {
			t.Fatalf("%s reads %s, %v", as.role, got, err)
		}
		got, err := query.Read(t.Context(), json.RawMessage(`{"sql":"COMMIT; INSERT INTO payments VALUES (1)"}`))
		if e := db.QueryRow(t.Context(), "SELECT count(*) FROM payments").Scan(&rows); e != nil || rows != as.want {
			t.Errorf("%s wrote %d rows, want %d (%s, %v), %v", as.role, rows, as.want, got, err, e)
		}
	}
	if effect := pairingsOf(t)["postgres"].Tools["query"].Effect; rows > 0 && effect != connector.Mutate {
		t.Errorf("the tool wrote %d rows, and its pairing says %q", rows, effect)
	}
}

// TestQueryMayBeARead is the owner's word in the gateway that query changes nothing.
func TestQueryMayBeARead(t *testing.T) {
	t.Parallel()
	for own, want := range map[string]bool{"": false, "[gateway.tools.\"db.query\"]\neffect = \"read\"\n": true} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "keep.toml"), []byte("[gateway.servers.db]\ncommand = \"node\"\npairing = \"postgres\"\n"+own), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(config.Options{Dir: dir, Environ: []string{}})
		if err != nil || cfg.Gateway.Rules["db.query"].Read != want {
			t.Errorf("%q: %+v, %v", own, cfg.Gateway.Rules, err)
		}
	}
}
