package idempotency_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep/idempotency"
)

// ask gets the status at a path, as a caller.
func (w *world) ask(path string, change ...func(*http.Request)) (code int, s idempotency.Status) {
	w.t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	for _, c := range change {
		c(r)
	}
	got := w.do(r)
	if got.Code == 200 {
		must(w.t, json.Unmarshal(got.Body.Bytes(), &s))
	}
	return got.Code, s
}

// Whoever met outcome-unknown asks at the problem's instance; nobody else learns anything.
func TestInstance(t *testing.T) {
	t.Parallel()
	status := 502
	var inside func()
	happened := false
	probe := func(context.Context, idempotency.Question) (idempotency.Finding, error) {
		if !happened {
			return idempotency.Finding{}, idempotency.ErrCannotTell
		}
		return idempotency.Finding{Happened: true, Status: 201, Body: []byte("found")}, nil
	}
	w := newWorld(t, rule(idempotency.Rule{Path: "/orders", Probe: probe}), func(rw http.ResponseWriter, _ *http.Request) {
		if inside != nil {
			inside()
		}
		rw.Header().Set("Location", "/orders/1")
		rw.WriteHeader(status)
		fmt.Fprint(rw, "answer")
	})
	ada := header("Authorization", "Bearer ada")
	var p struct{ Instance string }
	must(t, json.Unmarshal(w.do(with("k", ada)).Body.Bytes(), &p))
	if code, s := w.ask(p.Instance, ada); code != 200 || s.State != "unknown" || s.Answer != nil || !strings.HasSuffix(p.Instance, s.Reference) {
		t.Errorf("unknown: %d %+v", code, s)
	}
	for name, other := range map[string]func(*http.Request){
		"other": header("Authorization", "Bearer bob"), "nobody": func(*http.Request) {}, "cookie": header("Cookie", "a=b"),
		"host": func(r *http.Request) { r.Host = "other.example"; ada(r) },
	} {
		if code, _ := w.ask(p.Instance, other); code != 404 {
			t.Errorf("%s: %d", name, code)
		}
	}
	happened = true
	code, s := w.ask(p.Instance, ada)
	if code != 200 || s.State != "done" || s.Answer == nil || s.Answer.Status != 201 || *s.Answer.Body != "found" {
		t.Errorf("after the probe: %d %+v", code, s)
	}
	status = 201
	inside = func() {
		var p struct{ Instance string }
		must(t, json.Unmarshal(w.do(with("done", ada)).Body.Bytes(), &p)) // a duplicate
		if code, s := w.ask(p.Instance, ada); code != 200 || s.State != "running" {
			t.Errorf("running: %d %+v", code, s)
		}
	}
	w.do(with("done", ada))
	inside = nil
	_, s = w.ask(idempotency.InstancePath+w.record("done").ID.String(), ada)
	if s.State != "done" || s.Answer.Header["Location"][0] != "/orders/1" || *s.Answer.Body != "answer" {
		t.Errorf("done: %+v", s)
	}
	status = 429
	w.do(with("free", ada))
	if _, s := w.ask(idempotency.InstancePath+w.record("free").ID.String(), ada); s.State != "released" {
		t.Errorf("released: %+v", s)
	}
	for _, bad := range []string{"", "x", "key_36aagtdmsnzqbd7rejge7z5zdv"} {
		if code, _ := w.ask(idempotency.InstancePath+bad, ada); code != 404 {
			t.Errorf("reference %q: %d", bad, code)
		}
	}
}

// Whoever names a caller and knows a reference, which is no secret, sees the state. The
// answer is for those who show a secret of the caller.
func TestInstanceWithoutSecret(t *testing.T) {
	t.Parallel()
	basic := func(password string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth("ada", password) }
	}
	byUser := idempotency.ByHeader("X-User-Id")
	user := header("X-User-Id", "ada")
	nobody := func(*http.Request) {}
	for name, test := range map[string]struct {
		rule       idempotency.Rule
		sends      func(*http.Request)
		asks       func(*http.Request)
		seesAnswer bool
	}{
		"wrong password":  {idempotency.Rule{Caller: idempotency.ByBasic}, basic("right"), basic("wrong"), false},
		"anonymous":       {idempotency.Rule{}, nobody, nobody, false},
		"webhook":         {idempotency.Rule{Key: idempotency.KeySource{Header: "X-Id"}}, header("X-Id", "k"), nobody, false},
		"anyone":          {idempotency.Rule{Caller: idempotency.Anyone}, basic("right"), nobody, false},
		"header":          {idempotency.Rule{Caller: byUser}, user, user, false},
		"verified":        {idempotency.Rule{Caller: byUser, CallerVerified: true}, user, user, true},
		"verified nobody": {idempotency.Rule{Caller: idempotency.Anyone, CallerVerified: true}, nobody, nobody, false},
		"credential":      {idempotency.Rule{}, basic("right"), basic("right"), true},
	} {
		w := newWorld(t, rule(test.rule), nil)
		first := w.do(with("k", test.sends))
		code, s := w.ask(idempotency.InstancePath+w.record("k").ID.String(), test.asks)
		if code != 200 || s.State != "done" || (s.Answer != nil) != test.seesAnswer {
			t.Errorf("%s: %d %+v, want done, with the answer: %t", name, code, s, test.seesAnswer)
		}
		w.replayed(first, w.do(with("k", test.sends))) // who knows the whole request gets it again
	}
}

// A page that may read the route's answers may read its refusals.
func TestCORS(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") == "https://app.example" {
			rw.Header().Set("Access-Control-Allow-Origin", "https://app.example")
			rw.Header().Set("Access-Control-Allow-Credentials", "true")
		}
		if r.Method == "POST" {
			rw.WriteHeader(503)
		}
	})
	app, evil := header("Origin", "https://app.example"), header("Origin", "https://evil.example")
	for _, o := range []func(*http.Request){app, evil} {
		w.do(with("", o, func(r *http.Request) { r.Method = "OPTIONS" }))
	}
	for _, r := range []*http.Request{with("k", app), with("k", app), with(`"bad`, app)} {
		h := w.do(r).Header()
		if h.Get("Access-Control-Allow-Origin") != "https://app.example" || h.Get("Access-Control-Allow-Credentials") != "true" ||
			h.Get("Vary") != "Origin" || !strings.Contains(fmt.Sprint(h["Access-Control-Expose-Headers"]), "Retry-After") {
			t.Errorf("a refusal for the page has %v", h)
		}
	}
	if h := w.do(with(`"bad`, evil)).Header(); h.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a refusal for another page has %v", h)
	}
}

// A client that sends a key where nothing guards it believes to be safe.
func TestUnmatched(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rule(idempotency.Rule{Path: "/orders"}), nil)
	for range 3 {
		w.do(with("k", func(r *http.Request) { r.URL.Path = "/elsewhere" }))
	}
	w.do(with("k", func(r *http.Request) { r.Method = "DELETE" }))
	w.do(with("k", func(r *http.Request) { r.Method = "GET" }))
	w.do(with("", func(r *http.Request) { r.URL.Path = "/elsewhere" }))
	if len(w.seen) != 4 || w.seen[0].Outcome != idempotency.OutcomeUnmatched {
		t.Errorf("observed %+v, want 4 unmatched", w.seen)
	}
	if n := strings.Count(w.log.String(), "no route guards"); n != 2 {
		t.Errorf("logged %d times", n)
	}
}

func TestKeySource(t *testing.T) {
	t.Parallel()
	delivery := newWorld(t, rule(idempotency.Rule{Key: idempotency.KeySource{Header: "X-GitHub-Delivery"}}), nil)
	for range 2 {
		delivery.do(with("", header("X-Github-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")))
	}
	delivery.ran(1)
	delivery.do(with("ignored"))
	delivery.do(with("ignored"))
	delivery.ran(3)

	event := newWorld(t, rule(idempotency.Rule{Require: true, Key: idempotency.KeySource{Field: "$.event.id"}}), nil)
	for i, text := range []string{`{"event":{"id":"evt \"1\""}}`, `{"event":{"id":12345678901234567890}}`} {
		first := event.do(with("", body(text)))
		if first.Code != 201 || first.Body.String() != "made "+text {
			t.Errorf("%s: %d %s", text, first.Code, first.Body)
		}
		event.replayed(first, event.do(with("", body(text))))
		event.ran(int64(i + 1))
	}
	for _, text := range []string{`{}`, `{"event":7}`, `{"event":{"id":null}}`, `[]`, `no JSON`, ``} {
		event.problem(event.do(with("", body(text))), 400, idempotency.KindKeyMissing)
	}
	event.problem(event.do(with("", body(`{"event":{"id":""}}`))), 400, idempotency.KindKeyInvalid)
	event.ran(2)

	open := newWorld(t, rule(idempotency.Rule{Key: idempotency.KeySource{Field: "$.id"}}), nil)
	if got := open.do(with("", body("no JSON"))); got.Body.String() != "made no JSON" {
		t.Errorf("without a key the handler got %s", got.Body)
	}
	for _, bad := range []idempotency.KeySource{{Header: "X", Field: "$.x"}, {Field: "id"}, {Field: "$."}, {Field: "$.a..b"}} {
		if _, err := idempotency.New(open.store, rule(idempotency.Rule{Key: bad})); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// A probe is asked about one caller: two may use the same key.
func TestProbeURLCaller(t *testing.T) {
	t.Parallel()
	var asked string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked = r.URL.EscapedPath(); w.WriteHeader(404) }))
	defer s.Close()
	q := idempotency.Question{Key: "a/b", Caller: "5f", Since: time.Now(), Header: http.Header{"X-User": {"ada/x"}}}
	value := func(q idempotency.Question) string { return q.Header.Get("X-User") }
	for want, caller := range map[string]func(idempotency.Question) string{"/a%2Fb/5f": nil, "/a%2Fb/ada%2Fx": value} {
		if _, err := idempotency.ProbeURL(nil, s.URL+"/{key}/{caller}", caller, 100)(t.Context(), q); err != nil || asked != want {
			t.Errorf("asked %s, %v, want %s", asked, err, want)
		}
	}
}

// Nobody is told that a request is unknown, or that nothing was done, by a store that cannot be read, or since its answer is kept
// no more.
func TestInstanceOfWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, idempotency.Config{}, nil)
		ada := header("Authorization", "Bearer ada")
		w.do(with("k", ada))
		path := idempotency.InstancePath + w.record("k").ID.String()
		get := func(path string) *httptest.ResponseRecorder {
			r := httptest.NewRequest("GET", path, nil)
			ada(r)
			return w.do(r)
		}
		w.store.failRead.Store(true)
		for _, p := range []string{path, idempotency.InstancePath + "key_36aagtdmsnzqbd7rejge7z5zdv"} {
			if got := get(p); got.Header().Get("Retry-After") == "" || strings.Contains(got.Body.String(), errDisk.Error()) {
				t.Errorf("%s: %v %s", p, got.Header(), got.Body)
			} else {
				w.problem(got, 503, idempotency.KindStoreUnavailable)
			}
		}
		w.store.failRead.Store(false)
		if _, s := w.ask(path, ada); s.State != "done" {
			t.Errorf("once the store is back: %+v", s)
		}
		time.Sleep(week + time.Second)
		w.problem(get(path), 404, idempotency.KindUnknownReference) // as after a sweep
	})
}

// A store that answers nothing is waited for as long as by any other request.
func TestInstanceOfABlockedStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		on := new(atomic.Bool)
		w := newWorldOn(t, func(f *flaky) idempotency.Store { return &blocked{flaky: f, on: on, reads: true} }, idempotency.Config{}, nil)
		w.do(with("k"))
		path := idempotency.InstancePath + w.record("k").ID.String()
		on.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		w.problem(w.do(httptest.NewRequestWithContext(ctx, "GET", path, nil)), 503, idempotency.KindStoreUnavailable)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
