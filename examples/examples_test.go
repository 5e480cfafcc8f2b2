// Package examples_test runs every example from end to end with the command that
// a newcomer would run, in a copy of its directory.
package examples_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	keeps "github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/mailtest"
)

// bin is the directory of the programs under test.
var bin string

func TestMain(m *testing.M) {
	os.Setenv("KEEP_CEILING", os.TempDir()) // a keep.toml above belongs to somebody else
	os.Exit(run(m))
}

// run builds the programs, runs the tests and removes the programs.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp(os.Getenv("KEEP_TEST_BIN"), "keep-examples-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	bin = dir
	for name, pkg := range map[string]string{"keep": "../cmd/keep", "server": "./rest/server", "try": "./try", "go": "./go"} {
		out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", program(name), pkg).CombinedOutput()
		if err != nil {
			panic("build " + pkg + ": " + string(out))
		}
	}
	return mailtest.Main(m)
}

// program returns the file of a program under test.
func program(name string) string {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(bin, name)
}

// copyOf returns a copy of an example, which the test may change.
func copyOf(t testing.TB, example string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), example)
	if err := os.CopyFS(dir, os.DirFS(example)); err != nil {
		t.Fatal(err)
	}
	// What somebody's own run left beside the example is no part of it.
	left, err := filepath.Glob(filepath.Join(dir, "keep.db*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// patience ends a program that hangs. No test waits for it.
const patience = 3 * time.Minute

// command returns a command of keep that runs in dir, with a clean environment
// and these variables.
func command(t testing.TB, dir string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program("keep"), args...)
	cmd.Dir = dir
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "KEEP_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// keep runs a command of keep, and fails the test unless it ends with the status.
func keep(t testing.TB, dir string, env []string, status int, args ...string) string {
	t.Helper()
	cmd := command(t, dir, env, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	got := cmd.ProcessState.ExitCode()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatalf("keep %s: %v, %v", strings.Join(args, " "), err, exit)
	}
	checkBackstop(t, stderr.String())
	if got != status {
		t.Fatalf("keep %s = status %d, want %d\nstdout: %s\nstderr: %s", strings.Join(args, " "), got, status, &stdout, &stderr)
	}
	return stdout.String()
}

// checkBackstop fails the test if what a host said tells that a unique index of
// the store, and not the law, prevented a duplicate.
func checkBackstop(t testing.TB, said string) {
	t.Helper()
	for _, err := range []error{keeps.ErrMutationExists, keeps.ErrRunOpen} {
		if strings.Contains(said, err.Error()) {
			t.Errorf("a unique index prevented a duplicate; the law must decide before:\n%s", said)
		}
	}
}

// A summary is what keep run --json prints.
type summary struct {
	Idle      bool
	Workflows []struct {
		Name                    string
		Runs, Committed, Failed int
	}
	Escalations []struct{ Question string }
}

// runOnce runs an example until it is idle, and returns what it did.
func runOnce(t testing.TB, dir string, env ...string) summary {
	t.Helper()
	var s summary
	out := keep(t, dir, env, 0, "run", ".", "--json", "--timeout", "2m")
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("keep run --json printed %s: %v", out, err)
	}
	if !s.Idle || len(s.Workflows) != 1 {
		t.Fatalf("keep run --json = %s, want one idle workflow", out)
	}
	return s
}

// A process is a keep run that the test may kill.
type process struct {
	cmd   *exec.Cmd
	out   bytes.Buffer // what it printed; complete when ended is closed
	ended chan struct{}
}

// start begins keep run in the background. It ends with the test.
func start(t testing.TB, dir string, env ...string) *process {
	t.Helper()
	p := &process{cmd: command(t, dir, env, "run", "."), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // how it ended is seen in what it did
	}()
	t.Cleanup(func() {
		p.kill()
		checkBackstop(t, p.out.String())
	})
	return p
}

// over reports whether the process has ended.
func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// kill ends the process as kill -9 does, and returns when it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// A server is a running examples/rest/server.
type server struct {
	url   string
	lines chan string // what it prints after its address
}

// serve starts the server. It ends with the test.
func serve(t testing.TB, args ...string) *server {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program("server"), append([]string{"-addr", "127.0.0.1:0"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &server{lines: make(chan string, 1000)}
	read := bufio.NewScanner(out)
	if read.Scan() {
		s.url = strings.TrimPrefix(read.Text(), "listening on ")
	}
	if !strings.HasPrefix(s.url, "http://127.0.0.1:") {
		t.Fatalf("the server printed %q, want its address", read.Text())
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(s.lines)
		for read.Scan() {
			s.lines <- read.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-done
		_ = cmd.Wait()
	})
	return s
}

// env returns the variable that leads a connection to the server.
func (s *server) env(connection string) string {
	return "KEEP_CONNECTIONS_" + strings.ToUpper(connection) + "_BASE_URL=" + s.url
}

// waitFor returns when the server prints a line with that text.
func (s *server) waitFor(t testing.TB, text string) {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				t.Fatalf("the server ended before it printed %q", text)
			}
			if strings.Contains(line, text) {
				return
			}
		case <-limit:
			t.Fatalf("the server did not print %q", text)
		}
	}
}

// get reads a JSON list of the server.
func (s *server) get(t testing.TB, path string, into any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("GET %s = %s: %v", path, raw, err)
	}
}
