package main

import (
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
)

// A spoken is a writer whose lines a test waits for.
type spoken struct {
	mu   sync.Mutex
	text strings.Builder
	more *sync.Cond
}

func (f *spoken) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.more.Broadcast()
	return f.text.Write(b)
}

// wait returns when the spoken has a text n times.
func (f *spoken) wait(text string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for strings.Count(f.text.String(), text) < n {
		f.more.Wait()
	}
}

// keep test --watch runs tests in JavaScript again when they change, and when their script does.
func TestWatchedTests(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const script = `export default Keep.workflow({ name: "w", topics: { t: {} }, producers: { async poll(ctx) { await ctx.publish("t", { messageId: "a" }); } } });`
	const tests = `export default [{ name: "a", expect: { publishes: [{ messageId: "a" }] } }];`
	write("w.js", script)
	write("w.test.js", tests)
	ctx, stop := context.WithCancel(t.Context())
	f := &spoken{}
	f.more = sync.NewCond(&f.mu)
	var running sync.WaitGroup
	running.Go(func() {
		if code := run(ctx, []string{"test", "--watch"}, f, io.Discard); code != 0 {
			t.Errorf("exit %d", code)
		}
	})
	f.wait("1 passed, 0 failed", 1)
	write("w.js", strings.Replace(script, `"a" }`, `"b" }`, 1))
	f.wait("0 passed, 1 failed", 1)
	write("w.test.js", strings.Replace(tests, `messageId: "a"`, `messageId: "b"`, 1))
	f.wait("1 passed, 0 failed", 2)
	stop()
	running.Wait()
}
