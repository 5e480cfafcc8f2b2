package proxy_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/memory"
)

// An answer that has no body is shown as it is replayed, whatever length its backend gave it: by HTTP/2 a client would miss the body.
func TestAnswerWithoutABody(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprintf(conn, "HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: 5\r\nX-A: 1\r\n\r\n", r.URL.Query().Get("status"))
		_ = conn.Close()
	})
	for _, h2 := range []bool{false, true} {
		p, err := proxy.New(new(memory.Keys), proxy.Config{Upstream: up.URL, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(p.Handler())
		s.EnableHTTP2 = h2
		s.StartTLS()
		defer s.Close()
		for _, status := range []int{204, 304} {
			for i := range 2 {
				r, err := http.NewRequest("POST", fmt.Sprintf("%s/?status=%d", s.URL, status), strings.NewReader("x"))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Idempotency-Key", fmt.Sprint(status))
				resp, err := s.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || resp.StatusCode != status || resp.Header.Get("X-A") != "1" || resp.Header.Get("Content-Length") != "" {
					t.Errorf("by %s answer %d is %d %v, %v", resp.Proto, i+1, resp.StatusCode, resp.Header, err)
				}
			}
		}
	}
}

// A request that is here whole expects no leave to send its body. A backend that gives none refuses it, and the client that sends it
// again without the expectation would get that for as long as answers are kept.
func TestRequestThatIsWholeExpectsNothing(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Expect") != "" {
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		_, _ = io.Copy(w, r.Body)
	})
	clients, _, _ := front(t, up.URL)
	if resp, text := post(t, clients.URL, "k", "body", "Expect", "100-continue"); resp.StatusCode != 200 || text != "body" {
		t.Errorf("the answer is %d %s", resp.StatusCode, text)
	}
	if resp, _ := post(t, clients.URL, "", "body", "Expect", "100-continue"); resp.StatusCode != http.StatusExpectationFailed {
		t.Errorf("without a key the answer is %d, want that of the backend", resp.StatusCode)
	}
}

// Of a stream that is over nothing stays with the proxy, which lives long.
func TestStreamsLeaveNothing(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n\n")
	})
	p, err := proxy.New(new(memory.Keys), proxy.Config{Upstream: up.URL, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	type mark struct{ request [1 << 10]byte }
	var left []weak.Pointer[mark]
	for _, k := range []string{"", "k"} {
		of := new(mark)
		left = append(left, weak.Make(of))
		r := httptest.NewRequest("POST", "/", strings.NewReader("x")).WithContext(context.WithValue(t.Context(), mark{}, of))
		r.Header.Set("Idempotency-Key", k)
		if k == "" {
			r.Header.Del("Idempotency-Key")
		}
		got := httptest.NewRecorder()
		if p.Handler().ServeHTTP(got, r); got.Body.String() != "data: 1\n\n" {
			t.Errorf("the answer is %d %s", got.Code, got.Body)
		}
	}
	for range 3 {
		runtime.GC()
	}
	for i, l := range left {
		if l.Value() != nil {
			t.Errorf("stream %d is still held", i+1)
		}
	}
	runtime.KeepAlive(p)
}

// A silent is a store that answers nothing for as long as it is asked.
type silent struct{ idempotency.Store }

func (silent) List(ctx context.Context, _ key.Filter, _ keep.Page) ([]key.Record, string, error) {
	<-ctx.Done()
	return nil, "", context.Cause(ctx)
}

// The metrics come also while the database is silent, before who scrapes them gives up: that is when they are looked at.
func TestMetricsWhileTheStoreIsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := proxy.New(silent{new(memory.Keys)}, proxy.Config{Upstream: "http://backend.example", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithTimeout(t.Context(), time.Hour)
		defer leave()
		began, got := time.Now(), httptest.NewRecorder()
		p.OwnerAdmin().ServeHTTP(got, httptest.NewRequestWithContext(ctx, "GET", "/metrics", nil))
		if took := time.Since(began); took >= 10*time.Second || !strings.Contains(got.Body.String(), "keep_idempotency_requests_total") ||
			strings.Contains(got.Body.String(), "keep_keys_unknown") {
			t.Errorf("after %s it is %s", took, got.Body)
		}
	})
}

// A stream with a key is a request under way: a stop waits for it as for others, and does not leave a doubt for a person to settle.
func TestStopWaitsForAStreamWithAKey(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-next:
			fmt.Fprint(w, "data: 2\n\n")
		case <-r.Context().Done():
		}
	})
	store, ready := new(memory.Keys), make(chan [2]string, 1)
	p, err := proxy.New(store, proxy.Config{Upstream: up.URL, Listen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
		Ready: func(c, a net.Addr) { ready <- [2]string{"http://" + c.String(), "http://" + a.String()} }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	at := <-ready
	r, err := http.NewRequest("POST", at[0], strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	resp, err := new(http.Transport).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, len("data: 1\n\n"))
	if _, err := io.ReadFull(resp.Body, first); err != nil {
		t.Fatal(err)
	}
	stop()
	for draining := false; !draining; {
		resp, err := http.Get(at[1] + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		draining = resp.StatusCode == 503
		_ = resp.Body.Close()
	}
	close(next)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "data: 2\n\n" {
		t.Errorf("the rest of the stream is %q, %v", rest, err)
	}
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
	list, _, err := store.List(t.Context(), key.Filter{}, keep.Page{})
	if err != nil || len(list) != 1 || list[0].State != key.DoneWithoutBody {
		t.Errorf("the records are %+v, %v", list, err)
	}
}

// What no client can be given is no answer: nobody knows then what became of the request, also where a 5xx says that nothing was done.
func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"status": "HTTP/1.1 099 None\r\nContent-Length: 2\r\n\r\nhi",
		"header": "HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("a", 1<<20) + "\r\nContent-Length: 2\r\n\r\nhi",
	} {
		for _, policy := range []string{"at-most-once", "retry-5xx"} {
			up, requests := cut(t, func(_ int64, c net.Conn, _ *http.Request) {
				_, _ = io.WriteString(c, answer)
				_ = c.Close()
			})
			clients, _, _ := front(t, up, func(c *proxy.Config) { c.Routes = []proxy.Route{{Policy: policy}} })
			for i, want := range []int{http.StatusBadGateway, http.StatusConflict} {
				if resp, b := post(t, clients.URL, "k", "x"); resp.StatusCode != want || !strings.Contains(b, string(idempotency.KindOutcomeUnknown)) {
					t.Errorf("%s, %s: answer %d is %d %.200s", name, policy, i+1, resp.StatusCode, b)
				}
			}
			if resp, b := post(t, clients.URL, "", "x"); resp.StatusCode != http.StatusBadGateway || !strings.Contains(b, string(idempotency.KindUpstreamFailed)) {
				t.Errorf("%s, without a key: %d %.200s", name, resp.StatusCode, b)
			}
			if n := requests.Load(); n != 2 {
				t.Errorf("%s, %s: the backend got %d requests", name, policy, n)
			}
		}
	}
}
