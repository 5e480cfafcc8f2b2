package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/sandbox"
	"github.com/keep-run/keep/sqlite"
)

// instant is a mutate tool that answers at once.
type instant struct{}

func (instant) Spec() connector.Spec {
	return connector.Spec{Name: "create", Effect: connector.Mutate, Level: keep.LevelKey, Identity: []string{"id"}}
}
func (instant) Target(json.RawMessage) string { return "thing" }
func (instant) Mutate(context.Context, keep.Mutation) (connector.Receipt, error) {
	return connector.Receipt{Result: json.RawMessage(`{"id":"7"}`)}, nil
}
func (instant) Reconcile(context.Context, keep.Mutation) (connector.Answer, error) {
	return connector.Answer{Verdict: connector.Happened}, nil
}

// consumerScript declares a workflow whose consumer handles one event a run.
func consumerScript(name string) string {
	return fmt.Sprintf(`export default Keep.workflow({
  name: %q,
  topics: { "in": {}, "out": {} },
  consumers: {
    act: Keep.consumer({
      subscribe: ["in"],
      publishes: ["out"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        return {
          reservations: [{ topic: "in", ids: [trigger.messageId] }],
          data: { id: trigger.messageId, text: trigger.payload.text },
          ui: { title: "Handle " + trigger.messageId },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.svc.create({ id: prepared.data.id, text: prepared.data.text });
      },
      async next(ctx, prepared, m) {
        if (m.status === "applied") await ctx.publish("out", { messageId: "out:" + prepared.data.id, ref: m.result.id });
      },
    }),
  },
});`, name)
}

// BenchmarkConsumer measures undisturbed consumer runs, script to disk, with
// synchronous=FULL and 1 KB payloads.
func BenchmarkConsumer(b *testing.B) {
	for _, workflows := range []int{1, 64} {
		b.Run(fmt.Sprintf("workflows=%d", workflows), func(b *testing.B) { benchConsumer(b, workflows) })
	}
}

func benchConsumer(b *testing.B, workflows int) {
	ctx := b.Context()
	db := sqlite.New(filepath.Join(b.TempDir(), "keep.db"), sqlite.Config{Host: true})
	if err := db.Open(ctx); err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	h, err := host.Open(ctx, db, host.Config{
		Connections: []connector.Connection{{Name: "svc", Connector: "fake", Tools: []connector.Tool{instant{}}}},
		Logger:      slog.New(slog.DiscardHandler),
		Sandbox:     sandbox.Config{CacheDir: b.TempDir()},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	payload := json.RawMessage(fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 1000)))
	per := b.N/workflows + 1
	for i := range workflows {
		name := fmt.Sprintf("w%02d", i)
		bundle, err := sandbox.BuildSource(name+".js", []byte(consumerScript(name)))
		if err != nil {
			b.Fatal(err)
		}
		w, err := h.LoadBundle(ctx, bundle)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := h.Deploy(ctx, w); err != nil {
			b.Fatal(err)
		}
		seed(b, db, keep.WorkflowName(name), per, payload)
	}
	runCtx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	b.ResetTimer()
	start := time.Now()
	wg.Go(func() {
		if err := h.Run(runCtx); err != nil {
			b.Error(err)
		}
	})
	if err := h.WaitIdle(ctx); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	took := time.Since(start)
	cancel()
	wg.Wait()
	b.ReportMetric(float64(per*workflows)/took.Seconds(), "runs/s")
}

func seed(b *testing.B, db *sqlite.DB, w keep.WorkflowName, n int, payload json.RawMessage) {
	b.Helper()
	now := time.Now().UTC().Truncate(time.Millisecond)
	in := keep.Input{ID: keep.InputID("in_" + w), Workflow: w, Source: "bench", Type: "seed", ExternalID: "1", Title: "seed", Status: keep.InputPending, CreatedAt: now}
	c := keep.Commit{Workflow: w, At: now, Changes: []keep.Change{keep.PutInput{Input: in}}}
	for i := range n {
		c.Changes = append(c.Changes, keep.Publish{Event: keep.Event{Workflow: w, Topic: "in", MessageID: keep.MessageID(fmt.Sprintf("m%06d", i)),
			Payload: payload, Status: keep.EventPending, CausedBy: []keep.InputID{in.ID}, CreatedAt: now, UpdatedAt: now}})
	}
	if err := db.Commit(b.Context(), c); err != nil {
		b.Fatal(err)
	}
}
