package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/connector"
)

const bankTools = `[connections.bank]
connector = "http"
base_url = "http://127.0.0.1:9"
tools.pay = { effect = "mutate", method = "POST", path = "/pay", identity = ["id"] }
tools.find = { effect = "list", method = "GET", path = "/pay" }
`

func TestGrants(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, bankTools+`[grants.payouts]
tools = ["bank.*"]
when = { "bank.pay" = "params.currency == 'EUR'" }
approve = { "bank.pay" = "always" }
[grants.x]
workflow = "other.flow"
tools = []
`)
	if err != nil {
		t.Fatal(err)
	}
	conns, err := cfg.Describe()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(conns)
	want := []keep.GrantedTool{{Tool: "bank.*"}, {Tool: "bank.pay", When: "params.currency == 'EUR'", Approve: "always"}}
	if g, ok := cfg.GrantOf("payouts"); !ok || !cmp.Equal(g.Tools, want) {
		t.Errorf("payouts: %v, %+v", ok, g.Tools)
	}
	if g, ok := cfg.GrantOf("other.flow"); !ok || g.Tools == nil || len(g.Tools) != 0 {
		t.Errorf("other.flow: %v, %+v; want nothing, which is not no grant", ok, g.Tools)
	}
	if _, ok := cfg.GrantOf("x"); ok {
		t.Error("the name of a table counts although it names a workflow")
	}
}

// What is wrong with a grant is said with the line and the key.
func TestWrongGrants(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, grant, want string }{
		{"no tools", "[grants.w]\nwhen = {}\n", "grants.w.tools: required"},
		{"an unknown tool", "[grants.w]\ntools = [\"bank.find\",\n \"bank.steal\"]\n", `keep.toml:7:1: grants.w.tools: bank.steal: the connection "bank" has no such tool`},
		{"an unknown connection", "[grants.w]\ntools = [\"bnak.*\"]\n", `keep.toml:7:1: grants.w.tools: bnak.*: there is no connection "bnak"`},
		{"no name of a tool", "[grants.w]\ntools = [\"*\"]\n", "want the name of a tool"},
		{"a condition that is none", "[grants.w]\ntools = [\"bank.pay\"]\nwhen = { \"bank.pay\" = \"params.amount >\" }\n", `keep.toml:8:10: grants.w.when.bank.pay: "params.amount >"`},
		{"a condition that is no yes or no", "[grants.w]\ntools = [\"bank.pay\"]\napprove = { \"bank.pay\" = \"params.amount\" }\n", "must be true or false"},
		{"another variable", "[grants.w]\ntools = [\"bank.pay\"]\nwhen = { \"bank.pay\" = \"amount > 1\" }\n", "undeclared reference to 'amount'"},
		{"too expensive", "[grants.w]\ntools = [\"bank.pay\"]\nwhen = { \"bank.pay\" = \"params.a.all(x, params.a.all(y, params.a.all(z, x == z)))\" }\n", "costs too much"},
		{"a condition of another tool", "[grants.w]\ntools = [\"bank.find\"]\nwhen = { \"bank.pay\" = \"true\" }\n", "the grant does not name bank.pay in tools"},
		{"two grants", "[grants.w]\ntools = []\n[grants.v]\nworkflow = \"w\"\ntools = []\n", "has two grants"},
		{"an unknown key", "[grants.w]\ntool = []\ntools = []\n", "grants.w.tool"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := load(t, bankTools+tt.grant)
			if err == nil {
				conns, describeErr := cfg.Describe()
				closeAll(conns)
				err = describeErr
			}
			var wrong *config.Error
			if !errors.As(err, &wrong) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v\nwant %s", err, tt.want)
			}
		})
	}
}

// A connection that has a mistake of its own is there: a grant of it is no second mistake.
func TestGrantOfABrokenConnection(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, bankTools+"[connections.desk]\nconnector = \"http\"\nbase_url = \"https://desk.example\"\n"+
		"[connections.desk.tools.find]\neffect = \"get\"\npath = \"/\"\nqueri = {}\n[grants.w]\ntools = [\"desk.*\"]\n")
	if err == nil {
		t.Fatal("an unknown key is no mistake")
	}
	conns, describeErr := cfg.Describe()
	closeAll(conns)
	if !strings.Contains(err.Error(), "queri") || describeErr != nil {
		t.Errorf("got %v and %v, want the key alone", err, describeErr)
	}
}

func closeAll(conns []connector.Connection) {
	for _, c := range conns {
		if c.Close != nil {
			c.Close()
		}
	}
}
