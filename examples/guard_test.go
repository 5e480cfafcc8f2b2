package examples_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/store/sqlite"
)

// A handler that is executed once for each Idempotency-Key.
func Example_guard() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "keep-guard-")
	check(err)
	defer os.RemoveAll(dir)
	file, orders := filepath.Join(dir, "keep.db"), 0
	placeOrder := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		orders++
		fmt.Fprintf(w, "order %d", orders)
	})

	db := sqlite.New(file, sqlite.Config{})
	check(db.Open(ctx))
	guard, err := idempotency.New(db.Keys(), idempotency.Config{})
	check(err)
	handler := guard.Handler(placeOrder) // http.Handler in, http.Handler out

	for range 2 {
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/orders", strings.NewReader(`{"article": "tea"}`))
		req.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, req)
		fmt.Printf("%d %q, replayed: %q\n", rec.Code, rec.Body, rec.Header().Get("Idempotent-Replayed"))
	}
	check(db.Close())
	// Output:
	// 200 "order 1", replayed: ""
	// 200 "order 1", replayed: "true"
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// serveWithKeys is the middleware of docs/idempotency.md, which is compiled here.
func serveWithKeys(ctx context.Context, mux *http.ServeMux) error {
	db := sqlite.New("keys.db", sqlite.Config{})
	if err := db.Open(ctx); err != nil {
		return err
	}
	defer db.Close()
	guard, err := idempotency.New(db.Keys(), idempotency.Config{
		Rules: []idempotency.Rule{
			{Path: "/payments", Require: true, Wait: 5 * time.Second},
			{}, // everything else
		},
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	go func() { ended <- guard.Run(ctx) }() // deletes what is over; ends if the file goes
	go func() { ended <- http.ListenAndServe("127.0.0.1:8080", guard.Handler(mux)) }()
	return <-ended
}

var _ = serveWithKeys
