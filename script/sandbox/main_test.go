package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep/internal/ceiling"
	"github.com/keep-run/keep/script/sandbox"
)

// cacheDir keeps the compiled engine for the length of a test run.
var cacheDir string

func TestMain(m *testing.M) {
	sandbox.BundlerMain()
	if ceiling.Race { // a process of its own would have the whole race detector to start, for each script
		sandbox.BundleHere()
	}
	dir, err := os.MkdirTemp("", "keep-sandbox-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cacheDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// epoch is where the clock stands in calls that do not care.
var epoch = time.Date(2026, 11, 20, 10, 30, 0, 123e6, time.UTC)

// hostFunc is a host that is one function.
type hostFunc func(ctx context.Context, c sandbox.HostCall) (json.RawMessage, error)

func (f hostFunc) Call(ctx context.Context, c sandbox.HostCall) (json.RawMessage, error) {
	return f(ctx, c)
}

// recorder answers every call with null and remembers it, as one line of text.
type recorder struct {
	mu    sync.Mutex
	calls []string
}

func (r *recorder) Call(_ context.Context, c sandbox.HostCall) (json.RawMessage, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := c.Name
	for _, a := range c.Args {
		line += " " + string(a)
	}
	if c.Scope != 0 {
		line += fmt.Sprintf(" @%d", c.Scope)
	}
	r.calls = append(r.calls, line)
	return json.RawMessage("null"), nil
}

func openRuntime(tb testing.TB, cfg sandbox.Config) *sandbox.Runtime {
	tb.Helper()
	cfg.CacheDir = cacheDir
	rt, err := sandbox.Open(context.Background(), cfg)
	if err != nil {
		tb.Fatalf("Open: %v", err)
	}
	tb.Cleanup(func() {
		if err := rt.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return rt
}

// mustBuild bundles a script in this process: another one takes long to start under the
// race detector, and is what the tests of the bundler are about.
func mustBuild(tb testing.TB, name, source string) *sandbox.Bundle {
	tb.Helper()
	b, err := sandbox.BundleSource(name, []byte(source))
	if err != nil {
		tb.Fatalf("BuildSource(%s): %v", name, err)
	}
	return b
}

// mustLoad loads a script. A runtime with a very short limit may stop even that
// on a busy machine, so it tries a few times.
func mustLoad(tb testing.TB, rt *sandbox.Runtime, name, source string) *sandbox.Program {
	tb.Helper()
	b := mustBuild(tb, name, source)
	var p *sandbox.Program
	var err error
	for range 10 {
		p, err = rt.Load(context.Background(), b)
		if l, ok := errors.AsType[*sandbox.LimitError](err); !ok || l.Limit != "cpu" && l.Limit != "wall" {
			break
		}
	}
	if err != nil {
		tb.Fatalf("Load(%s): %v", name, err)
	}
	return p
}

// handler is a workflow whose only handler has this body, with ctx and x.
func handler(body string) string {
	return "export default Keep.workflow({ name: 't', async f(ctx, x) {\n" + body + "\n} });\n"
}

// call runs f of a workflow that handler made.
func call(p *sandbox.Program, host sandbox.Host, args ...string) (string, error) {
	c := sandbox.Call{Path: []string{"f"}, Now: epoch, Host: host}
	for _, a := range args {
		c.Args = append(c.Args, json.RawMessage(a))
	}
	r, err := p.Call(context.Background(), c)
	return string(r), err
}

// eval runs the body of a handler in a fresh program and returns its result.
func eval(tb testing.TB, rt *sandbox.Runtime, body string) string {
	tb.Helper()
	p := mustLoad(tb, rt, "t.js", handler(body))
	r, err := call(p, nil)
	if err != nil {
		tb.Fatalf("call of %q: %v", body, err)
	}
	return r
}

// wantLimit fails unless err is the limit of that name.
func wantLimit(tb testing.TB, err error, name string) *sandbox.LimitError {
	tb.Helper()
	l, ok := errors.AsType[*sandbox.LimitError](err)
	if !ok || l.Limit != name {
		tb.Fatalf("error %v (%T), want a LimitError of %s", err, err, name)
	}
	return l
}

// wantScript fails unless err is a ScriptError.
func wantScript(tb testing.TB, err error) *sandbox.ScriptError {
	tb.Helper()
	s, ok := errors.AsType[*sandbox.ScriptError](err)
	if !ok {
		tb.Fatalf("error %v (%T), want a ScriptError", err, err)
	}
	return s
}
