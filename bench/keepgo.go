package main

import (
	"context"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/host"
)

// carried is what a work carries from step to step.
type carried struct {
	N    int    `json:"n"`
	Text string `json:"text"`
}

// asked is what a step asks of the tool, which answers with it.
type asked struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// goStep is a step of script, as Go functions.
func goStep(name keep.HandlerName, topic, next keep.TopicName) handler.Handler {
	return handler.Consumer[carried, asked]{
		Name: name, Subscribe: []keep.TopicName{topic}, Publishes: []keep.TopicName{next},
		Prepare: func(_ context.Context, _ *handler.Reader, trigger *handler.Event) (p handler.Prepared[carried], err error) {
			if trigger == nil {
				return p, nil
			}
			p.Reserve = []keep.EventRef{trigger.Ref()}
			return p, trigger.Decode(&p.Data)
		},
		Mutate: func(_ context.Context, _ *handler.Getter, p handler.Prepared[carried]) (handler.Call, error) {
			return handler.Call{Tool: "svc.create", Params: asked{fmt.Sprint(topic, p.Data.N), p.Data.Text}}, nil
		},
		Next: func(ctx context.Context, pub *handler.Publisher, p handler.Prepared[carried], o handler.Outcome[asked]) error {
			n := p.Data.N
			if next == "a" {
				n++
			}
			return pub.Publish(ctx, next, handler.Message{ID: keep.MessageID(fmt.Sprint("m", n)), Payload: carried{n, o.Result.Text}})
		},
	}
}

// deployGo deploys the workflow of deploy with handlers in Go.
func deployGo(ctx context.Context, h *host.Host, name string) (keep.WorkflowName, error) {
	w, err := h.LoadGo(&handler.Workflow{
		Name: keep.WorkflowName(name), Topics: []keep.TopicName{"a", "b", "c"},
		Handlers: []handler.Handler{goStep("one", "a", "b"), goStep("two", "b", "c"), goStep("three", "c", "a")},
	})
	if err != nil {
		return "", err
	}
	_, err = h.Deploy(ctx, w)
	return w.Name, err
}
