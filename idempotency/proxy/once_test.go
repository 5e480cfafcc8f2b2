package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/keep-run/keep/idempotency/proxy"
)

// A closer is a server that answers the first request of each connection, and closes the connection when it has read the second one.
type closer struct {
	net.Listener
	mu   sync.Mutex
	came map[string]int // by path; protected by mu
}

func (c *closer) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for n := range 2 {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		c.mu.Lock()
		c.came[r.Method+r.URL.Path]++
		c.mu.Unlock()
		if n == 0 {
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	}
}

// A request is sent once, also one without a body on a connection that was used before and ends under it: Go's transport sends such
// a request again if it has the header of a key.
func TestSentOnceOnAKeptConnection(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	back := &closer{Listener: l, came: make(map[string]int)}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go back.serve(conn)
		}
	}()
	clients, _, _ := front(t, "http://"+l.Addr().String(), func(c *proxy.Config) {
		c.Routes = []proxy.Route{{Path: "/hook", Key: "header:X-Delivery"}, {Methods: []string{"POST", "PUT", "PATCH", "DELETE"}}}
	})
	n := 0
	send := func(method, path, name string) int {
		n++
		r, err := http.NewRequestWithContext(t.Context(), method, clients.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if name != "" {
			r.Header.Set(name, fmt.Sprint("k", n))
		}
		resp, err := clients.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key", "X-Delivery", ""} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			path := "/" + name
			if name == "X-Delivery" && method != "DELETE" {
				path = "/hook"
			}
			if got := send(method, "/first"+name, ""); got != 200 {
				t.Fatalf("the first request of a connection gets %d", got)
			}
			got := send(method, path, name)
			back.mu.Lock()
			if came := back.came[method+path]; got != 502 || came != 1 {
				t.Errorf("%s with %q gets %d and came %d times, want 502 and once", method, name, got, came)
			}
			back.mu.Unlock()
		}
	}
}
