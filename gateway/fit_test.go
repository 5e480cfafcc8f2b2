//go:build unix

package gateway_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/gateway"
)

// TestMisfits has an agent that mistypes: nothing of it is sent, and no person is asked about it. What the server
// answers after an effect is never a refusal, whatever it says.
func TestMisfits(t *testing.T) {
	s := setup{Dir: t.TempDir(), Agent: "a", Rules: paired()}
	tools := `[{"name":"create","inputSchema":{"type":"object","properties":{"title":{"type":"string"},"body":{"type":"string"}},"required":["title","body"],"additionalProperties":false}},
		{"name":"list","inputSchema":{"type":"object"}}]`
	if err := os.WriteFile(filepath.Join(s.Dir, "tools"), []byte(tools), 0o600); err != nil {
		t.Fatal(err)
	}
	c := start(t, s)
	for args, why := range map[string]string{`{}`: "missing property 'title'", `{"title":7}`: "/title: got number, want string", `{"title":"x","bodi":"y"}`: `there is no "bodi"`} {
		r, _ := c.ask(2, "tools/call", `{"name":"notes__create","arguments":`+args+`}`)
		if !r.Result.IsError || r.state() != "failed" || !strings.Contains(r.text(), why+". Nothing was sent") {
			t.Errorf("%s: %s", args, r.raw)
		}
	}
	if r, _ := c.create("x"); r.state() != "applied" { // the token is the body, which the server requires
		t.Errorf("a call that fits: %s", r.raw)
	}
	c.stop()
	if q := check(t, s.Dir); len(q) != 0 || effects(t, s.Dir, "x") != 1 {
		t.Errorf("%d effects, questions: %v", effects(t, s.Dir, "x"), q)
	}
}

// A tool that has no param for the token is not called: nothing would show its effects, and its server would honour no key.
func TestNoParamForTheToken(t *testing.T) {
	for name, c := range map[string]struct{ schema, state string }{
		"other params":     {`{"type":"object","properties":{"title":{"type":"string"}}}`, "failed"},
		"no other ones":    {`{"type":"object","properties":{"title":{"type":"string"}},"additionalProperties":false}`, "failed"},
		"any other ones":   {`{"type":"object","properties":{"title":{"type":"string"}},"additionalProperties":true}`, "applied"},
		"nothing is known": {`{"type":"object"}`, "applied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup{Dir: t.TempDir(), Agent: "a", Rules: keyed()}
			lists(t, s.Dir, `{"name":"create","inputSchema":`+c.schema+`}`)
			d := open(t, s, nil)
			r, _ := d.ask(7, "tools/call", `{"name":"notes__create","arguments":{"title":"x"}}`)
			d.want(name, r, c.state, map[string]int{"applied": 1}[c.state])
		})
	}
}

// TestNamesOfOthers has a server, and a tool, whose names are no names in scripts: agents use both.
func TestNamesOfOthers(t *testing.T) {
	s := setup{Dir: t.TempDir(), Agent: "a", Rules: paired()}
	tools := `[{"name":"create","inputSchema":{"type":"object","properties":{"title":{"type":"string"},"body":{"type":"string"}},"required":["title","body"]}},
		{"name":"list","inputSchema":{"type":"object"}}, {"name":"list.all-notes","inputSchema":{"type":"object"}}]`
	if err := os.WriteFile(filepath.Join(s.Dir, "tools"), []byte(tools), 0o600); err != nil {
		t.Fatal(err)
	}
	d := open(t, s, func(c *gateway.Config) {
		second := c.Servers[0]
		second.Name = "git-hub"
		c.Servers = append(c.Servers, second)
	})
	if r, _ := d.create("x"); r.state() != "applied" {
		t.Errorf("beside others: %s", r.raw)
	}
	if r, _ := d.ask(3, "tools/list", `{}`); !strings.Contains(string(r.raw), "git-hub__list.all-notes") {
		t.Errorf("tools: %s", r.raw)
	}
}
