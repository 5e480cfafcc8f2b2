package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/store/sqlite"
)

// script is a workflow of three consumers, each of which makes one call and publishes what
// came of it. The third begins the next work.
const script = `const step = (topic, next) => Keep.consumer({
  subscribe: [topic],
  publishes: [next],
  async prepare(ctx, trigger) {
    if (!trigger) return { reservations: [], data: {} };
    return {
      reservations: [{ topic, ids: [trigger.messageId] }],
      data: { n: trigger.payload.n, text: trigger.payload.text },
    };
  },
  async mutate(ctx, prepared) {
    await ctx.svc.create({ id: topic + prepared.data.n, text: prepared.data.text });
  },
  async next(ctx, prepared, m) {
    const n = prepared.data.n + (next === "a" ? 1 : 0);
    await ctx.publish(next, { messageId: "m" + n, n, text: m.result.text });
  },
});
export default Keep.workflow({
  name: %q,
  topics: { "a": {}, "b": {}, "c": {} },
  consumers: { one: step("a", "b"), two: step("b", "c"), three: step("c", "a") },
});`

// echo is a tool that answers at once with what it was given, and can be asked.
type echo struct{}

// Spec implements connector.Tool.
func (echo) Spec() connector.Spec {
	return connector.Spec{Name: "create", Effect: connector.Mutate, Level: keep.LevelKey, Identity: []string{"id"}}
}

// Target implements connector.MutateTool.
func (echo) Target(json.RawMessage) string { return "thing" }

// Mutate implements connector.MutateTool.
func (echo) Mutate(_ context.Context, m keep.Mutation) (connector.Receipt, error) {
	return connector.Receipt{Result: json.RawMessage(m.Payload)}, nil
}

// Reconcile implements connector.MutateTool.
func (echo) Reconcile(_ context.Context, m keep.Mutation) (connector.Answer, error) {
	return connector.Answer{Verdict: connector.Happened}, nil
}

// database is what a host works on, and what opens and closes it. It is wide because
// host.Store is.
type database interface {
	host.Store
	Open(ctx context.Context) error
	Close() error
}

// startKeep runs a host with a script for each client.
func startKeep(ctx context.Context, s spec, m *meter) (stop func() error, err error) {
	return startHost(ctx, s, m, deploy)
}

// startKeepGo runs a host with a workflow in Go for each client.
func startKeepGo(ctx context.Context, s spec, m *meter) (stop func() error, err error) {
	return startHost(ctx, s, m, deployGo)
}

// startHost runs a host with a workflow for each client, which deploy makes.
func startHost(ctx context.Context, s spec, m *meter, deploy func(context.Context, *host.Host, string) (keep.WorkflowName, error)) (stop func() error, err error) {
	var db database = sqlite.New(s.File, sqlite.Config{Host: true})
	if s.URL != "" {
		db = postgres.New(s.URL, postgres.Config{Host: true})
	}
	if err := db.Open(ctx); err != nil {
		return nil, err
	}
	clients, steppedBy := make(map[keep.WorkflowName]int), make([]int, s.Clients)
	leases, _ := db.(store.Leaser)
	h, err := host.Open(ctx, db, host.Config{
		Connections: []connector.Connection{{Name: "svc", Connector: "echo", Tools: []connector.Tool{echo{}}}},
		Logger:      slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Sandbox:     sandbox.Config{CacheDir: filepath.Join(os.TempDir(), "keep-bench-cache")},
		Leases:      leases,
		Trace: func(w keep.WorkflowName, p engine.Point) { // of one workflow, one call at a time
			if p != engine.AfterCommit {
				return
			}
			client := clients[w]
			if steppedBy[client]++; steppedBy[client]%steps == 0 {
				m.done(client)
			}
		},
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	for i := range s.Clients {
		w, err := deploy(ctx, h, fmt.Sprintf("w%03d", i))
		if err == nil {
			clients[w] = i
			err = db.Commit(ctx, first(w))
		}
		if err != nil {
			return nil, errors.Join(err, h.Close(), db.Close())
		}
	}
	var wg sync.WaitGroup
	var ended error
	wg.Go(func() { ended = h.Run(ctx) })
	return func() error { wg.Wait(); return errors.Join(ended, h.Close(), db.Close()) }, nil
}

func deploy(ctx context.Context, h *host.Host, name string) (keep.WorkflowName, error) {
	bundle, err := sandbox.BuildSource(name+".js", fmt.Appendf(nil, script, name))
	if err != nil {
		return "", err
	}
	w, err := h.LoadBundle(ctx, bundle)
	if err != nil {
		return "", err
	}
	_, err = h.Deploy(ctx, w)
	return w.Name, err
}

// first publishes the event with which the first work begins.
func first(w keep.WorkflowName) keep.Commit {
	now := time.Now().UTC().Truncate(time.Millisecond)
	in := keep.Input{ID: keep.InputID("in_" + w), Workflow: w, Source: "bench", Type: "begin", ExternalID: "1", Title: "begin",
		Status: keep.InputPending, CreatedAt: now}
	payload, _ := json.Marshal(map[string]any{"n": 0, "text": text}) // such values always marshal
	return keep.Commit{Workflow: w, At: now, Changes: []keep.Change{keep.PutInput{Input: in}, keep.Publish{Event: keep.Event{
		Workflow: w, Topic: "a", MessageID: "m0", Payload: payload,
		Status: keep.EventPending, CausedBy: []keep.InputID{in.ID}, CreatedAt: now, UpdatedAt: now}}}}
}
