package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
)

const recordedScript = `export default Keep.workflow({ name: "w", topics: { t: {} },
  producers: { async poll(ctx) { for (const o of await ctx.shop.list({})) await ctx.publish("t", { messageId: o.id, mail: o.mail }); } },
  consumers: { send: Keep.consumer({ subscribe: ["t"],
    async prepare(ctx, trigger) { return trigger ? { reservations: [{ topic: "t", ids: [trigger.messageId] }], data: trigger.payload } : { reservations: [], data: 0 }; },
    async mutate(ctx, prepared) { await ctx.shop.send({ id: "1", to: prepared.data.mail }); } }) } });`

// keep test --record makes a test of a run beside its script: it passes, until the script does
// something else. Nothing is sent, and no file is overwritten.
func TestRecord(t *testing.T) {
	var asked atomic.Int64
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `[{"id":"o1","mail":"ada@lovelace.net"}]`)
	}))
	defer shop.Close()
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("keep.toml", shopToml(shop.URL))
	write("w.js", recordedScript)
	keep := func(code int, wants string, args ...string) {
		t.Helper()
		var out, talk bytes.Buffer
		got := run(t.Context(), args, &out, &talk)
		if all := out.String() + talk.String(); got != code || !strings.Contains(all, wants) || strings.Contains(all, "lovelace") && args[len(args)-1] != "--plain" {
			t.Errorf("keep %v: exit %d, want %d and %q\n%s", args, got, code, wants, all)
		}
	}
	keep(0, "", "run", "w.js")
	before := asked.Load()
	keep(3, "none", "test", "--record", "run_none")
	keep(2, "ends with .test.toml", "test", "--record", "last", "--out", "w.toml")
	keep(2, "belong to --record", "test", "--out", "w.test.toml")
	keep(0, `to = "person1@example.com"`, "test", "--record", "last")
	keep(0, `ada@lovelace.net`, "test", "--record", "last", "--plain")
	keep(0, `"scrubbed"`, "test", "--record", "last", "--json")
	keep(0, "replaced: 1 address", "test", "--record", "last", "--out", "w.test.toml")
	keep(2, "is not overwritten", "test", "--record", "last", "--out", "w.test.toml")
	if text, err := os.ReadFile("w.test.toml"); err != nil || strings.Contains(string(text), "script =") {
		t.Errorf("the test names the script beside it (%v):\n%s", err, text)
	}
	keep(0, "1 passed, 0 failed", "test")
	write("w.js", strings.Replace(recordedScript, `id: "1"`, `id: "2"`, 1))
	keep(1, "calls[0]: want", "test")
	if n := asked.Load() - before; n != 0 || before == 0 {
		t.Errorf("the services were asked %d times, after %d", n, before)
	}
	write("w.js", recordedScript)
	toml, err := os.ReadFile("keep.toml")
	if err != nil {
		t.Fatal(err)
	}
	write("keep.toml", string(toml)+"[trace]\nkeep = \"0s\"\n")
	keep(0, "", "publish", "w", "t", "--id", "o2", `{"mail":"b@example.com"}`)
	keep(0, "", "run", "w.js")
	keep(1, "not recorded", "test", "--record", "last")
}

// shopToml is the keep.toml of a shop with a list of orders, to each of which something is sent once.
func shopToml(url string) string {
	return fmt.Sprintf(`db = "keep.db"
workflows = ["w.js"]
[connections.shop]
connector = "http"
base_url = %q
[connections.shop.tools.list]
effect = "list"
path = "/orders"
[connections.shop.tools.send]
effect = "mutate"
path = "/orders/{id}"
identity = ["id"]
deduplicates = true
idempotency_header = "Idempotency-Key"
`, url)
}
