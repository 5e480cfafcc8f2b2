package transfer_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/store/sqlite"
)

// A guard whose database was moved away executes nothing, whatever its rules say of a store that is down: what it executes
// would be executed again by who works on the other one.
func TestGuardOfASealedDatabase(t *testing.T) {
	each(t, func(t *testing.T, make func(testing.TB) place) {
		from, to := make(t), file(t)
		fill(t, from)
		var store idempotency.Store
		switch db := from.beside(t).(type) {
		case *sqlite.DB:
			store = db.Keys()
		case *postgres.DB:
			store = db.Keys()
		}
		ran := 0
		g, err := idempotency.New(store, idempotency.Config{Rules: []idempotency.Rule{{FailOpen: true}}})
		if err != nil {
			t.Fatal(err)
		}
		h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { ran++; fmt.Fprint(w, "done") }))
		post := func(key string) int {
			r := httptest.NewRequest("POST", "/", strings.NewReader("x"))
			r.Header.Set("Idempotency-Key", key)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		if code := post("before"); code != 200 {
			t.Fatalf("before it was moved: %d", code)
		}
		if _, err := mover.Copy(ctx, from, to); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"after", "after"} {
			if code := post(key); code != 503 {
				t.Errorf("%s it was moved: %d, want 503", key, code)
			}
		}
		if ran != 1 {
			t.Errorf("%d requests were executed, want 1", ran)
		}
	})
}
