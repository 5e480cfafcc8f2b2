package handler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/handler"
)

// A host answers the calls of a handler, and notes them.
type host struct {
	calls  []string
	answer func(ctx context.Context, c engine.HostCall) (json.RawMessage, error)
}

func (h *host) HostCall(ctx context.Context, c engine.HostCall) (json.RawMessage, error) {
	h.calls = append(h.calls, c.Name)
	if h.answer == nil {
		return json.RawMessage(`{}`), nil
	}
	return h.answer(ctx, c)
}

// produce runs a producer's function.
func produce(t *testing.T, l handler.Limits, h *host, run func(ctx context.Context, in *handler.Ingress) error) error {
	t.Helper()
	_, err := call(t, l, h, handler.Producer{Name: "p", Run: run}, "producers.p")
	return err
}

func call(t *testing.T, l handler.Limits, h *host, of handler.Handler, path string, args ...json.RawMessage) (json.RawMessage, error) {
	t.Helper()
	w := handler.Workflow{Name: "w", Topics: []keep.TopicName{"in", "out"}, Handlers: []handler.Handler{of}}
	if _, _, err := w.Declare(); err != nil {
		t.Fatal(err)
	}
	return w.Script(l).Call(t.Context(), engine.ScriptCall{Path: strings.Split(path, "."), Args: args, Host: h, Log: func(string, string, string) {}})
}

// wantFailure checks a failure of class logic, and that its place is in this file, on that line.
func wantFailure(t *testing.T, err error, code, text string, line int) {
	t.Helper()
	f, ok := errors.AsType[*keep.Failure](err)
	if !ok || f.Class != keep.ClassLogic || f.Code != code || !strings.Contains(f.Message, text) {
		t.Fatalf("error %v, want a logic failure %s with %q", err, code, text)
	}
	if want := fmt.Sprintf("handler/handler_test.go:%d", line); line > 0 && f.At != want {
		t.Errorf("at %q, want %q", f.At, want)
	}
}

// here returns the line of its caller, moved by n.
func here(n int) int {
	_, _, line, _ := runtime.Caller(1)
	return line + n
}

// A panic and an error of the author are logic failures with file and line; so is the end of the
// goroutine.
func TestAuthorsMistakes(t *testing.T) {
	var none map[string]int
	line := here(1)
	err := produce(t, handler.Limits{}, &host{}, func(context.Context, *handler.Ingress) error { none["x"] = 1; return nil })
	wantFailure(t, err, "handler-panic", "assignment to entry in nil map", line)

	line = here(1)
	err = produce(t, handler.Limits{}, &host{}, func(context.Context, *handler.Ingress) error { return errors.New("no subject") })
	wantFailure(t, err, "handler-error", "no subject", line)

	err = produce(t, handler.Limits{}, &host{}, func(context.Context, *handler.Ingress) error { runtime.Goexit(); return nil })
	wantFailure(t, err, "handler-exit", "Goexit", 0)
}

// Two texts that are not UTF-8 never become one: what a function passes or returns with such a text is a logic
// failure that names the field, and nothing of it reaches the host.
func TestNotUTF8(t *testing.T) {
	type mail struct {
		Subject string `json:"subject"`
	}
	type do func(ctx context.Context, in *handler.Ingress) error
	id := keep.MessageID("M\xfcller")
	for field, f := range map[string]do{
		"Publish as message: messageId: the text \"M\\xfcller\"": func(ctx context.Context, in *handler.Ingress) error {
			return in.Publish(ctx, "in", handler.Message{ID: id})
		},
		"Publish as message: payload.subject:": func(ctx context.Context, in *handler.Ingress) error {
			return in.Publish(ctx, "in", handler.Message{ID: "a", Payload: mail{"\xe9"}})
		},
		"Publish as topic:": func(ctx context.Context, in *handler.Ingress) error {
			return in.Publish(ctx, "\xe9", handler.Message{ID: "a"})
		},
		"Store as key:":   func(ctx context.Context, in *handler.Ingress) error { return in.Store(ctx, "\xe9", 1) },
		"Store as value:": func(ctx context.Context, in *handler.Ingress) error { return in.Store(ctx, "a", "\xe9") },
		"Load as key:":    func(ctx context.Context, in *handler.Ingress) error { _, err := in.Load(ctx, "\xe9", nil); return err },
		"Delete as key:":  func(ctx context.Context, in *handler.Ingress) error { return in.Delete(ctx, "\xe9") },
		"svc.list: q:": func(ctx context.Context, in *handler.Ingress) error {
			return in.Read(ctx, "svc.list", map[string]any{"q": "\xe9"}, nil)
		},
		"RegisterInput as input: id:": func(ctx context.Context, in *handler.Ingress) error {
			_, err := in.RegisterInput(ctx, "mail", "mail", "\xe9", "title")
			return err
		},
	} {
		h := &host{}
		err := produce(t, handler.Limits{}, h, f)
		wantFailure(t, err, "not-utf-8", "what is passed to "+field, 0)
		if len(h.calls) > 0 {
			t.Errorf("%s: the host was called: %v", field, h.calls)
		}
	}
	for field, item := range map[string][2]string{"id": {"\xe9", "title"}, "title": {"a", "\xe9"}} {
		_, err := call(t, handler.Limits{}, &host{}, handler.Job{Name: "j", Run: func(ctx context.Context, w *handler.Worker) error {
			return w.Item(ctx, item[0], item[1], func(context.Context, *handler.Item) error { return nil })
		}}, "jobs.j")
		wantFailure(t, err, "not-utf-8", "Item as "+field+":", 0)
	}
	consumer := handler.Consumer[mail, handler.NoResult]{Name: "c", Subscribe: []keep.TopicName{"in"}, Order: keep.OrderKey,
		Key: func(handler.Event) (string, error) { return "\xe9", nil },
		Prepare: func(context.Context, *handler.Reader, *handler.Event) (handler.Prepared[mail], error) {
			return handler.Prepared[mail]{Reserve: []keep.EventRef{{Topic: "in", MessageID: "a"}, {Topic: "in", MessageID: id}}}, nil
		},
		Mutate: func(context.Context, *handler.Getter, handler.Prepared[mail]) (handler.Call, error) {
			return handler.Call{Tool: "svc.create", Params: mail{"\xe9"}}, nil
		},
	}
	for phase, field := range map[string]string{"key": "returned by the phase: the text", "prepare": "returned by the phase: reservations[0].ids[1]:", "mutate": "passed to svc.create: subject:"} {
		_, err := call(t, handler.Limits{}, &host{}, consumer, "consumers.c."+phase, json.RawMessage(`{}`))
		wantFailure(t, err, "not-utf-8", field, 0)
	}
	w := handler.Workflow{Name: "caf\xe9", Handlers: []handler.Handler{consumer}}
	if _, _, err := w.Declare(); err == nil || !strings.Contains(err.Error(), `name: the text "caf\xe9" is not UTF-8`) {
		t.Errorf("Declare: %v, want that its name is not UTF-8", err)
	}
}

// What the engine refuses is said in the words of Go.
func TestWordsOfGo(t *testing.T) {
	for said, want := range map[string]string{
		"ctx.svc.do in item \"a\", which is done: begin the handler with `if (ctx.item.isDone) return`": "svc.do in item \"a\", which is done: begin its function with `if it.Done() { return nil }`",
		"ctx.withItem(\"a\", title, handler): the item \"b\" of the job j is called so":                 "Item(ctx, \"a\", title, work): the item \"b\" of the job j is called so",
		"ctx.kv.set(\"k\"): 70000 bytes: at most 65536":                                                 "Store(\"k\"): 70000 bytes: at most 65536",
		"ctx.publish(\"in\") in a producer needs a messageId: write once: false if each is meant to be": "Publish(\"in\") in a producer needs an ID: set Repeat if each is meant to be",
		"ctx.publish: messageId: message id of 600 bytes: at most 512":                                  "Publish: ID: message id of 600 bytes: at most 512",
		"the handler of item \"a\" threw an error: no subject":                                          "the handler of item \"a\" returned an error: no subject",
		"ctx.svc.do: no connection is configured; add [connections.svc] to keep.toml":                   "svc.do: no connection is configured; add the connection svc to host.Config.Connections",
	} {
		h := &host{answer: func(context.Context, engine.HostCall) (json.RawMessage, error) {
			return nil, keep.Failf(keep.ClassLogic, "refused", "%s", said)
		}}
		err := produce(t, handler.Limits{}, h, func(ctx context.Context, in *handler.Ingress) error { return in.Delete(ctx, "k") })
		if f, ok := errors.AsType[*keep.Failure](err); !ok || f.Message != want {
			t.Errorf("%q\nis said as %v\nwant       %q", said, err, want)
		}
	}
}

// A color has an author's mistake: only two have a name.
type color int

func (c color) MarshalText() ([]byte, error) { return []byte([]string{"red", "green"}[c]), nil }

var colorLine = here(-2)

// A panic of a method of the author that makes JSON is one of the function that passed or returned the value, and so
// is that of a missing context: neither ends the program.
func TestPanicOfTheAuthorsJSON(t *testing.T) {
	consumer := handler.Consumer[color, handler.NoResult]{
		Name: "c", Subscribe: []keep.TopicName{"in"},
		Prepare: func(context.Context, *handler.Reader, *handler.Event) (handler.Prepared[color], error) {
			return handler.Prepared[color]{Data: 7}, nil
		},
		Mutate: func(context.Context, *handler.Getter, handler.Prepared[color]) (handler.Call, error) {
			return handler.Call{Tool: "svc.create", Params: color(7)}, nil
		},
	}
	h := &host{}
	wantFailure(t, produce(t, handler.Limits{}, h, func(ctx context.Context, in *handler.Ingress) error {
		return in.Publish(ctx, "in", handler.Message{ID: "a", Payload: color(7)})
	}), "handler-panic", "index out of range", colorLine)
	for _, phase := range []string{"prepare", "mutate"} {
		_, err := call(t, handler.Limits{}, h, consumer, "consumers.c."+phase)
		wantFailure(t, err, "handler-panic", "index out of range", colorLine)
	}
	var missing context.Context
	line := here(2)
	wantFailure(t, produce(t, handler.Limits{}, h, func(_ context.Context, in *handler.Ingress) error {
		return in.Read(missing, "svc.get", nil, nil)
	}), "handler-panic", "nil pointer", line)
	if len(h.calls) != 0 {
		t.Errorf("the host got %v, want nothing", h.calls)
	}
}

// Law not-catchable: whatever a function does with the error of a call, the phase ends with it, no later
// call reaches the host, and the context ends.
func TestFailedCallEndsThePhase(t *testing.T) {
	down := keep.Failf(keep.ClassTransient, "refused", "connection refused")
	down.At = "x.go:1"
	h := &host{answer: func(context.Context, engine.HostCall) (json.RawMessage, error) { return nil, down }}
	err := produce(t, handler.Limits{}, h, func(ctx context.Context, in *handler.Ingress) error {
		_ = in.Read(ctx, "svc.list", nil, nil)
		if err := in.Publish(context.Background(), "in", handler.Message{ID: "a"}); !errors.Is(err, error(down)) {
			t.Errorf("the next call: %v, want the error of the first", err)
		}
		if ctx.Err() == nil {
			t.Error("the context has not ended")
		}
		return nil // swallowed
	})
	if !errors.Is(err, error(down)) || len(h.calls) != 1 {
		t.Errorf("phase ended with %v after calls %v, want the failure of the first and only call", err, h.calls)
	}
}

// A function that takes longer than the limit and ignores its context is abandoned after a second: its
// later calls do not reach the host.
func TestAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{}
		hang, late := make(chan struct{}), make(chan error, 1)
		began := time.Now()
		err := produce(t, handler.Limits{Wall: time.Minute}, h, func(ctx context.Context, in *handler.Ingress) error {
			<-hang
			late <- in.Publish(ctx, "in", handler.Message{ID: "a"})
			return nil
		})
		wantFailure(t, err, "limit-wall", "took more than 1m0s", 0)
		if d := time.Since(began); d != time.Minute+time.Second {
			t.Errorf("abandoned after %s, want 1m1s", d)
		}
		close(hang)
		if err := <-late; err == nil || len(h.calls) != 0 {
			t.Errorf("a late call returned %v, and the host got %v; want an error and nothing", err, h.calls)
		}
	})
}

// A call that the limit of the phase cuts off ends with the limit, and not with what the call says of it;
// each item of a job has the time of a phase.
func TestWallLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{answer: func(ctx context.Context, c engine.HostCall) (json.RawMessage, error) {
			if c.Name != "svc.get" {
				return json.RawMessage(`{}`), nil
			}
			<-ctx.Done()
			return nil, keep.Failf(keep.ClassTransient, "timeout", "%v", ctx.Err())
		}}
		line := here(2)
		err := produce(t, handler.Limits{Wall: time.Minute}, h, func(ctx context.Context, in *handler.Ingress) error {
			return in.Read(ctx, "svc.get", nil, nil)
		})
		wantFailure(t, err, "limit-wall", "limit wall", line)

		job := handler.Job{Name: "j", Run: func(ctx context.Context, w *handler.Worker) error {
			for i := range 5 {
				err := w.Item(ctx, fmt.Sprint(i), "", func(context.Context, *handler.Item) error { time.Sleep(40 * time.Second); return nil })
				if err != nil {
					return err
				}
			}
			return nil
		}}
		if _, err := call(t, handler.Limits{Wall: time.Minute}, h, job, "jobs.j"); err != nil {
			t.Errorf("five items of 40 s each: %v, want no limit", err)
		}
	})
}

// The other limits are those of scripts.
func TestLimits(t *testing.T) {
	small := handler.Limits{Calls: 3, Result: 100, Items: 2}
	loop := func(ctx context.Context, in *handler.Ingress) error {
		for range 10 {
			if err := in.Read(ctx, "svc.get", nil, nil); err != nil {
				return err
			}
		}
		return nil
	}
	h := &host{}
	wantFailure(t, produce(t, small, h, loop), "limit-host_calls", "more than 3 calls", 0)
	if len(h.calls) != 3 {
		t.Errorf("%d calls reached the host, want 3", len(h.calls))
	}
	err := produce(t, small, &host{}, func(ctx context.Context, in *handler.Ingress) error {
		return in.Publish(ctx, "in", handler.Message{ID: "a", Payload: strings.Repeat("x", 200)})
	})
	wantFailure(t, err, "limit-result", "more than 100 bytes", 0)
	job := handler.Job{Name: "j", Run: func(ctx context.Context, w *handler.Worker) error {
		for i := range 3 {
			if err := w.Item(ctx, fmt.Sprint(i), "", func(context.Context, *handler.Item) error { return nil }); err != nil {
				return err
			}
		}
		return nil
	}}
	_, err = call(t, small, &host{}, job, "jobs.j")
	wantFailure(t, err, "limit-items", "more than 2 items", 0)
}

// Mutate makes the call that it returns, and no other: one that changes nothing is refused, and none at
// all is none.
func TestMutateReturnsItsCall(t *testing.T) {
	var returned handler.Call
	taken := errors.New("taken")
	h := &host{}
	consumer := handler.Consumer[string, handler.NoResult]{
		Name: "c", Subscribe: []keep.TopicName{"in"},
		Prepare: func(context.Context, *handler.Reader, *handler.Event) (handler.Prepared[string], error) {
			return handler.Prepared[string]{}, nil
		},
		Mutate: func(context.Context, *handler.Getter, handler.Prepared[string]) (handler.Call, error) {
			return returned, nil
		},
	}
	mutate := func() error {
		_, err := call(t, handler.Limits{}, h, consumer, "consumers.c.mutate", json.RawMessage(`{"reservations":[],"data":"x"}`))
		return err
	}
	if err := mutate(); err != nil || len(h.calls) != 0 {
		t.Errorf("no call: %v, %v", err, h.calls)
	}
	returned = handler.Call{Tool: "svc.get"}
	wantFailure(t, mutate(), "not-a-mutation", "svc.get, which changes nothing", 0)
	h.answer = func(context.Context, engine.HostCall) (json.RawMessage, error) { return nil, taken }
	returned.Tool = "svc.create"
	if err := mutate(); !errors.Is(err, taken) {
		t.Errorf("a call that the host takes over: %v, want what the host said", err)
	}
}

// What is wrong with a declaration is said as it is for scripts, without what to write in JavaScript.
func TestDeclarationProblems(t *testing.T) {
	w := handler.Workflow{Name: "w", Topics: []keep.TopicName{"in"}, Handlers: []handler.Handler{
		handler.Producer{Name: "p", Schedule: keep.Schedule{Interval: time.Second / 2}, Run: func(context.Context, *handler.Ingress) error { return nil }},
		handler.Consumer[string, handler.NoResult]{Name: "c", Subscribe: []keep.TopicName{"inn"}},
		handler.Job{Name: "p"},
	}}
	_, _, err := w.Declare()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"producers.p.schedule.interval", `topic "inn" is not declared`, "consumers.c.prepare: is missing", "jobs.p: producers.p has that name already"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nsays nothing of %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "ctx") {
		t.Errorf("%v\nspeaks of scripts", err)
	}
}

// A script of before may have reserved events by numbers, as scripts may; a Go function gets their ids.
func TestPreparedByAScript(t *testing.T) {
	var got handler.Prepared[int]
	c := handler.Consumer[int, handler.NoResult]{
		Name: "c", Subscribe: []keep.TopicName{"in"},
		Prepare: func(context.Context, *handler.Reader, *handler.Event) (p handler.Prepared[int], err error) {
			return p, nil
		},
		Mutate: func(_ context.Context, _ *handler.Getter, p handler.Prepared[int]) (handler.Call, error) {
			got = p
			return handler.Call{}, nil
		},
	}
	prepared := json.RawMessage(`{"reservations":[{"topic":"in","ids":[7,"a"]}],"data":1,"trigger":{"topic":"in","messageId":7}}`)
	if _, err := call(t, handler.Limits{}, &host{}, c, "consumers.c.mutate", prepared); err != nil {
		t.Fatal(err)
	}
	seven := keep.EventRef{Topic: "in", MessageID: "7"}
	if got.Trigger != seven || len(got.Reserve) != 2 || got.Reserve[0] != seven || got.Reserve[1].MessageID != "a" {
		t.Errorf("the function got %+v, want the events 7 and a", got)
	}
}

// Topics and producers that had another name say so as scripts do.
func TestDeclareFormerNames(t *testing.T) {
	run := func(context.Context, *handler.Ingress) error { return nil }
	prepare := func(context.Context, *handler.Reader, *handler.Event) (p handler.Prepared[string], err error) {
		return p, nil
	}
	w := handler.Workflow{Name: "w", Topics: []keep.TopicName{"in", "other"}, TopicWas: map[keep.TopicName]keep.TopicName{"in": "first"}, NewTopics: []keep.TopicName{"other"},
		Handlers: []handler.Handler{handler.Producer{Name: "p", Was: "poll", Publishes: []keep.TopicName{"in"}, Run: run}, handler.Producer{Name: "q", New: true, Run: run},
			handler.Consumer[string, handler.NoResult]{Name: "c", Was: "act", Subscribe: []keep.TopicName{"in"}, Prepare: prepare}}}
	_, d, err := w.Declare()
	if err != nil {
		t.Fatal(err)
	}
	handlers := make(map[keep.HandlerName]keep.Handler)
	for _, h := range d.Handlers {
		handlers[h.Name] = h
	}
	p, q, c := handlers["p"], handlers["q"], handlers["c"]
	if d.TopicOf("in") != "first" || !d.HasTopic("first") || d.NewTopics[0] != "other" || p.ItemsOf() != "poll" || p.Publishes[0] != "first" || !q.New || c.ItemsOf() != "act" {
		t.Errorf("declared %+v", d)
	}
	w.TopicWas["inn"] = "second"
	if _, _, err := w.Declare(); err == nil || !strings.Contains(err.Error(), `names the topic "inn", and Topics does not`) {
		t.Errorf("a topic that is not there: %v", err)
	}
}
