package config_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/mcp"
)

// owners are accounts that have an owner each, but for "none".
type owners struct{ connector.Accounts }

func (owners) Owner(_ context.Context, name string) (string, error) {
	return map[string]string{"shop": "ann"}[name], nil
}

// Law: bound-to-its-world. What may be a user's counts, whatever the name of a variable; what says where does not.
func TestSender(t *testing.T) {
	for _, c := range []struct{ table, ref, value string }{
		{"[connections.bank]\nconnector = \"http\"\nbase_url = \"${env:PLACE}\"\nheaders = { X-Key = \"${env:STRIPE}\" }", "secret ${env:STRIPE}", "ann"},
		{"[connections.bank]\nconnector = \"http\"\nbase_url = \"${env:PLACE}\"\nheaders = { X-Key = \"${account:shop}\" }", "account shop", "ann"},
		{"[connections.bank]\nconnector = \"http\"\nbase_url = \"${env:PLACE}\"\nheaders = { X-Key = \"${account:none}\" }", "account none", ""},
		{"[connections.bank]\nconnector = \"mcp\"\ncommand = \"x\"\nenv = { STRIPE = \"ann\" }", "secret env.STRIPE", "ann"},
		{"[connections.bank]\nconnector = \"mcp\"\ncommand = \"x\"\nargs = [\"--user\", \"${env:STRIPE}\"]", "secret ${env:STRIPE}", "ann"},
		{"[connections.bank]\nconnector = \"mcp\"\ncommand = \"x\"\nenv = { STRIPE = \"ann\" }\n[connections.bank.tools.book]\neffect = \"mutate\"\nidentity = [\"id\"]\n" +
			"description = \"books ${env:WORDS}\"\nverify_by_hand = \"Look at ${env:WORDS}.\"", "secret env.STRIPE", "ann"},
		{"[connections.bank]\nconnector = \"mcp\"\ncommand = \"x\"\n[connections.bank.tools.book]\neffect = \"mutate\"\nidentity = [\"id\"]\n" +
			"reconcile = { tool = \"find\", args = { description = \"${env:STRIPE}\" }, match = [\"id\"] }", "secret ${env:STRIPE}", "ann"},
		{"[connections.bank]\nconnector = \"mcp\"\nurl = \"${env:PLACE}\"\naccount = \"shop\"\nclient_id = \"c\"\nclient_secret = \"${secret:OWN}\"", "account shop", "ann"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "keep.toml"), []byte(c.table+tools(c.table)), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(config.Options{Dir: dir, Environ: []string{"PLACE=http://127.0.0.1:1", "STRIPE=ann", "WORDS=the page", "KEEP_SECRET_OWN=own"}})
		if err != nil {
			t.Fatal(err)
		}
		cfg.UseAccounts(owners{})
		conns, err := cfg.Connect()
		if err != nil {
			t.Fatal(err)
		}
		as, err := conns[0].Sender(t.Context(), func(s string) string { return s })
		if got, has := as[c.ref]; err != nil || !has || got != c.value || len(as) != 1 {
			t.Errorf("%s: sends as %v, %v; want %s alone, %q", c.table, as, err, c.ref, c.value)
		}
	}
}

// tools returns a tool for a connection by HTTP.
func tools(table string) string {
	if strings.Contains(table, `"mcp"`) {
		return "\n[connections.bank.tools.pay]\neffect = \"mutate\"\nidentity = [\"id\"]\n"
	}
	return "\n[connections.bank.tools.list]\neffect = \"list\"\npath = \"/\"\n"
}

// Law: bound-to-its-world. Where a server of MCP runs is where its calls are sent: what it finds there may be
// another user's. A project that is moved is the same.
func TestPinOfCwd(t *testing.T) {
	pin := func(line string) string {
		t.Helper()
		dir := t.TempDir()
		table := "[connections.bank]\nconnector = \"mcp\"\ncommand = \"x\"\n" + line + tools(`"mcp"`) + "[gateway.servers.bank]\ncommand = \"x\"\n" + line
		if err := os.WriteFile(filepath.Join(dir, "keep.toml"), []byte(table), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(config.Options{Dir: dir, Environ: []string{}})
		if err != nil {
			t.Fatal(err)
		}
		conns, err := cfg.Connect()
		if err != nil {
			t.Fatal(err)
		}
		s := mcp.NewServer(cfg.Gateway.Servers[0])
		if of := s.Tool(mcp.Pairing{Tool: "pay", Identity: []string{"id"}}, 0).(connector.Pinner).Pin(); !bytes.Equal(of, conns[0].Tools[0].(connector.Pinner).Pin()) {
			t.Errorf("%s: the gateway pins %s", line, of)
		}
		return string(conns[0].Tools[0].(connector.Pinner).Pin())
	}
	a, b, none := pin("cwd = \"ann\"\n"), pin("cwd = \"bob\"\n"), pin("")
	if a == b || strings.Contains(none, "cwd") || pin("cwd = \"ann\"\n") != a {
		t.Errorf("pins %s, %s, %s", a, b, none)
	}
}
