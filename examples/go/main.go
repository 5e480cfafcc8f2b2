// Command go sends reminders for invoices through a mailer that loses answers, by a workflow
// written in Go. Each customer gets one mail.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/store/memory"
)

type invoice struct {
	ID string `json:"id"`
	To string `json:"to"`
}

var reminders = &handler.Workflow{
	Name:   "reminders",
	Topics: []keep.TopicName{"overdue"},
	Handlers: []handler.Handler{
		handler.Producer{Name: "look", Schedule: keep.Schedule{Interval: time.Hour}, Run: look},
		handler.Consumer[invoice, handler.NoResult]{
			Name: "remind", Subscribe: []keep.TopicName{"overdue"}, Prepare: prepare, Mutate: mutate,
		},
	},
}

func look(ctx context.Context, in *handler.Ingress) error {
	var list []invoice
	if err := in.Read(ctx, "books.overdue", nil, &list); err != nil {
		return err
	}
	for _, i := range list {
		if err := in.Publish(ctx, "overdue", handler.Message{ID: keep.MessageID(i.ID), Payload: i}); err != nil {
			return err
		}
	}
	return nil
}

func prepare(_ context.Context, _ *handler.Reader, ev *handler.Event) (p handler.Prepared[invoice], err error) {
	if ev == nil {
		return p, nil
	}
	p.Reserve, p.Title = []keep.EventRef{ev.Ref()}, "Remind of "+string(ev.MessageID)
	return p, ev.Decode(&p.Data)
}

func mutate(_ context.Context, _ *handler.Getter, p handler.Prepared[invoice]) (handler.Call, error) {
	return handler.Call{Tool: "mailer.send", Params: p.Data}, nil
}

func main() {
	sent := map[string]invoice{} // what the mailer did, by the key of the call
	books := connector.Connection{Name: "books", Connector: "go", Tools: []connector.Tool{
		connector.NewReader(connector.Spec{Name: "overdue", Effect: connector.List}, func(context.Context, struct{}) ([]invoice, error) {
			return []invoice{{"INV-1", "ada@example.com"}, {"INV-2", "bob@example.com"}}, nil
		}),
	}}
	mailer := connector.Connection{Name: "mailer", Connector: "go", Tools: []connector.Tool{
		connector.NewMutator(connector.Spec{Name: "send", Identity: []string{"id"}}, connector.Change[invoice, string]{
			Do: func(_ context.Context, key string, i invoice) (string, error) {
				sent[key] = i
				fmt.Println("mailer: sends to", i.To, "and loses the answer")
				return "", errors.New("connection reset")
			},
			Find: func(_ context.Context, key string, _ invoice) (string, bool, error) {
				_, found := sent[key]
				return "sent", found, nil
			},
		}),
	}}
	ctx := context.Background()
	// sqlite.New("keep.db", sqlite.Config{Host: true}) in the place of memory.New() forgets nothing.
	h, err := host.Open(ctx, memory.New(), host.Config{Connections: []connector.Connection{books, mailer}})
	check(err)
	w, err := h.LoadGo(reminders)
	check(err)
	_, err = h.Deploy(ctx, w)
	check(err)
	check(h.RunUntilIdle(ctx)) // or h.Run(ctx), until ctx is done
	check(h.Close())
	fmt.Println(len(sent), "mails for 2 invoices")
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
