//go:build unix

package gateway_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep"
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

// A schema that is made to take long is not compared with: its server, and not the gateway, says what it thinks of a call. Law: bounded.
func TestSchemaThatTakesLong(t *testing.T) {
	for name, long := range map[string]string{
		"its levels": `"not":` + strings.Repeat(`{"allOf":[`, 40) + `{"type":"object"}` + strings.Repeat(`]}`, 40),
		"its size":   `"description":"` + strings.Repeat("x", 256<<10) + `"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup{Dir: t.TempDir(), Agent: "a"}
			lists(t, s.Dir, `{"name":"create","inputSchema":{"type":"object","properties":{"title":{"type":"integer"},"n":{`+long+`}}}}`)
			d := open(t, s, nil)
			d.want("a text in place of a number", d.make("x"), "applied", 1)
		})
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

// The param that Keep fills with its key is none of the agent's: it is not shown, and a call that brings one is told so. A text to which a
// mark is appended stays the agent's, and so does the param of a call that has no token.
func TestKeyOfTheAgent(t *testing.T) {
	const schema = `{"name":"create","inputSchema":{"type":"object","properties":{"title":{"type":"string"},"body":{"type":"string"},"key":{"type":"string"}},"required":["title","key"]}}`
	some := keyed()["notes.create"]
	some.When = map[string]json.RawMessage{"title": json.RawMessage(`"other"`)}
	for name, c := range map[string]struct {
		rules map[keep.ToolName]gateway.Rule
		shown string
		sent  bool
	}{
		"a key":               {keyed(), `{"properties":{"body":{"type":"string"},"title":{"type":"string"}},"required":["title"],"type":"object"}`, false},
		"a mark":              {paired(), `"key":{"type":"string"}`, true},
		"another call's":      {map[keep.ToolName]gateway.Rule{"notes.create": some}, `"key":{"type":"string"}`, true},
		"nothing is known of": {nil, `"key":{"type":"string"}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup{Dir: t.TempDir(), Agent: "a", Rules: c.rules}
			lists(t, s.Dir, schema, listAsWas)
			d := open(t, s, nil)
			if r := must(d.ask(4, "tools/list", `{}`)); !strings.Contains(r.raw, c.shown) {
				t.Errorf("shown %s, want %s", r.raw, c.shown)
			}
			r := must(d.ask(7, "tools/call", `{"name":"notes__create","arguments":{"title":"x","body":"b","key":"order-42"}}`))
			if c.sent {
				d.want("with a key", r, "applied", 1)
				return
			}
			d.want("with a key", r, "failed", 0, "key is Keep's", "leave it out", "Nothing was sent")
			d.want("without", must(d.ask(7, "tools/call", `{"name":"notes__create","arguments":{"title":"x","body":"b"}}`)), "applied", 1)
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
