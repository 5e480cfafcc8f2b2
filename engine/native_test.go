package engine_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/handler"
)

// kinds are what the handlers of a world are written in: the world's own script, or package handler.
var kinds = []string{"script", "go"}

// writtenIn makes the handlers of the world Go functions of package handler, if kind says so. They do what
// those of newWorld and newJobWorld do.
func (w *world) writtenIn(kind string) *world {
	w.t.Helper()
	if kind == "script" {
		return w
	}
	flow := &handler.Workflow{Name: "w", Topics: []keep.TopicName{"in", "out"}, Handlers: []handler.Handler{acting}}
	if len(w.jobItems) > 0 {
		flow = &handler.Workflow{Name: "w", Handlers: []handler.Handler{reminding(w.jobItems)}}
	}
	_, def, err := flow.Declare()
	if err != nil {
		w.t.Fatal(err)
	}
	w.def, w.native = def, flow.Script(handler.Limits{})
	return w
}

type thing struct {
	ID string `json:"id"`
}

type created struct{ ID int }

// acting is the consumer of newWorld.
var acting = handler.Consumer[thing, created]{
	Name: "act", Subscribe: []keep.TopicName{"in"},
	Prepare: func(_ context.Context, _ *handler.Reader, ev *handler.Event) (handler.Prepared[thing], error) {
		if ev == nil {
			return handler.Prepared[thing]{}, nil
		}
		return handler.Prepared[thing]{Reserve: []keep.EventRef{ev.Ref()}, Data: thing{string(ev.MessageID)}, Title: "do " + string(ev.MessageID)}, nil
	},
	Mutate: func(_ context.Context, _ *handler.Getter, p handler.Prepared[thing]) (handler.Call, error) {
		return handler.Call{Tool: "svc.create", Params: map[string]any{"id": p.Data.ID, "text": "hello"}}, nil
	},
	Next: func(ctx context.Context, pub *handler.Publisher, p handler.Prepared[thing], o handler.Outcome[created]) error {
		return pub.Publish(ctx, "out", handler.Message{ID: keep.MessageID("out:" + p.Data.ID), Payload: map[string]any{"status": o.Status}})
	},
}

// reminding is the job of newJobWorld.
func reminding(items []string) handler.Job {
	return handler.Job{Name: "remind", Schedule: keep.Schedule{Interval: 3600e9}, Run: func(ctx context.Context, w *handler.Worker) error {
		for _, id := range items {
			err := w.Item(ctx, id, "Item "+id, func(ctx context.Context, it *handler.Item) error {
				if it.Done() {
					return nil
				}
				return it.Call(ctx, "svc.create", map[string]any{"id": id, "text": "hello"}, nil)
			})
			if err != nil {
				return fmt.Errorf("item %s: %w", id, err)
			}
		}
		return nil
	}}
}

// inKinds runs a test for each kind of handlers.
func inKinds(t *testing.T, name string, test func(t *testing.T, kind string)) {
	for _, kind := range kinds {
		t.Run(name+"/"+kind, func(t *testing.T) { test(t, kind) })
	}
}
