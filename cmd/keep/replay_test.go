package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keep-run/keep/api"
)

const replayed = `import { title } from "./lib/title.js";
export default Keep.workflow({ name: "w", topics: { t: {} },
  producers: { async poll(ctx) { for (const o of await ctx.shop.list({})) await ctx.publish("t", { messageId: o.id, dice: Math.random() }); } },
  consumers: { send: Keep.consumer({ subscribe: ["t"],
    async prepare(ctx, trigger) { return trigger ? { reservations: [{ topic: "t", ids: [trigger.messageId] }], data: trigger.payload, ui: { title: title() } } : { reservations: [], data: 0 }; },
    async mutate(ctx, prepared) { await ctx.shop.send({ id: "1", dice: prepared.data.dice }); } }) } });`

// keep runs replay goes through a run with its own version and with others, and reaches no service.
func TestReplay(t *testing.T) {
	var asked atomic.Int64
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `[{"id":"o1"}]`)
	}))
	defer shop.Close()
	dir := t.TempDir()
	t.Chdir(dir)
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("keep.toml", shopToml(shop.URL))
	write("w.js", replayed)
	write("lib/title.js", `export const title = () => "A title"`)
	write("other.js", strings.Replace(replayed, `dice: prepared.data.dice`, `dice: "\u001b[31m"`, 1))
	write("broken.js", "export default {")
	keep := func(args ...string) (int, string, string) {
		var out, talk bytes.Buffer
		code := run(t.Context(), args, &out, &talk)
		return code, out.String(), talk.String()
	}
	if code, _, talk := keep("run", "w.js"); code != 0 {
		t.Fatalf("keep run: exit %d: %s", code, talk)
	}
	_, out, _ := keep("runs", "--handler", "send", "--json")
	var runs []api.Run
	if err := json.Unmarshal([]byte(out), &runs); err != nil || len(runs) == 0 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	id := string(runs[len(runs)-1].ID)
	before := asked.Load()
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 0, "equal: gone through prepare, mutate of a run of version 1.0. Nothing was sent."},
		{[]string{"--with", "w.js"}, 0, "equal"},
		{[]string{"--current"}, 0, "equal"},
		{[]string{"--version", "1.0", "--json"}, 0, `"verdict": "equal"`},
		{[]string{"--with", "other.js"}, 1, "mutate: payload\n- "},
		{[]string{"--with", "other.js", "--json"}, 1, `"what": "payload"`},
		{[]string{"--with", "broken.js"}, 2, "broken.js:1"},
		{[]string{"--with", "none.js"}, 3, "Scripts there: broken.js, other.js, w.js"},
		{[]string{"--version", "9.0"}, 3, "9.0"},
		{[]string{"--version", "1.0", "--current"}, 2, "give one of them"},
	} {
		code, out, talk := keep(append([]string{"runs", "replay", id}, tt.args...)...)
		if code != tt.code || !strings.Contains(out+talk, tt.want) {
			t.Errorf("replay %v: exit %d, want %d and %q\n%s%s", tt.args, code, tt.code, tt.want, out, talk)
		}
		if strings.Contains(out, "\x1b") {
			t.Errorf("replay %v prints what the script wrote as it is: %q", tt.args, out)
		}
	}
	code, out, talk := keep("plan", "w.js", "--at", id)
	if code != 0 || !strings.Contains(out, "shop.send") || !strings.Contains(out, "after 0 reads") {
		t.Errorf("plan --at: exit %d\n%s%s", code, out, talk)
	}
	if code, out, talk = keep("plan", "w.js", "--at", "run_none"); code != 3 {
		t.Errorf("plan --at of no run: exit %d\n%s%s", code, out, talk)
	}
	// What is current now is another version: the default is still the run's own.
	write("w.js", strings.Replace(replayed, `dice: prepared.data.dice`, `dice: "6"`, 1))
	if code, _, talk := keep("deploy", "w.js"); code != 0 {
		t.Fatalf("keep deploy: exit %d: %s", code, talk)
	}
	if code, out, talk := keep("runs", "replay", id); code != 0 || !strings.Contains(out, "of a run of version 1.0") {
		t.Errorf("replay after a deploy: exit %d\n%s%s", code, out, talk)
	}
	if code, out, talk := keep("runs", "replay", id, "--current"); code != 1 || !strings.Contains(out, "mutate: payload\n- ") {
		t.Errorf("replay with what is current: exit %d\n%s%s", code, out, talk)
	}
	if n := asked.Load() - before; n != 0 || before < 2 {
		t.Errorf("the replays asked the service %d times, after %d", n, before)
	}
}
