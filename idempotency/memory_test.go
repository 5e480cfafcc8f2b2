package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/memory"
)

// What waits for a client to read it is bounded, in bytes and in time.
func TestHeldAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"replays":          heldReplays,
		"never_fits":       heldNeverFits,
		"passed_through":   heldPassedThrough,
		"headers":          heldHeaders,
		"stalled_client":   heldStalledClient,
		"slow_client":      heldSlowClient,
		"other_deadlines":  heldOtherDeadlines,
		"real_connections": heldRealConnections,
	} {
		t.Run(name, test)
	}
}

// A lateReader is a client that reads when it may.
type lateReader struct {
	*httptest.ResponseRecorder
	once  sync.Once
	waits chan struct{} // closed when it has the beginning of an answer
	read  chan struct{}
}

func newLateReader() *lateReader {
	return &lateReader{ResponseRecorder: httptest.NewRecorder(), waits: make(chan struct{}), read: make(chan struct{})}
}

func (l *lateReader) Write(p []byte) (int, error) {
	l.once.Do(func() { close(l.waits) })
	<-l.read
	return l.ResponseRecorder.Write(p)
}

func heldReplays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{Memory: 64 << 10}, func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(rw, strings.Repeat("x", 48<<10))
	})
	ada := header("Authorization", "Bearer ada")
	first := w.do(with("k", ada))
	instance := idempotency.InstancePath + w.record("k").ID.String()
	ask := httptest.NewRequest("GET", instance, nil)
	ada(ask)
	for _, r := range []*http.Request{with("k", ada), ask} {
		late := newLateReader()
		var wg sync.WaitGroup
		wg.Go(func() { w.h.ServeHTTP(late, r) })
		<-late.waits
		w.problem(w.do(with("k", ada)), 503, idempotency.KindBusy)
		if code, s := w.ask(instance, ada); code != 200 || s.State != "done" || s.Answer != nil {
			t.Errorf("the instance says %d %s with an answer of %v, want done and none", code, s.State, s.Answer)
		}
		close(late.read)
		wg.Wait()
		w.replayed(first, w.do(with("k", ada)))
		if _, s := w.ask(instance, ada); s.Answer == nil || *s.Answer.Body != first.Body.String() {
			t.Errorf("afterwards the instance says %s, without the answer", s.State)
		}
	}
	w.ran(1)
}

// An answer that a person gave may be longer than all memory.
func heldNeverFits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{Memory: 2 << 10}, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(502) })
	w.do(with("k"))
	_, err := idempotency.NewKeys(w.store).Resolve(t.Context(), w.record("k").ID.String(),
		idempotency.Resolution{Happened: true, Status: 201, Body: strings.Repeat("x", 2<<10), By: "eve"}, time.Now())
	must(t, err)
	if p := w.problem(w.do(with("k")), 409, idempotency.KindBodyNotStored); p["original_status"] != 201.0 {
		t.Errorf("it says %v", p)
	}
	w.ran(1)
}

// What is passed through is not in memory any more while the client reads the rest.
func heldPassedThrough(t *testing.T) {
	t.Parallel()
	streams, end := make(chan struct{}), make(chan struct{})
	cfg := rule(idempotency.Rule{ResponseLimit: 32 << 10})
	cfg.Memory = 64 << 10
	w := newWorld(t, cfg, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Stream") == "" {
			return
		}
		for range 2 {
			_, _ = io.WriteString(rw, strings.Repeat("x", 32<<10))
		}
		close(streams)
		<-end
	})
	client := &stalled{ResponseRecorder: httptest.NewRecorder(), t: t, reads: true}
	var wg sync.WaitGroup
	wg.Go(func() { w.h.ServeHTTP(client, with("a", header("X-Stream", "1"))) })
	<-streams
	if !client.until.IsZero() {
		t.Error("the handler's own part has a deadline")
	}
	if got := w.do(with("b", body(strings.Repeat("x", 48<<10)))); got.Code != 200 {
		t.Errorf("beside the stream: %d %s", got.Code, got.Body)
	}
	close(end)
	wg.Wait()
	if client.Body.Len() != 64<<10 {
		t.Errorf("the client read %d bytes", client.Body.Len())
	}
}

// The header of an answer takes memory, as its body does: where that is not there, the answer is passed through.
func heldHeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{Memory: 64 << 10}, func(rw http.ResponseWriter, _ *http.Request) {
		for i := range 40 { // 48 KiB
			rw.Header().Set(fmt.Sprintf("X-%02d", i), strings.Repeat("x", 1160))
		}
		fmt.Fprint(rw, "made")
	})
	late := newLateReader()
	var wg sync.WaitGroup
	wg.Go(func() { w.h.ServeHTTP(late, with("a")) })
	<-late.waits
	if got := w.do(with("b")); got.Code != 200 || got.Body.String() != "made" || got.Header().Get("X-39") == "" {
		t.Errorf("beside the answer that is held: %d %s", got.Code, got.Body)
	}
	if got := w.record("b").State; got != key.DoneWithoutBody {
		t.Errorf("96 KiB of headers are held in 64 KiB: the second key is %q", got)
	}
	close(late.read)
	wg.Wait()
	w.replayed(late.ResponseRecorder, w.do(with("a")))
	w.ran(2)
}

// A stalled client reads nothing, or each part after some time.
type stalled struct {
	*httptest.ResponseRecorder
	t     *testing.T
	reads bool
	after time.Duration
	until time.Time
	set   int   // how often until was
	err   error // of a write that was too late, and of all after it
}

func (s *stalled) SetWriteDeadline(deadline time.Time) error {
	s.until = deadline
	s.set++
	return nil
}

func (s *stalled) Write(p []byte) (int, error) {
	left := time.Until(s.until)
	switch {
	case s.err != nil:
		return 0, s.err
	case s.reads && (s.until.IsZero() || s.after < left):
		time.Sleep(s.after)
		return s.ResponseRecorder.Write(p)
	case s.until.IsZero():
		s.t.Error("a client may take a part of an answer when it likes")
	}
	time.Sleep(left)
	s.err = os.ErrDeadlineExceeded
	return 0, s.err
}

func heldStalledClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		status := 200
		cfg := rule(idempotency.Rule{ResponseLimit: 32 << 10})
		cfg.BodySilence = 20 * time.Second
		w := newWorld(t, cfg, func(rw http.ResponseWriter, r *http.Request) {
			rw.WriteHeader(status)
			fmt.Fprint(rw, strings.Repeat("x", 32<<10))
			fmt.Fprint(rw, r.Header.Get("X-More"))
		})
		ada := header("Authorization", "Bearer ada")
		stall := func(what string, r *http.Request) {
			t.Helper()
			ada(r)
			client, start := &stalled{ResponseRecorder: httptest.NewRecorder(), t: t}, time.Now()
			w.h.ServeHTTP(client, r)
			if took := time.Since(start); took != 20*time.Second || !client.until.IsZero() {
				t.Errorf("%s is held for %s, want 20s, and leaves the deadline %v", what, took, client.until)
			}
		}
		stall("a first answer", with("k"))
		stall("a replay", with("k"))
		stall("the instance", httptest.NewRequest("GET", idempotency.InstancePath+w.record("k").ID.String(), nil))
		stall("the beginning of what is passed through", with("long", header("X-More", "x")))
		status = 429
		stall("an answer that is not kept", with("free"))
	})
}

// A client that reads each part in time, and has many, has its time for the whole, too.
func heldSlowClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, strings.Repeat("x", 1<<20)) })
		first := w.do(with("k"))
		for after, want := range map[time.Duration]time.Duration{18 * time.Second: 32 * 18 * time.Second, 29 * time.Second: 10 * time.Minute} {
			client, start := &stalled{ResponseRecorder: httptest.NewRecorder(), t: t, reads: true, after: after}, time.Now()
			w.h.ServeHTTP(client, with("k"))
			if took := time.Since(start); took != want {
				t.Errorf("a client that takes %s for each part has %s, want %s", after, took, want)
			}
			if client.err == nil {
				w.replayed(first, client.ResponseRecorder)
			}
		}
	})
}

// A deadline that the server or the handler set stays.
func heldOtherDeadlines(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(time.Hour)
	own := time.Time{}
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Own") != "" {
			must(t, http.NewResponseController(rw).SetWriteDeadline(own))
		}
		fmt.Fprint(rw, "done")
	})
	server := func(r *http.Request) {
		*r = *r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{WriteTimeout: time.Hour}))
	}
	do := func(r *http.Request) *stalled {
		client := &stalled{ResponseRecorder: httptest.NewRecorder(), t: t, reads: true}
		w.h.ServeHTTP(client, r)
		return client
	}
	for range 2 { // the first answer, and its replay
		if c := do(with("server", server)); c.set != 0 {
			t.Errorf("the server's deadline became %v", c.until)
		}
	}
	if c := do(with("none", server, header("X-Own", "1"))); c.set != 3 { // the handler's, one for the part, and none again
		t.Errorf("a handler that wants no deadline of the server has %d, want 3", c.set)
	}
	own = at
	if c := do(with("own", header("X-Own", "1"))); c.set != 1 || !c.until.Equal(at) {
		t.Errorf("the handler's deadline became %v after %d changes, want %v", c.until, c.set, at)
	}
}

// On connections, with all that buffers in between, the time of a client that does not
// read ends, too.
func heldRealConnections(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		cfg := rule(idempotency.Rule{ResponseLimit: 64 << 20})
		cfg.BodySilence = 50 * time.Millisecond
		w := newWorld(t, cfg, func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(make([]byte, 32<<20)) })
		ended := make(chan struct{})
		s := served(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			defer close(ended)
			w.h.ServeHTTP(rw, r)
		}), h2)
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/orders", strings.NewReader("order"))
		must(t, err)
		r.Header.Set("Idempotency-Key", "k")
		resp, err := s.Client().Do(r)
		must(t, err)
		<-ended
		resp.Body.Close()
		if got := w.record("k").State; got != key.Done || resp.StatusCode != 200 {
			t.Errorf("h2 %t: %d, and the key is %q", h2, resp.StatusCode, got)
		}
	}
}

// A request that is refused before it was read ends its connection, also while a part of it that the server would read is still to come.
func TestRefusedBodiesEndTheConnection(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]idempotency.Config{
		"503 Service Unavailable":      {Memory: 64 << 10},
		"413 Request Entity Too Large": rule(idempotency.Rule{BodyLimit: 64 << 10}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.BodySilence, cfg.BodyTimeout = time.Hour, time.Hour
			g, err := idempotency.New(new(memory.Keys), cfg)
			must(t, err)
			srv := httptest.NewServer(g.Handler(http.NotFoundHandler()))
			defer srv.CloseClientConnections()
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			must(t, err)
			defer conn.Close()
			_, err = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: %d\r\n\r\n%s", 100<<10, strings.Repeat("x", 65<<10))
			must(t, err)
			must(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
			said, err := io.ReadAll(conn)
			if !strings.Contains(string(said), name) || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%v, and it says %q; want the end of the connection", err, said)
			}
		})
	}
}
