package proxy_test

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/internal/ceiling"
)

// routes are one of each kind, as far as they read what a request holds.
func routes(jwks string) []proxy.Route {
	return []proxy.Route{
		{Path: "/canonical", CanonicalJSON: true, IgnoreFields: []string{"at", "a.b"}},
		{Path: "/field", Key: "body:$.a.b.c"},
		{Path: "/jwt", Caller: "jwt:sub", JWKS: jwks},
		{Path: "/basic", Caller: "basic"},
		{},
	}
}

// request writes one request with a key.
func request(path, headers, body string) func(io.Writer) {
	return func(w io.Writer) {
		fmt.Fprintf(w, "POST %s HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: %d\r\n%s\r\n%s", path, len(body), headers, body)
	}
}

// without end writes head, and then the rest until nobody reads.
func withoutEnd(head, rest string) func(io.Writer) {
	return func(w io.Writer) {
		_, err := io.WriteString(w, head)
		for err == nil {
			_, err = io.WriteString(w, rest)
		}
	}
}

// hostileRequests are requests that make a reader compute or hold much.
func hostileRequests() map[string]func(io.Writer) {
	const mega = 1 << 20
	fill := func(text string) string { return strings.Repeat(text, mega/len(text)-8) }
	long := strings.Repeat("x", 1000)
	post := "POST /canonical HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\n"
	all := map[string]func(io.Writer){
		"endless headers":   withoutEnd(post, "X-A: "+long+"\r\n"),
		"endless line":      withoutEnd(post+"X-A: ", long),
		"endless path":      withoutEnd("POST /", long),
		"endless chunks":    withoutEnd(post+"Transfer-Encoding: chunked\r\n\r\n", "1\r\n[\r\n"),
		"endless extension": withoutEnd(post+"Transfer-Encoding: chunked\r\n\r\n1;", long),
		"endless trailers":  withoutEnd(post+"Transfer-Encoding: chunked\r\n\r\n0\r\n", "X-A: "+long+"\r\n"),
		"endless body":      withoutEnd(post+"Content-Length: 9000000000000000000\r\n\r\n", long),
		"endless requests":  withoutEnd("", post+"Content-Length: 0\r\n\r\n"),
		"no HTTP":           withoutEnd("", "SSH-2.0 "),
		"many keys":         request("/canonical", strings.Repeat("Idempotency-Key: k\r\n", 20_000), "{}"),
		"a long key":        request("/", "X-Idempotency-Key: "+strings.Repeat("k", 500_000)+"\r\n", "{}"),
		"an odd key":        request("/", `X-Idempotency-Key: "`+strings.Repeat(`\"`, 200_000)+"\"\r\n", "{}"),
		"credentials":       request("/", "Authorization: Bearer "+strings.Repeat("x", 500_000)+"\r\n", "{}"),
		"basic":             request("/basic", "Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte(strings.Repeat("u:", 200_000)))+"\r\n", "{}"),
		"a token of dots":   request("/jwt", "Authorization: Bearer "+strings.Repeat(".", 500_000)+"\r\n", "{}"),
		"a nested token": request("/jwt", "Authorization: Bearer "+base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("[", 200_000)))+
			"."+base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat(`{"sub":`, 40_000)))+".x\r\n", "{}"),
		"a query":      request("/canonical?"+strings.Repeat("a&", 200_000), "", "{}"),
		"a path":       request("/"+strings.Repeat("%2e%2e/", 70_000), "", "{}"),
		"connections":  request("/canonical", "Connection: "+strings.Repeat("a,", 200_000)+"\r\n", "{}"),
		"forwarded":    request("/canonical", "Forwarded: "+strings.Repeat("for=1;", 80_000)+"\r\n", "{}"),
		"content type": request("/canonical", "Content-Type: "+strings.Repeat("a/b;c=d;", 60_000)+"\r\n", "{}"),
	}
	for name, body := range map[string]string{
		"brackets":       fill("["),
		"nested arrays":  strings.Repeat("[", mega/2-8) + strings.Repeat("]", mega/2-8),
		"nested objects": strings.Repeat(`{"a":`, mega/7) + "1" + strings.Repeat("}", mega/7),
		"nested keys":    strings.Repeat(`{"a":{"b":`, 4_000) + "1" + strings.Repeat("}}", 4_000),
		"names":          `{` + strings.TrimSuffix(fill(`"a":1,`), ",") + `}`,
		"ignored names":  `{` + strings.TrimSuffix(fill(`"at":1,`), ",") + `}`,
		"long number":    fill("9"),
		"long fraction":  "0." + fill("1"),
		"exponents":      `[` + strings.TrimSuffix(fill(`1e999999,`), ",") + `]`,
		"numbers":        `[` + strings.TrimSuffix(fill(`1e-307,`), ",") + `]`,
		"escapes":        `{"a":"` + fill(`\u0001`) + `"}`,
		"surrogates":     `{"a":"` + fill(`\ud800`) + `"}`,
		"invalid text":   fill("\xff"),
	} {
		for _, path := range []string{"/canonical", "/field"} {
			all[name+" to "+path] = request(path, "Content-Type: application/json\r\n", body)
		}
	}
	return all
}

// Law bounded: whatever a client sends to the proxy, it takes little of memory and processor,
// and other clients are answered.
func TestHostileRequests(t *testing.T) {
	ceiling.Need(t)
	back := upstream(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	jwks := upstream(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"keys":[]}`) })
	clients, admin, _ := front(t, back.URL, func(c *proxy.Config) { c.Routes = routes(jwks.URL) })
	n := 0
	for name, write := range hostileRequests() {
		t.Run(strings.NewReplacer(" ", "_", "/", "").Replace(name), func(t *testing.T) {
			ceiling.Ceiling{CPU: 2 * time.Second, Memory: 64 << 20}.Check(t, func() { t.Log(attack(t, clients, write)) })
			n++
			if resp, _ := post(t, clients.URL+"/", fmt.Sprint("good", n), "{}"); resp.StatusCode != 200 {
				t.Errorf("another client gets %d", resp.StatusCode)
			}
		})
	}
	for _, body := range []string{strings.Repeat("[", 15<<20), `{"body":"` + strings.Repeat(`\u0001`, 2<<20) + `"}`, strings.Repeat(`{"by":`, 2<<20)} {
		t.Run("admin", func(t *testing.T) {
			ceiling.Ceiling{CPU: 4 * time.Second, Memory: 256 << 20}.Check(t, func() {
				resp, said := post(t, admin.URL+"/api/v1/keys/x/resolve", "", body)
				t.Logf("%s: %.200s", resp.Status, said)
			})
		})
	}
}

// attack sends what write writes, for a quarter of a second, and returns how the first
// answer begins.
func attack(t *testing.T, s *httptest.Server, write func(io.Writer)) string {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(250 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		write(conn)
	}()
	answer, err := bufio.NewReader(conn).ReadString('\n')
	conn.Close()
	<-sent
	return fmt.Sprintf("%.100q, %v", answer, err)
}
