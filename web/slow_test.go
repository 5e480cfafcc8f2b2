package web_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep/host/feed"
)

// A counting handler knows how many requests are under way.
type counting struct {
	http.Handler
	open atomic.Int64
}

func (c *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.open.Add(1)
	defer c.open.Add(-1)
	c.Handler.ServeHTTP(w, r)
}

// A pipeListener accepts the other ends of pipes.
type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// dial opens a stream and reads until it is there.
func (l *pipeListener) dial(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	here, there := net.Pipe()
	l.conns <- there
	io.WriteString(here, "GET /live?kind=run HTTP/1.1\r\nHost: keep\r\n\r\n")
	r := bufio.NewReaderSize(here, 64)
	await(t, r, ": ")
	return here, r
}

// Whoever does not read is cut off ten seconds after the first message that he does
// not take, and those who read wait for nobody.
func TestSlowReaderIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := feed.New(64)
		pages := &counting{Handler: asSomebody(pagesOver(t, f))}
		l, srv := newPipeListener(), &http.Server{Handler: pages}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
		slow, _ := l.dial(t)
		quick, in := l.dial(t)
		wg.Go(func() { io.Copy(io.Discard, in) })
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if n := pages.open.Load(); n != 2 {
			t.Errorf("%d streams are open after half a minute, want both", n)
		}
		time.Sleep(10 * time.Second) // since the sign of life that comes when nothing else does
		synctest.Wait()
		if n := pages.open.Load(); n != 1 {
			t.Errorf("%d streams are open after a sign of life that one does not take, want the other one", n)
		}
		slow.Close()

		slow, _ = l.dial(t)
		for range 3 { // what it does not take adds up to nothing
			f.Publish(feed.Change{Workflow: "w", Kinds: []feed.Kind{feed.Run}})
			time.Sleep(3 * time.Second)
		}
		synctest.Wait()
		if n := pages.open.Load(); n != 2 {
			t.Errorf("%d streams are open after 9 seconds, want both", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := pages.open.Load(); n != 1 {
			t.Errorf("%d streams are open after 10 seconds, want the one that is read", n)
		}
		if _, err := slow.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the connection of who does not read is still open: %v", err)
		}
		quick.Close()
		srv.Close()
		wg.Wait()
	})
}
