//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A lan is a keep proxy in front of a backend, as somebody who runs it has it: all of its
// settings are in keep.toml, beside which its files are.
type lan struct {
	testing.TB
	p      *proxyProcess
	client *http.Transport
	acts   atomic.Int64
	hold   chan struct{} // what /hold waits for
	held   chan struct{} // gets one for each request to /hold
	told   chan string   // what [notify] sent
}

// silence is how long the backend may be silent; pause is longer.
const silence, pause = 1500 * time.Millisecond, 2 * time.Second

// lanToml is what stands below [proxy] in keep.toml.
const lanToml = `tls_cert = "cert.pem"
tls_key = "key.pem"
upstream_timeout = "1500ms"
trusted_proxies = ["127.0.0.0/8"]
memory = "2MiB"
drain_timeout = "5m"
[[proxy.routes]]
path = "/act"
[[proxy.routes]]
path = "/hold"
[[proxy.routes]]
path = "/drip"
[[proxy.routes]]
path = "/half"
[[proxy.routes]]
path = "/github"
key = "header:X-GitHub-Delivery"
[[proxy.routes]]
path = "/stripe"
key = "body:$.id"
[notify]
webhook = { url = %q, secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" }
`

// newLan starts a backend and the proxy in front of it.
func newLan(t *testing.T) *lan {
	l := &lan{TB: t, client: newTransport(t), hold: make(chan struct{}), held: make(chan struct{}, 8), told: make(chan string, 8)}
	up := httptest.NewServer(http.HandlerFunc(l.backend))
	t.Cleanup(up.Close)
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		select {
		case l.told <- string(b):
		case <-r.Context().Done(): // nobody reads more, and the proxy has ended
		}
	}))
	t.Cleanup(sink.Close)
	dir := t.TempDir()
	cert, private, _ := certificate(t)
	for name, from := range map[string]string{"cert.pem": cert, "key.pem": private} {
		if err := os.Rename(from, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	l.p = startProxyIn(t, dir, filepath.Join(dir, "keys.db"), up.URL, fmt.Sprintf(lanToml, sink.URL))
	return l
}

// backend is the service behind the proxy.
func (l *lan) backend(w http.ResponseWriter, r *http.Request) {
	flush := func() { _ = http.NewResponseController(w).Flush() }
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Access-Control-Allow-Origin", "https://app.example")
	switch r.URL.Path {
	case "/drip": // slow, and never silent for long
		for range 5 {
			<-time.After(silence / 3)
			_, _ = io.WriteString(w, "drop ")
			flush()
		}
	case "/half": // silent in the middle
		_, _ = io.WriteString(w, "half")
		flush()
		<-r.Context().Done()
	case "/big":
		_, _ = w.Write(make([]byte, 16<<20)) // more than the buffers on the way hold
	case "/forwarded":
		fmt.Fprint(w, r.Header.Get("X-Forwarded-For"), "|", r.Header.Get("X-Forwarded-Proto"), "|", r.Header.Get("Forwarded"))
	case "/hold":
		l.held <- struct{}{}
		<-l.hold
	case "/stream":
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		flush()
		<-r.Context().Done()
	case "/act":
		if r.Method == http.MethodPost {
			panic(http.ErrAbortHandler)
		}
	default:
		fmt.Fprintf(w, "%d: %d bytes", l.acts.Add(1), len(body))
	}
}

// send sends a request, and returns the status, the header, the body and what ended it early.
func (l *lan) send(method, path string, body io.Reader, header ...string) (status int, h http.Header, text string, err error) {
	l.Helper()
	r, err := http.NewRequest(method, l.p.url+path, body)
	if err != nil {
		l.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header[header[i]] = []string{header[i+1]}
	}
	resp, err := l.client.RoundTrip(r)
	if err != nil {
		return 0, nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, string(b), err
}

// TestProxyInFront is what a keep proxy of a keep.toml does to the requests and answers of
// others, and what it says about those that it guards.
func TestProxyInFront(t *testing.T) {
	t.Parallel()
	l := newLan(t)
	t.Run("time is the backend's", l.times)
	t.Run("what a gateway says passes", func(t *testing.T) {
		_, _, b, err := l.send("POST", "/forwarded", nil, "X-Forwarded-For", "1.2.3.4", "X-Forwarded-Proto", "gopher", "Forwarded", "for=1.2.3.4")
		if b != "1.2.3.4, 127.0.0.1|gopher|for=1.2.3.4" || err != nil {
			t.Errorf("the backend got %s, %v", b, err)
		}
	})
	t.Run("keys from elsewhere", func(t *testing.T) {
		for range 3 {
			for path, header := range map[string]string{"/github": "X-Github-Delivery", "/stripe": "X-Other"} {
				if status, _, b, err := l.send("POST", path, strings.NewReader(`{"id": "evt_1"}`), header, "72d3162e"); status != 200 || err != nil {
					t.Errorf("%s: %d %s, %v", path, status, b, err)
				}
			}
		}
		if n := l.acts.Load(); n != 2 {
			t.Errorf("two deliveries, three times each, acted %d times", n)
		}
	})
	t.Run("a lost answer is asked about", l.lost)
	t.Run("memory is shared", l.memory)
	t.Run("a key that nothing guards", l.unguarded)
	t.Run("a stream does not hold the end", l.end)
}

// times are requests that take longer than the backend may be silent.
func (l *lan) times(t *testing.T) {
	parts, write := io.Pipe()
	go func() {
		for range 2 {
			_, _ = io.WriteString(write, "part")
			<-time.After(pause)
		}
		_ = write.Close()
	}()
	if status, _, b, err := l.send("POST", "/upload", parts); status != 200 || b != "1: 8 bytes" || err != nil {
		t.Errorf("a slow upload got %d %s, %v", status, b, err)
	}
	l.acts.Store(0)
	for _, header := range [][]string{nil, {"Idempotency-Key", "drip"}, {"Idempotency-Key", "drip"}} {
		if status, _, b, err := l.send("POST", "/drip", nil, header...); status != 200 || b != "drop drop drop drop drop " || err != nil {
			t.Errorf("a slow answer, %v: %d %q, %v", header, status, b, err)
		}
	}
	if status, _, b, err := l.send("POST", "/half", nil); status != 200 || b != "half" || err == nil {
		t.Errorf("half an answer: %d %q, %v; want it cut off", status, b, err)
	}
	if status, _, b, err := l.send("POST", "/half", nil, "Idempotency-Key", "half"); status != 504 || !strings.Contains(b, "outcome-unknown") || err != nil {
		t.Errorf("half an answer with a key: %d %q, %v", status, b, err)
	}
	r, _ := http.NewRequest("GET", l.p.url+"/big", nil)
	resp, err := l.client.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-time.After(pause) // the client reads nothing
	if n, err := io.Copy(io.Discard, resp.Body); n != 16<<20 || err != nil {
		t.Errorf("a download that pauses has %d bytes, %v", n, err)
	}
	<-l.told // of the half answer
}

// lost is a request whose answer is lost: its caller asks, people are told and say.
func (l *lan) lost(t *testing.T) {
	ada := []string{"Authorization", "Bearer ada", "Idempotency-Key", "lost", "Origin", "https://app.example"}
	_, _, _, _ = l.send("GET", "/act", nil, "Origin", "https://app.example") // shows the origins of the route
	var instance string
	for i, want := range []int{502, 409} {
		status, h, b, err := l.send("POST", "/act", nil, ada...)
		var p struct{ Instance string }
		if err != nil || status != want || json.Unmarshal([]byte(b), &p) != nil || !strings.Contains(b, "outcome-unknown") || p.Instance == "" {
			t.Fatalf("request %d: %d %s, %v", i, status, b, err)
		}
		if got := h.Get("Access-Control-Allow-Origin"); got != "https://app.example" {
			t.Errorf("request %d: the page may not read the problem: %v", i, h)
		}
		instance = p.Instance
	}
	reference := instance[strings.LastIndex(instance, "/")+1:]
	ask := func(caller, want string) {
		t.Helper()
		if status, _, b, err := l.send("GET", instance, nil, "Authorization", caller); err != nil || !strings.Contains(fmt.Sprint(status, b), want) {
			t.Errorf("%s is told %d %s, %v; want %s", caller, status, b, err, want)
		}
	}
	ask("Bearer bob", "404")
	ask("Bearer ada", `"state":"unknown"`)
	if b := <-l.told; !strings.Contains(b, "key.unknown") || !strings.Contains(b, reference) {
		t.Errorf("people were told %s", b)
	}
	if b := l.metrics(t); !strings.Contains(b, "keep_keys_unknown 2\n") { // the half answer, too
		t.Errorf("metrics:\n%s", b)
	}
	if status, _, said := keepIn(t, t.TempDir(), "keys", "resolve", reference, "happened", "--status", "201", "--body", `{"id":7}`, "--header", "X-By: hand", "--admin", l.p.admin); status != 0 {
		t.Fatalf("resolve: %d %s", status, said)
	}
	ask("Bearer ada", `"state":"done"`)
	ask("Bearer ada", `{\"id\":7}`)
	ask("Bearer bob", "404")
	if status, h, b, err := l.send("POST", "/act", nil, ada...); status != 201 || b != `{"id":7}` || h.Get("X-By") != "hand" || h.Get("Content-Type") != "application/json" || err != nil {
		t.Errorf("the retry: %d %s %v, %v", status, b, h, err)
	}
}

// memory is what requests hold at once: 2 MiB, as keep.toml says. On a machine that is slow the
// first ones have ended with their silence when the third comes, and it is tried again.
func (l *lan) memory(t *testing.T) {
	big := bytes.Repeat([]byte("x"), 900<<10)
	var wait sync.WaitGroup
	for n := range 20 {
		for _, k := range []string{"a", "b"} {
			wait.Go(func() {
				_, _, _, _ = l.send("POST", "/hold", bytes.NewReader(big), "Idempotency-Key", fmt.Sprint("m", n, k))
			})
			<-l.held
		}
		sent := time.Now()
		status, _, b, err := l.send("POST", "/hold", bytes.NewReader(big), "Idempotency-Key", fmt.Sprint("m", n, "c"))
		if status == 503 && strings.Contains(b, "busy") && err == nil {
			break
		}
		if n == 19 || status != 504 || time.Since(sent) < silence {
			t.Errorf("over the budget: %d %s, %v", status, b, err)
			break
		}
		<-l.held // by the third one
		wait.Wait()
	}
	close(l.hold)
	wait.Wait()
}

// unguarded is a key on a path that no route is about: it is passed on, counted, and logged once.
func (l *lan) unguarded(t *testing.T) {
	for range 3 {
		if status, _, b, err := l.send("POST", "/elsewhere", nil, "Idempotency-Key", "k"); status != 200 || err != nil {
			t.Errorf("%d %s, %v", status, b, err)
		}
	}
	if b := l.metrics(t); !strings.Contains(b, `outcome="unmatched",kind=""} 3`) {
		t.Errorf("metrics:\n%s", b)
	}
}

// metrics are those of the proxy.
func (l *lan) metrics(t *testing.T) string {
	t.Helper()
	resp, err := http.Get(l.p.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// end stops the proxy while a client reads an event stream, which has no end.
func (l *lan) end(t *testing.T) {
	r, _ := http.NewRequest("POST", l.p.url+"/stream", nil)
	resp, err := l.client.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 8)
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "data: 1\n" {
		t.Fatalf("%q, %v", first, err)
	}
	l.p.signal(t, syscall.SIGTERM)
	select {
	case said := <-l.p.said:
		if n := strings.Count(said, "no route guards"); n != 1 {
			t.Errorf("the key that nothing guards is logged %d times:\n%s", n, said)
		}
	case <-time.After(time.Minute): // a fifth of drain_timeout
		t.Fatal("an open stream holds the end of the proxy")
	}
	if err := l.p.cmd.Wait(); err != nil {
		t.Errorf("the proxy ended with %v", err)
	}
}
