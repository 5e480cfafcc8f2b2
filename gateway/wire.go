package gateway

import (
	"net"
	"net/http"
	"sync"
)

// A wire is a connection of HTTP/1.1 that knows whether its client waits for answers. A request of which a byte comes before
// the answer to the one before it is written shows nothing, and a client that does so once may do so again. Of one that comes
// whole after that was written it is believed that its client has the answer: when it was sent nobody knows here, and a client
// that sends it before it reads is not told from one that waits, while what it sent is on its way.
//
// It counts bytes. The head of a request ends with its first blank line, the handler says how long the body is, and any
// byte behind that when something is written is of a request that did not wait.
type wire struct {
	net.Conn
	number int64

	mu      sync.Mutex // protects all below
	read    int64      // bytes of the client
	end     int64      // of the last request that the handler has, among them
	head    int64      // where the head of the next one ends; zero: it is not read yet
	started bool       // the line that is read has a byte
	hurried bool       // the client did not wait
}

// wires numbers the connections of a listener.
type wires struct{ net.Listener }

// Accept implements net.Listener.
func (l wires) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &wire{Conn: c, number: lastConn.Add(1)}, nil
}

// Read implements net.Conn.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := max(w.end-w.read, 0); i < int64(n) && w.head == 0; i++ {
		switch p[i] {
		case '\n':
			if !w.started {
				w.head = w.read + i + 1
			}
			w.started = false
		case '\r', ' ', '\t': // a line of them may count as blank
		default:
			w.started = true
		}
	}
	w.read += int64(n)
	return n, err
}

// Write implements net.Conn.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	w.hurried = w.hurried || w.read > w.end
	w.mu.Unlock()
	return w.Conn.Write(p)
}

// CloseWrite ends what the client reads, so that it gets the last answer.
func (w *wire) CloseWrite() error {
	if c, ok := w.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// take notes that the handler has a request.
func (w *wire) take(r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end = w.head + max(r.ContentLength, 0)
	// Of a body without a length nobody knows here where it ends.
	w.hurried = w.hurried || w.head == 0 || r.ContentLength < 0 || w.read > w.end
	w.head = 0
}

// waits reports whether the client has waited for each answer so far.
func (w *wire) waits() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.hurried
}
