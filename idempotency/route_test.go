package idempotency_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

func to(method, path string) func(*http.Request) {
	return func(r *http.Request) { r.Method, r.URL.Path = method, path }
}

// The first rule wins that is about the path and the method of a request.
func TestRouteByPathAndMethod(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{Rules: []idempotency.Rule{
		{Path: "/payments", Methods: []string{"POST"}, Require: true},
		{Path: "/payments", Methods: []string{"DELETE"}},
		{},
	}}, nil)
	for i, method := range []string{"POST", "DELETE", "PUT", "PATCH"} {
		for range 2 {
			w.do(with(fmt.Sprint("k", i), to(method, "/payments")))
		}
		w.ran(int64(i + 1))
	}
	w.problem(w.do(with("", to("POST", "/payments"))), 400, idempotency.KindKeyMissing)
	if got := w.do(with("", to("DELETE", "/payments"))); got.Code != 201 {
		t.Errorf("DELETE without a key = %d", got.Code)
	}
	// What became of a request is asked by the rule that it went by.
	if w.record("k1").Method != "DELETE" {
		t.Errorf("record %+v", w.record("k1"))
	}
	asked := w.do(with("", to("GET", idempotency.InstancePath+w.record("k1").ID.String())))
	if asked.Code != 200 {
		t.Errorf("asked about a DELETE: %d %s", asked.Code, asked.Body)
	}
}

// Requests with a key that no rule guards are logged, each method and path once, and not without end.
func TestUnmatchedIsLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rule(idempotency.Rule{Path: "/orders", Methods: []string{"POST"}}), nil)
	lines := func() int { return strings.Count(w.log.String(), "no route guards") }
	for range 3 {
		w.do(with("k", to("DELETE", "/orders")))
		w.do(with("k", to("POST", "/bills")))
		w.do(with("k", to("GET", "/orders")))
	}
	if n := lines(); n != 2 || !strings.Contains(w.log.String(), "method=DELETE path=/orders") {
		t.Errorf("%d lines, want one for each method and path:\n%s", n, &w.log)
	}
	for i := range 1000 {
		w.do(with("k", to("POST", fmt.Sprint("/bills/", i))))
	}
	if n := lines(); n > 100 || !strings.Contains(w.log.String(), "of further requests nothing is logged") {
		t.Errorf("%d lines for a thousand paths:\n%s", n, &w.log)
	}
}

// A delivery that has no key where its rule says that keys are is logged, and why: a redelivery is executed again.
func TestKeylessIsLogged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		source idempotency.KeySource
		change func(*http.Request)
		want   string
	}{
		"field":      {idempotency.KeySource{Field: "$.id"}, func(*http.Request) {}, "no key in $.id"},
		"header":     {idempotency.KeySource{Header: "X-Delivery"}, func(*http.Request) {}, "no key in X-Delivery"},
		"compressed": {idempotency.KeySource{Field: "$.id"}, func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, "Content-Encoding: gzip"},
		"anywhere":   {idempotency.KeySource{}, func(*http.Request) {}, ""},
	} {
		w := newWorld(t, rule(idempotency.Rule{Path: "/hook", Key: test.source}), nil)
		for range 2 {
			w.do(with("", to("POST", "/hook"), test.change))
		}
		w.ran(2)
		if lines := strings.Count(w.log.String(), "level=WARN"); !strings.Contains(w.log.String(), test.want) || (lines == 1) != (test.want != "") {
			t.Errorf("%s: %d lines, want one with %q:\n%s", name, lines, test.want, &w.log)
		}
	}
}

// A rule that no request comes to is a mistake, and all mistakes are said at once.
func TestUnreachableRules(t *testing.T) {
	t.Parallel()
	store := newWorld(t, idempotency.Config{}, nil).store
	post, del := []string{"POST"}, []string{"DELETE"}
	for _, test := range []struct {
		rules []idempotency.Rule
		bad   string
	}{
		{[]idempotency.Rule{{Path: "/a", Methods: post}, {Path: "/a", Methods: del}, {}}, ""},
		{[]idempotency.Rule{{}, {Path: "/a"}}, "/a"},
		{[]idempotency.Rule{{Path: "/a"}, {Path: "/a", Methods: post}}, "/a"},
		{[]idempotency.Rule{{Path: "/a", Methods: post}, {Path: "/a"}}, ""},
		{[]idempotency.Rule{{Path: "/a", Methods: post}, {Methods: []string{"PUT", "PATCH"}}, {Path: "/a"}}, "/a"},
		{[]idempotency.Rule{{Path: "/a/{id}"}, {Path: "/a/b"}}, "/a/b"},
		{[]idempotency.Rule{{Path: "/a/b"}, {Path: "/a/{id}"}}, ""},
		{[]idempotency.Rule{{Path: "/a/{id}"}, {Path: "/a/{other}"}}, "/a/{other}"},
		{[]idempotency.Rule{{Path: "/a/"}, {Path: "/a/{id}/c"}}, "/a/{id}/c"},
		{[]idempotency.Rule{{Path: "/a/{id}/c"}, {Path: "/a/"}}, ""},
		{[]idempotency.Rule{{Path: "/a/{$}"}, {Path: "/a/{x}"}, {Path: "/a/{x}/{y}"}, {Path: "/a/"}}, ""},
		{[]idempotency.Rule{{Path: "/a/"}, {Path: "/a/{x...}"}}, "/a/{x...}"},
		{[]idempotency.Rule{{Path: "h.example/a"}, {Path: "/a"}}, ""},
		{[]idempotency.Rule{{Path: "/a"}, {Path: "h.example/a"}}, "h.example/a"},
		{[]idempotency.Rule{{Path: "POST /a"}, {Path: "/a"}}, ""},
		{[]idempotency.Rule{{Path: "/a"}, {Path: "POST /a"}}, "POST /a"},
		{[]idempotency.Rule{{Path: "DELETE /a"}}, "DELETE /a"},
		{[]idempotency.Rule{{Path: "POST /a", Methods: del}}, "POST /a"},
		{[]idempotency.Rule{{Path: "/"}, {Path: "/a"}}, "/a"},
		{[]idempotency.Rule{{Path: "/{x...}"}, {Path: "POST /a"}}, "POST /a"},
		{[]idempotency.Rule{{}, {}}, "default"},
	} {
		_, err := idempotency.New(store, idempotency.Config{Rules: test.rules})
		switch {
		case test.bad == "" && err != nil:
			t.Errorf("%+v: %v", test.rules, err)
		case test.bad != "" && (err == nil || !strings.Contains(err.Error(), "route "+test.bad+": ")):
			t.Errorf("%+v: %v, want it to name %q", test.rules, err, test.bad)
		}
	}
	_, err := idempotency.New(store, idempotency.Config{Rules: []idempotency.Rule{{Path: "a"}, {Path: "/c", Wait: -1}, {Path: "/b"}, {Path: "/b"}, {Path: "GET /d"}}})
	for _, want := range []string{"route a: path", "negative", "route /b: no request comes to it: the routes before it", "route GET /d: no request comes to it: its path matches none"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want it to say %q, too", err, want)
		}
	}
}

// However a client or a rule writes a host and a method, they are the same: whoever can choose the case would else not be guarded.
func TestRulesOfHostsInAnyCase(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"api.example/pay", "API.Example/pay", "POST api.Example/pay"} {
		w := newWorld(t, idempotency.Config{Rules: []idempotency.Rule{{Path: path}}}, nil)
		for i, host := range []string{"api.example", "API.EXAMPLE", "api.example:443", "Api.example.", "api.example.:8080"} {
			for _, method := range []string{"POST", "post"} {
				k := fmt.Sprint(method, i)
				at := func(r *http.Request) { r.Host, r.Method, r.URL.Path = host, method, "/pay" }
				w.replayed(w.do(with(k, at)), w.do(with(k, at)))
			}
		}
		w.ran(10)
	}
}

// A page may read why it is refused also where the rule's path names a method: what a browser asks first has another one.
func TestOriginOfARuleWithAMethod(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rule(idempotency.Rule{Path: "POST /orders"}), func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Access-Control-Allow-Origin", "https://page.example")
	})
	origin := header("Origin", "https://page.example")
	w.do(with("", origin, func(r *http.Request) { r.Method = "OPTIONS" }))
	got := w.do(with(`"half`, origin))
	w.problem(got, 400, idempotency.KindKeyInvalid)
	if allowed := got.Header().Get("Access-Control-Allow-Origin"); allowed != "https://page.example" {
		t.Errorf("the refusal allows %q", allowed)
	}
}

// A record is compared as its route compared bodies when it was made: a retry of then is none of another request because
// keep.toml says something else of bodies now.
func TestARuleOfBodiesThatChanges(t *testing.T) {
	t.Parallel()
	raw, canonical := key.Form{}, key.Form{CanonicalJSON: true}
	ignoring := key.Form{IgnoreFields: []string{"sent_at"}}
	for _, test := range []struct {
		then, now   key.Form
		first, same string
		other       string // another request by the rule of then
	}{
		{raw, canonical, `{"a":1}`, `{"a":1}`, `{"a": 1}`},
		{raw, ignoring, `{"a":1,"sent_at":1}`, `{"a":1,"sent_at":1}`, `{"a":1,"sent_at":2}`},
		{canonical, raw, `{"a":1}`, `{"a": 1}`, `{"a":2}`},
		{canonical, ignoring, `{"a":1,"sent_at":1}`, `{"sent_at":1, "a":1}`, `{"a":1,"sent_at":2}`},
	} {
		w := newWorld(t, rule(idempotency.Rule{Form: test.then}), nil)
		body := func(text string) func(*http.Request) {
			return func(r *http.Request) {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
				r.Header.Set("Content-Type", "application/json")
			}
		}
		first := w.do(with("k", body(test.first)))
		guard, err := idempotency.New(w.store, rule(idempotency.Rule{Form: test.now}))
		if err != nil {
			t.Fatal(err)
		}
		w.h = guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it is executed again") }))
		w.replayed(first, w.do(with("k", body(test.same))))
		w.problem(w.do(with("k", body(test.other))), 422, idempotency.KindKeyReused)
	}
}
