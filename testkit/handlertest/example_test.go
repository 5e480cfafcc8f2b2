package handlertest_test

import (
	"context"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/testkit/handlertest"
)

type invoice struct {
	ID string `json:"id"`
	To string `json:"to"`
}

// The program: a consumer that asks the books whether an invoice is paid, and reminds of one that is not.
var (
	books = connector.Connection{Name: "books", Tools: []connector.Tool{
		connector.NewReader(connector.Spec{Name: "paid"}, func(context.Context, invoice) (paid bool, err error) { panic("it asks a service") }),
	}}
	mailer = connector.Connection{Name: "mailer", Tools: []connector.Tool{
		connector.NewMutator(connector.Spec{Name: "send", Identity: []string{"id"}}, connector.Change[invoice, string]{
			Do: func(context.Context, string, invoice) (string, error) { panic("it sends a mail") },
		}),
	}}
	reminders = &handler.Workflow{
		Name:   "reminders",
		Topics: []keep.TopicName{"overdue", "reminded"},
		Handlers: []handler.Handler{handler.Consumer[invoice, string]{
			Name: "remind", Subscribe: []keep.TopicName{"overdue"}, Prepare: prepare, Mutate: mutate, Next: next,
		}},
	}
)

func prepare(_ context.Context, _ *handler.Reader, ev *handler.Event) (p handler.Prepared[invoice], err error) {
	if ev == nil {
		return p, nil
	}
	p.Reserve = []keep.EventRef{ev.Ref()}
	return p, ev.Decode(&p.Data)
}

func mutate(ctx context.Context, g *handler.Getter, p handler.Prepared[invoice]) (c handler.Call, err error) {
	paid := false
	if err := g.Read(ctx, "books.paid", p.Data, &paid); err != nil || paid {
		return c, err
	}
	return handler.Call{Tool: "mailer.send", Params: p.Data}, nil
}

func next(ctx context.Context, pub *handler.Publisher, p handler.Prepared[invoice], o handler.Outcome[string]) error {
	if o.Status != handler.Applied {
		return nil
	}
	return pub.Publish(ctx, "reminded", handler.Message{ID: keep.MessageID(p.Data.ID), Payload: map[string]string{"mail": o.Result}})
}

// A test of a consumer: what it calls and publishes for an event, when the tools answer so.
func ExampleBench_Run() {
	b := handlertest.Bench{
		Workflow: reminders, Connections: []connector.Connection{books, mailer},
		Events: []handlertest.Event{{Topic: "overdue", ID: "17", Payload: invoice{ID: "17", To: "ada@example.com"}}},
		Fakes: map[keep.ToolName]handlertest.Fake{
			"books.paid":  handlertest.Returns(false),
			"mailer.send": handlertest.Returns("mail-1"),
		},
	}
	got, err := b.Run(context.Background(), "remind")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range got.Calls {
		fmt.Printf("%s %s\n", c.Tool, c.Params)
	}
	for _, ev := range got.Published {
		fmt.Printf("%s %s %s\n", ev.Topic, ev.ID, ev.Payload)
	}
	// Output:
	// mailer.send {"id":"17","to":"ada@example.com"}
	// reminded 17 {"mail":"mail-1"}
}
