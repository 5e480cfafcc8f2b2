package proxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/internal/port"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/memory"
)

// front starts a proxy before an upstream, as Handler and Admin.
func front(t testing.TB, upstream string, change ...func(*proxy.Config)) (clients, admin *httptest.Server, store *memory.Keys) {
	t.Helper()
	cfg := proxy.Config{Upstream: upstream, Logger: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&cfg)
	}
	store = new(memory.Keys)
	p, err := proxy.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	clients, admin = httptest.NewServer(p.Handler()), httptest.NewServer(p.OwnerAdmin())
	t.Cleanup(clients.Close)
	t.Cleanup(admin.Close)
	return clients, admin, store
}

func upstream(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// plain asks for nothing on its own.
var plain = &http.Transport{DisableCompression: true}

// post sends a request and returns status, header and body.
func post(t testing.TB, url, k, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest("POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if k != "" {
		r.Header.Set("Idempotency-Key", k)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := plain.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func TestProxy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"forwards":             proxyForwards,
		"not_connected":        proxyNotConnected,
		"cut_answer":           proxyCutAnswer,
		"broken_connection":    proxyBrokenConnection,
		"timeout":              proxyTimeout,
		"probe_and_person":     proxyProbeAndPerson,
		"probe_while_it_works": proxyProbeWhileItWorks,
		"streams_and_upgrades": proxyStreamsAndUpgrades,
		"drain":                proxyDrain,
		"metrics":              proxyMetrics,
	} {
		t.Run(name, test)
	}
}

func proxyForwards(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Set-Cookie", "a=1")
		w.Header().Set("Date", "Fri, 20 Nov 2026 12:00:00 GMT")
		w.WriteHeader(201)
		fmt.Fprintf(w, "%s %s|%s|%s|%s|%s|%q", r.Method, r.URL, r.Host, r.Header.Get("X-Forwarded-For"),
			r.Header.Get("Idempotency-Key"), r.Header.Get("Accept-Encoding"), b)
	})
	clients, _, _ := front(t, up.URL+"/base")
	want := `POST /base/a%2Fb?x=1;y=%zz|` + strings.TrimPrefix(clients.URL, "http://") + `|127.0.0.1|k||"body"`
	for i := range 2 {
		resp, b := post(t, clients.URL+"/a%2Fb?x=1;y=%zz", "k", "body")
		if resp.StatusCode != 201 || b != want || resp.Header.Get("Date") != "Fri, 20 Nov 2026 12:00:00 GMT" {
			t.Errorf("answer %d = %d %q, want %q", i, resp.StatusCode, b, want)
		}
		if (resp.Header.Get("Set-Cookie") != "") != (i == 0) || (resp.Header.Get("Idempotent-Replayed") != "") != (i == 1) {
			t.Errorf("answer %d has %v", i, resp.Header)
		}
	}
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
	post(t, clients.URL, "", "")
	post(t, clients.URL, "", "")
	if runs.Load() != 3 {
		t.Errorf("%d runs with two unguarded requests", runs.Load())
	}
}

func proxyNotConnected(t *testing.T) {
	t.Parallel()
	refusing := "http://" + port.Addr(t)
	plain := upstream(t, func(http.ResponseWriter, *http.Request) {})
	for name, up := range map[string]string{
		"refused": refusing, "no such host": "http://nowhere.invalid", "no TLS": strings.Replace(plain.URL, "http", "https", 1),
	} {
		clients, _, store := front(t, up)
		for range 2 {
			if resp, b := post(t, clients.URL, "k", "x"); resp.StatusCode != 502 || !strings.Contains(b, "not-sent") || resp.Header.Get("Retry-After") == "" {
				t.Errorf("%s: %d %s", name, resp.StatusCode, b)
			}
		}
		if r, _ := store.Read(t.Context(), key.NewID(hostOf(clients.URL), "", "k")); r.State != key.Released {
			t.Errorf("%s: the key is %q", name, r.State)
		}
	}
}

// cut accepts connections and treats each as do says.
func cut(t testing.TB, do func(n int64, c net.Conn, r *http.Request)) (url string, requests *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	requests = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					n := requests.Add(1)
					do(n, c, r)
					if n > 1 || r.Header.Get("X-Close") != "" {
						return
					}
				}
			}()
		}
	}()
	return "http://" + l.Addr().String(), requests
}

// hostOf returns the host of a server as records have it.
func hostOf(server string) string { return strings.TrimPrefix(server, "http://") }

func proxyCutAnswer(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"before the answer": "", "in the header": "HTTP/1.1 200 OK\r\nContent-Le", "in the body": "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
		"in a chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
	} {
		up, requests := cut(t, func(_ int64, c net.Conn, _ *http.Request) { _, _ = io.WriteString(c, answer) })
		clients, _, _ := front(t, up)
		resp, b := post(t, clients.URL, "k", "x", "X-Close", "1")
		if resp.StatusCode != 502 || !strings.Contains(b, "outcome-unknown") || !strings.Contains(b, key.NewID(hostOf(clients.URL), "", "k").String()) {
			t.Errorf("cut %s: %d %s", name, resp.StatusCode, b)
		}
		if resp, b := post(t, clients.URL, "k", "x", "X-Close", "1"); resp.StatusCode != 409 || !strings.Contains(b, "outcome-unknown") {
			t.Errorf("retry after a cut %s: %d %s", name, resp.StatusCode, b)
		}
		if requests.Load() != 1 {
			t.Errorf("cut %s: the upstream got %d requests", name, requests.Load())
		}
	}
}

// Go's transport would send this request twice: it has a key, and its kept-alive
// connection breaks.
func proxyBrokenConnection(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "x"} {
		up, requests := cut(t, func(n int64, c net.Conn, _ *http.Request) {
			if n == 1 {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			} // the second gets nothing, on the same connection
		})
		clients, _, _ := front(t, up)
		post(t, clients.URL, "first", body)
		resp, b := post(t, clients.URL, "second", body)
		if resp.StatusCode != 502 || !strings.Contains(b, "outcome-unknown") {
			t.Errorf("%d %s", resp.StatusCode, b)
		}
		if requests.Load() != 2 {
			t.Errorf("the upstream got %d requests, want 2", requests.Load())
		}
	}
}

func proxyTimeout(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	up := upstream(t, func(http.ResponseWriter, *http.Request) { <-hold })
	defer close(hold)
	clients, _, _ := front(t, up.URL, func(c *proxy.Config) { c.UpstreamTimeout = proxy.Duration(50 * time.Millisecond) })
	if resp, b := post(t, clients.URL, "k", "x"); resp.StatusCode != 504 || !strings.Contains(b, "outcome-unknown") {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
	if resp, b := post(t, clients.URL, "", "x"); resp.StatusCode != 504 || !strings.Contains(b, "upstream-failed") {
		t.Errorf("without a key: %d %s", resp.StatusCode, b)
	}
}

func proxyProbeAndPerson(t *testing.T) {
	t.Parallel()
	seen := atomic.Bool{}
	up, _ := cut(t, func(int64, net.Conn, *http.Request) {})
	probed := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/by-key/k" || !seen.Load() {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.WriteHeader(201)
		fmt.Fprint(w, "found")
	})
	clients, admin, _ := front(t, up, func(c *proxy.Config) { c.Routes = []proxy.Route{{Probe: probed.URL + "/by-key/{key}", Caller: "none"}} })
	post(t, clients.URL, "k", "x", "X-Close", "1")
	post(t, clients.URL, "other", "x", "X-Close", "1")
	if resp, _ := post(t, clients.URL, "k", "x"); resp.StatusCode != 409 {
		t.Errorf("while nobody knows: %d", resp.StatusCode)
	}
	seen.Store(true)
	if resp, b := post(t, clients.URL, "k", "x"); resp.StatusCode != 201 || b != "found" {
		t.Errorf("after the probe: %d %s", resp.StatusCode, b)
	}
	ref := key.NewID(hostOf(clients.URL), "", "other").String()
	var list []idempotency.View
	get(t, admin.URL+"/api/v1/keys?state=unknown", &list)
	if len(list) != 1 || list[0].Reference != ref || list[0].UnknownFrom == nil {
		t.Errorf("unknown keys: %+v", list)
	}
	resolve := admin.URL + "/api/v1/keys/" + ref + "/resolve"
	for body, want := range map[string]int{`{`: 400, `{"happened":true,"by":"", "status":201}`: 400, `{"happened":true,"by":"ann","status":99}`: 400, `{"odd":1}`: 400} {
		if resp, b := post(t, resolve, "", body); resp.StatusCode != want {
			t.Errorf("resolve %s: %d %s", body, resp.StatusCode, b)
		}
	}
	for i, want := range []int{200, 409} { // the second of two people is refused
		if resp, b := post(t, resolve, "", `{"happened":true,"by":"ann","status":202,"header":{"X-A":["1"]},"body":"by hand"}`); resp.StatusCode != want {
			t.Errorf("resolve %d: %d %s", i, resp.StatusCode, b)
		}
	}
	if resp, b := post(t, clients.URL, "other", "x"); resp.StatusCode != 202 || b != "by hand" || resp.Header.Get("X-A") != "1" {
		t.Errorf("after a person: %d %s", resp.StatusCode, b)
	}
	var v idempotency.View
	get(t, admin.URL+"/api/v1/keys/"+ref, &v)
	if v.State != key.Done || *v.Body != "by hand" || *v.ResolvedBy != "person: ann" {
		t.Errorf("shown: %+v", v)
	}
	if resp, b := post(t, admin.URL+"/api/v1/keys/"+ref+"/forget", "", `{"by":"ann"}`); resp.StatusCode != 200 || !strings.Contains(b, "released") {
		t.Errorf("forget: %d %s", resp.StatusCode, b)
	}
}

// A backend works on after a connection to it is lost, or the proxy dies: until it has had its time, nothing is believed
// not to have happened.
func proxyProbeWhileItWorks(t *testing.T) {
	t.Parallel()
	up, seen := cut(t, func(int64, net.Conn, *http.Request) {})
	absent := upstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	clients, _, _ := front(t, up, func(c *proxy.Config) {
		c.Routes = []proxy.Route{{Probe: absent.URL + "/by-key/{key}", Caller: "none", SettleAfter: 1}}
	})
	for range 3 {
		post(t, clients.URL, "k", "x", "X-Close", "1")
	}
	if n := seen.Load(); n != 1 {
		t.Errorf("the backend was asked %d times, want once: it may be at work still", n)
	}
}

func get(t testing.TB, url string, into any) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil || resp.StatusCode != 200 {
		t.Fatalf("GET %s: %d, %v", url, resp.StatusCode, err)
	}
}

func proxyStreamsAndUpgrades(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			conn, buf, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			buf.Flush()
			line, _ := buf.ReadString('\n')
			fmt.Fprint(buf, line)
			buf.Flush()
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n", i)
			w.(http.Flusher).Flush()
			<-next
		}
	})
	clients, _, _ := front(t, up.URL, func(c *proxy.Config) { c.UpstreamTimeout = proxy.Duration(time.Minute) })
	r, _ := http.NewRequest("POST", clients.URL, strings.NewReader("x"))
	r.Header.Set("Idempotency-Key", "stream")
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for i := range 3 {
		if !lines.Scan() || lines.Text() != fmt.Sprint("data: ", i) {
			t.Fatalf("event %d: %q", i, lines.Text())
		}
		next <- struct{}{}
	}
	if lines.Scan() {
		t.Errorf("after the end: %q", lines.Text())
	}
	if resp, b := post(t, clients.URL, "stream", "x"); resp.StatusCode != 409 || !strings.Contains(b, "body-not-stored") {
		t.Errorf("retry: %d %s", resp.StatusCode, b)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(clients.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: up\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	in := bufio.NewReader(conn)
	answer, err := http.ReadResponse(in, nil)
	if err != nil || answer.StatusCode != 101 {
		t.Fatalf("upgrade: %v, %v", answer, err)
	}
	fmt.Fprint(conn, "hello\n")
	if line, err := in.ReadString('\n'); line != "hello\n" {
		t.Errorf("echo: %q, %v", line, err)
	}
}

func proxyDrain(t *testing.T) {
	t.Parallel()
	started, hold := make(chan struct{}), make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		close(started)
		<-hold
		fmt.Fprint(w, "done")
	})
	ready := make(chan [2]string, 1)
	p, err := proxy.New(new(memory.Keys), proxy.Config{Upstream: up.URL, Listen: "127.0.0.1:0", AdminListen: "127.0.0.1:0",
		Logger: slog.New(slog.DiscardHandler),
		Ready:  func(c, a net.Addr) { ready <- [2]string{"http://" + c.String(), "http://" + a.String()} }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	at := <-ready
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		resp, err := http.Get(at[1] + path)
		if err != nil || resp.StatusCode != 200 {
			t.Errorf("%s: %v, %v", path, resp, err)
		}
		resp.Body.Close()
	}
	answered := make(chan string, 1)
	go func() {
		_, b := post(t, at[0], "k", "x")
		answered <- b
	}()
	<-started
	stop()
	close(hold)
	if b := <-answered; b != "done" {
		t.Errorf("the request under way got %q", b)
	}
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
}

func proxyMetrics(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(http.ResponseWriter, *http.Request) {})
	clients, admin, _ := front(t, up.URL)
	post(t, clients.URL, "k", "x")
	post(t, clients.URL, "k", "x")
	resp, err := http.Get(admin.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	for _, want := range []string{
		`keep_idempotency_requests_total{route="default",outcome="executed",kind=""} 1`,
		`keep_idempotency_requests_total{route="default",outcome="replayed",kind=""} 1`,
		"# TYPE keep_idempotency_seconds_total counter",
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("metrics have no %s:\n%s", want, b)
		}
	}
}

// The configuration with every name that a route had first.
const example = `
upstream = "http://127.0.0.1:8000"
lease = "30s"
upstream_timeout = "60s"
sweep = "1m"
admin_listen = "127.0.0.1:7434"

[[routes]]
path = "/api/dwellers/{id}/act"
methods = ["POST", "PUT", "PATCH"]
require = false
ttl = "168h"
policy = "at-most-once"
after_crash = "unknown"
wait = "0s"
fail_open = false
canonical_json = false
ignore_fields = []
caller = "authorization"
probe = ""
body_limit = "1MiB"
response_limit = "8MiB"
`
