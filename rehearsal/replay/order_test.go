package replay_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/rehearsal/replay"
)

// ordered reserves two events of one order key at once.
const ordered = `export default Keep.workflow({ name: "w", topics: { a: {} },
  producers: { async poll(ctx) { for (const o of await ctx.shop.list({ page: "0" })) await ctx.publish("a", { messageId: o.id, payload: { who: "ann", id: o.id } }); } },
  consumers: { send: Keep.consumer({ subscribe: ["a"], order: "key", key: (event) => event.payload.who,
    async prepare(ctx, trigger) {
      if (!trigger) return { reservations: [], data: {} };
      const both = await ctx.peek("a", { limit: 2 });
      return { reservations: [{ topic: "a", ids: both.map((e) => e.messageId) }], data: {} };
    },
    async mutate(ctx) { await ctx.shop.get({ id: "o1" }); } }) } });`

// The order key of a run is compared, which says what events wait for it.
func TestOrderKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shop.orders = 2
	w.live(t, ordered)
	run := w.runOf(t, "send")
	if key, ok := run.Lane.Key(); !ok || key != "ann" || len(run.Reservations) != 1 || len(run.Reservations[0].IDs) != 2 {
		t.Fatalf("run %+v", run)
	}
	const key = `key: (event) => event.payload.who`
	cases := []struct {
		name, old, new string
		verdict        replay.Verdict
		want           string // all that is said
	}{
		{"its own version", "", "", replay.Equal, ""},
		{"the same key", key, `key: ({ payload }) => "a" + payload.who.slice(1)`, replay.Equal, ""},
		{"another key", key, `key: () => "one"`, replay.Different, `prepare order_key: "ann" → "one"` + "\n"},
		{"by the clock", key, `key: (event) => Date.now() === Date.parse(event.createdAt) && event.status === "pending" && event.attempt === 1 ? "ann" : "bob"`, replay.Equal, ""},
		{"two keys", key, `key: (event) => event.messageId`, replay.Different, `prepare error: null → {"class":"logic","code":"two-keys","message":` +
			`"the events of one run have the order keys \"o00\" and \"o01\"; reserve events of one key, the consumer runs again for the rest"}` + "\n"},
		{"no key", key, `key: (event) => event.payload.id === "o01" ? "" : "ann"`, replay.Different, `prepare error: null → {"class":"logic","code":"bad-order-key","message":` +
			`"key of send for event \"o01\" in topic \"a\": it is empty; return a string or a number for every event"}` + "\n"},
		{"no order by key", `order: "key", ` + key, `order: "none"`, replay.Different, `prepare order_key: "ann" → null` + "\n"},
	}
	for _, tt := range cases {
		source := ""
		if tt.old != "" {
			source = strings.Replace(ordered, tt.old, tt.new, 1)
		}
		if r := w.replay(t, run, source); r.Verdict != tt.verdict || said(r) != tt.want {
			t.Errorf("%s: %s\n%s\nwant %s\n%s", tt.name, r.Verdict, said(r), tt.verdict, tt.want)
		}
	}

	// An event that says something else since is not what the run had.
	e, err := w.db.Event(t.Context(), "w", "a", "o01")
	if err != nil {
		t.Fatal(err)
	}
	at := run.UpdatedAt.Add(time.Second).Truncate(time.Millisecond)
	if err := w.db.Commit(t.Context(), keep.Commit{Workflow: "w", At: at, Changes: []keep.Change{
		keep.RedoEvents{Topic: "a", IDs: []keep.MessageID{e.MessageID}, Chain: run.Chain, Attempt: 1, By: "ann"}}}); err != nil {
		t.Fatal(err)
	}
	e.Payload, e.UpdatedAt = json.RawMessage(`{"who":"bob"}`), at
	if err := w.db.Commit(t.Context(), keep.Commit{Workflow: "w", At: at, Changes: []keep.Change{keep.Publish{Event: e}}}); err != nil {
		t.Fatal(err)
	}
	if r := w.replay(t, run, ""); r.Verdict != replay.Inconclusive || !strings.Contains(said(r), "its order key is not known") {
		t.Errorf("an event that changed: %s\n%s", r.Verdict, said(r))
	}
}
