package scripttest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/rehearsal/scripttest"
	"github.com/keep-run/keep/store/memory"
)

// A counter is a shop: it says to each order what its id asks for.
type counter struct {
	mu    sync.Mutex
	tries map[string]int
	sent  map[string]bool
}

const listed = `[{"id":"o1","amount":5,"mail":"ada@lovelace.net","note":null,"apiKey":"hunter22","n":12345678901234567890},{"id":"lost","amount":7},{"id":"bad","amount":9}]`

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	id := strings.Split(r.URL.Path, "/")[min(2, len(strings.Split(r.URL.Path, "/"))-1)]
	if r.Method != http.MethodPost {
		fmt.Fprint(w, listed)
		return
	}
	c.tries[r.URL.Path]++
	switch {
	case id == "lost" && c.tries[r.URL.Path] == 1:
		c.sent[id] = true
		panic(http.ErrAbortHandler) // the answer is lost
	case id == "bad" && strings.HasSuffix(r.URL.Path, "/send"):
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"message":"no such customer"}`)
		return
	}
	fmt.Fprintf(w, `{"ref":"r-%s"}`, id)
}

const life = `
export default Keep.workflow({
  name: "orders",
  topics: { "order.new": { was: "new" }, "order.sent": { was: "sent" } },
  producers: {
    async poll(ctx) {
      const polls = await ctx.kv.get("polls") || 0;
      await ctx.kv.set("polls", polls + 1);
      const seen = await ctx.kv.get("seen");
      await ctx.kv.set("seen", { last: seen ? seen.last : null });
      await ctx.kv.set("gone", null);
      await ctx.kv.set("big", 2 ** 60 + 256);
      for (const o of await ctx.shop.list({ state: "new" }))
        await ctx.publish("order.new", { messageId: o.id, ...o, at: new Date().toISOString(), dice: Math.random() });
    },
  },
  consumers: {
    send: Keep.consumer({
      subscribe: ["order.new"], publishes: ["order.sent"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        const more = await ctx.peek("order.new", { limit: 10 });
        const all = await ctx.shop.list({ state: "any" });
        return { reservations: [{ topic: "order.new", ids: [trigger.messageId] }], data: { ...trigger.payload, all: all.length, more: more.length } };
      },
      async mutate(ctx, p) { await ctx.shop.send({ id: p.data.id, amount: p.data.amount, more: p.data.more, note: null, rows: [[p.data.id, null]], key: p.data.apiKey, dice: Math.random() }); },
      async next(ctx, p, m) { await ctx.publish("order.sent", { messageId: "sent:" + p.data.id, ref: m.result && m.result.ref, mail: p.data.mail, note: p.data.note }); },
    }),
  },
  jobs: {
    remind: { schedule: { interval: "1h" },
      async handler(ctx) {
        for (const o of await ctx.shop.list({ state: "open" }))
          await ctx.withItem("remind:" + o.id, "Remind " + o.id, async (ctx) => {
            if (ctx.item.isDone) return;
            await ctx.shop.note({ id: o.id, amount: o.amount });
          });
      } },
  },
});
`

// lived executes the script until nothing is left to do, and returns what it left.
func lived(t *testing.T) (*memory.Store, scripttest.Config) {
	t.Helper()
	server := httptest.NewServer(&counter{tries: make(map[string]int), sent: make(map[string]bool)})
	t.Cleanup(server.Close)
	send := httpapi.Tool{Effect: connector.Mutate, Path: "/orders/{id}/send", Identity: []string{"id"}, IdempotencyHeader: "Idempotency-Key", Deduplicates: true}
	note := send
	note.Path = "/orders/{id}/note"
	shop, err := httpapi.New("shop", httpapi.Config{BaseURL: server.URL, Tools: map[string]httpapi.Tool{
		"list": {Effect: connector.List, Path: "/orders", Query: []string{"state"}}, "send": send, "note": note,
	}})
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "orders.js"), []byte(life), 0o600); err != nil {
		t.Fatal(err)
	}
	if cfg.Script, err = host.Load(t.Context(), cfg.Runtime, dir, "orders.js"); err != nil {
		t.Fatal(err)
	}
	p := policy.Default()
	p.Retry.First, p.Retry.Max, p.Reconcile.First, p.Reconcile.Max = time.Millisecond, time.Millisecond, time.Millisecond, time.Millisecond
	cfg.Connections, cfg.Policy = []connector.Connection{*shop}, &p
	db := memory.New()
	h, err := host.Open(t.Context(), db, host.Config{Connections: cfg.Connections, Runtime: cfg.Runtime, Policy: &p, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Deploy(t.Context(), cfg.Script); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := h.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := h.WaitIdle(ctx); err != nil {
		t.Error(err)
	}
	stop()
	running.Wait()
	return db, cfg
}

// A test that is made of a run passes on the version of the run, and fails if the script does
// something else.
func TestRecord(t *testing.T) {
	t.Parallel()
	db, cfg := lived(t)
	changes := map[string][]string{ // of the script, by handler: each must be noticed
		"poll": {`messageId: o.id`, `messageId: "x" + o.id`, `...o,`, `...o, amount: 1,`, `polls + 1`, `polls + 2`, `"new"`, `"old"`,
			`seen.last : null`, `seen.last : 1`, `ctx.kv.set("gone", null)`, `ctx.kv.get("gone")`, `2 ** 60 + 256`, `2 ** 60`},
		"send": {`amount: p.data.amount`, `amount: 1`, `ids: [trigger.messageId]`, `ids: more.map((e) => e.messageId)`, `"sent:"`, `"gone:"`, `limit: 10`, `limit: 1`, `"any"`, `"all"`,
			`note: null`, `note: "a"`, `rows: [[p.data.id, null]]`, `rows: [[p.data.id, 7]]`, `note: p.data.note`, `note: 1`},
		"remind": {`amount: o.amount`, `amount: 1`, `"remind:" +`, `"r:" +`, `if (ctx.item.isDone) return;`, `return;`},
	}
	runs, _, err := db.Runs(t.Context(), keep.RunFilter{}, keep.Page{Limit: keep.MaxPage})
	if err != nil {
		t.Fatal(err)
	}
	recorded := make(map[keep.HandlerName]int)
	for _, run := range runs {
		if run.Kind == keep.Consumer && run.Trigger.IsZero() {
			continue
		}
		t.Run(fmt.Sprintf("%s %s %s", run.Handler, run.Trigger.MessageID, run.Status), func(t *testing.T) {
			r, err := scripttest.Record(t.Context(), scripttest.RecordConfig{Config: cfg, Store: db, Run: run.ID})
			if err != nil {
				t.Fatal(err)
			}
			recorded[run.Handler]++
			if got := r.Checkpoint(); got != (run.Handler == "poll") {
				t.Errorf("it is said to have values of a checkpoint: %t", got)
			}
			text := scripttest.File{Tests: []scripttest.Test{r.Test}}.TOML("A run of life.")
			for _, private := range []string{"ada@lovelace.net", "hunter22"} {
				if strings.Contains(string(text), private) {
					t.Errorf("the test has %s:\n%s", private, text)
				}
			}
			if run.Handler == "poll" && (strings.Contains(string(text), "at = ") || strings.Contains(string(text), "dice = ")) {
				t.Errorf("the test expects the time of its recording, or its chance:\n%s", text)
			}
			f, err := scripttest.Parse(text)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			problems := func(cfg scripttest.Config) string {
				v, err := scripttest.Run(t.Context(), cfg, f.Tests[0])
				if err != nil {
					t.Fatal(err)
				}
				return strings.Join(v.Problems, "\n")
			}
			if got := problems(cfg); got != "" {
				t.Errorf("on its own version: %s\n%s", got, text)
			}
			if run.Trigger.MessageID != "" && run.Trigger.MessageID != "o1" {
				return
			}
			of := changes[string(run.Handler)]
			for i := 0; i < len(of); i += 2 {
				if got := problems(changed(t, cfg, of[i], of[i+1])); got == "" {
					t.Errorf("with %s in place of %s it passes, too:\n%s", of[i+1], of[i], text)
				}
			}
		})
	}
	if recorded["poll"] == 0 || recorded["send"] < 3 || recorded["remind"] == 0 {
		t.Errorf("recorded %v, want a run of each handler, and of each order", recorded)
	}
}

// changed returns cfg with a changed script.
func changed(t *testing.T, cfg scripttest.Config, was, is string) scripttest.Config {
	t.Helper()
	if !strings.Contains(life, was) {
		t.Fatalf("the script has no %s", was)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "orders.js"), []byte(strings.ReplaceAll(life, was, is)), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if cfg.Script, err = host.Load(t.Context(), cfg.Runtime, dir, "orders.js"); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// What was not kept is said, and no test is made.
func TestRecord_refuses(t *testing.T) {
	t.Parallel()
	db, cfg := lived(t)
	if n, err := db.ForgetTraces(t.Context(), time.Now().Add(time.Hour), 1000); err != nil || n == 0 {
		t.Fatal(n, err)
	}
	runs, _, err := db.Runs(t.Context(), keep.RunFilter{Handler: "poll"}, keep.Page{Limit: 1})
	if err != nil || len(runs) == 0 {
		t.Fatal(runs, err)
	}
	_, err = scripttest.Record(t.Context(), scripttest.RecordConfig{Config: cfg, Store: db, Run: runs[0].ID})
	if err == nil || !strings.Contains(err.Error(), "not kept any more") || !strings.Contains(err.Error(), "[trace]") {
		t.Errorf("Record = %v, want that its reads are not kept", err)
	}
	if _, err = scripttest.Record(t.Context(), scripttest.RecordConfig{Config: cfg, Store: db, Run: "run_none"}); err == nil {
		t.Error("Record took a run that there is not")
	}
}

// What TOML writes, Parse reads back.
func TestFile_TOML(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		`{"a":"it's \"both\"\n","b":[1,2.5,true,{"c d":"\u007f"}]}`, `{"big":12345678901234567890}`, `[null]`, `"\ud83d\ude00 C:\\x"`, `{}`, `[]`, `1e300`,
	} {
		test := scripttest.Test{Name: "a", Handler: "h", Runs: 1, Expect: scripttest.Expect{Calls: []map[string]any{}}}
		var v any
		if err := json.Unmarshal([]byte(payload), &v); err != nil {
			t.Fatal(err)
		}
		test.Events = []scripttest.Event{{Topic: "t", MessageID: "m", Payload: v}}
		for _, odd := range []any{v, nil, []any{nil, "a"}, map[string]any{"a": nil}, map[string]any{"$json": "a"}} {
			test.KV = map[string]any{"a": odd, "b": []any{map[string]any{"$json": odd}}}
			test.Expect.Publishes = []map[string]any{{"topic": "t", "payload": odd}}
			f, err := scripttest.Parse(scripttest.File{Script: "a.js", Tests: []scripttest.Test{test}}.TOML(""))
			if err != nil {
				t.Fatalf("%v: %v", odd, err)
			}
			got, errGot := json.Marshal([]any{f.Tests[0].KV, f.Tests[0].Expect.Publishes})
			want, errWant := json.Marshal([]any{test.KV, test.Expect.Publishes})
			if string(got) != string(want) || errGot != nil || errWant != nil {
				t.Errorf("%s became %s", want, got)
			}
		}
		test.KV, test.Expect.Publishes = nil, nil
		if strings.Contains(payload, "null") {
			test.Events[0].Payload, test.Events[0].JSON = nil, payload
		}
		text := scripttest.File{Script: "a.js", Tests: []scripttest.Test{test}}.TOML("")
		f, err := scripttest.Parse(text)
		if err != nil {
			t.Errorf("%v\n%s", err, text)
			continue
		}
		if again := f.TOML(""); string(again) != string(text) || f.Tests[0].Expect.Calls == nil {
			t.Errorf("%s\nbecame\n%s", text, again)
		}
	}
}

// What a read returned, or a call, is in the file also if it is false or an empty text: without it the script would get null.
func TestFile_TOML_of_false(t *testing.T) {
	for _, result := range []any{false, "", float64(0), true, "a"} {
		f := scripttest.File{Tests: []scripttest.Test{{Name: "n",
			Reads:   []scripttest.Read{{Tool: "a.get", Result: result}},
			Answers: []scripttest.Answer{{Tool: "a.do", Says: scripttest.Applied, Result: result}},
			Events:  []scripttest.Event{{Topic: "t", MessageID: "m", Payload: result}}}}}
		text := f.TOML("")
		back, err := scripttest.Parse(text)
		if err != nil {
			t.Fatalf("%v: %v\n%s", result, err, text)
		}
		test := back.Tests[0]
		for _, v := range []any{test.Reads[0].Result, test.Answers[0].Result, test.Events[0].Payload} {
			if v == nil || fmt.Sprint(v) != fmt.Sprint(result) {
				t.Errorf("%#v comes back as %#v\n%s", result, v, text)
			}
		}
	}
}
