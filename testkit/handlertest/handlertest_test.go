package handlertest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/testkit/handlertest"
)

// conns have a tool of each kind, which nobody may call.
var conns = []connector.Connection{{Name: "svc", Tools: []connector.Tool{
	connector.NewReader(connector.Spec{Name: "list", Effect: connector.List}, func(context.Context, struct{}) ([]string, error) { panic("it was called") }),
	connector.NewReader(connector.Spec{Name: "get"}, func(context.Context, struct{}) (string, error) { panic("it was called") }),
	connector.NewMutator(connector.Spec{Name: "do", Identity: []string{"id"}, Params: json.RawMessage(`{"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}`)},
		connector.Change[map[string]any, string]{
			Do:   func(context.Context, string, map[string]any) (string, error) { panic("it was called") },
			Find: func(context.Context, string, map[string]any) (string, bool, error) { panic("it was called") },
		}),
}}}

type data struct {
	Note string `json:"note"`
}

// decides is a workflow whose consumer returns p and c.
func decides(p handler.Prepared[data], c handler.Call) *handler.Workflow {
	return &handler.Workflow{Name: "w", Topics: []keep.TopicName{"in", "out"}, Handlers: []handler.Handler{handler.Consumer[data, handler.NoResult]{
		Name: "c", Subscribe: []keep.TopicName{"in"},
		Prepare: func(context.Context, *handler.Reader, *handler.Event) (handler.Prepared[data], error) { return p, nil },
		Mutate:  func(context.Context, *handler.Getter, handler.Prepared[data]) (handler.Call, error) { return c, nil },
	}}}
}

// reads is a workflow whose consumer reads in Prepare.
func reads(tool keep.ToolName) *handler.Workflow {
	return &handler.Workflow{Name: "w", Topics: []keep.TopicName{"in"}, Handlers: []handler.Handler{handler.Consumer[data, handler.NoResult]{
		Name: "c", Subscribe: []keep.TopicName{"in"},
		Prepare: func(ctx context.Context, r *handler.Reader, _ *handler.Event) (p handler.Prepared[data], err error) {
			return p, r.Read(ctx, tool, nil, nil)
		},
	}}}
}

// What a host would refuse is the error of the test, with its class and its code.
func TestWhatAHostRefuses(t *testing.T) {
	in := func(ids ...string) (p handler.Prepared[data]) {
		for _, id := range ids {
			p.Reserve = append(p.Reserve, keep.EventRef{Topic: "in", MessageID: keep.MessageID(id)})
		}
		return p
	}
	noted := in("1")
	noted.Data.Note = "caf\xe9"
	do := func(params any) handler.Call { return handler.Call{Tool: "svc.do", Params: params} }
	id := map[string]string{"id": "1"}
	lost := map[keep.ToolName]handlertest.Fake{"svc.do": handlertest.Fails(errors.New("no answer"))}
	down := map[keep.ToolName]handlertest.Fake{"svc.list": handlertest.Fails(errors.New("down"))}
	bad := map[keep.ToolName]handlertest.Fake{"svc.list": handlertest.Returns("caf\xe9")}
	for name, tt := range map[string]struct {
		w     *handler.Workflow
		fakes map[keep.ToolName]handlertest.Fake
		class keep.Class
		code  string
	}{
		"an event that is not there":   {decides(in("2"), do(id)), nil, keep.ClassLogic, "reservation-unknown"},
		"an event twice":               {decides(in("1", "1"), do(id)), nil, keep.ClassLogic, "reservation-duplicate"},
		"an empty id":                  {decides(in(""), do(id)), nil, keep.ClassLogic, "bad-prepare-result"},
		"data that is not UTF-8":       {decides(noted, do(id)), nil, keep.ClassLogic, "not-utf-8"},
		"data that is too large":       {decides(handler.Prepared[data]{Data: data{strings.Repeat("x", 2<<20)}}, do(id)), nil, keep.ClassLogic, "limit-result"},
		"params that do not fit":       {decides(in("1"), do(map[string]int{"id": 1})), nil, keep.ClassLogic, "bad-params"},
		"a read as the call":           {decides(in("1"), handler.Call{Tool: "svc.get"}), map[keep.ToolName]handlertest.Fake{"svc.get": handlertest.Returns("x")}, keep.ClassLogic, "not-a-mutation"},
		"a tool that nobody has":       {decides(in("1"), handler.Call{Tool: "svc.none"}), nil, keep.ClassLogic, "unknown-tool"},
		"a change by a Reader":         {reads("svc.do"), nil, keep.ClassLogic, "forbidden-call"},
		"a read without a fake":        {reads("svc.list"), nil, keep.ClassPrecondition, "no-fake"},
		"a read that fails":            {reads("svc.list"), down, keep.ClassTransient, "read-failed"},
		"a fake that is not UTF-8":     {reads("svc.list"), bad, keep.ClassLogic, "bad-result"},
		"a call whose answer was lost": {decides(in("1"), do(id)), lost, keep.ClassUnknown, "no-answer"},
		"a call that the fake refuses": {decides(in("1"), do(id)), map[keep.ToolName]handlertest.Fake{"svc.do": handlertest.Fails(keep.Failf(keep.ClassLogic, "refused", "no"))}, keep.ClassLogic, "refused"},
		"a fake that panics":           {reads("svc.list"), map[keep.ToolName]handlertest.Fake{"svc.list": func(json.RawMessage) (any, error) { panic("oh") }}, keep.ClassInternal, "tool-panic"},
	} {
		b := handlertest.Bench{Workflow: tt.w, Connections: conns, Fakes: tt.fakes, Events: []handlertest.Event{{Topic: "in", ID: "1"}}}
		_, err := b.Run(t.Context(), "c")
		if f, ok := errors.AsType[*keep.Failure](err); !ok || f.Class != tt.class || f.Code != tt.code {
			t.Errorf("%s: %v (%+v), want %s %s", name, err, f, tt.class, tt.code)
		}
	}
}

// A call that a person skips, after its answer was lost and lookups told nothing: Next is told so, and so is a job, which
// continues with its other items.
func TestSkippedCall(t *testing.T) {
	fakes := map[keep.ToolName]handlertest.Fake{"svc.do": func(params json.RawMessage) (any, error) {
		if strings.Contains(string(params), `"a"`) {
			return handlertest.Skipped(params)
		}
		return "done", nil
	}}
	call := map[string]string{"id": "a"}
	w := &handler.Workflow{Name: "w", Topics: []keep.TopicName{"in", "out"}, Handlers: []handler.Handler{handler.Consumer[data, string]{
		Name: "c", Subscribe: []keep.TopicName{"in"},
		Prepare: func(_ context.Context, _ *handler.Reader, ev *handler.Event) (handler.Prepared[data], error) {
			return handler.Prepared[data]{Reserve: []keep.EventRef{{Topic: "in", MessageID: ev.MessageID}}, Title: "One"}, nil
		},
		Mutate: func(context.Context, *handler.Getter, handler.Prepared[data]) (handler.Call, error) {
			return handler.Call{Tool: "svc.do", Params: call}, nil
		},
		Next: func(ctx context.Context, pub *handler.Publisher, _ handler.Prepared[data], o handler.Outcome[string]) error {
			return pub.Publish(ctx, "out", handler.Message{ID: keep.MessageID(o.Status)})
		},
	}, handler.Job{Name: "j", Schedule: keep.Schedule{Interval: time.Hour}, Run: func(ctx context.Context, w *handler.Worker) error {
		for _, id := range []string{"a", "b"} {
			if err := w.Item(ctx, id, id, func(ctx context.Context, it *handler.Item) error {
				if it.Done() {
					return nil
				}
				return it.Call(ctx, "svc.do", map[string]string{"id": id}, nil)
			}); err != nil {
				return err
			}
		}
		return nil
	}}}}
	b := handlertest.Bench{Workflow: w, Connections: conns, Fakes: fakes, Events: []handlertest.Event{{Topic: "in", ID: "1"}}}
	got, err := b.Run(t.Context(), "c")
	if err != nil || len(got.Calls) != 1 || len(got.Published) != 1 || got.Published[0].ID != keep.MessageID(handler.Skipped) || len(got.Reserved) != 1 || got.Title != "One" {
		t.Errorf("a consumer: %+v, %v; want one call, and that Next was told skipped", got, err)
	}
	b.Events = nil
	got, err = b.Run(t.Context(), "j")
	if err != nil || len(got.Calls) != 2 || len(got.Items) != 2 || got.Items[0].Status != keep.ItemSkipped || got.Items[1].Status != keep.ItemDone {
		t.Errorf("a job: %+v, %v; want two calls, a skipped item and a done one", got, err)
	}
}

// One run of a producer, of a consumer that has more than one event, and of a job.
func TestOneRun(t *testing.T) {
	now := time.Date(2026, 11, 29, 8, 0, 0, 0, time.UTC)
	w := decides(handler.Prepared[data]{Reserve: []keep.EventRef{{Topic: "in", MessageID: "1"}}, Data: data{"n"}, Title: "One"}, handler.Call{})
	w.Handlers = append(w.Handlers, handler.Producer{Name: "p", Schedule: keep.Schedule{Interval: time.Hour}, Run: func(ctx context.Context, in *handler.Ingress) error {
		since := 0
		if _, err := in.Load(ctx, "since", &since); err != nil {
			return err
		}
		var list []string
		if err := in.Read(ctx, "svc.list", map[string]int{"since": since}, &list); err != nil {
			return err
		}
		for _, id := range list {
			if err := in.Publish(ctx, "in", handler.Message{ID: keep.MessageID(id), Payload: in.Now()}); err != nil {
				return err
			}
		}
		in.More()
		return in.Store(ctx, "since", since+len(list))
	}}, handler.Job{Name: "j", Schedule: keep.Schedule{Interval: time.Hour}, Run: func(ctx context.Context, w *handler.Worker) error {
		for _, id := range []string{"a", "b"} {
			if err := w.Item(ctx, id, "Item "+id, func(ctx context.Context, it *handler.Item) error {
				if it.Done() {
					return nil
				}
				return it.Call(ctx, "svc.do", map[string]string{"id": id}, nil)
			}); err != nil {
				return err
			}
		}
		return nil
	}})
	b := handlertest.Bench{Workflow: w, Connections: conns, Now: now, Events: []handlertest.Event{{Topic: "in", ID: "1"}, {Topic: "in", ID: "2"}}}
	got, err := b.Run(t.Context(), "c")
	if err != nil || !slices.Equal(got.Reserved, []keep.EventRef{{Topic: "in", MessageID: "1"}}) || string(got.Data) != `{"note":"n"}` || got.Title != "One" || got.Calls != nil {
		t.Errorf("the consumer did %+v, %v", got, err)
	}
	asked := ""
	b.Events, b.Checkpoint, b.Fakes = nil, map[string]any{"since": 7}, map[keep.ToolName]handlertest.Fake{"svc.list": func(params json.RawMessage) (any, error) {
		asked += string(params)
		return []string{"8", "9"}, nil
	}}
	got, err = b.Run(t.Context(), "p")
	if err != nil || asked != `{"since":7}` || string(got.Stored["since"]) != "9" || len(got.Published) != 2 || got.Published[1].ID != "9" || fmt.Sprintf("%s", got.Published[1].Payload) != `"2026-11-29T08:00:00Z"` {
		t.Errorf("the producer asked for %s and did %+v, %v", asked, got, err)
	}
	b.Checkpoint, b.Fakes, b.Done = nil, nil, []string{"a"}
	got, err = b.Run(t.Context(), "j")
	if err != nil || len(got.Calls) != 1 || got.Calls[0].Tool != "svc.do" || got.Calls[0].Item != "b" || len(got.Items) != 1 || got.Items[0].Status != keep.ItemDone {
		t.Errorf("the job did %+v, %v", got, err)
	}
}

// A bench that is wrong is said to be, and runs nothing.
func TestWrongBench(t *testing.T) {
	w := decides(handler.Prepared[data]{}, handler.Call{})
	event := func(topic keep.TopicName, id keep.MessageID) []handlertest.Event {
		return []handlertest.Event{{Topic: topic, ID: id}}
	}
	for want, b := range map[string]handlertest.Bench{
		"it is nil":                     {},
		`has no topic "none"`:           {Workflow: w, Events: event("none", "1")},
		"message id is empty":           {Workflow: w, Events: event("in", "")},
		`there is no connection "mail"`: {Workflow: w, Connections: conns, Fakes: map[keep.ToolName]handlertest.Fake{"mail.send": handlertest.Returns(nil)}},
		"a producer has a Checkpoint":   {Workflow: w, Checkpoint: map[string]any{"a": 1}},
		"there is no event for it":      {Workflow: w},
		"payload of event \"1\"":        {Workflow: w, Events: []handlertest.Event{{Topic: "in", ID: "1", Payload: "\xe9"}}},
	} {
		if _, err := b.Run(t.Context(), "c"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := (handlertest.Bench{Workflow: w}).Run(t.Context(), "none"); err == nil || !strings.Contains(err.Error(), `no handler "none"`) {
		t.Errorf("a handler that is not there: %v", err)
	}
}
