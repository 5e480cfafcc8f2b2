package examples_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/store/memory"
)

// Each client acts once, through a backend that is busy, then acts and is cut off: it
// asks what became of its request, and gets the answer.
func TestClients(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := filepath.Join(dir, "client.mjs") // nodes before 22 do not read TypeScript
	built := api.Build(api.BuildOptions{EntryPoints: []string{"clients/client.ts"}, Outfile: script, Write: true,
		Platform: api.PlatformNode, Format: api.FormatESModule})
	if len(built.Errors) > 0 {
		t.Fatalf("client.ts: %v", built.Errors)
	}
	program := filepath.Join(dir, "client")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "./clients").CombinedOutput(); err != nil {
		t.Fatalf("client.go: %v\n%s", err, out)
	}
	for name, command := range map[string][]string{
		"go": {program}, "typescript": {"node", script}, "python": {"python3", "clients/client.py"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(command[0]); err != nil {
				t.Skip(command[0] + " is not installed")
			}
			clientActsOnce(t, command, "authorization")
			clientActsOnce(t, command, "none") // what it asks about has a state, and no answer
			clientAsksAgain(t, command, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"act")
			clientAsksAgain(t, command, "HT")
			clientIsAnsweredOddly(t, command)
			clientIsRefused(t, command, "", "429 busy")
			clientIsRefused(t, command, "lost", "the outcome is unknown")
		})
	}
}

func clientActsOnce(t *testing.T, command []string, caller string) {
	t.Helper()
	var requests, acts, probes atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == "GET": // the probe: the effect shows after a while
			if probes.Add(1) < 2 || acts.Load() == 0 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `{"acted":%d}`, acts.Load())
		case requests.Add(1) == 1:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			acts.Add(1)
			panic(http.ErrAbortHandler)
		}
	}))
	defer up.Close()
	p, err := proxy.New(new(memory.Keys), proxy.Config{Upstream: up.URL, Logger: slog.New(slog.DiscardHandler),
		Routes: []proxy.Route{{Caller: caller, Probe: up.URL + "/probe/{key}?by={caller}"}}})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(p.Handler())
	defer front.Close()
	cmd := exec.CommandContext(t.Context(), command[0], append(command[1:], front.URL+"/orders", "order-7", `{"order":7}`)...)
	cmd.Env = append(os.Environ(), "API_TOKEN=secret")
	out, err := cmd.CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != `201 {"acted":1}` {
		t.Errorf("caller %q: the client says %q, %v", caller, got, err)
	}
	if n := acts.Load(); n != 1 {
		t.Errorf("it acted %d times, want once", n)
	}
}

// clientAsksAgain runs a client whose first answer is cut off after some text of it.
func clientAsksAgain(t *testing.T, command []string, cut string) {
	t.Helper()
	var requests atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) > 1 {
			fmt.Fprint(w, `{"acted":1}`)
			return
		}
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(c, cut)
		c.Close()
	}))
	defer up.Close()
	out, err := exec.CommandContext(t.Context(), command[0], append(command[1:], up.URL, "order-7", "{}")...).CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != `200 {"acted":1}` {
		t.Errorf("the first answer is cut off after %q: the client says %q, %v", cut, got, err)
	}
}

// clientIsAnsweredOddly runs a client through answers of gateways that are no text, no object or no time to wait: it asks until it knows, and sends again what
// was not done.
func clientIsAnsweredOddly(t *testing.T, command []string) {
	t.Helper()
	const unknown = `{"type": "https://keep-run.github.io/keep/problems/outcome-unknown", "instance": "/instance"}`
	posts := []struct {
		status      int
		after, body string
	}{
		{502, "0", "Vor\xfcbergehend nicht verf\xfcgbar"}, {503, "-1", ""}, {503, "nan", "null"}, {504, "0", strings.Repeat("[", 200_000)}, {409, "0", unknown}, {409, "0", unknown},
	}
	gets := []string{`[]`, "\xff", `{"state": "released", "answer": null}`, `{"state": "done"}`}
	var asked, looked int
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == "GET" && looked < len(gets):
			looked++
			fmt.Fprint(w, gets[looked-1])
		case asked < len(posts):
			asked++
			w.Header().Set("Retry-After", posts[asked-1].after)
			w.WriteHeader(posts[asked-1].status)
			fmt.Fprint(w, posts[asked-1].body)
		default:
			fmt.Fprint(w, "gr\xfcn")
		}
	}))
	defer up.Close()
	out, err := exec.CommandContext(t.Context(), command[0], append(command[1:], up.URL, "order-7", "{}")...).CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || !strings.HasPrefix(got, "200 gr") || asked != len(posts) || looked != len(gets) {
		t.Errorf("after %d odd answers, and %d about its instance, the client says %q, %v", asked, looked, got, err)
	}
}

// clientIsRefused runs a client each of whose tries is refused, but perhaps the third, whose answer is lost: only then it may have been
// executed.
func clientIsRefused(t *testing.T, command []string, third, want string) {
	t.Helper()
	var requests atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 3 && third == "lost" {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, "busy")
	}))
	defer up.Close()
	up.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	out, err := exec.CommandContext(t.Context(), command[0], append(command[1:], up.URL, "order-7", "{}")...).CombinedOutput()
	if got := strings.TrimSpace(string(out)); !strings.Contains(got, want) || (err == nil) != (third == "") {
		t.Errorf("each try was refused, %q: the client says %q, %v; want %q", third, got, err, want)
	}
}
