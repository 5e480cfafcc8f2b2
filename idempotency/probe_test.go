package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep/idempotency"
)

func guardProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var finding idempotency.Finding
		var failure error
		var asked idempotency.Question
		var slow time.Duration
		w := newWorld(t, rule(idempotency.Rule{SettleAfter: time.Minute, Probe: func(_ context.Context, q idempotency.Question) (idempotency.Finding, error) {
			asked = q
			time.Sleep(slow)
			return finding, failure
		}}), mortal)
		crash(t, w, "happened")
		failure = errors.New("busy")
		w.problem(w.do(with("happened")), 409, idempotency.KindOutcomeUnknown)
		failure, finding = nil, idempotency.Finding{Happened: true, Status: 201, Header: http.Header{"X-A": {"1"}, "Set-Cookie": {"s"}}, Body: []byte("seen")}
		for range 2 {
			got := w.do(with("happened"))
			if got.Code != 201 || got.Body.String() != "seen" || got.Header().Get("X-A") != "1" || got.Header().Get("Set-Cookie") != "" ||
				got.Header().Get("Idempotent-Replayed") != "true" {
				t.Errorf("answer = %d %q %v", got.Code, got.Body, got.Header())
			}
		}
		if asked.Key != "happened" || asked.Method != "POST" || asked.Path != "/orders" || asked.Since.IsZero() {
			t.Errorf("the probe was asked %+v", asked)
		}
		w.ran(1)

		finding = idempotency.Finding{}
		crash(t, w, "absent")
		w.problem(w.do(with("absent")), 409, idempotency.KindOutcomeUnknown) // too early to believe it
		slow = time.Minute
		w.problem(w.do(with("absent")), 409, idempotency.KindOutcomeUnknown) // it was asked too early
		slow = 0
		if got := w.do(with("absent")); got.Code != 200 || got.Body.String() != "done" {
			t.Errorf("answer = %d %q", got.Code, got.Body)
		}
		w.ran(3)
	})
}

func TestProbeURL(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.EscapedPath() {
		case "/by-key/a%20b%2Fc":
			rw.WriteHeader(202)
			fmt.Fprint(rw, "seen")
		case "/by-key/gone":
			rw.WriteHeader(404)
		case "/by-key/long":
			fmt.Fprint(rw, strings.Repeat("x", 11))
		default:
			rw.WriteHeader(500)
		}
	}))
	defer server.Close()
	probe := idempotency.ProbeURL(server.Client(), server.URL+"/by-key/{key}", nil, 10)
	ask := func(k string) (idempotency.Finding, error) {
		return probe(t.Context(), idempotency.Question{Key: k})
	}
	if f, err := ask("a b/c"); err != nil || !f.Happened || f.Status != 202 || string(f.Body) != "seen" {
		t.Errorf("2xx: %+v, %v", f, err)
	}
	if f, err := ask("gone"); err != nil || f.Happened {
		t.Errorf("404: %+v, %v", f, err)
	}
	for _, k := range []string{"other", "long"} {
		if _, err := ask(k); !errors.Is(err, idempotency.ErrCannotTell) {
			t.Errorf("%s: %v, want %v", k, err, idempotency.ErrCannotTell)
		}
	}
}
