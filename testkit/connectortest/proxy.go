package connectortest

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/keep-run/keep/internal/port"
)

// All is a number of bytes that is never reached.
const All = -1

// A Cut says how far a connection gets. When it has got there, both sides are
// closed. Pass cuts nothing.
type Cut struct {
	Request  int    // bytes that reach the service; All: no limit
	Response int    // bytes that reach the client; All: no limit. 0: cut when the answer begins
	Reset    bool   // the client sees a reset instead of an end
	Stall    bool   // nothing is closed: the connection falls silent until the client leaves
	Then     func() // is called before anything is closed, such as to kill the client; nil: nothing
}

// Pass is the Cut that cuts nothing.
var Pass = Cut{Request: All, Response: All}

// A Proxy forwards TCP connections to a service and breaks those that Next and
// Always name. It is safe for concurrent use.
type Proxy struct {
	port *port.Port
	wait sync.WaitGroup

	mu       sync.Mutex // protects the fields below
	target   string
	listener net.Listener
	next     []Cut
	always   Cut
	page     string // that a gateway answers to connections that Next says nothing about; empty: they reach the service
	open     map[net.Conn]bool
	accepted int
	silent   int           // connections whose Cut has Stall, until both sides are closed
	idle     chan struct{} // closed when silent becomes 0; nil: nobody waits
}

// NewProxy listens on a free port of the loopback and forwards to target, which
// is host:port. Close ends it.
func NewProxy(target string) (*Proxy, error) {
	at, err := port.Hold()
	if err != nil {
		return nil, err
	}
	p := &Proxy{port: at, target: target, open: map[net.Conn]bool{}, always: Pass}
	if err := p.Up(); err != nil {
		at.Release()
		return nil, err
	}
	return p, nil
}

// Addr returns host:port; it stays the same.
func (p *Proxy) Addr() string { return p.port.Addr() }

// Next sets what becomes of the next connections, in their order. Later ones
// are what Always said.
func (p *Proxy) Next(cuts ...Cut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = append([]Cut(nil), cuts...)
}

// Always sets what becomes of connections that Next says nothing about.
func (p *Proxy) Always(c Cut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.always = c
}

// Accepted returns how many connections clients have made.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Settle waits until the clients of all silent connections have left, and the service has begun
// to answer what reached it: on a busy machine a client may give up before that. It waits for a
// minute at most.
func (p *Proxy) Settle() {
	p.mu.Lock()
	if p.silent == 0 {
		p.mu.Unlock()
		return
	}
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	idle := p.idle
	p.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(time.Minute):
	}
}

// settled counts a silent connection out.
func (p *Proxy) settled() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent--; p.silent == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
}

// Down makes the proxy refuse connections and cuts the open ones.
func (p *Proxy) Down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for c := range p.open {
		c.Close()
	}
}

// Aim makes new connections go to another service, as a name that moves to
// another machine does.
func (p *Proxy) Aim(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Up makes the proxy take connections again, on the same port.
func (p *Proxy) Up() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return nil
	}
	ln, err := p.port.Listen()
	if err != nil {
		return err
	}
	p.listener = ln
	p.wait.Go(func() { p.accept(ln) })
	return nil
}

// Close ends the proxy, waits for its connections and gives the port back. It may be called again.
func (p *Proxy) Close() {
	p.Down()
	p.wait.Wait()
	p.port.Release()
}

func (p *Proxy) accept(ln net.Listener) {
	for {
		client, err := ln.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		cut, page := p.always, p.page
		if len(p.next) > 0 {
			cut, p.next, page = p.next[0], p.next[1:], ""
		}
		p.accepted++
		if cut.Stall && page == "" {
			p.silent++
		}
		p.mu.Unlock()
		p.wait.Go(func() {
			if page != "" {
				p.answer(client, page)
				return
			}
			p.serve(client, cut)
			if cut.Stall {
				p.settled()
			}
		})
	}
}

// track registers c for Down. It returns false if the proxy is down already.
func (p *Proxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[c] = true
	return p.listener != nil
}

func (p *Proxy) forget(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// front answers with a page, as a gateway does whose service is away; empty: no more.
func (p *Proxy) front(page string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.page = page
}

// answer answers a request with a page.
func (p *Proxy) answer(client net.Conn, page string) {
	defer p.forget(client)
	if !p.track(client) {
		return
	}
	if _, err := client.Read(make([]byte, 1)); err != nil {
		return
	}
	io.WriteString(client, page)
	if tcp, ok := client.(*net.TCPConn); ok {
		tcp.CloseWrite()
	}
	io.Copy(io.Discard, client) // until the client leaves: what is closed with something unread is reset
}

// serve forwards both directions until one of them ends or is cut.
func (p *Proxy) serve(client net.Conn, cut Cut) {
	defer p.forget(client)
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil || !p.track(client) {
		return
	}
	defer p.forget(server)
	if !p.track(server) {
		return
	}
	end := func() {
		if cut.Then != nil {
			cut.Then()
		}
		if cut.Stall {
			io.Copy(io.Discard, client) // until the client leaves
		}
		if tcp, ok := client.(*net.TCPConn); ok && cut.Reset {
			tcp.SetLinger(0)
		}
		client.Close()
		server.Close()
	}
	var both sync.WaitGroup
	both.Go(func() {
		if forward(server, client, cut.Request) {
			end()
		} else if tcp, ok := server.(*net.TCPConn); ok {
			tcp.CloseWrite()
		}
	})
	both.Go(func() {
		if forward(client, server, cut.Response) {
			end()
		} else if tcp, ok := client.(*net.TCPConn); ok {
			tcp.CloseWrite()
		}
	})
	both.Wait()
}

// forward copies up to limit bytes and reports whether there were more. With a
// limit of 0 it waits for the first byte, so that the service has answered.
func forward(to io.Writer, from io.Reader, limit int) bool {
	if limit == All {
		io.Copy(to, from)
		return false
	}
	n, err := io.CopyN(to, from, int64(limit))
	if errors.Is(err, io.EOF) && n < int64(limit) || err != nil {
		return false
	}
	one := make([]byte, 1)
	_, err = io.ReadFull(from, one)
	return err == nil
}
