package config_test

import (
	"strings"
	"testing"

	"github.com/keep-run/keep"
)

// Every kind of connection may say when a person must agree; what makes no sense has its line and key.
func TestApproveOfConnections(t *testing.T) {
	t.Parallel()
	const both = "[connections.box]\nconnector = \"files\"\nroot = \"in\"\n[connections.bank]\nconnector = \"http\"\nbase_url = \"http://localhost\"\n" +
		"[connections.bank.tools.pay]\neffect = \"mutate\"\npath = \"/pay\"\nidentity = [\"id\"]\n[connections.bank.tools.find]\neffect = \"list\"\npath = \"/find\"\n"
	for _, tt := range []struct{ name, old, new, want string }{
		{"of files", `root = "in"`, "root = \"in\"\napprove = { write = \"always\", append = \"size(params.text) > 100\" }", ""},
		{"of http", "base_url =", "approve = { pay = \"params.amount > 500\" }\nbase_url =", ""},
		{"of its tool", "effect = \"mutate\"", "effect = \"mutate\"\napprove = \"params.amount > 500\"", ""},
		{"no such tool", `root = "in"`, "root = \"in\"\napprove = { wirte = \"always\" }", `keep.toml:4:13: connections.box.approve.wirte: the connection "box" has no such tool`},
		{"a read", "base_url =", "approve = { find = \"always\" }\nbase_url =", `keep.toml:6:13: connections.bank.approve.find: find reads, and nobody is asked about that`},
		{"no condition", "base_url =", "approve = { pay = \"params.amount >\" }\nbase_url =", `keep.toml:6:13: connections.bank.approve.pay: "params.amount >": at character`},
		{"empty", "base_url =", "approve = { pay = \"\" }\nbase_url =", `keep.toml:6:13: connections.bank.approve.pay: is empty; write "always"`},
		{"not true or false", "base_url =", "approve = { pay = \"params.amount\" }\nbase_url =", "must be true or false"},
		{"too costly", "base_url =", "approve = { pay = \"params.a.all(x, params.a.all(y, params.a.all(z, x == z)))\" }\nbase_url =", "costs too much"},
		{"no table", "base_url =", "approve = \"always\"\nbase_url =", `connections.bank.approve: want a table, not the string "always"`},
		{"no text", "base_url =", "approve = { pay = true }\nbase_url =", "connections.bank.approve.pay: want a string, not true"},
		{"no condition of a tool", "effect = \"mutate\"", "effect = \"mutate\"\napprove = \"amount > 500\"", `keep.toml:9:1: connections.bank.tools.pay.approve: "amount > 500": at character 1: undeclared reference to 'amount'`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := load(t, strings.Replace(both, tt.old, tt.new, 1))
			if err == nil {
				conns, describeErr := cfg.Describe()
				closeAll(conns)
				err = describeErr
			}
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(lines(err), tt.want) {
				t.Errorf("got %v\nwant %s", lines(err), tt.want)
			}
		})
	}
}

// What nobody could call, or would be asked about, cannot be granted; a connection that does not open refuses nothing.
func TestUngrantable(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, "[connections.bank]\nconnector = \"http\"\nbase_url = \"http://localhost\"\n"+
		"[connections.bank.tools.pay]\neffect = \"mutate\"\npath = \"/pay\"\nidentity = [\"id\"]\n[connections.bank.tools.find]\neffect = \"list\"\npath = \"/find\"\n")
	if err != nil {
		t.Fatal(err)
	}
	conns, err := cfg.Describe()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(conns)
	for _, tt := range []struct {
		tool keep.GrantedTool
		want string
	}{
		{keep.GrantedTool{Tool: "bank.pay", Approve: "always"}, ""},
		{keep.GrantedTool{Tool: "bank.find"}, ""},
		{keep.GrantedTool{Tool: "bank.*", Approve: "always"}, ""},
		{keep.GrantedTool{Tool: "bank.find", Approve: "always"}, "bank.find: approve: find reads, and nobody is asked about that"},
		{keep.GrantedTool{Tool: "bank.nope"}, `bank.nope: the connection "bank" has no such tool`},
		{keep.GrantedTool{Tool: "shop.*"}, `shop.*: there is no connection "shop"`},
	} {
		if got := cfg.Ungrantable(tt.tool, conns); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.tool, got, tt.want)
		}
	}
	if got := cfg.Ungrantable(keep.GrantedTool{Tool: "bank.nope", Approve: "always"}, nil); got != "" {
		t.Errorf("of a connection that did not open: %q", got)
	}
}
