package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency/key"
	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/sqlite"
)

// TestMain is the proxy process of the tests below, if the environment says so.
func TestMain(m *testing.M) {
	if os.Getenv("KEEP_TEST_PROXY") == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := child(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child runs a proxy as the environment says, and prints where it listens.
func child(ctx context.Context) error {
	db := sqlite.New(os.Getenv("KEEP_TEST_DB"), sqlite.Config{})
	if err := db.Open(ctx); err != nil {
		return err
	}
	defer db.Close()
	p, err := proxy.New(db.Keys(), proxy.Config{
		Upstream: os.Getenv("KEEP_TEST_PROXY"), Listen: "127.0.0.1:0", AdminListen: "off", Lease: proxy.Duration(lease),
		Routes: []proxy.Route{{AfterCrash: os.Getenv("KEEP_TEST_AFTER_CRASH")}},
		Logger: slog.New(slog.DiscardHandler),
		Ready:  func(c, _ net.Addr) { fmt.Println(c) },
	})
	if err != nil {
		return err
	}
	return p.Run(ctx)
}

// lease is short, so that the tests need not wait long after a death.
const lease = 300 * time.Millisecond

// A process is a proxy in a process of its own.
type process struct {
	cmd *exec.Cmd
	url string
}

func start(t testing.TB, db, upstream, afterCrash string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "KEEP_TEST_PROXY="+upstream, "KEEP_TEST_DB="+db, "KEEP_TEST_AFTER_CRASH="+afterCrash)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the proxy did not start: %v", err)
	}
	p := &process{cmd, "http://" + strings.TrimSpace(line)}
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// A counting is an upstream that counts what it did for each key.
type counting struct {
	mu   sync.Mutex // protects done
	done map[string]int
}

func (c *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	k := r.Header.Get("Idempotency-Key")
	c.mu.Lock()
	c.done[k]++
	c.mu.Unlock()
	w.WriteHeader(201)
	fmt.Fprint(w, "did ", k)
}

// cycles is how often the proxy is killed; `make torture` sets more.
func cycles(t testing.TB) int {
	if n, err := strconv.Atoi(os.Getenv("KEEP_TORTURE_CYCLES")); err == nil {
		return n
	}
	if testing.Short() {
		return 5
	}
	return 50
}

// TestProxy_survives_SIGKILL kills the proxy again and again while clients send
// requests and retry them. No key may run twice, and none may stay stuck.
func TestProxy_survives_SIGKILL(t *testing.T) {
	did := &counting{done: make(map[string]int)}
	up := httptest.NewServer(did)
	defer up.Close()
	file := filepath.Join(t.TempDir(), "keys.db")
	storm := &storm{file: file, upstream: up.URL}
	for cycle := range cycles(t) {
		storm.cycle(t, cycle)
	}
	storm.settle(t, start(t, file, up.URL, ""))
	did.mu.Lock()
	defer did.mu.Unlock()
	for k, n := range did.done {
		if n > 1 {
			t.Errorf("%s ran %d times", k, n)
		}
	}
	checkShown(t, file, did.done)
	t.Logf("%d keys, %d answered at once, %d unknown after a death", len(did.done), storm.shown.Load(), storm.unknown)
}

// A storm is the clients of TestProxy_survives_SIGKILL.
type storm struct {
	file, upstream string
	shown          atomic.Int64 // answers that a client saw
	left           sync.Map     // keys whose client got no answer
	unknown        int
}

// cycle starts a proxy, retries what the one before left, and kills it under load.
func (s *storm) cycle(t *testing.T, cycle int) {
	t.Helper()
	p := start(t, s.file, s.upstream, "")
	s.settle(t, p)
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	defer transport.CloseIdleConnections()
	var answered atomic.Int64
	enough := make(chan struct{})
	fatal := 20 + rand.Int64N(60) // a fact to wait for, not a duration
	var clients, killer sync.WaitGroup
	for c := range 16 {
		clients.Go(func() {
			for n := 0; ; n++ {
				k := fmt.Sprintf("c%d-%d-%d", cycle, c, n)
				if status, body := try(transport, p.url, k); status != 201 || body != "did "+k {
					s.left.Store(k, true)
					return // the proxy is dead
				}
				s.shown.Add(1)
				if answered.Add(1) == fatal {
					close(enough)
				}
			}
		})
	}
	killer.Go(func() {
		<-enough
		p.kill()
	})
	clients.Wait()
	killer.Wait()
}

// settle retries every key whose client got no answer: the proxy answers with the
// first answer, with a first run, or with what it cannot know.
func (s *storm) settle(t *testing.T, p *process) {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	defer transport.CloseIdleConnections()
	s.left.Range(func(k, _ any) bool {
		s.left.Delete(k)
		switch status, body := settle(t, transport, p.url, k.(string)); {
		case status == 201 && body == "did "+k.(string):
		case status == 409 && strings.Contains(body, "outcome-unknown"):
			s.unknown++
		default:
			t.Errorf("%s is stuck: %d %s", k, status, body)
		}
		return true
	})
}

// checkShown compares the records with what was done.
func checkShown(t *testing.T, file string, done map[string]int) {
	t.Helper()
	db := sqlite.New(file, sqlite.Config{})
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for cursor := ""; ; {
		page, next, err := db.Keys().List(t.Context(), key.Filter{}, keep.Page{Limit: 1000, After: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page {
			if r.State == key.Done && done[r.Key] != 1 || r.State == key.InProgress {
				t.Errorf("%s is %q and was done %d times", r.Key, r.State, done[r.Key])
			}
		}
		if cursor = next; cursor == "" {
			return
		}
	}
}

// try sends one request; status 0 means no answer.
func try(transport *http.Transport, url, k string) (status int, body string) {
	r, err := http.NewRequest("POST", url+"/act", strings.NewReader("body of "+k))
	if err != nil {
		return 0, err.Error()
	}
	r.Header["idempotency-key"] = []string{k} // lower case: the client's transport must not retry by itself
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// settle retries while the first request is said to be in progress, which may be
// for as long as a lease.
func settle(t testing.TB, transport *http.Transport, url, k string) (status int, body string) {
	t.Helper()
	for until := time.Now().Add(20 * lease); ; {
		status, body = try(transport, url, k)
		if !strings.Contains(body, "in-progress") || time.Now().After(until) {
			return status, body
		}
		select {
		case <-time.After(lease / 10):
		case <-t.Context().Done():
			return status, body
		}
	}
}

// A process that is stopped past its lease and goes on finds that another one has
// the key: its answer is not shown, the other's is.
func TestProxy_is_fenced_after_SIGSTOP(t *testing.T) {
	var calls atomic.Int64
	reached, hold := make(chan struct{}), make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if n := calls.Add(1); n == 1 {
			close(reached)
			<-hold
			fmt.Fprint(w, "late")
		} else {
			fmt.Fprint(w, "second")
		}
	})
	file := filepath.Join(t.TempDir(), "keys.db")
	a := start(t, file, up.URL, "retry")
	b := start(t, file, up.URL, "retry")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	first := make(chan string, 1)
	go func() {
		_, body := try(transport, a.url, "k")
		first <- body
	}()
	<-reached
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	status, body := settle(t, transport, b.url, "k")
	if status != 200 || body != "second" {
		t.Errorf("the other process: %d %s", status, body)
	}
	close(hold)
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if got := <-first; got != "second" {
		t.Errorf("the stopped process answered %q, want the other's answer", got)
	}
	if _, body := try(transport, a.url, "k"); body != "second" || calls.Load() != 2 {
		t.Errorf("afterwards %q after %d calls", body, calls.Load())
	}
}

// Two processes on one file run a key once.
func TestProxy_runs_once_for_two_processes(t *testing.T) {
	did := &counting{done: make(map[string]int)}
	up := httptest.NewServer(did)
	defer up.Close()
	file := filepath.Join(t.TempDir(), "keys.db")
	urls := []string{start(t, file, up.URL, "").url, start(t, file, up.URL, "").url}
	transport := &http.Transport{MaxIdleConnsPerHost: 50}
	defer transport.CloseIdleConnections()
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			if status, body := settle(t, transport, urls[i%2], fmt.Sprint("k", i/20)); status != 201 {
				t.Errorf("duplicate %d: %d %s", i, status, body)
			}
		})
	}
	wg.Wait()
	for k, n := range did.done {
		if n != 1 {
			t.Errorf("%s ran %d times", k, n)
		}
	}
	if len(did.done) != 5 {
		t.Errorf("%d keys ran, want 5", len(did.done))
	}
}
