package host_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/store/sqlite"
)

// A program that runs one workflow against one JSON API until there is nothing
// more to do.
func ExampleOpen() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `[{"id": "m1", "subject": "Hello"}, {"id": "m2", "subject": "Invoice 12"}]`)
	}))
	defer api.Close()
	ctx := context.Background()

	db := memory.New() // sqlite.New("keep.db", sqlite.Config{Host: true}) forgets nothing
	gmail, err := httpapi.New("gmail", httpapi.Config{BaseURL: api.URL, Tools: map[string]httpapi.Tool{
		"search": {Effect: connector.List, Path: "/mail", Query: []string{"query"}},
	}})
	check(err)
	h, err := host.Open(ctx, db, host.Config{Connections: []connector.Connection{*gmail}})
	check(err)
	w, err := h.Load(ctx, "../examples/s3", "example.js")
	check(err)
	_, err = h.Deploy(ctx, w)
	check(err)
	check(h.RunUntilIdle(ctx)) // or h.Run(ctx), until ctx is done

	counts, err := db.TopicCounts(ctx, w.Name)
	check(err)
	for _, c := range counts {
		fmt.Printf("%s: %d pending, %d consumed\n", c.Topic, c.Pending, c.Consumed)
	}
	check(h.Close())
	// Output:
	// email.received: 0 pending, 2 consumed
	// row.created: 2 pending, 0 consumed
}

type invoice struct {
	ID string `json:"id"`
	To string `json:"to"`
}

// A job that sends one mail, once.
func sweep(ctx context.Context, w *handler.Worker) error {
	return w.Item(ctx, "invoice:17", "Invoice 17", func(ctx context.Context, it *handler.Item) error {
		if it.Done() {
			return nil
		}
		return it.Call(ctx, "mailer.send", invoice{ID: "17", To: "ada@example.com"}, nil)
	})
}

// A program that keeps what it knows, and whose workflow is a function.
func ExampleOpen_file() {
	var conns []connector.Connection // that have mailer.send
	ctx := context.Background()
	db := sqlite.New("keep.db", sqlite.Config{Host: true}) // or postgres.New(url, postgres.Config{Host: true})
	check(db.Open(ctx))
	defer db.Close()
	h, err := host.Open(ctx, db, host.Config{Name: "billing", Connections: conns})
	check(err)
	w, err := h.LoadGo(&handler.Workflow{Name: "billing", Handlers: []handler.Handler{
		handler.Job{Name: "sweep", Schedule: keep.Schedule{Interval: time.Hour}, Run: sweep},
	}})
	check(err)
	_, err = h.Deploy(ctx, w)
	check(err)
	check(h.Run(ctx))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
