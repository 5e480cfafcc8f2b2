package chaos_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/testkit/connectortest"
)

// The line is cut at each byte that matters of a request and of its answer, at
// each level, by an end and by a reset. Law: once.
func TestCutAtAByte(t *testing.T) {
	t.Parallel()
	var cuts []map[string]connectortest.Cut // by level
	for _, level := range levels {
		request, answer := recordCall(t, level)
		var list []connectortest.Cut
		for i, n := range edges(request) {
			list = append(list, connectortest.Cut{Request: n, Response: connectortest.All, Reset: i%2 == 0})
		}
		for i, n := range edges(answer) {
			list = append(list, connectortest.Cut{Request: connectortest.All, Response: n, Reset: i%2 == 1})
		}
		for i, cut := range list {
			if i == len(cuts) {
				cuts = append(cuts, map[string]connectortest.Cut{})
			}
			cuts[i][level] = cut
		}
	}
	for _, cut := range cuts {
		c := cut["c"]
		t.Run(fmt.Sprintf("request %d, answer %d, reset %t", c.Request, c.Response, c.Reset), func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			for level, cut := range cut {
				p.service.add(level+"1", level+"2")
				proxy := p.proxy()
				proxy.Next(cut) // the first connection is that of the first call
				p.set(strings.ToUpper(level) + "_URL=http://" + proxy.Addr())
			}
			p.finish()
			for level := range cut {
				p.checkDoubt(level + "1")
			}
		})
	}
}

// levels are those of the tools of the project.
var levels = []string{"a", "c", "d"}

// checkDoubt fails the test if the call of that contact went well at once: then
// the trouble missed it.
func (p *project) checkDoubt(contact string) {
	p.Helper()
	for _, m := range list[api.Mutation](p, "mutations", "--all") {
		if id := idOf(p, m); id == contact && m.Attempts == 1 && m.ResolvedBy != nil && *m.ResolvedBy == "call" {
			p.Errorf("the call of %s went well at once", id)
		}
	}
}

// proxy returns a proxy before the service. It ends with the test.
func (p *project) proxy() *connectortest.Proxy {
	p.Helper()
	proxy, err := connectortest.NewProxy(p.service.Listener.Addr().String())
	p.must(err)
	p.Cleanup(proxy.Close)
	return proxy
}

// edges returns the bytes of an HTTP message before which a cut may mean another
// thing than before its neighbours.
func edges(message []byte) []int {
	line := bytes.Index(message, []byte("\r\n"))
	head := bytes.Index(message, []byte("\r\n\r\n")) + 4
	all := len(message)
	list := []int{0, 1, line, line + 1, line + 2, (line + head) / 2, head - 3, head - 1, head, head + 1, (head + all) / 2, all - 1}
	slices.Sort(list)
	return slices.Compact(list)
}

// recordCall returns what goes over the line in both directions when a contact is
// made.
func recordCall(t *testing.T, level string) (request, answer []byte) {
	t.Helper()
	p := newProject(t, level+"1")
	tape := newTape(t, p.service.Listener.Addr().String())
	p.set(strings.ToUpper(level) + "_URL=http://" + tape.addr)
	p.finish()
	tape.mu.Lock()
	defer tape.mu.Unlock()
	request, answer = tape.request.Bytes(), tape.answer.Bytes()
	if !bytes.HasPrefix(request, []byte(http.MethodPost)) || !bytes.HasPrefix(answer, []byte("HTTP/1.1 201")) {
		t.Fatalf("recorded %q and %q, want one call and its answer", request, answer)
	}
	return request, answer
}

// A tape forwards connections and keeps what they say.
type tape struct {
	addr string

	mu              sync.Mutex // protects the fields below
	request, answer bytes.Buffer
}

// newTape returns a tape before target. It ends with the test.
func newTape(t *testing.T, target string) *tape {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tape{addr: ln.Addr().String()}
	var wait sync.WaitGroup
	t.Cleanup(func() {
		ln.Close()
		wait.Wait()
	})
	wait.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			wait.Go(func() { p.forward(client, target) })
		}
	})
	return p
}

// forward copies both directions until the service ends the connection.
func (p *tape) forward(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		defer server.Close()
		_, _ = io.Copy(server, io.TeeReader(client, &writer{p, &p.request})) // either side may end it
	})
	_, _ = io.Copy(client, io.TeeReader(server, &writer{p, &p.answer}))
	client.Close()
	wait.Wait()
}

// A writer appends to one buffer of a tape.
type writer struct {
	p   *tape
	buf *bytes.Buffer
}

func (w *writer) Write(b []byte) (int, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	return w.buf.Write(b)
}
