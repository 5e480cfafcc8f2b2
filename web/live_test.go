package web_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/web"
)

// pagesOver returns pages over an empty store and a feed.
func pagesOver(t *testing.T, f *feed.Feed) http.Handler {
	t.Helper()
	store := memory.New()
	e, err := operator.New(store, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := web.New(web.Config{Store: store, Actor: e, Feed: f})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// A listener is a response whose body is read while it is written.
type listener struct {
	*io.PipeWriter
	header http.Header
}

func (l *listener) Header() http.Header { return l.header }
func (l *listener) WriteHeader(int)     {}
func (l *listener) Flush()              {}

// listen opens a stream. Each message that it sends comes from the channel, and the
// channel is closed when the stream has ended.
func listen(ctx context.Context, wg *sync.WaitGroup, pages http.Handler, target string, header ...string) <-chan string {
	r, w := io.Pipe()
	req := httptest.NewRequestWithContext(access.With(ctx, access.Identity{Name: "vera", Role: access.Viewer}), http.MethodGet, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	wg.Go(func() {
		pages.ServeHTTP(&listener{w, make(http.Header)}, req)
		w.Close()
	})
	messages := make(chan string, 100)
	wg.Go(func() {
		defer close(messages)
		var message strings.Builder
		for s := bufio.NewScanner(r); s.Scan(); {
			if s.Text() != "" {
				message.WriteString(s.Text() + "\n")
				continue
			}
			messages <- message.String()
			message.Reset()
		}
	})
	return messages
}

// A page learns of what it watches and of nothing else, at most a few times a
// second, and of everything that it missed.
func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := feed.New(64)
		pages := pagesOver(t, f)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		before := f.Last()
		f.Publish(feed.Change{Workflow: "w", Kinds: []feed.Kind{feed.Run}}) // between the page and its stream
		got := listen(ctx, &wg, pages, "/live?kind=run&kind=input&workflow=w&after="+before)
		next := func(want string) string {
			t.Helper()
			synctest.Wait()
			select {
			case m := <-got:
				if !strings.Contains(m, want) {
					t.Errorf("got %q, want %q", m, want)
				}
				return m
			default:
				if want != "" {
					t.Errorf("got nothing, want %q", want)
				}
				return ""
			}
		}
		quiet := func() {
			t.Helper()
			synctest.Wait()
			select {
			case m := <-got:
				t.Errorf("got %q, want nothing", m)
			default:
			}
		}
		next(": ") // the stream is open
		last := next("event: keep-changed")
		time.Sleep(time.Second)
		f.Publish(feed.Change{Workflow: "other", Kinds: []feed.Kind{feed.Run}})
		f.Publish(feed.Change{Workflow: "w", Kinds: []feed.Kind{feed.Mutation}})
		quiet()
		time.Sleep(time.Second)
		for range 20 { // a burst is one message, and one more for its end
			f.Publish(feed.Change{Workflow: "w", Kinds: []feed.Kind{feed.Input}})
			synctest.Wait()
		}
		next("event: keep-changed")
		quiet()
		time.Sleep(time.Second)
		next("event: keep-changed")
		quiet()
		f.Reset()
		next("event: keep-changed")
		time.Sleep(30 * time.Second)
		next(": ")
		cancel()
		wg.Wait()

		// Whoever comes back with the last id that he saw is told what he missed.
		id := strings.TrimPrefix(strings.Split(last, "\n")[0], "id: ")
		ctx, cancel = context.WithCancel(t.Context())
		got = listen(ctx, &wg, pages, "/live?kind=run&after="+f.Last(), "Last-Event-ID", id)
		next(": ")
		next("event: keep-changed")
		cancel()
		wg.Wait()
	})
}

// A stream ends with its request, also while nothing happens, and costs no
// goroutine of its own.
func TestManyStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := feed.New(64)
		pages := pagesOver(t, f)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var streams []<-chan string
		for range 500 {
			streams = append(streams, listen(ctx, &wg, pages, "/live?kind=run&after="+f.Last()))
		}
		synctest.Wait()
		f.Publish(feed.Change{Workflow: "w", Kinds: []feed.Kind{feed.Run}})
		synctest.Wait()
		for i, s := range streams {
			if open, told := <-s, <-s; !strings.Contains(open, ":") || !strings.Contains(told, "keep-changed") {
				t.Fatalf("stream %d got %q and %q", i, open, told)
			}
		}
		cancel()
		wg.Wait()
	})
}

// 500 browsers that listen cost less than 50 MB, and all of them hear.
func TestManyListenersCostLittle(t *testing.T) {
	const clients, most = 500, 50 << 20
	f := feed.New(64)
	site := httptest.NewServer(asSomebody(pagesOver(t, f)))
	defer site.Close()
	defer site.CloseClientConnections()
	before := inUse()
	conns := make([]*bufio.Reader, clients)
	for i := range conns {
		conn, err := net.Dial("tcp", site.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, "GET /live?kind=run HTTP/1.1\r\nHost: keep\r\n\r\n")
		conns[i] = bufio.NewReaderSize(conn, 512)
	}
	for _, c := range conns {
		await(t, c, ": ")
	}
	if cost := inUse() - before; cost > most {
		t.Errorf("%d listeners cost %d bytes, want at most %d", clients, cost, most)
	} else {
		t.Logf("%d listeners, both ends: %d KiB", clients, cost>>10)
	}
	f.Publish(feed.Change{Workflow: "w", Kinds: []feed.Kind{feed.Run}})
	for _, c := range conns {
		await(t, c, "event: keep-changed")
	}
}

// inUse returns what the process holds, without garbage.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// await reads until a line begins so.
func await(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("waiting for %q: %v", want, err)
		}
		if strings.HasPrefix(line, want) {
			return
		}
	}
}
