package host_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/store/memory"
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

func check(err error) {
	if err != nil {
		panic(err)
	}
}
