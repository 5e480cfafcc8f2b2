//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/keep-run/keep/api"
)

// TestScriptCallsAnMCPServer has a script call tools of a real server, keep mcp: one that reads, and
// one that is declared to change something. Only declared tools exist, and keep check needs no server.
func TestScriptCallsAnMCPServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	connection := func(command string, more ...string) {
		put(t, dir, "keep.toml", fmt.Sprintf(`[connections.own]
connector = "mcp"
command = %q
args = ["mcp", "--role", "viewer"]
[connections.own.tools.guide]
effect = "get"
params = { type = "object", properties = { section = { type = "string" } } }
[connections.own.tools.look]
tool = "list"
effect = "mutate"
identity = ["what"]
params = { type = "object", required = ["what"], properties = { what = { type = "string" } } }
[budgets.looks]
tools = ["own.look"]
count = true
limit = 1
per = "1h"
%s
`, command, strings.Join(more, "\n")))
	}
	script := func(calls string) {
		put(t, dir, "look.js", `export default Keep.workflow({ name: "look", topics: { t: {} },
  producers: { async p(ctx) { const text = await ctx.own.guide({}); await ctx.publish("t", { messageId: "one", size: text.length }); } },
  consumers: { c: Keep.consumer({ subscribe: ["t"],
    async prepare(ctx, event) { return event ? { reservations: [{ topic: "t", ids: [event.messageId] }], data: {} } : { reservations: [], data: {} }; },
    async mutate(ctx, prepared) { `+calls+` },
    async next(ctx, prepared, result) {} }) } });`)
	}
	connection("/nowhere/mcp-server")
	script(`await ctx.own.look({ what: "workflows" });`)
	if out, status := keepAt(t, dir, "check", "look.js"); status != 0 || !strings.Contains(out, "level D") {
		t.Errorf("check without the server: status %d: %s", status, out)
	}
	script(`await ctx.own.types({});`)
	if out, status := keepAt(t, dir, "check", "look.js"); !strings.Contains(out, "no call of a mutate tool") {
		t.Errorf("check of a tool that is not declared: status %d: %s", status, out)
	}
	connection(buildKeep(t))
	script(`await ctx.own.look({ what: "workflows" });`)
	if out, status := keepAt(t, dir, "run", "look.js"); status != 0 {
		t.Fatalf("run: status %d: %s", status, out)
	}
	if out, status := keepAt(t, dir, "doctor", "--servers"); status != 0 {
		t.Errorf("doctor of a server that has the tools: status %d: %s", status, out)
	}
	connection(buildKeep(t), `[connections.own.tools.guess]
effect = "get"`)
	if out, status := keepAt(t, dir, "doctor", "--servers"); status != 2 || !strings.Contains(out, "guess: the server has no tool guess") {
		t.Errorf("doctor of a server that has not: status %d: %s", status, out)
	}
	text, _ := keepAt(t, dir, "mutations", "--json")
	var list []api.Mutation
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) != 1 {
		t.Fatalf("mutations: %v: %s", err, text)
	}
	m := list[0]
	if m.State != "applied" || m.Tool != "own.look" || !strings.Contains(string(m.Identity), `"workflows"`) || !strings.Contains(string(m.Result), "look") {
		t.Errorf("the call is %s", text)
	}
}
