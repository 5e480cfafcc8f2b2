package idempotency_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep/idempotency"
)

const platformRows = `
{"key":"done","user_id":"u1","endpoint":"POST /api/stories","status":"completed","response_status":201,"response_body":{"id": 1.10},"created_at":"1999-12-31T23:00:00+00:00","completed_at":"1999-12-31T23:00:01+00:00"}
{"key":"running","user_id":"u1","endpoint":"/api/stories","status":"in_progress","response_status":null,"response_body":null,"created_at":"1999-12-31T23:00:00+00:00","completed_at":null}
{"key":"failed","user_id":"u2","endpoint":"/api/stories","status":"failed","response_status":500,"response_body":null,"created_at":"1999-12-31T23:00:00+00:00","completed_at":null}
{"key":"old","user_id":"u2","endpoint":"/api/stories","status":"completed","response_status":200,"response_body":null,"created_at":"1999-12-01T00:00:00+00:00","completed_at":null}
`

func TestImport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // starts at 2000-01-01
		w := newWorld(t, rule(idempotency.Rule{Caller: idempotency.ByHeader("X-User-Id")}), nil)
		for _, want := range []idempotency.Imported{{Added: 3, Expired: 1}, {Known: 3, Expired: 1}} {
			got, err := idempotency.Import(t.Context(), w.store, strings.NewReader(platformRows), "x-user-id", week, time.Now())
			if err != nil || got != want {
				t.Errorf("Import = %+v, %v, want %+v", got, err, want)
			}
		}
		ask := func(k, user string) *httptest.ResponseRecorder { return w.do(with(k, header("X-User-Id", user))) }
		got := ask("done", "u1")
		if got.Code != 201 || got.Body.String() != `{"id": 1.10}` || got.Header().Get("Content-Type") != "application/json" || got.Header().Get("Idempotent-Replayed") != "true" {
			t.Errorf("completed: %d %s %v", got.Code, got.Body, got.Header())
		}
		w.problem(ask("running", "u1"), 409, idempotency.KindOutcomeUnknown)
		w.problem(ask("failed", "u2"), 409, idempotency.KindOutcomeUnknown)
		w.ran(0)
		ask("done", "u2") // another user
		ask("old", "u2")
		w.ran(2)
	})
	w := newWorld(t, idempotency.Config{}, nil)
	for _, bad := range []string{`{`, `{"key":"","user_id":"u","status":"failed"}`, `{"key":"k","user_id":"","status":"failed"}`, `{"key":"k","user_id":"u","status":"odd"}`,
		`{"key":"k","user_id":"u","status":"completed","response_status":0}`} {
		if _, err := idempotency.Import(t.Context(), w.store, strings.NewReader(bad), "X-User-Id", week, time.Now()); err == nil {
			t.Errorf("Import of %s: no error", bad)
		}
	}
}
