package host_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
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

// runGo executes handlers in Go beside the tools of svc until nothing is left to do, and returns the last run, its log and the open questions.
func runGo(t *testing.T, tools []connector.Tool, handlers ...handler.Handler) (keep.Run, []keep.LogLine, []keep.Escalation) {
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
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
	questions, _, err := db.Escalations(t.Context(), keep.EscalationFilter{Open: true}, keep.Page{})
	if err != nil {
		t.Fatal(err)
	}
	return runs[0], lines, questions
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
		run, lines, _ := runGo(t, tools, h)
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
	run, _, _ := runGo(t, tools, job(func(ctx context.Context, w *handler.Worker) error {
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

// ofScripts are words that no Go program has.
var ofScripts = regexp.MustCompile(`ctx\.|[Ss]cript|keep\.toml|getByIds|messageId|withItem|\bkv\b|reservations|wakeAt|prepare must|registerInput|peek|once:|ISO`)

// What is wrong with a handler in Go is said without the words of scripts, and so is what a person is asked about it.
func TestErrorsInTheWordsOfGo(t *testing.T) {
	type params struct {
		ID   string `json:"id"`
		Text string `json:"text,omitempty"`
	}
	tools := []connector.Tool{
		connector.NewReader(connector.Spec{Name: "all", Effect: connector.List}, func(context.Context, params) (string, error) { return "", nil }),
		connector.NewMutator(connector.Spec{Name: "do", Identity: []string{"id"}}, connector.Change[params, string]{
			Do: func(context.Context, string, params) (string, error) { return "", nil }}),
	}
	type prepared = handler.Prepared[params]
	consumer := func(prepare func(ctx context.Context, r *handler.Reader, ev *handler.Event) (prepared, error)) handler.Handler {
		return handler.Consumer[params, handler.NoResult]{Name: "c", Subscribe: []keep.TopicName{"in"}, Prepare: prepare,
			Mutate: func(ctx context.Context, g *handler.Getter, p prepared) (handler.Call, error) {
				return handler.Call{}, g.Read(ctx, "svc.all", nil, nil)
			}}
	}
	decides := func(p prepared) handler.Handler {
		return consumer(func(_ context.Context, _ *handler.Reader, ev *handler.Event) (prepared, error) {
			if ev == nil {
				return prepared{}, nil
			}
			return p, nil
		})
	}
	reads := func(read func(ctx context.Context, r *handler.Reader) error) handler.Handler {
		return consumer(func(ctx context.Context, r *handler.Reader, _ *handler.Event) (prepared, error) {
			return prepared{}, read(ctx, r)
		})
	}
	item := func(work func(ctx context.Context, w *handler.Worker, it *handler.Item) error) handler.Handler {
		return job(func(ctx context.Context, w *handler.Worker) error {
			return w.Item(ctx, "a", "A", func(ctx context.Context, it *handler.Item) error { return work(ctx, w, it) })
		})
	}
	producer := func(run func(ctx context.Context, in *handler.Ingress) error) handler.Handler {
		return handler.Producer{Name: "p", Publishes: []keep.TopicName{"in"}, Run: run}
	}
	publishes := func(topic keep.TopicName, m handler.Message) handler.Handler {
		return producer(func(ctx context.Context, in *handler.Ingress) error { return in.Publish(ctx, topic, m) })
	}
	refs := func(refs ...keep.EventRef) prepared { return prepared{Reserve: refs} }
	in := func(id string) keep.EventRef { return keep.EventRef{Topic: "in", MessageID: keep.MessageID(id)} }
	nothing := func(context.Context, *handler.Item) error { return nil }
	feed := publishes("in", handler.Message{ID: "1"})
	for code, handlers := range map[string][]handler.Handler{
		"bad-prepare-result: topic":     {feed, decides(refs(keep.EventRef{Topic: "out", MessageID: "1"}))},
		"bad-prepare-result: id":        {feed, decides(refs(in("1"), in(strings.Repeat("x", 600))))},
		"bad-prepare-result: empty":     {feed, decides(refs(in("1"), in("")))},
		"bad-prepare-result: trigger":   {feed, decides(prepared{Trigger: keep.EventRef{MessageID: "1"}})},
		"bad-prepare-result: triggered": {feed, decides(prepared{Trigger: in("")})},
		"reservation-duplicate":         {feed, decides(refs(in("1"), in("1")))},
		"reservation-unknown":           {feed, decides(refs(in("2")))},
		"forbidden-call: mutate":        {feed, decides(refs(in("1")))},
		"nested-item": {item(func(ctx context.Context, w *handler.Worker, _ *handler.Item) error {
			return w.Item(ctx, "b", "B", nothing)
		})},
		"bad-item": {job(func(ctx context.Context, w *handler.Worker) error { return w.Item(ctx, "", "B", nothing) })},
		"call-after-item": {job(func(ctx context.Context, w *handler.Worker) error {
			var kept *handler.Item
			if err := w.Item(ctx, "a", "A", func(_ context.Context, it *handler.Item) error { kept = it; return nil }); err != nil {
				return err
			}
			return kept.Call(ctx, "svc.do", params{ID: "1"}, nil)
		})},
		"item-done": {job(func(ctx context.Context, w *handler.Worker) error {
			err := w.Item(ctx, "a", "A", nothing)
			if err == nil {
				err = w.Item(ctx, "a", "A", func(ctx context.Context, it *handler.Item) error { return it.Call(ctx, "svc.do", params{ID: "1"}, nil) })
			}
			return err
		})},
		"payload-mismatch": {item(func(ctx context.Context, _ *handler.Worker, it *handler.Item) error {
			err := it.Call(ctx, "svc.do", params{ID: "1", Text: "one"}, nil)
			if err == nil {
				err = it.Call(ctx, "svc.do", params{ID: "1", Text: "two"}, nil)
			}
			return err
		})},
		"not-a-mutation": {item(func(ctx context.Context, _ *handler.Worker, it *handler.Item) error {
			return it.Call(ctx, "svc.all", nil, nil)
		})},
		"not-a-read": {item(func(ctx context.Context, _ *handler.Worker, it *handler.Item) error {
			return it.Read(ctx, "svc.do", params{ID: "1"}, nil)
		})},
		"bad-params": {item(func(ctx context.Context, _ *handler.Worker, it *handler.Item) error {
			return it.Call(ctx, "svc.do", nil, nil)
		})},
		"unknown-tool":            {feed, reads(func(ctx context.Context, r *handler.Reader) error { return r.Read(ctx, "svc.none", nil, nil) })},
		"bad-peek":                {feed, reads(func(ctx context.Context, r *handler.Reader) error { _, err := r.Peek(ctx, "in", 0); return err })},
		"bad-ids":                 {feed, reads(func(ctx context.Context, r *handler.Reader) error { _, err := r.Events(ctx, "in", ""); return err })},
		"not-subscribed":          {feed, reads(func(ctx context.Context, r *handler.Reader) error { _, err := r.Peek(ctx, "out", 1); return err })},
		"unknown-topic":           {publishes("none", handler.Message{ID: "1"})},
		"undeclared-publish":      {publishes("out", handler.Message{ID: "1"})},
		"message-id-needed":       {publishes("in", handler.Message{})},
		"unknown-input":           {publishes("in", handler.Message{ID: "1", Input: "none"})},
		"bad-publish":             {publishes("in", handler.Message{ID: "1", Repeat: true})},
		"bad-publish: id":         {publishes("in", handler.Message{ID: keep.MessageID(strings.Repeat("x", 600))})},
		"more-without-checkpoint": {producer(func(_ context.Context, in *handler.Ingress) error { in.More(); return nil })},
		"kv-value-too-large": {producer(func(ctx context.Context, in *handler.Ingress) error {
			return in.Store(ctx, "a", strings.Repeat("x", 100_000))
		})},
		"bad-kv": {producer(func(ctx context.Context, in *handler.Ingress) error { return in.Store(ctx, "", 1) })},
		"bad-input": {producer(func(ctx context.Context, in *handler.Ingress) error {
			_, err := in.RegisterInput(ctx, "", "", "", "")
			return err
		})},
	} {
		run, _, questions := runGo(t, tools, handlers...)
		want, _, _ := strings.Cut(code, ":")
		if run.Error == nil || run.Error.Code != want || len(questions) == 0 {
			t.Errorf("%s: stopped by %v, with %d questions", code, run.Error, len(questions))
			continue
		}
		q := questions[0]
		for _, said := range []string{run.Error.Message, q.Question, q.Why, fmt.Sprint(q.Choices)} {
			if words := ofScripts.FindAllString(said, -1); words != nil {
				t.Errorf("%s: %q in %s", code, words, said)
			}
		}
	}
}

// What the author of a handler says is left as it is, also where it has words that the engine says of scripts.
func TestOwnWordsAreLeft(t *testing.T) {
	const own = "open /etc/app/ctx.json: trigger: want an event, or {topic, messageId}, got 3; add [connections.crm] to keep.toml; messageId: ctx.kv"
	failed := errors.New(own)
	for name, h := range map[string]handler.Handler{
		"error": job(func(context.Context, *handler.Worker) error { return failed }),
		"panic": job(func(context.Context, *handler.Worker) error { panic(own) }),
		"item": job(func(ctx context.Context, w *handler.Worker) error {
			return w.Item(ctx, "a", "A", func(context.Context, *handler.Item) error { return failed })
		}),
	} {
		run, _, _ := runGo(t, nil, h)
		if run.Error == nil || !strings.HasSuffix(run.Error.Message, own) || strings.Contains(run.Error.Message, "threw") {
			t.Errorf("%s: stopped by %v, want %q", name, run.Error, own)
		}
	}
}
