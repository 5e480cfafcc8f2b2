package proxy_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/store/memory"
)

// TestUntouched is what the proxy must not do to requests and answers that it passes on.
func TestUntouched(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"slow_upload":          untouchedSlowUpload,
		"paused_download":      untouchedPausedDownload,
		"no_content_type":      untouchedNoContentType,
		"forwarded":            untouchedForwarded,
		"identity":             untouchedIdentity,
		"ends_with_connection": untouchedEndsWithConnection,
		"large_answer":         untouchedLargeAnswer,
		"stream_and_drain":     untouchedStreamAndDrain,
	} {
		t.Run(name, test)
	}
}

// short makes the backend's time shorter than what the tests take.
func short(c *proxy.Config) { c.UpstreamTimeout = proxy.Duration(3 * time.Second) }

// longer is beyond the backend's time: a client is slow on purpose. The backend's own time
// is three seconds, so that a busy machine keeps it.
const longer = 4 * time.Second

func untouchedSlowUpload(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "got %d", len(b))
	})
	clients, _, _ := front(t, up.URL, short)
	body, write := io.Pipe()
	go func() {
		for range 2 {
			_, _ = io.WriteString(write, "part")
			<-time.After(longer) // the client is slow, not the backend
		}
		_ = write.Close()
	}()
	r, _ := http.NewRequest("POST", clients.URL, body)
	resp, err := plain.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(b) != "got 8" || err != nil {
		t.Errorf("a slow upload got %d %s, %v", resp.StatusCode, b, err)
	}
}

func untouchedPausedDownload(t *testing.T) {
	t.Parallel()
	const size = 32 << 20 // more than the buffers on the way hold
	up := upstream(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) })
	clients, _, _ := front(t, up.URL, short)
	resp, err := http.Get(clients.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-time.After(longer) // the client reads nothing
	if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
		t.Errorf("a paused download has %d of %d bytes, %v", n, size, err)
	}
}

func untouchedNoContentType(t *testing.T) {
	t.Parallel()
	up, _ := cut(t, func(_ int64, c net.Conn, _ *http.Request) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nX-Content-Type-Options: nosniff\r\n\r\n<html>")
	})
	clients, _, _ := front(t, up)
	for _, k := range []string{"", "k", "k"} {
		resp, b := post(t, clients.URL, k, "x")
		if lines, has := resp.Header["Content-Type"]; has || b != "<html>" {
			t.Errorf("key %q: Content-Type %q, body %s", k, lines, b)
		}
	}
}

func untouchedForwarded(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("X-Forwarded-For"), "|", r.Header.Get("X-Forwarded-Proto"), "|", r.Header.Get("X-Forwarded-Host"), "|", r.Header.Get("Forwarded"))
	})
	for trusted, want := range map[string]string{
		"":            "127.0.0.1|http|HOST|",
		"10.0.0.0/8":  "127.0.0.1|http|HOST|",
		"127.0.0.0/8": "1.2.3.4, 127.0.0.1|https|api.example|for=1.2.3.4",
		"127.0.0.1":   "1.2.3.4, 127.0.0.1|https|api.example|for=1.2.3.4",
	} {
		clients, _, _ := front(t, up.URL, func(c *proxy.Config) {
			if trusted != "" {
				c.TrustedProxies = []string{trusted}
			}
		})
		_, b := post(t, clients.URL, "", "x", "X-Forwarded-For", "1.2.3.4", "X-Forwarded-Proto", "https", "X-Forwarded-Host", "api.example", "Forwarded", "for=1.2.3.4")
		if want = strings.Replace(want, "HOST", hostOf(clients.URL), 1); b != want {
			t.Errorf("trusted %q: the backend got %s, want %s", trusted, b, want)
		}
	}
	if _, err := proxy.New(new(memory.Keys), proxy.Config{Upstream: "http://x", TrustedProxies: []string{"nobody"}}); err == nil {
		t.Error("a proxy that is no network is accepted")
	}
}

// A client may name any header in Connection, and proxies drop what it names. What a key was taken by reaches the
// backend nevertheless: else the answer to a request without a caller would be kept as one to the caller's.
func untouchedIdentity(t *testing.T) {
	t.Parallel()
	issuer, token := issuerOf(t, "ada")
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("ada:password"))
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get(r.URL.Query().Get("is"))) })
	for _, test := range []struct {
		route        proxy.Route
		header, sent string
	}{
		{proxy.Route{}, "Idempotency-Key", "k"},
		{proxy.Route{}, "X-Idempotency-Key", "k"},
		{proxy.Route{Key: "header:x-event-id"}, "X-Event-Id", "k"},
		{proxy.Route{}, "Authorization", "Bearer t"},
		{proxy.Route{}, "X-Api-Key", "t"},
		{proxy.Route{Caller: "authorization"}, "Authorization", "Bearer t"},
		{proxy.Route{Caller: "header:x-user-id"}, "X-User-Id", "bob"},
		{proxy.Route{Caller: "header:Proxy-Authorization"}, "Proxy-Authorization", "bob"},
		{proxy.Route{Caller: "basic"}, "Authorization", basic},
		{proxy.Route{Caller: "jwt:sub", JWKS: issuer}, "Authorization", token},
		{proxy.Route{Caller: "none"}, "Content-Type", "application/json"},
	} {
		clients, _, _ := front(t, up.URL, func(c *proxy.Config) { c.Routes = []proxy.Route{test.route} })
		for _, named := range []string{test.header, "close, " + strings.ToLower(test.header)} {
			k := "k"
			if strings.HasSuffix(test.header, "Idempotency-Key") || test.route.Key != "" {
				k = ""
			}
			resp, b := post(t, clients.URL+"/?is="+test.header, k, "{}", test.header, test.sent, "Connection", named)
			if resp.StatusCode != http.StatusOK || b != test.sent {
				t.Errorf("%+v: Connection: %s: %d: the backend got %s %q, want %q", test.route, named, resp.StatusCode, test.header, b, test.sent)
			}
		}
	}
}

// What the proxy writes itself reaches no backend as it came.
func TestIdentityOfTheProxy(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Forwarded", "x-forwarded-for", "X-Forwarded-Host", "X-Forwarded-Proto", "Connection", "Transfer-Encoding"} {
		for _, route := range []proxy.Route{{Caller: "header:" + name}, {Key: "header:" + name}} {
			_, err := proxy.New(new(memory.Keys), proxy.Config{Upstream: "http://127.0.0.1:1", Routes: []proxy.Route{route}})
			if err == nil || !strings.Contains(err.Error(), "the proxy writes") {
				t.Errorf("%+v: %v", route, err)
			}
		}
	}
}

// An answer that only the end of its connection ends may be half of one.
func untouchedEndsWithConnection(t *testing.T) {
	t.Parallel()
	for answer, kept := range map[string]bool{
		`{"id": 7}`: true, `[1]`: true, `"x"`: true, `{"id": `: false, `12`: false, `hello`: false, ``: false,
	} {
		endsWithConnection(t, "application/json", answer, kept)
	}
	for media, kept := range map[string]bool{ // of which there may be more lines
		"application/hal+json": true, "application/x-ndjson": false, "application/jsonl": false, "application/stream+json": false, "text/plain": false,
	} {
		endsWithConnection(t, media, `{"id": 7}`+"\n", kept)
	}
}

func endsWithConnection(t *testing.T, media, answer string, kept bool) {
	t.Helper()
	up, requests := cut(t, func(_ int64, c net.Conn, _ *http.Request) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: "+media+"\r\n\r\n"+answer)
		_ = c.Close()
	})
	clients, _, _ := front(t, up)
	if resp, b := post(t, clients.URL, "k", "x"); resp.StatusCode != 200 || b != answer {
		t.Errorf("%s %q: first %d %s", media, answer, resp.StatusCode, b)
	}
	resp, b := post(t, clients.URL, "k", "x")
	if replayed := resp.StatusCode == 200 && b == answer; replayed != kept || !kept && !(strings.Contains(b, string(idempotency.KindBodyNotStored)) && strings.Contains(b, "end of its connection")) {
		t.Errorf("%s %q: retry %d %s, want replayed: %t", media, answer, resp.StatusCode, b, kept)
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%s %q: the backend got %d requests", media, answer, n)
	}
}

// An answer that says it is over the limit is shown from its first byte on.
func untouchedLargeAnswer(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-hold
		_, _ = w.Write(make([]byte, 995))
	})
	clients, _, _ := front(t, up.URL, func(c *proxy.Config) { c.Routes = []proxy.Route{{ResponseLimit: 999}} })
	r, _ := http.NewRequest("POST", clients.URL, strings.NewReader("x"))
	r.Header.Set("Idempotency-Key", "k")
	resp, err := plain.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "first" {
		t.Errorf("before the backend continues: %q, %v", first, err)
	}
	close(hold)
	if rest, err := io.ReadAll(resp.Body); len(rest) != 995 || err != nil {
		t.Errorf("the rest has %d bytes, %v", len(rest), err)
	}
	if resp, b := post(t, clients.URL, "k", "x"); resp.StatusCode != 409 || !strings.Contains(b, "body-not-stored") {
		t.Errorf("retry: %d %s", resp.StatusCode, b)
	}
}

// An event stream has no end, and does not hold up that of the proxy.
func untouchedStreamAndDrain(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ready := make(chan string, 1)
	p, err := proxy.New(new(memory.Keys), proxy.Config{Upstream: up.URL, Listen: "127.0.0.1:0", AdminListen: "off",
		DrainTimeout: proxy.Duration(time.Minute), Logger: slog.New(slog.DiscardHandler),
		Ready: func(c, _ net.Addr) { ready <- "http://" + c.String() }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	resp, err := http.Get(<-ready)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "data: 1\n" {
		t.Fatalf("%q, %v", line, err)
	}
	stop()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Run = %v", err)
		}
	case <-time.After(20 * time.Second): // a third of what it may take for a request
		t.Error("an open stream holds up the end")
	}
}
