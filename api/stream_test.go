package api_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/host/feed"
)

// A follower reads /events.
type follower struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
	from string // id with which it began, without one of its own
}

// follow opens /events and reads up to its first sign of life. It is a plain
// connection, so that what it costs is what the server needs.
func (w *world) follow(after string) *follower {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.server.Listener.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		w.t.Fatal(err)
	}
	_, err = fmt.Fprintf(conn, "GET %s/events HTTP/1.1\r\nHost: keep\r\nAs: ann viewer\r\nLast-Event-ID: %s\r\n\r\n", api.Prefix, after)
	if err != nil {
		w.t.Fatal(err)
	}
	f := &follower{t: w.t, conn: conn, in: bufio.NewReaderSize(conn, 64)}
	f.until(": keep")
	if after == "" {
		f.from = strings.TrimPrefix(f.until("id: "), "id: ")
	}
	return f
}

// until reads lines up to one that has a part, and returns it.
func (f *follower) until(part string) string {
	f.t.Helper()
	for {
		line, err := f.in.ReadString('\n')
		if err != nil {
			f.t.Fatalf("no %q: %v", part, err)
		}
		if strings.Contains(line, part) {
			return strings.TrimSpace(line)
		}
	}
}

func TestFollow(t *testing.T) {
	w := newWorld(t, func(c *api.Config) { c.Heartbeat, c.Gather = 20*time.Millisecond, time.Millisecond })
	f := w.follow("")
	f.until(": still here")
	w.changes.Publish(feed.Change{Workflow: "w", Kinds: []feed.Kind{feed.Run, feed.Input}})
	id := strings.TrimPrefix(f.until("id: "), "id: ")
	f.until("event: change")
	if got, want := f.until("data: "), `data: {"workflow":"w","kinds":["run","input"]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	w.ask("ann operator", "POST", api.Prefix+"/workflows/invoices/pause", "").want(t, 200)
	f.until(`{"workflow":"invoices","kinds":["workflow"]}`)

	w.follow(id).until(`{"workflow":"invoices","kinds":["workflow"]}`) // what came in between
	g := w.follow("an-earlier-process-7")
	g.until("event: reset")
	g.until(`{"workflow":null,"kinds":["reset"]}`)
}

// A stream that is cut before anything changed continues where it began.
func TestFollowCutAtOnce(t *testing.T) {
	w := newWorld(t, func(c *api.Config) { c.Gather = time.Millisecond })
	w.changes.Publish(feed.Change{Workflow: "before", Kinds: []feed.Kind{feed.Run}})
	f := w.follow("")
	f.conn.Close()
	w.changes.Publish(feed.Change{Workflow: "between", Kinds: []feed.Kind{feed.Run}})
	if got, want := w.follow(f.from).until("data: "), `data: {"workflow":"between","kinds":["run"]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestFollowNeedsSomebody(t *testing.T) {
	w := newWorld(t, nil)
	w.ask("", http.MethodGet, api.Prefix+"/events", "").want(t, 401)
}

// Five hundred who follow cost under 50 MB, and one who does not read costs the
// host nothing (issue: bounded).
func TestManyFollowers(t *testing.T) {
	w := newWorld(t, func(c *api.Config) { c.Gather = time.Millisecond })
	before := inUse()
	var followers []*follower
	for range 500 {
		followers = append(followers, w.follow(""))
	}
	asleep := followers[0] // does not read any more
	for i := range 10_000 {
		w.changes.Publish(feed.Change{Workflow: keep.WorkflowName(fmt.Sprint("w", i%64)), Kinds: feed.Kinds()[:6]})
	}
	w.changes.Publish(feed.Change{Workflow: "last", Kinds: []feed.Kind{feed.Run}})
	for _, f := range followers[1:] {
		f.until("id: ") // lives, and is told
	}
	cost := inUse() - before
	t.Logf("500 followers cost %.1f MB", float64(cost)/1e6)
	if limit := int64(50e6); cost > limit {
		t.Errorf("500 followers cost %d bytes, want under %d", cost, limit)
	}
	asleep.until("id: ")
}

// Who does not read is cut off, on a real connection, once the buffers in between are
// full and the time is over that a client may take; the others are told meanwhile.
func TestFollowerWhoDoesNotRead(t *testing.T) {
	t.Parallel()
	const patience = 2 * time.Second
	w := newWorld(t, func(c *api.Config) { c.Gather, c.Patience = 10*time.Millisecond, patience })
	asleep, awake := w.follow(""), w.follow("")
	if err := asleep.conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			for i := range 64 {
				w.changes.Publish(feed.Change{Workflow: keep.WorkflowName(fmt.Sprint("workflow", i)), Kinds: feed.Kinds()[:6]})
			}
		}
	})
	wg.Go(func() {
		for time.Since(began) < 3*patience/2 || w.following.Load() > 1 {
			awake.until("id: ")
		}
		close(done)
	})
	wg.Wait()
	if n := w.following.Load(); n != 1 {
		t.Errorf("%d streams are open after %s, want the one that is read", n, time.Since(began).Round(time.Second))
	}
	if _, err := io.Copy(io.Discard, asleep.in); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection of who does not read is still open")
	}
}

// inUse returns the bytes of heap and stacks in use.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
