package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
)

// A wire knows whether its client waited for the answer before, however the bytes of its requests come.
func TestWire(t *testing.T) {
	t.Parallel()
	const post, chunked = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
	const get, bare = "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST / HTTP/1.1\nHost: x\nContent-Length: 3\n\nabc"
	large := "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("\n\n\r\n", 75_000)
	for name, c := range map[string]struct {
		sends []string // each after the answers to those before; "|" is where the rest is sent while the request is answered
		waits bool     // at the last of them
	}{
		"one after another": {[]string{post, get, bare, large, post}, true},
		"two at once":       {[]string{post, post + get, post}, false},
		"three at once":     {[]string{post + post + get, get}, false},
		"behind a large":    {[]string{large + "|" + post, post}, false},
		"without a body":    {[]string{get + get, get}, false},
		"while it works":    {[]string{post, post + "|" + get, get}, false},
		"a part of it":      {[]string{post + "|P", post[1:]}, false},
		"a line before it":  {[]string{post, "\r\n" + post, post}, false},
		"in chunks":         {[]string{chunked, post}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			waits, more := make(chan bool, 9), make(chan string, 9)
			var client net.Conn
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				conn := r.Context().Value(connKey{}).(*wire)
				conn.take(r)
				_, _ = io.Copy(io.Discard, r.Body)
				select {
				case rest := <-more:
					_, _ = io.WriteString(client, rest)
					for early := false; !early; runtime.Gosched() {
						conn.mu.Lock()
						early = conn.read > conn.end
						conn.mu.Unlock()
					}
				default:
				}
				waits <- conn.waits()
			}))
			srv.Listener = wires{srv.Listener}
			srv.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
				return context.WithValue(ctx, connKey{}, c.(*wire))
			}
			srv.Start()
			defer srv.Close()
			var err error
			if client, err = new(net.Dialer).DialContext(t.Context(), "tcp", srv.Listener.Addr().String()); err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			answers, last := bufio.NewReader(client), false
			for _, send := range c.sends {
				now, rest, any := strings.Cut(send, "|")
				if any {
					more <- rest
				}
				if _, err := io.WriteString(client, now); err != nil {
					t.Fatal(err)
				}
				for range strings.Count(send, "HTTP/1.1") {
					resp, err := http.ReadResponse(answers, nil)
					if err != nil {
						t.Fatal(fmt.Errorf("%.60q: %w", send, err))
					}
					resp.Body.Close()
					last = <-waits
				}
			}
			if last != c.waits {
				t.Errorf("it waits: %t", last)
			}
		})
	}
}
