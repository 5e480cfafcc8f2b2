//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// served are the commands aside that serve until they are stopped, and those that only print help.
var served = map[string]bool{"dev": true, "serve": true, "proxy": true, "mcp": true, "gateway": true, "idempotency backend": true, "demo": true, "demo bank": true,
	"db": true, "idempotency": true, "checkpoints": true, "api": true}

// What goes around the daemon has the same form with --json as everything else: one value on stdout, lists that are
// never null, times with milliseconds, and an object with a stable code on stderr if it fails.
func TestJSONAside(t *testing.T) {
	form := newJSONForm(t)
	p := &place{t: t, dir: filepath.Join(shortDir(t), "p")} // the project that it is copied from is shared
	if err := os.CopyFS(p.dir, os.DirFS(questionedProject(t).dir)); err != nil {
		t.Fatal(err)
	}
	t.Chdir(p.dir)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	tried := make(map[string]bool)
	for name, text := range map[string]string{
		"x.test.toml":  "script = \"mail.js\"\n[[test]]\nname = \"nothing came\"\n[test.expect]\ncalls = []\n",
		"servers.json": `{"mcpServers": {"files": {"command": "npx", "args": ["x"], "env": {"A": "b"}}}}`,
		"bad.js":       `export default Keep.workflow({ name: "bad", producers: { p: 7 } });`,
	} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(status int, stdin string, line ...string) {
		t.Helper()
		var out, talk bytes.Buffer
		a := newApp(&out, &talk)
		root := a.root()
		root.SetArgs(append(append([]string{}, line...), "--json"))
		root.SetIn(strings.NewReader(stdin))
		root.SetOut(&out)
		root.SetErr(&talk)
		cmd, err := root.ExecuteContextC(t.Context())
		if got := a.finish(cmd, err); got != status {
			t.Errorf("keep %v: status %d, want %d\n%s%s", line, got, status, out.String(), talk.String())
		}
		tried[pathOf(cmd)] = true
		form.add(strings.Join(line, " "), out.String())
		if out.Len() > 0 && !json.Valid(out.Bytes()) {
			t.Errorf("keep %v prints no JSON: %.300s", line, out.String())
		}
		if status == exit.Done || out.Len() > 0 {
			return
		}
		var said struct {
			Exit     int `json:"exit_code"`
			Errors   []struct{ Code, Message string }
			Problems []struct{ Code, Message string }
		}
		_, object, _ := strings.Cut("\n"+talk.String(), "\n{") // a word about what is under way may come before it
		if err := json.NewDecoder(strings.NewReader("{" + object)).Decode(&said); err != nil || said.Exit != status || said.Errors == nil || said.Problems == nil ||
			len(said.Errors) > 0 && (said.Errors[0].Code == "" || said.Errors[0].Message == "") || len(said.Errors)+len(said.Problems) == 0 {
			t.Errorf("keep %v says %s", line, talk.String())
		}
	}
	const (
		done, failed, misused, missing = exit.Done, exit.Failed, exit.Misused, exit.NotFound
	)
	ask(misused, "", "check", ".")
	ask(misused, "", "check", "bad.js")
	ask(misused, "", "plan", "bad.js")
	ask(missing, "", "test", "none.js")
	if err := os.Remove("bad.js"); err != nil {
		t.Fatal(err)
	}
	ask(done, "", "check", ".")
	ask(missing, "", "check", "none")
	ask(failed, "", "plan", ".") // a handler fails
	ask(misused, "", "plan", ".", "--topic", "t")
	ask(failed, "", "test", ".")
	ask(done, "", "types")
	ask(done, "", "init", "new")
	ask(done, "", "init", "new")
	ask(done, "", "packs")
	ask(done, "", "packs", "list")
	ask(done, "", "packs", "show", "slack")
	ask(missing, "", "packs", "show", "none")
	ask(missing, "", "packs", "copy", "none")
	ask(done, "", "guide")
	ask(done, "", "guide", "start")
	ask(misused, "", "guide", "none")
	ask(done, "", "docs", "--list")
	ask(misused, "", "docs", "none")
	ask(done, "", "docs", "search", "deploy")
	ask(done, "", "docs", "search", "zzzzzz")
	ask(done, "", "version")
	ask(misused, "", "update")
	ask(done, "", "trust")
	ask(done, "", "idempotency", "guide")
	ask(misused, "", "idempotency", "test", "none")
	ask(done, "value\n", "secrets", "set", "x")
	ask(misused, "", "secrets", "set", "y")
	ask(done, "", "secrets")
	ask(done, "", "secrets", "list")
	ask(done, "", "secrets", "rm", "x")
	ask(done, "", "audit")
	ask(missing, "", "secrets", "rm", "x")
	ask(done, "", "accounts")
	ask(done, "", "accounts", "list")
	ask(done, "", "accounts", "recipient")
	ask(done, "", "accounts", "rekey")
	for _, verb := range []string{"show", "test", "renew", "revoke", "export"} {
		ask(missing, "", "accounts", verb, "none")
	}
	ask(misused, "", "accounts", "import", "none")
	ask(missing, "", "connect", "none")
	ask(missing, "", "connect", "mcp:none")
	ask(misused, "", "connect", "mcp:")
	ask(missing, "", "prove", "none")
	ask(misused, "", "write", "a sentence")
	ask(misused, "", "edit", "mail", "a sentence")
	ask(done, "", "gateway", "tools")
	ask(missing, "", "gateway", "tools", "accept", "none")
	ask(missing, "", "gateway", "pair", "none")
	ask(done, "", "gateway", "import", "servers.json")
	ask(misused, "", "gateway", "import", "none.json")
	ask(misused, "", "gateway", "install")
	ask(done, "", "doctor")
	ask(missing, "", "keys", "import", "none")
	ask(done, "", "login")
	ask(done, "", "db", "check")
	ask(done, "", "db", "migrate")
	ask(done, "", "db", "sweep")
	ask(done, "", "db", "sweep", "--older-than", "90d", "--yes")
	ask(misused, "", "db", "sweep", "--older-than", "soon")
	ask(done, "", "db", "backup", "copy.db")
	ask(misused, "", "db", "backup", "copy.db")
	ask(done, "", "db", "restored", "--db", "copy.db")
	ask(done, "", "db", "copy", "keep.db", "moved.db")
	ask(exit.Unreachable, "", "db", "sweep")
	ask(misused, "", "db", "unseal", "keep.db")
	ask(exit.Unreachable, "", "run", ".")
	form.judge(t)
	for cmd := range aside {
		if !tried[cmd] && !served[cmd] {
			t.Errorf("keep %s goes around the daemon, and what it prints as JSON is not looked at", cmd)
		}
	}
}
