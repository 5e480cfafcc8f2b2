package handler_test

import (
	"context"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/testkit/handlertest"
)

type order struct {
	ID    string `json:"id"`
	Email string `json:"email"`
}

// shop is the service of the examples.
var shop = []connector.Connection{{Name: "shop", Tools: []connector.Tool{
	connector.NewReader(connector.Spec{Name: "orders", Effect: connector.List}, func(context.Context, struct{}) ([]order, error) { return nil, nil }),
	connector.NewMutator(connector.Spec{Name: "confirm", Identity: []string{"id"}}, connector.Change[order, string]{
		Do: func(context.Context, string, order) (string, error) { return "", nil },
	}),
}}}

// A producer publishes what is new. The order's id makes it the same event each time that it is read.
func ExampleProducer() {
	w := &handler.Workflow{Name: "orders", Topics: []keep.TopicName{"placed"}, Handlers: []handler.Handler{
		handler.Producer{Name: "poll", Run: func(ctx context.Context, in *handler.Ingress) error {
			var list []order
			if err := in.Read(ctx, "shop.orders", nil, &list); err != nil {
				return err
			}
			for _, o := range list {
				if err := in.Publish(ctx, "placed", handler.Message{ID: keep.MessageID(o.ID), Payload: o}); err != nil {
					return err
				}
			}
			return nil
		}},
	}}
	b := handlertest.Bench{Workflow: w, Connections: shop, Fakes: map[keep.ToolName]handlertest.Fake{
		"shop.orders": handlertest.Returns([]order{{"17", "ada@example.com"}}),
	}}
	got, err := b.Run(context.Background(), "poll")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, ev := range got.Published {
		fmt.Printf("%s %s %s\n", ev.Topic, ev.ID, ev.Payload)
	}
	// Output:
	// placed 17 {"id":"17","email":"ada@example.com"}
}

// A consumer makes one call for the events that it reserves. It returns the call, and Keep makes it.
func ExampleConsumer() {
	w := &handler.Workflow{Name: "orders", Topics: []keep.TopicName{"placed"}, Handlers: []handler.Handler{
		handler.Consumer[order, handler.NoResult]{
			Name: "confirm", Subscribe: []keep.TopicName{"placed"},
			Prepare: func(_ context.Context, _ *handler.Reader, ev *handler.Event) (p handler.Prepared[order], err error) {
				if ev == nil {
					return p, nil
				}
				p.Reserve, p.Title = []keep.EventRef{ev.Ref()}, "Confirm "+string(ev.MessageID)
				return p, ev.Decode(&p.Data)
			},
			Mutate: func(_ context.Context, _ *handler.Getter, p handler.Prepared[order]) (handler.Call, error) {
				return handler.Call{Tool: "shop.confirm", Params: p.Data}, nil
			},
		},
	}}
	b := handlertest.Bench{Workflow: w, Connections: shop, Events: []handlertest.Event{{Topic: "placed", ID: "17", Payload: order{"17", "ada@example.com"}}}}
	got, err := b.Run(context.Background(), "confirm")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(got.Title)
	fmt.Printf("%s %s\n", got.Calls[0].Tool, got.Calls[0].Params)
	// Output:
	// Confirm 17
	// shop.confirm {"email":"ada@example.com","id":"17"}
}

// A job calls a tool once for each item, however often it runs.
func ExampleJob() {
	w := &handler.Workflow{Name: "orders", Handlers: []handler.Handler{
		handler.Job{Name: "sweep", Run: func(ctx context.Context, w *handler.Worker) error {
			var list []order
			if err := w.Read(ctx, "shop.orders", nil, &list); err != nil {
				return err
			}
			for _, o := range list {
				if err := w.Item(ctx, o.ID, "Order "+o.ID, func(ctx context.Context, it *handler.Item) error {
					if it.Done() {
						return nil
					}
					return it.Call(ctx, "shop.confirm", o, nil)
				}); err != nil {
					return err
				}
			}
			return nil
		}},
	}}
	b := handlertest.Bench{Workflow: w, Connections: shop, Done: []string{"17"}, Fakes: map[keep.ToolName]handlertest.Fake{
		"shop.orders": handlertest.Returns([]order{{"17", "ada@example.com"}, {"18", "bob@example.com"}}),
	}}
	got, err := b.Run(context.Background(), "sweep")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range got.Calls {
		fmt.Printf("%s of item %s\n", c.Tool, c.Item)
	}
	// Output:
	// shop.confirm of item 18
}
