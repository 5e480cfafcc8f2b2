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
	"github.com/keep-run/keep/law/key"
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

// What a handler set going elsewhere may have its effect long after the process died.
func guardProbeOfAnEffectElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, rule(idempotency.Rule{EffectTimeout: time.Hour, SettleAfter: time.Minute, Probe: func(context.Context, idempotency.Question) (idempotency.Finding, error) {
			return idempotency.Finding{}, nil
		}}), mortal)
		begun := time.Now()
		crash(t, w, "k")
		for _, at := range []time.Duration{idempotency.DefaultLease, time.Hour, time.Hour + time.Minute + 9*time.Second} { // it may have begun 10 s late
			time.Sleep(time.Until(begun.Add(at)))
			w.problem(w.do(with("k")), 409, idempotency.KindOutcomeUnknown)
		}
		w.ran(1)
		time.Sleep(time.Second)
		if got := w.do(with("k")); got.Code != 200 {
			t.Errorf("answer = %d %q", got.Code, got.Body)
		}
		w.ran(2)
	})
}

// A request whose key was taken long ago is not executed: others may have found that it did not happen.
func guardTakenLate(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]func(*world, *time.Duration){
		"slow":          func(_ *world, late *time.Duration) { *late = 11 * time.Second },
		"lease is over": func(_ *world, late *time.Duration) { *late = idempotency.DefaultLease },
		"forgotten":     func(w *world, late *time.Duration) { *late = 11 * time.Second; w.store.forget.Store(true) },
	} {
		synctest.Test(t, func(t *testing.T) {
			var late time.Duration
			w := newWorldOn(t, func(f *flaky) idempotency.Store { return slow{f, &late} }, idempotency.Config{}, nil)
			how(w, &late)
			w.problem(w.do(with("k")), 503, idempotency.KindStoreUnavailable)
			w.ran(0)
			late = 0
			w.store.forget.Store(false)
			if got := w.do(with("k")); got.Code != 201 {
				t.Errorf("%s: then the answer is %d %q", name, got.Code, got.Body)
			}
			w.ran(1)
		})
	}
}

// A slow store takes its time to say that it wrote.
type slow struct {
	*flaky
	late *time.Duration
}

func (s slow) Write(ctx context.Context, r key.Record) error {
	err := s.flaky.Write(ctx, r)
	time.Sleep(*s.late)
	*s.late = 0
	return err
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

// What may be the beginning of a probe's answer is not kept as the whole: nothing but the end of its connection ended it.
func TestProbeThatMayBeCut(t *testing.T) {
	t.Parallel()
	text := `{"id": 7, "lines": [1, 2`
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprintf(conn, "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n%s", text)
		_ = conn.Close()
	}))
	defer server.Close()
	w := newWorld(t, rule(idempotency.Rule{Probe: idempotency.ProbeURL(server.Client(), server.URL+"/{key}", nil, 100)}),
		func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(502) })
	for _, k := range []string{"k", "whole"} {
		w.do(with(k))
	}
	if p := w.problem(w.do(with("k")), 409, idempotency.KindBodyNotStored); p["original_status"] != 200.0 {
		t.Errorf("the problem is %v", p)
	}
	text += "]}"
	if got := w.do(with("whole")); got.Code != 200 || got.Body.String() != text {
		t.Errorf("answer = %d %s", got.Code, got.Body)
	}
	w.ran(2)
}

// The headers that a person gives are those of the answer, however he writes them.
func TestHeadersOfAResolution(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(502) })
	w.do(with("k"))
	res := idempotency.Resolution{Happened: true, Body: `{"id": 7}`, By: "ada",
		Header: http.Header{"content-type": {"application/json"}, "x-a": {"1"}, "X-A": {"2"}, "set-cookie": {"a=b"}, "connection": {"x-hop"}, "X-Hop": {"h"}}}
	if _, err := idempotency.NewKeys(w.store).Resolve(t.Context(), w.record("k").ID.String(), res, time.Now()); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(w.h)
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/orders", strings.NewReader("order"))
	must(t, err)
	r.Host = "example.com" // as httptest has it
	r.Header.Set("Idempotency-Key", "k")
	resp, err := server.Client().Do(r)
	must(t, err)
	defer resp.Body.Close()
	if got := resp.Header["Content-Type"]; len(got) != 1 || got[0] != "application/json" {
		t.Errorf("Content-Type: %q", got)
	}
	if resp.Header["Set-Cookie"] != nil || resp.Header["X-Hop"] != nil || len(resp.Header["X-A"]) != 2 {
		t.Errorf("the answer has %v", resp.Header)
	}
}

// The end of the key of a guard behind this one is not that of this one's.
func TestExpiryOfAGuardBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set(idempotency.ExpiresHeader, "Thu, 01 Jan 1970 00:00:00 GMT")
	})
	first, again := w.do(with("k")), w.do(with("k"))
	if at := first.Header().Get(idempotency.ExpiresHeader); at != again.Header().Get(idempotency.ExpiresHeader) || strings.Contains(at, "1970") {
		t.Errorf("the key expires at %s, and at %v", at, again.Header()[idempotency.ExpiresHeader])
	}
}

// A key that is no header of keys is told what is wrong with it, and nothing about quotes.
func TestKeyOfAWebhookThatIsNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rule(idempotency.Rule{Key: idempotency.KeySource{Field: "$.id"}}), nil)
	p := w.problem(w.do(with("", body(`{"id": "größe"}`))), 400, idempotency.KindKeyInvalid)
	if detail, _ := p["detail"].(string); strings.Contains(detail, "starts with a quote") || !strings.Contains(detail, "printable ASCII") {
		t.Errorf("the detail is %q", detail)
	}
	first := w.do(with("", body(`{"id": "a \"b\\"}`)))
	w.replayed(first, w.do(with("", body(`{"id": "a \"b\\"}`))))
	if w.record(`a "b\`).Rev == 0 {
		t.Error("the key is not as it was sent")
	}
}
