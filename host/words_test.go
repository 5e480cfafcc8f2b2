package host_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/store/memory"
)

// runGo executes handlers in Go beside the tools of svc until nothing is left to do, and returns the last run and its log.
func runGo(t *testing.T, tools []connector.Tool, handlers ...handler.Handler) (keep.Run, []keep.LogLine) {
	t.Helper()
	db, once := memory.New(), policy.Default()
	once.Retry.Attempts = 0
	h, err := host.Open(t.Context(), db, host.Config{Connections: []connector.Connection{{Name: "svc", Tools: tools}}, Policy: &once, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	w, err := h.LoadGo(&handler.Workflow{Name: "w", Topics: []keep.TopicName{"in", "out"}, Handlers: handlers})
	if err == nil {
		_, err = h.Deploy(t.Context(), w)
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		err = h.RunUntilIdle(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	runs, _, err := db.Runs(t.Context(), keep.RunFilter{}, keep.Page{Limit: 1})
	if err != nil || len(runs) == 0 {
		t.Fatalf("runs: %v, %v", runs, err)
	}
	lines, err := db.Logs(t.Context(), runs[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	return runs[0], lines
}

func job(run func(ctx context.Context, w *handler.Worker) error) handler.Handler {
	return handler.Job{Name: "j", Schedule: keep.Schedule{Interval: time.Hour}, Run: run}
}

// An error is for people: what is no UTF-8 in it becomes U+FFFD, and the rest is said.
func TestErrorsAreReadable(t *testing.T) {
	bad := errors.New("no caf\xe9 today")
	item := func(work func(ctx context.Context, it *handler.Item) error) handler.Handler {
		return job(func(ctx context.Context, w *handler.Worker) error { return w.Item(ctx, "a", "A", work) })
	}
	type params struct {
		ID string `json:"id"`
	}
	tools := []connector.Tool{
		connector.NewReader(connector.Spec{Name: "get"}, func(context.Context, params) (string, error) { return "", bad }),
		connector.NewMutator(connector.Spec{Name: "do", Identity: []string{"id"}}, connector.Change[params, string]{
			Do: func(context.Context, string, params) (string, error) {
				return "", keep.Failf(keep.ClassLogic, "refused", "%v", bad)
			},
		}),
	}
	for name, h := range map[string]handler.Handler{
		"item":    item(func(context.Context, *handler.Item) error { return bad }),
		"handler": job(func(context.Context, *handler.Worker) error { return bad }),
		"panic":   job(func(context.Context, *handler.Worker) error { panic(bad) }),
		"read":    job(func(ctx context.Context, w *handler.Worker) error { return w.Read(ctx, "svc.get", params{}, nil) }),
		"call":    item(func(ctx context.Context, it *handler.Item) error { return it.Call(ctx, "svc.do", params{"1"}, nil) }),
		"log": job(func(_ context.Context, w *handler.Worker) error {
			w.Logf("%v", bad)
			return errors.New("no caf\ufffd today")
		}),
	} {
		run, lines := runGo(t, tools, h)
		said := ""
		if run.Error != nil {
			said = run.Error.Message
		}
		if !strings.Contains(said, "no caf\ufffd today") || !utf8.ValidString(said) || run.Error.Code == "not-utf-8" {
			t.Errorf("%s: the run is stopped by %q (%v)", name, said, run.Error)
		}
		for _, l := range lines {
			if l.Text != "no caf\ufffd today" {
				t.Errorf("%s: the log says %q", name, l.Text)
			}
		}
	}
}

// A call in an item that this very run has done is a failure, which is recorded: the item is stored once.
func TestCallInAnItemThatTheRunHasDone(t *testing.T) {
	type params struct {
		ID string `json:"id"`
	}
	tools := []connector.Tool{connector.NewMutator(connector.Spec{Name: "do", Identity: []string{"id"}}, connector.Change[params, string]{
		Do: func(context.Context, string, params) (string, error) { return "", nil }})}
	run, _ := runGo(t, tools, job(func(ctx context.Context, w *handler.Worker) error {
		for range 2 {
			if err := w.Item(ctx, "a", "A", func(_ context.Context, it *handler.Item) error { return nil }); err != nil {
				return err
			}
		}
		return w.Item(ctx, "a", "A", func(ctx context.Context, it *handler.Item) error { return it.Call(ctx, "svc.do", params{"1"}, nil) })
	}))
	if run.Error == nil || run.Error.Code != "item-done" || run.Status != keep.StatusLogic {
		t.Errorf("the run is %s, stopped by %v; want item-done", run.Status, run.Error)
	}
}
