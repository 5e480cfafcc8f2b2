//go:build unix

package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep/internal/pgtest"
)

// proxyLease is short, so that the tests need not wait long after a death.
const proxyLease = 300 * time.Millisecond

// onBothStores runs a test with a new database of each kind that several
// processes can share.
func onBothStores(t *testing.T, test func(t *testing.T, db string)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, filepath.Join(t.TempDir(), "keys.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, pgtest.URL(t))
	})
}

// A proxyProcess is a keep proxy.
type proxyProcess struct {
	cmd        *exec.Cmd
	url, admin string
	said       chan string // everything on stderr after the start, once it ended
}

// startProxy starts a keep proxy on a database in front of an upstream, with
// further lines for its [proxy] table, and returns when it listens.
func startProxy(t testing.TB, db, upstream, config string) *proxyProcess {
	t.Helper()
	return startProxyIn(t, t.TempDir(), db, upstream, config)
}

// startProxyIn starts a keep proxy whose keep.toml is in dir, and which works elsewhere.
func startProxyIn(t testing.TB, dir, db, upstream, config string) *proxyProcess {
	t.Helper()
	file := filepath.Join(dir, "keep.toml")
	if !strings.Contains(config, "lease = ") {
		config = fmt.Sprintf("lease = '%s'\n", proxyLease) + config
	}
	text := fmt.Sprintf("db = %q\n[proxy]\nupstream = %q\nlisten = '127.0.0.1:0'\nadmin_listen = '127.0.0.1:0'\nhost = 'service'\nadmin_token = 't'\n%s\n",
		db, upstream, config)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &proxyProcess{cmd: exec.Command(buildKeep(t), "proxy", "--config", file), said: make(chan string, 1)}
	p.cmd.Env = append(os.Environ(), "NO_COLOR=1")
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	lines := bufio.NewReader(stderr)
	for p.url == "" || p.admin == "" {
		line, err := lines.ReadString('\n')
		if err != nil {
			rest, _ := io.ReadAll(lines)
			t.Fatalf("the proxy did not start: %s%s", line, rest)
		}
		words := strings.Fields(line)
		switch {
		case strings.Contains(line, " in front of "):
			p.url = "http://" + words[2]
			if strings.Contains(config, "tls_cert") {
				p.url = "https://" + words[2]
			}
		case strings.Contains(line, "admin on "):
			p.admin = words[len(words)-1]
		}
	}
	go func() {
		rest, _ := io.ReadAll(lines)
		p.said <- string(rest)
	}()
	return p
}

// kill ends the process without warning.
func (p *proxyProcess) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (p *proxyProcess) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// newTransport returns how a client talks to a proxy: without a will of its own.
func newTransport(t testing.TB) *http.Transport {
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// try sends one request under a key; status 0 means no answer.
func try(transport *http.Transport, url, k string) (status int, body string) {
	r, err := http.NewRequest("POST", url+"/act", strings.NewReader("body of "+k))
	if err != nil {
		return 0, err.Error()
	}
	r.Header["idempotency-key"] = []string{k} // in lower case Go's transport does not retry by itself
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

// settled retries while the first request is said to be in progress, which may be
// for as long as a lease.
func settled(t testing.TB, transport *http.Transport, url, k string) (status int, body string) {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; {
		status, body = try(transport, url, k)
		// A busy server may take longer than the proxy waits for it: nothing was executed then.
		again := strings.Contains(body, "in-progress") || strings.Contains(body, "store-unavailable")
		if !again || time.Now().After(until) {
			return status, body
		}
		select {
		case <-time.After(proxyLease / 10):
		case <-t.Context().Done():
			return status, body
		}
	}
}

// A counter is an upstream that counts what it did for each key.
type counter struct {
	mu   sync.Mutex // protects done
	done map[string]int
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	k := r.Header.Get("Idempotency-Key")
	c.mu.Lock()
	if c.done == nil {
		c.done = make(map[string]int)
	}
	c.done[k]++
	c.mu.Unlock()
	w.WriteHeader(201)
	fmt.Fprint(w, "did ", k)
}

// peakMemory returns the most resident memory that a process ever had, in bytes.
func peakMemory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var kilobytes int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); n == 1 {
			return kilobytes << 10, nil
		}
	}
	return 0, errors.New("no VmHWM")
}
