package examples_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

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

	db := sqlite.New(file, sqlite.Config{Host: true})
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
