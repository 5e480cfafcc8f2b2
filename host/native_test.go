package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/law/canonical"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/script/sandbox"
)

// bothScript and bothInGo are the same workflow.
const bothScript = `export default Keep.workflow({
	name: "both", topics: { in: {}, out: {} },
	producers: {
		poll: { publishes: ["in"], async handler(ctx) {
			const since = await ctx.kv.get("since") ?? 0;
			const list = await ctx.svc.list({ since });
			for (const m of list) {
				const inputId = await ctx.registerInput({ source: "svc", type: "mail", id: m.id, title: m.subject });
				await ctx.publish("in", { messageId: m.id, inputId, payload: { subject: m.subject } });
			}
			await ctx.kv.set("since", list.length);
			ctx.log("read " + list.length);
		} },
	},
	consumers: {
		act: Keep.consumer({
			subscribe: ["in"], order: "key", key: (event) => event.payload.subject,
			async prepare(ctx, trigger) {
				if (!trigger) return { reservations: [], data: {} };
				const more = await ctx.peek("in", { limit: 2 });
				const known = await ctx.svc.get({ id: trigger.messageId });
				return {
					reservations: [{ topic: "in", ids: [trigger.messageId] }],
					data: { id: trigger.messageId, subject: trigger.payload.subject, waiting: more.length, known: known.length },
					ui: { title: "Do " + trigger.payload.subject },
				};
			},
			async mutate(ctx, prepared) { await ctx.svc.create({ id: prepared.data.id, text: prepared.data.subject }); },
			async next(ctx, prepared, mutationResult) {
				await ctx.publish("out", { messageId: "out:" + prepared.data.id, payload: { status: mutationResult.status, made: mutationResult.result.id } });
			},
		}),
	},
	jobs: {
		sweep: { schedule: { interval: "1h" }, async handler(ctx) {
			for (const id of ["x", "y"])
				await ctx.withItem(id, "Item " + id, async (ctx) => {
					if (ctx.item.isDone) return;
					await ctx.svc.keyed({ id, text: "swept" });
				});
		} },
	},
});`

type (
	bothMail struct {
		ID      string `json:"id,omitempty"`
		Subject string `json:"subject"`
	}
	bothData struct {
		ID      string `json:"id"`
		Subject string `json:"subject"`
		Waiting int    `json:"waiting"`
		Known   int    `json:"known"`
	}
	bothMade struct{ ID int }
)

func bothInGo() *handler.Workflow {
	return &handler.Workflow{Name: "both", Topics: []keep.TopicName{"in", "out"}, Handlers: []handler.Handler{
		handler.Producer{Name: "poll", Publishes: []keep.TopicName{"in"}, Run: bothPoll},
		handler.Consumer[bothData, bothMade]{
			Name: "act", Subscribe: []keep.TopicName{"in"},
			Order: keep.OrderKey, Key: func(ev handler.Event) (string, error) {
				var m bothMail
				err := ev.Decode(&m)
				return m.Subject, err
			},
			Prepare: bothPrepare,
			Mutate: func(_ context.Context, _ *handler.Getter, p handler.Prepared[bothData]) (handler.Call, error) {
				return handler.Call{Tool: "svc.create", Params: map[string]any{"id": p.Data.ID, "text": p.Data.Subject}}, nil
			},
			Next: func(ctx context.Context, pub *handler.Publisher, p handler.Prepared[bothData], o handler.Outcome[bothMade]) error {
				return pub.Publish(ctx, "out", handler.Message{ID: keep.MessageID("out:" + p.Data.ID), Payload: map[string]any{"status": o.Status, "made": o.Result.ID}})
			},
		},
		handler.Job{Name: "sweep", Schedule: keep.Schedule{Interval: 3600e9}, Run: func(ctx context.Context, w *handler.Worker) error {
			for _, id := range []string{"x", "y"} {
				err := w.Item(ctx, id, "Item "+id, func(ctx context.Context, it *handler.Item) error {
					if it.Done() {
						return nil
					}
					return it.Call(ctx, "svc.keyed", map[string]any{"id": id, "text": "swept"}, nil)
				})
				if err != nil {
					return err
				}
			}
			return nil
		}},
	}}
}

func bothPoll(ctx context.Context, in *handler.Ingress) error {
	since := 0
	if _, err := in.Load(ctx, "since", &since); err != nil {
		return err
	}
	var list []bothMail
	if err := in.Read(ctx, "svc.list", map[string]any{"since": since}, &list); err != nil {
		return err
	}
	for _, m := range list {
		input, err := in.RegisterInput(ctx, "svc", "mail", m.ID, m.Subject)
		if err != nil {
			return err
		}
		if err := in.Publish(ctx, "in", handler.Message{ID: keep.MessageID(m.ID), Input: input, Payload: bothMail{Subject: m.Subject}}); err != nil {
			return err
		}
	}
	in.Logf("read %d", len(list))
	return in.Store(ctx, "since", len(list))
}

func bothPrepare(ctx context.Context, r *handler.Reader, trigger *handler.Event) (p handler.Prepared[bothData], err error) {
	if trigger == nil {
		return p, nil
	}
	var m bothMail
	if err := trigger.Decode(&m); err != nil {
		return p, err
	}
	more, err := r.Peek(ctx, "in", 2)
	if err != nil {
		return p, err
	}
	var known []bothMail
	if err := r.Read(ctx, "svc.get", map[string]any{"id": trigger.MessageID}, &known); err != nil {
		return p, err
	}
	return handler.Prepared[bothData]{
		Reserve: []keep.EventRef{trigger.Ref()}, Title: "Do " + m.Subject,
		Data: bothData{string(trigger.MessageID), m.Subject, len(more), len(known)},
	}, nil
}

// deployGo deploys a workflow that is written in Go.
func (w *world) deployGo(wf *handler.Workflow) keep.Version {
	w.t.Helper()
	loaded, err := w.open().LoadGo(wf)
	if err != nil {
		w.t.Fatal(err)
	}
	v, err := w.open().Deploy(w.t.Context(), loaded)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// The same workflow as a script and in Go leaves the same records, also when answers are lost.
func TestGoLeavesTheRecordsOfAScript(t *testing.T) {
	records := func(deploy func(w *world)) []string {
		w := newWorld(t)
		w.policy.Reconcile.First, w.service.settle = 1e6, 1e6
		w.service.onRead = func(context.Context, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`[{"id":"m1","subject":"One"},{"id":"m2","subject":"Two"}]`), nil
		}
		w.service.onCall = func(_ context.Context, _ keep.Mutation, n int) (bool, error) {
			if n == 2 {
				return true, errReset
			}
			return true, nil
		}
		deploy(w)
		w.start()
		w.idle()
		all := w.recorded("both")
		w.close()
		return all
	}
	script := records(func(w *world) { w.deploy(bothScript) })
	inGo := records(func(w *world) { w.deployGo(bothInGo()) })
	if len(script) < 15 {
		t.Fatalf("only %d records: %q", len(script), script)
	}
	if !reflect.DeepEqual(script, inGo) {
		t.Errorf("script:\n%s\n\nGo:\n%s", strings.Join(script, "\n"), strings.Join(inGo, "\n"))
	}
}

// recorded returns what the database says of a workflow, without ids and times that Keep draws.
func (w *world) recorded(wf keep.WorkflowName) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for _, r := range w.runs(wf) {
		add("run %s %s %s %s %q %v %s", r.Handler, r.Kind, r.Phase, r.Status, r.Title, r.Reservations, canonicalOf(w.t, r.Prepared))
	}
	for _, m := range w.mutations(wf) {
		key := m.Key
		if m.Item == "" {
			key = "of its run"
		}
		add("mutation %s %s %s %s %s %s %s item %q attempt %d", key, m.Tool, m.Target, m.Identity, m.Payload, m.State, m.Result, m.Item, m.Attempt)
	}
	for _, topic := range []keep.TopicName{"in", "out"} {
		for _, ev := range w.events(wf, topic) {
			add("event %s %s %s %s caused by %d", topic, ev.MessageID, canonicalOf(w.t, ev.Payload), ev.Status, len(ev.CausedBy))
		}
	}
	for _, in := range w.inputs(wf) {
		add("input %s %s %s %q %s", in.Source, in.Type, in.ExternalID, in.Title, in.Status)
	}
	for _, it := range w.items(wf) {
		add("item %s %q %s %d", it.ID, it.Title, it.Status, it.Attempt)
	}
	kv, err := w.database().KV(w.t.Context(), wf, "poll", "since")
	if err != nil {
		w.t.Fatal(err)
	}
	add("checkpoint %s", kv)
	add("logs %q", w.logs(wf))
	slices.Sort(all) // whether the job or the producer ran first is not what is compared
	return all
}

func canonicalOf(t testing.TB, raw []byte) string {
	t.Helper()
	if raw == nil {
		return "nothing"
	}
	out, err := canonical.JSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// A program that was built again is another version. What was pinned, and the key of the call, survive that;
// and until it deploys, no host runs the old version with the new code.
func TestGoOfAnotherBuild(t *testing.T) {
	synctest.Test(t, anotherBuild)
}

func anotherBuild(t *testing.T) {
	w := newBubbleWorld(t)
	w.build, w.dieAt, w.alive, w.died = "build 1", engine.Recorded, 1, make(chan struct{})
	prepares := 0
	flow := bothInGo()
	act := flow.Handlers[1].(handler.Consumer[bothData, bothMade])
	act.Order, act.Key = keep.OrderAll, nil
	act.Prepare = func(ctx context.Context, r *handler.Reader, ev *handler.Event) (p handler.Prepared[bothData], err error) {
		if ev != nil {
			prepares++
			p.Reserve, p.Data = []keep.EventRef{ev.Ref()}, bothData{ID: string(ev.MessageID)}
		}
		return p, nil
	}
	flow.Handlers = []handler.Handler{act}
	if v := w.deployGo(flow); v != (keep.Version{Major: 1}) {
		t.Fatalf("version %s, want 1.0", v)
	}
	d, err := w.database().Deployment(t.Context(), "both", keep.Version{Major: 1})
	if err != nil || !d.Definition.Go || !strings.Contains(string(d.Code), "build 1") {
		t.Fatalf("the deployment is %+v, %v; want one in Go, of build 1", d, err)
	}
	if _, err := host.LoadScript(t.Context(), nil, d, nil); !errors.Is(err, engine.ErrNotHere) || !strings.Contains(err.Error(), "only the program that has its handlers") {
		t.Errorf("LoadScript = %v, want that only the program has them", err)
	}
	if _, err := w.open().LoadBundle(t.Context(), &sandbox.Bundle{Entry: d.Entry, Code: d.Code}); err == nil || !strings.Contains(err.Error(), "workflow both is written in Go") {
		t.Errorf("its code was loaded as a script: %v", err)
	}
	if v := w.deployGo(flow); v != (keep.Version{Major: 1}) {
		t.Fatalf("the same build again is version %s, want 1.0", v)
	}
	w.publish("both", "in", "a")
	w.start()
	<-w.died
	key := w.mutations("both")[0].Key
	w.close()

	w.build, w.dieAt = "build 2", ""
	loaded, err := w.open().LoadGo(flow)
	if err != nil {
		t.Fatal(err)
	}
	w.start() // it has not deployed its build
	time.Sleep(time.Hour)
	if len(w.runs("both")) != 1 || w.lastRun("both").Closed {
		t.Errorf("a host without the build of version 1.0 went to work: %+v", w.runs("both"))
	}
	if v, err := w.open().Deploy(t.Context(), loaded); err != nil || v != (keep.Version{Major: 2}) {
		t.Fatalf("Deploy = %s, %v; want 2.0", v, err)
	}
	w.idle()
	ms := w.mutations("both")
	if r := w.lastRun("both"); prepares != 1 || len(ms) != 1 || ms[0].Key != key || ms[0].Key != ledger.RunKey(r.Chain) || ms[0].State != keep.Applied || r.Status != keep.StatusCommitted {
		t.Errorf("prepare ran %d times; mutations %+v; run %s: want the pinned call under its key, applied", prepares, ms, r.Status)
	}
	if n := len(w.service.effects); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
}

// A read by its name in Mutate cannot become the call of the run, and what a phase may not do is refused as in
// scripts.
func TestGoMayNotCallByRead(t *testing.T) {
	for phase, want := range map[string]string{"mutate": "not-a-read", "prepare": "forbidden-call"} {
		w := newWorld(t)
		flow := bothInGo()
		act := flow.Handlers[1].(handler.Consumer[bothData, bothMade])
		act.Order, act.Key = keep.OrderAll, nil
		prepare, params := act.Prepare, map[string]any{"id": "1", "text": "x"}
		act.Prepare = func(ctx context.Context, r *handler.Reader, ev *handler.Event) (handler.Prepared[bothData], error) {
			if phase == "prepare" {
				if err := r.Read(ctx, "svc.create", params, nil); err == nil {
					t.Error("prepare could call a tool that changes something")
				}
			}
			return prepare(ctx, r, ev)
		}
		act.Mutate = func(ctx context.Context, g *handler.Getter, p handler.Prepared[bothData]) (handler.Call, error) {
			_ = g.Read(ctx, "svc.create", params, nil)
			return handler.Call{Tool: "svc.other", Params: params}, nil
		}
		flow.Handlers = []handler.Handler{act}
		w.service.onRead = func(context.Context, json.RawMessage) (json.RawMessage, error) { return json.RawMessage(`[]`), nil }
		w.deployGo(flow)
		w.publish("both", "in", "a")
		w.run()
		r := w.lastRun("both")
		if r.Error == nil || r.Error.Code != want || r.Error.Class != keep.ClassLogic || !strings.HasPrefix(r.Error.At, "host/native_test.go:") {
			t.Errorf("%s: run failed with %v, want %s with its place", phase, r.Error, want)
		}
		if len(w.mutations("both")) != 0 || len(w.service.effects) != 0 {
			t.Errorf("%s: something was sent or recorded", phase)
		}
	}
}

// A call in an item that is done, one of a tool that reads, and one that does not say what it changes are refused in Go's words.
func TestGoMayNotCallInItem(t *testing.T) {
	params := map[string]any{"id": "1", "text": "x"}
	for _, tt := range []struct {
		tool, code, says string
		params           any
	}{
		{"svc.keyed", "item-done", "if it.Done() { return nil }", params},
		{"svc.get", "not-a-mutation", "read it with Read", params},
		{"svc.keyed", "bad-params", "what is changed are missing: id", nil},
	} {
		w := newWorld(t)
		flow := &handler.Workflow{Name: "both", Handlers: []handler.Handler{handler.Job{Name: "j", Run: func(ctx context.Context, w *handler.Worker) error {
			for range 2 {
				err := w.Item(ctx, "a", "A", func(ctx context.Context, it *handler.Item) error {
					return it.Call(ctx, keep.ToolName(tt.tool), tt.params, nil)
				})
				if err != nil {
					return err
				}
			}
			return nil
		}}}}
		w.deployGo(flow)
		w.run()
		r := w.lastRun("both")
		if r.Error == nil || r.Error.Code != tt.code || !strings.Contains(r.Error.Message, tt.says) || strings.Contains(r.Error.Message, "ctx.") {
			t.Errorf("%s: run failed with %v, want %s with %q", tt.tool, r.Error, tt.code, tt.says)
		}
		if n := len(w.service.effects); n > 1 {
			t.Errorf("%d effects", n)
		}
	}
}

// An item whose call is in doubt keeps its handler from running, and one item is worked on at a time.
func TestGoItemsDoNotNest(t *testing.T) {
	w := newWorld(t)
	flow := &handler.Workflow{Name: "both", Handlers: []handler.Handler{handler.Job{Name: "j", Run: func(ctx context.Context, w *handler.Worker) error {
		return w.Item(ctx, "outer", "", func(ctx context.Context, _ *handler.Item) error {
			return w.Item(ctx, "inner", "", func(context.Context, *handler.Item) error { return nil })
		})
	}}}}
	w.deployGo(flow)
	w.run()
	if r := w.lastRun("both"); r.Error == nil || r.Error.Code != "nested-item" {
		t.Errorf("run failed with %v, want nested-item", r.Error)
	}
	if its := w.items("both"); len(its) != 1 || its[0].ID != "outer" || its[0].Status != keep.ItemFailed {
		t.Errorf("items %+v, want the outer one, failed", its)
	}
}

// On a store that hosts share, each keeps what only it can execute, however few the other has.
func TestGoStaysWithItsProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubbleWorld(t)
		shared := w.mem.Share(time.Now)
		var running sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		begin := func(name string, workflows ...keep.WorkflowName) *host.Host {
			h, err := host.Open(ctx, shared, host.Config{Name: name, Build: name, Sandbox: sandbox.Config{CacheDir: cacheDir}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range workflows {
				loaded, err := h.LoadGo(&handler.Workflow{Name: name, Handlers: []handler.Handler{handler.Job{Name: "j", Run: func(context.Context, *handler.Worker) error { return nil }}}})
				if err == nil {
					_, err = h.Deploy(ctx, loaded)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			running.Go(func() {
				if err := errors.Join(h.Run(ctx), h.Close()); err != nil {
					t.Error(err)
				}
			})
			return h
		}
		has := begin("program", "a", "b", "c", "d")
		synctest.Wait() // it has their leases
		begin("other")
		time.Sleep(time.Hour)
		leases, err := shared.Leases(t.Context(), "")
		for _, l := range leases {
			if l.Host != has.HostID() || l.Epoch != 1 {
				t.Errorf("lease %+v, want the first one, of %s", l, has.HostID())
			}
		}
		if err != nil || len(leases) != 4 {
			t.Errorf("%d leases, %v", len(leases), err)
		}
		if err := shared.Drain(t.Context(), has.HostID(), true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		leases, _ = shared.Leases(t.Context(), "")
		for _, l := range leases {
			if l.Host == has.HostID() {
				t.Errorf("lease %+v of a host that drains", l)
			}
		}
		stop()
		running.Wait()
	})
}
