package sandbox

import (
	"context"
	"testing"
)

// Runtimes that are open at the same time share the compiled engine if their instances may have as much memory,
// and it is freed with the last of them.
func TestEngineIsShared(t *testing.T) {
	open := func(dir string, memory int) *Runtime {
		t.Helper()
		rt, err := Open(context.Background(), Config{CacheDir: dir, Limits: Limits{Memory: memory}})
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		t.Cleanup(func() { rt.Close() })
		return rt
	}
	closed := func(rt *Runtime) {
		t.Helper()
		if err := rt.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	dir := t.TempDir()
	a, b, small := open(dir, 0), open(dir, 0), open(dir, 16<<20)
	if a.engine != b.engine {
		t.Error("two runtimes with the same limits have an engine each")
	}
	if a.engine == small.engine {
		t.Error("a runtime with less memory has the engine of one with more")
	}
	first := a.engine
	closed(a)
	if err := b.boot(context.Background()); err != nil {
		t.Errorf("after the other runtime closed: %v", err)
	}
	closed(b)
	if first.wasm != nil {
		t.Error("the engine outlives its last runtime")
	}
	if c := open(dir, 0); c.engine == first {
		t.Error("a freed engine is used again")
	}
}

// An Open that is given up leaves nothing that the next one would find.
func TestEngineAfterACancelledOpen(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Open(ctx, Config{Limits: Limits{Memory: 24 << 20}}); err == nil {
		t.Fatal("Open with a cancelled context succeeded")
	}
	engines.mu.Lock()
	defer engines.mu.Unlock()
	for key := range engines.open {
		if key.memory == 24<<20 {
			t.Error("a failed Open leaves its engine")
		}
	}
}
