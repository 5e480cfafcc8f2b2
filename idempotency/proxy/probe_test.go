package proxy_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/store/memory"
)

// The probe is asked about the caller whom the backend saw: by HTTP/2 white space around a header comes as it was sent, and the
// backend gets none. It is asked about no other caller, whatever a key has in it.
func TestProbeAsksAboutTheCallerItself(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, "%q of %q", r.URL.Query().Get("key"), r.URL.Query().Get("by"))
	})
	p, err := proxy.New(new(memory.Keys), proxy.Config{Upstream: up.URL, Logger: slog.New(slog.DiscardHandler), Routes: []proxy.Route{
		{Caller: "header:X-User-Id", Probe: up.URL + "/acts?key={key}&by={caller}", ProbeCaller: "value"}}})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(p.Handler())
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	for i, name := range []string{"ada", " ada", "ada\t ", "ada+x@example.com"} {
		k, got := fmt.Sprintf("%d&by=bob", i), ""
		for range 2 {
			r, err := http.NewRequest("POST", s.URL+"/acts", strings.NewReader("act"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header["X-User-Id"] = []string{name}
			r.Header.Set("Idempotency-Key", k)
			resp, err := s.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			if resp.Body.Close(); err != nil || resp.ProtoMajor != 2 {
				t.Fatalf("%s: %v", resp.Proto, err)
			}
			got = string(text)
		}
		if want := fmt.Sprintf("%q of %q", k, strings.TrimSpace(name)); got != want {
			t.Errorf("caller %q: the probe says %s, want %s", name, got, want)
		}
	}
}
