//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keep-run/keep/api"
)

const comparedScript = `export default Keep.workflow({ name: "w", topics: { t: {} },
  producers: { async poll(ctx) { for (const o of await ctx.shop.list({}))
    await ctx.publish("t", { messageId: o.id, inputId: await ctx.registerInput({ source: "shop", type: "order", id: o.id, title: "Order " + o.id }), name: o.name }); } },
  consumers: { send: Keep.consumer({ subscribe: ["t"],
    async prepare(ctx, trigger) { return trigger ? { reservations: [{ topic: "t", ids: [trigger.messageId] }], data: trigger.payload, ui: { title: "Send " + trigger.messageId } } : { reservations: [], data: 0 }; },
    async mutate(ctx, prepared) { await ctx.shop.send({ id: prepared.data.name, name: prepared.data.name }); } }) } });`

// newComparedShop makes a project of a shop whose orders were sent by version 1.0, and returns what
// counts the requests to the shop.
func newComparedShop(t *testing.T) (dir string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `[{"id":"o1","name":"ada"},{"id":"o2","name":"bob"}]`)
	}))
	t.Cleanup(shop.Close)
	dir = shortDir(t)
	for name, text := range map[string]string{
		"keep.toml":  shopToml(shop.URL) + "[connections.shop.tools.get]\neffect = \"get\"\npath = \"/order/{id}\"\n",
		"w.js":       comparedScript,
		"same.js":    "// a comment\n" + comparedScript,
		"payload.js": strings.Replace(comparedScript, "name: prepared.data.name", `name: prepared.data.name + "\u001b[31m"`, 1),
		"none.js":    strings.Replace(comparedScript, "await ctx.shop.send", `if (prepared.data.name !== "ada") await ctx.shop.send`, 1),
		"read.js":    strings.Replace(comparedScript, "async mutate(ctx, prepared) {", `async mutate(ctx, prepared) { await ctx.shop.get({ id: "x" });`, 1),
		"fresh.js":   strings.Replace(comparedScript, `name: "w"`, `name: "fresh"`, 1),
		"broken.js":  "export default {",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	if code, _, talk := runKeep(t, "run", "w.js"); code != 0 {
		t.Fatalf("keep run: exit %d: %s", code, talk)
	}
	return dir, asked
}

// runKeep runs a command in this process.
func runKeep(t *testing.T, args ...string) (code int, out, talk string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, &o, &e)
	return code, o.String(), e.String()
}

// keep deploy --compare and keep workflows compare say what would have been otherwise, deploy
// nothing, and reach no service.
func TestCompare(t *testing.T) {
	_, asked := newComparedShop(t)
	before := asked.Load()
	for _, tt := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"deploy", "same.js", "--compare"}, 0, []string{"safe: 3 runs of version 1.0 of w: 3 same. Nothing was sent, and nothing was deployed."}},
		{[]string{"deploy", ".", "--compare"}, 0, []string{"safe: "}},
		{[]string{"deploy", "payload.js", "--compare"}, 4, []string{"of send: changed", `  - mutate payload {"id":"ada","name":"ada"}`, `  + mutate payload {"id":"ada","name":"ada`,
			"shop.send", "redo: keep events redo w t o1", "impactful: 3 runs of version 1.0 of w: 2 changed, 1 same."}},
		{[]string{"deploy", "payload.js", "--compare", "--json"}, 4, []string{`"workflow": "w"`, `"from": "1.0"`, `"to": "new"`, `"impact": "impactful"`, `"change": "changed"`,
			`"remedy": "redo"`, `"external_id": "o2"`, `"same": 1`}},
		{[]string{"deploy", "none.js", "--compare"}, 4, []string{"missing", "by hand", "1 missing, 2 same"}},
		{[]string{"deploy", "read.js", "--compare"}, 4, []string{"not known: mutate shop.get: the run did not ask this", "inconclusive: 3 runs"}},
		{[]string{"deploy", "fresh.js", "--compare"}, 4, []string{"inconclusive: fresh is new, so there are no runs to compare"}},
		{[]string{"deploy", "fresh.js", "--compare", "--json"}, 4, []string{`"from": ""`, `"impact": "inconclusive"`, `"runs": []`}},
		{[]string{"deploy", "broken.js", "--compare"}, 2, []string{"broken.js:1"}},
		{[]string{"workflows", "compare", "w", "1.0", "1.0"}, 0, []string{"safe: "}},
		{[]string{"workflows", "compare", "w", "1.0", "2.0"}, 3, []string{"2.0"}},
		{[]string{"workflows", "compare", "w", "x", "1.0"}, 3, []string{"x"}},
		{[]string{"workflows", "compare", "none", "1.0", "1.0"}, 3, []string{"none"}},
	} {
		code, out, talk := runKeep(t, tt.args...)
		for _, want := range tt.want {
			if !strings.Contains(out+talk, want) {
				t.Errorf("keep %v does not say %q", tt.args, want)
			}
		}
		if code != tt.code || t.Failed() {
			t.Fatalf("keep %v: exit %d, want %d\n%s%s", tt.args, code, tt.code, out, talk)
		}
		if strings.Contains(out, "\x1b") {
			t.Errorf("keep %v prints what a script wrote as it is: %q", tt.args, out)
		}
	}
	if n := asked.Load() - before; n != 0 || before < 3 {
		t.Errorf("comparing asked the service %d times, after %d", n, before)
	}
	_, out, _ := runKeep(t, "workflows", "versions", "w", "--json")
	if strings.Count(out, `"version":`) != 1 {
		t.Errorf("something was deployed: %s", out)
	}
	// A version that is deployed is compared with the one before, both ways.
	if code, out, talk := runKeep(t, "deploy", "payload.js"); code != 0 {
		t.Fatalf("keep deploy: exit %d\n%s%s", code, out, talk)
	}
	if code, out, talk := runKeep(t, "workflows", "compare", "w", "1.0", "2.0", "--json"); code != 4 || !strings.Contains(out, `"to": "2.0"`) || !strings.Contains(out, `"changed": 2`) {
		t.Errorf("1.0 with 2.0: exit %d\n%s%s", code, out, talk)
	}
	if code, out, talk := runKeep(t, "workflows", "compare", "w", "2.0", "1.0"); code != 4 || !strings.Contains(out, "inconclusive: no recorded run of version 2.0") {
		t.Errorf("2.0 with 1.0: exit %d\n%s%s", code, out, talk)
	}
}

// A daemon compares: the command asks it, and a person in Chromium sees which runs would have been
// otherwise and what can be done about each.
func TestCompareServed(t *testing.T) {
	bin := buildKeep(t)
	dir, _ := newComparedShop(t)
	d := &serving{t: t, bin: bin, dir: dir, env: append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))}
	d.start()
	cmd := exec.CommandContext(t.Context(), bin, "deploy", "payload.js", "--compare", "--json")
	cmd.Dir, cmd.Env = dir, d.env
	out, err := cmd.Output()
	var r api.Comparison
	if bad := json.Unmarshal(out, &r); bad != nil || cmd.ProcessState.ExitCode() != 4 {
		t.Fatalf("%v, %v: %s", err, bad, out)
	}
	if r.Impact != "impactful" || r.Counts["changed"] != 2 || len(r.Runs) < 3 || r.Runs[0].Change != "changed" || len(r.Inputs) != 2 || len(r.Mutations) != 2 {
		t.Errorf("%+v", r)
	}
	operator := d.keep("token", "add", "op", "--role", "operator")
	if res, body := d.ask("POST", api.Prefix+"/workflows/w/compare", `{"version":"1.0"}`, "Authorization", "Bearer "+operator, "Content-Type", "application/json"); res.StatusCode != http.StatusForbidden {
		t.Errorf("an operator compares: %d %s", res.StatusCode, body)
	}
	b := d.admitted()
	b.Open(d.base + "/workflows/w")
	b.Click("summary")
	b.Write("#compare-source", strings.Replace(comparedScript, "await ctx.shop.send", `if (prepared.data.name !== "ada") await ctx.shop.send`, 1))
	b.Click(`form[action$="/compare"] button`)
	for _, want := range []string{"Impactful", "by hand: what happened stands", "Order o1", "1 missing", "Nothing was sent"} {
		b.Shows(want)
	}
	b.Sees(d.base+"/workflows/w/versions/1.0", "What would have been otherwise")
	b.Click("summary")
	b.Click(`form[action$="/compare"] button`)
	b.Shows("Safe: every run whose work is done would have done the same")
}
