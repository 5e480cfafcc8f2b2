package idempotency_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/memory"
)

func Example() {
	orders := 0
	guard, err := idempotency.New(new(memory.Keys), idempotency.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		orders++
		fmt.Fprintf(w, "order %d", orders)
	}))
	for range 2 {
		r := httptest.NewRequest("POST", "/orders", strings.NewReader(`{"item":"a-1"}`))
		r.Header.Set("Idempotency-Key", "7f3a")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Printf("%s, replayed: %q\n", w.Body, w.Header().Get("Idempotent-Replayed"))
	}
	// Output:
	// order 1, replayed: ""
	// order 1, replayed: "true"
}

// Rules say what is done where; the first wins whose path and methods match.
func ExampleConfig() {
	_, err := idempotency.New(new(memory.Keys), idempotency.Config{Rules: []idempotency.Rule{
		{Path: "/payments", Require: true, Wait: 5 * time.Second},
		{Path: "/reports/{id}", Policy: key.Retry5xx, AfterCrash: idempotency.AfterCrashRetry},
		{}, // everything else
	}})
	fmt.Println(err)
	// Output: <nil>
}

// A handler whose only effects are in the database of its keys is never in doubt.
func ExampleTx() {
	_ = func(w http.ResponseWriter, r *http.Request) {
		tx, err := idempotency.Tx[*sql.Tx](r.Context())
		if err != nil {
			http.Error(w, "internal error", http.StatusInternalServerError)
			return
		}
		if _, err := tx.ExecContext(r.Context(), `INSERT INTO orders (item) VALUES (?)`, "a-1"); err != nil {
			http.Error(w, "internal error", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}
}
