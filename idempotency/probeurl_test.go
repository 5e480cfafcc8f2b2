package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	"github.com/keep-run/keep/idempotency"
)

// A probe asks about the key and the caller as they are, wherever the URL has them: what is not found is executed again, and what
// is found of another is shown.
func TestProbeAsksAboutTheKeyItself(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /acts/{key}/{by}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q of %q", r.PathValue("key"), r.PathValue("by"))
	})
	mux.HandleFunc("GET /acts", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		fmt.Fprintf(w, "%q of %q", q.Get("key"), q.Get("by"))
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	texts := []string{"a+b", "qv+W/g==", "a&by=bob", "a b", "a%20b", "a?b", "a#b", "a;b", `a"b`, "{caller}", "ada+x@example.com", "~$,:!*'()"}
	for _, template := range []string{"/acts/{key}/{caller}", "/acts?key={key}&by={caller}", "/acts?by={caller}&key={key}"} {
		for i, k := range texts {
			by := texts[(i+5)%len(texts)]
			probe := idempotency.ProbeURL(server.Client(), server.URL+template, func(idempotency.Question) string { return by }, 100)
			f, err := probe(t.Context(), idempotency.Question{Key: k})
			if got, want := string(f.Body), fmt.Sprintf("%q of %q", k, by); err != nil || got != want {
				t.Errorf("%s is asked about %s, want %s (%v)", template, got, want, err)
			}
		}
	}
}

// A key leads to no other place than that of the probe: servers that clean paths, escaped or not, would tell of it.
func TestProbeStaysInItsPlace(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, path.Clean(r.URL.Path)) // as nginx does
	}))
	defer server.Close()
	ask := func(template, k string) (idempotency.Finding, error) {
		return idempotency.ProbeURL(server.Client(), server.URL+template, func(idempotency.Question) string { return "ada" }, 100)(t.Context(), idempotency.Question{Key: k})
	}
	for _, k := range []string{"..", ".", "../bob/7", "x/../../bob/7"} {
		if f, err := ask("/acts/{caller}/{key}", k); !errors.Is(err, idempotency.ErrCannotTell) {
			t.Errorf("key %s: the probe was asked about %s, %v; want %v", k, f.Body, err, idempotency.ErrCannotTell)
		}
		if f, err := ask("/acts?by={caller}&key={key}", k); err != nil || string(f.Body) != "/acts" {
			t.Errorf("key %s in the query: %s, %v", k, f.Body, err)
		}
	}
	for _, k := range []string{"...", "a..b", "7.1"} {
		if f, err := ask("/acts/{caller}/{key}", k); err != nil || string(f.Body) != "/acts/ada/"+k {
			t.Errorf("key %s: %s, %v", k, f.Body, err)
		}
	}
}

// What goes wrong with a probe is logged without its URL: that names the key and the caller.
func TestProbeThatFailsIsLoggedWithoutItsKey(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close() // nobody listens there
	for name, template := range map[string]string{"refused": server.URL + "/{key}/{caller}", "no URL": "http://127.0.0.1:x/{key}/{caller}"} {
		w := newWorld(t, rule(idempotency.Rule{Caller: idempotency.ByHeader("X-User-Id"), Probe: idempotency.ProbeURL(nil, template,
			func(q idempotency.Question) string { return q.Header.Get("X-User-Id") }, 100)}),
			func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(502) })
		for range 2 {
			w.do(with("my-secret-key", header("X-User-Id", "my-user")))
		}
		text := w.log.String()
		if !strings.Contains(text, "probe cannot tell") || strings.Contains(text, "my-secret-key") || strings.Contains(text, "my-user") {
			t.Errorf("%s: the log says\n%s", name, text)
		}
	}
}

// A client that leaves while the probe is asked is not a probe that cannot tell: the request is not executed once more because of it.
func TestClientLeavesDuringTheProbe(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, nil)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	probes := 0
	g, err := idempotency.New(w.store, rule(idempotency.Rule{AfterCrash: idempotency.AfterCrashRetry, Probe: func(ctx context.Context, _ idempotency.Question) (idempotency.Finding, error) {
		if probes++; probes == 1 {
			leave()
			<-ctx.Done()
			return idempotency.Finding{}, context.Cause(ctx)
		}
		return idempotency.Finding{Happened: true, Status: 201, Body: []byte("made before")}, nil
	}}))
	must(t, err)
	runs := 0
	h := g.Handler(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		runs++
		rw.WriteHeader(http.StatusBadGateway)
	}))
	h.ServeHTTP(httptest.NewRecorder(), with("k"))
	h.ServeHTTP(httptest.NewRecorder(), with("k").WithContext(ctx))
	again := httptest.NewRecorder()
	h.ServeHTTP(again, with("k"))
	if runs != 1 || again.Code != 201 || again.Body.String() != "made before" {
		t.Errorf("it was executed %d times, and the retry got %d %s; want once, and what the probe knows", runs, again.Code, again.Body)
	}
}
