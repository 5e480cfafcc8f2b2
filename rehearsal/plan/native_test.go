package plan_test

import (
	"context"
	"slices"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/rehearsal/plan"
)

// A workflow that is written in Go is planned like a script: by live reads, and without a call.
func TestMakeOfGo(t *testing.T) {
	w := newWorld(t)
	type order struct {
		ID string `json:"id"`
	}
	flow := &handler.Workflow{Name: "orders", Topics: []keep.TopicName{"order.new"}, Handlers: []handler.Handler{
		handler.Producer{Name: "poll", Run: func(ctx context.Context, in *handler.Ingress) error {
			var list []order
			if err := in.Read(ctx, "shop.list", nil, &list); err != nil {
				return err
			}
			for _, o := range list {
				if err := in.Publish(ctx, "order.new", handler.Message{ID: keep.MessageID(o.ID), Payload: o}); err != nil {
					return err
				}
			}
			return nil
		}},
		handler.Consumer[order, handler.NoResult]{
			Name: "send", Subscribe: []keep.TopicName{"order.new"},
			Prepare: func(_ context.Context, _ *handler.Reader, ev *handler.Event) (p handler.Prepared[order], err error) {
				if ev == nil {
					return p, nil
				}
				p.Reserve = []keep.EventRef{ev.Ref()}
				return p, ev.Decode(&p.Data)
			},
			Mutate: func(_ context.Context, _ *handler.Getter, p handler.Prepared[order]) (handler.Call, error) {
				return handler.Call{Tool: "shop.send", Params: p.Data}, nil
			},
		},
	}}
	loaded, err := host.LoadGo(flow, "build 1")
	if err != nil {
		t.Fatal(err)
	}
	w.w = loaded
	p := w.plan(t, plan.Config{})
	if got, want := calls(p), []string{`shop.send{"id":"o1"}`}; !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
	if n := w.shop.calls.Load(); n != 0 || w.shop.reads.Load() != 1 {
		t.Errorf("the plan made %d calls and %d reads, want 0 and 1", n, w.shop.reads.Load())
	}
	w.live(t) // until it waits for its approval
	flow.Name, flow.Was = "sales", "orders"
	if w.w, err = host.LoadGo(flow, "build 2"); err != nil {
		t.Fatal(err)
	}
	if p := w.plan(t, plan.Config{Base: w.db}); len(calls(p)) != 0 || !slices.Equal(p.Workflows, []keep.WorkflowName{"orders"}) {
		t.Errorf("the plan of the renamed workflow is about %q and calls %q, want orders and nothing: it was done", p.Workflows, calls(p))
	}
}
