package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/idempotency/proxy"
)

// A half is a request whose body is not there yet.
type half struct {
	net.Conn
	answers *bufio.Reader
}

// begin sends the headers of a request with a body of size bytes, and returns when the proxy reads that.
func begin(t *testing.T, addr, key string, size int, headers ...string) half {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: %s\r\nExpect: 100-continue\r\nContent-Length: %d\r\n%s\r\n", key, size, strings.Join(append(headers, ""), "\r\n"))
	h := half{conn, bufio.NewReader(conn)}
	if resp := h.answer(t); resp.StatusCode != http.StatusContinue {
		t.Fatalf("the proxy answers %s before a byte of the body of %s has come", resp.Status, key)
	}
	return h
}

// answer returns the next answer.
func (h half) answer(t *testing.T) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(h.answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// Law bounded: half a body keeps nobody out, whatever length it announces and however much of it has come. One that is
// displaced was not executed, and its sender is told to send it again.
func TestHalfBodies(t *testing.T) {
	t.Parallel()
	back := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	})
	clients, _, _ := front(t, back.URL, func(c *proxy.Config) { c.Memory = 4 << 20 })
	addr := clients.Listener.Addr().String()
	const size = 1 << 20
	var halves []half
	for i := range 16 { // four times what there is
		halves = append(halves, begin(t, addr, fmt.Sprint("half", i), size))
	}
	others := func(when string) {
		t.Helper()
		for _, n := range []int{4, 100_000, size} {
			if resp, said := post(t, clients.URL, fmt.Sprintf("%s-%d", when, n), strings.Repeat("x", n)); resp.StatusCode != 200 || said != fmt.Sprint(n) {
				t.Errorf("%s: a whole body of %d bytes got %s %s", when, n, resp.Status, said)
			}
		}
	}
	others("beside-empty-halves")
	if _, err := halves[0].Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	resp := halves[0].answer(t)
	for resp.StatusCode == http.StatusContinue { // the backend's
		resp = halves[0].answer(t)
	}
	if resp.StatusCode != 200 {
		t.Errorf("the first of these got %s when the rest of it came, though there was room for all of them", resp.Status)
	}
	halves = halves[1:]
	displaced := make(chan string, len(halves))
	for _, h := range halves {
		go func() { _, _ = h.Write(make([]byte, size-1)) }()
		go func() {
			resp, err := http.ReadResponse(h.answers, nil)
			if err != nil { // what it had sent was not read when the connection was closed
				displaced <- "reset"
				return
			}
			said, _ := io.ReadAll(h.answers) // until the connection ends
			displaced <- fmt.Sprintln(resp.StatusCode, resp.Header.Get("Retry-After"), strings.Contains(string(said), string(idempotency.KindBusy)))
		}()
	}
	for range 11 { // four fit
		if got := <-displaced; got != "503 1 true\n" && got != "reset" {
			t.Errorf("who is displaced got %s, want 503 busy, and the end of the connection", got)
		}
	}
	others("beside-halves-without-the-last-byte")
}

// However little a request announces, those that are not there whole are few enough to be displaced while others wait.
func TestTinyHalves(t *testing.T) {
	t.Parallel()
	back := upstream(t, func(http.ResponseWriter, *http.Request) {})
	clients, _, _ := front(t, back.URL, func(c *proxy.Config) { c.Memory = 8 << 10 })
	first := begin(t, clients.Listener.Addr().String(), "first", 2)
	for i := range 8 {
		begin(t, clients.Listener.Addr().String(), fmt.Sprint("half", i), 2)
	}
	if resp := first.answer(t); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the first of nine in 8 KiB got %s", resp.Status)
	}
}

// Law bounded: the header of a request takes memory, too, while its body is waited for.
func TestHeadersOfHalves(t *testing.T) {
	t.Parallel()
	back := upstream(t, func(http.ResponseWriter, *http.Request) {})
	clients, _, _ := front(t, back.URL, func(c *proxy.Config) { c.Memory = 1 << 20 })
	first := begin(t, clients.Listener.Addr().String(), "first", 2, "X-A: "+strings.Repeat("a", 300<<10))
	for i := range 3 {
		begin(t, clients.Listener.Addr().String(), fmt.Sprint("half", i), 2, "X-A: "+strings.Repeat("a", 300<<10))
	}
	if resp := first.answer(t); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the first of four with 300 KiB of headers in 1 MiB got %s", resp.Status)
	}
	if resp, _ := post(t, clients.URL, "k", "x", "X-B", strings.Repeat("b", 300<<10)); resp.StatusCode != http.StatusOK {
		t.Errorf("a whole request beside them got %s", resp.Status)
	}
}
