package workflow_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/script/workflow"
)

// compiler returns the TypeScript compiler, or skips the test: test.sh installs it.
func compiler(t *testing.T) string {
	t.Helper()
	tsc, err := exec.LookPath("tsc")
	if err != nil {
		t.Skip("no TypeScript compiler: ./test.sh installs it, or npm install --global typescript")
	}
	return tsc
}

// compile runs the compiler in its strict mode over files, and returns what it says.
func compile(t *testing.T, options string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["tsconfig.json"] = `{"compilerOptions":{"noEmit":true,"strict":true,"allowJs":true,"checkJs":true,"target":"es2022",` +
		`"module":"es2022","moduleResolution":"bundler",` + options + `,"types":[]}}`
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(compiler(t), "--project", ".", "--pretty", "false")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Fatal(err)
	}
	return string(out)
}

// What an editor has by itself beside our types: nothing, or a browser's.
var libraries = map[string]string{"without a browser": `"lib":["es2022"]`, "with a browser": `"lib":["es2022","dom","dom.iterable"]`}

// Scripts that are right pass the TypeScript compiler in its strict mode, and
// each call that a phase forbids is an error there: the files say where one is
// expected.
func TestTypesWithCompiler(t *testing.T) {
	s := readStory(t, "testdata/effects/invoices.txtar")
	for name, files := range map[string]map[string]string{
		"scripts": {"keep.d.ts": workflow.Types(connections()), "invoices.js": s.file("script.js"), "checks.ts": readFile(t, "testdata/checks.ts")},
		"odd":     {"keep.d.ts": readFile(t, "testdata/types_odd.d.ts")},
	} {
		if out := compile(t, libraries["without a browser"], files); out != "" {
			t.Errorf("tsc of the %s:\n%s", name, out)
		}
	}
}

// bareAPI has tools whose configuration says nothing of their params: what the http
// connector makes of such a tool allows any beside those that it needs.
var bareAPI = connector.Connection{Name: "api", Connector: "http", Tools: []connector.Tool{
	tool{Name: "list", Effect: connector.List},
	tool{Name: "show", Effect: connector.Get, Params: json.RawMessage(`{"type":"object","properties":{"id":{"type":["string","number","boolean"]}},"required":["id"],"additionalProperties":false}`)},
	tool{Name: "create", Effect: connector.Mutate, Identity: []string{"id"}, Params: json.RawMessage(`{"type":"object","properties":{"id":{}},"required":["id"]}`)},
}}

// A handler is the body of a handler, and where it stands.
type handlerText struct{ name, kind, body string }

// script returns a workflow with that one handler.
func (h handlerText) script() string {
	consumer := func(prepare, mutate, next string) string {
		return `consumers: { c: Keep.consumer({ subscribe: ["in"],
			async prepare(ctx, trigger) { ` + prepare + `; return { reservations: trigger ? [{ topic: "in", ids: [trigger.messageId] }] : [], data: { id: "1" } } },
			async mutate(ctx, prepared) { ` + mutate + ` }, async next(ctx, prepared, mutationResult) { ` + next + ` } }) }`
	}
	part := map[string]string{
		"producer": `producers: { async p(ctx) { ` + h.body + ` } }`,
		"prepare":  consumer(h.body, "", ""), "mutate": consumer("", h.body, ""), "next": consumer("", "", h.body),
		"job":   `jobs: { async j(ctx) { ` + h.body + ` } }`,
		"item":  `jobs: { async j(ctx) { await ctx.withItem("1", "One", async (ctx) => { ` + h.body + ` }) } }`,
		"whole": h.body,
	}[h.kind]
	return `export default Keep.workflow({ name: "w", topics: { in: {}, out: {} }, ` + part + ` })`
}

// Scripts that the host accepts.
var validScripts = []handlerText{
	{"publish with an id", "producer", `await ctx.publish("in", { messageId: "1", subject: "x", nested: { a: [1] } })`},
	{"publish a number", "producer", `await ctx.publish("in", { messageId: 7 })`},
	{"publish each time", "producer", `await ctx.publish(["in", "out"], { once: false, at: ctx.now() })`},
	{"publish a payload", "producer", `await ctx.publish("in", { messageId: "1", payload: [1, 2] })`},
	{"checkpoint", "producer", `const n = (await ctx.kv.get("n")) ?? 0; await ctx.kv.set("n", n + 1); await ctx.kv.delete("m")`},
	{"input without a title", "producer", `const i = await ctx.registerInput({ source: "s", type: "t", id: 9 }); await ctx.publish("in", { messageId: "1", inputId: i })`},
	{"tool without a schema", "producer", `for (const o of await ctx.api.list({ page: 1, anything: [1] })) await ctx.publish("in", { messageId: o.id, ...o })`},
	{"tool without params", "producer", `await ctx.api.list()`},
	{"get by a number", "prepare", `const o = await ctx.api.show({ id: 7 }); ctx.log(o.name)`},
	{"peek", "prepare", `for (const e of await ctx.peek("in", { limit: 5 })) ctx.log(e.messageId, e.payload.x); await ctx.getByIds("in", ["1", 2])`},
	{"any params of a bare tool", "mutate", `await ctx.api.create({ id: prepared.data.id, name: "x", tags: ["a"], subkey: "s" })`},
	{"params beside the schema's", "mutate", `await ctx.mail.send({ to: "x", cc: "y" })`},
	{"return the call", "mutate", `if (prepared.data.id === "0") return; return ctx.crm.create({ id: "1" })`},
	{"publish in next without an id", "next", `await ctx.publish("out", { id: prepared.data.id }); await ctx.publish("out")`},
	{"every outcome", "next", `switch (mutationResult.status) { case "applied": ctx.log(mutationResult.result.id); break; case "skipped": case "none": ctx.log("no") }`},
	{"console", "job", `console.log("a", 1); console.warn({}); console.error(new Error("x")); console.info(); console.debug([])`},
	{"globals", "job", `const u = new URL("/a?b=1", "http://x"); u.searchParams.append("c", "d"); ctx.log(u.href, btoa(atob("aGk=")), structuredClone([1]), crypto.randomUUID(), new TextEncoder().encode("x").length)`},
	{"digest", "job", `const d = await crypto.subtle.digest("SHA-256", new TextEncoder().encode("x")); ctx.log(new TextDecoder().decode(d), new URLSearchParams({ a: "b" }).toString())`},
	{"item", "item", `if (ctx.item.isDone) return; await ctx.api.create({ id: ctx.item.id, attempt: ctx.item.attempt }); return ctx.item.status`},
	{"schedules", "whole", `producers: { p: { schedule: { interval: "5m" }, publishes: ["in"], handler: async (ctx) => { ctx.log(1) } } }, jobs: { j: { schedule: { cron: "0 9 * * *", timezone: "Europe/Berlin" }, handler() {} } }`},
}

// Scripts that the host would refuse.
var invalidScripts = []handlerText{
	{"publish without an id", "producer", `await ctx.publish("in", { subject: "x" })`},
	{"publish nothing", "producer", `await ctx.publish("in")`},
	{"id and once", "producer", `await ctx.publish("in", { messageId: "1", once: false })`},
	{"once alone", "producer", `await ctx.publish("in", { once: true })`},
	{"topic is a number", "producer", `await ctx.publish(7, { messageId: "1" })`},
	{"input without an id", "producer", `await ctx.registerInput({ source: "s", type: "t" })`},
	{"producer that changes", "producer", `await ctx.api.create({ id: "1" })`},
	{"producer that peeks", "producer", `await ctx.peek("in")`},
	{"no such connection", "prepare", `await ctx.shop.list()`},
	{"no such tool", "prepare", `await ctx.api.lst()`},
	{"missing param", "prepare", `await ctx.api.show({})`},
	{"closed params", "prepare", `await ctx.api.show({ id: 1, verbose: true })`},
	{"prepare that changes", "prepare", `await ctx.mail.send({ to: "x" })`},
	{"prepare without reservations", "whole", `consumers: { c: Keep.consumer({ subscribe: ["in"], async prepare() { return { data: 1 } } }) }`},
	{"mutate that lists", "mutate", `await ctx.api.list()`},
	{"mutate that publishes", "mutate", `await ctx.publish("out", { messageId: "1" })`},
	{"next that reads", "next", `await ctx.api.show({ id: 1 })`},
	{"job that changes outside of an item", "job", `await ctx.api.create({ id: "1" })`},
	{"nested item", "item", `await ctx.withItem("2", "Two", async () => {})`},
	{"fetch and process", "job", `const r = await fetch("http://x"); ctx.log(r, process.env.HOME)`},
}

// The types accept what the host accepts, and refuse what it would refuse, in an editor
// that knows a browser and in one that does not.
func TestTypesAgreeWithTheHost(t *testing.T) {
	compiler(t)
	types := workflow.Types(append(connections(), bareAPI))
	for name, lib := range libraries {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"keep.d.ts": types}
			for i, h := range validScripts {
				files[fmt.Sprintf("valid%02d.ts", i)] = h.script()
			}
			for i, h := range invalidScripts {
				files[fmt.Sprintf("invalid%02d.ts", i)] = h.script()
			}
			out := compile(t, lib, files)
			if strings.Contains(out, "keep.d.ts") {
				t.Errorf("the types themselves:\n%s", out)
			}
			for i, h := range validScripts {
				if file := fmt.Sprintf("valid%02d.ts", i); strings.Contains("\n"+out, "\n"+file+"(") {
					t.Errorf("%s is refused:\n%s\n%s", h.name, h.body, out)
				}
			}
			for i, h := range invalidScripts {
				if file := fmt.Sprintf("invalid%02d.ts", i); !strings.Contains(out, file+"(") {
					t.Errorf("%s is accepted: %s", h.name, h.body)
				}
			}
		})
	}
}
