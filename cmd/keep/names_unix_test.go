//go:build unix

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A name of a file may be of a stranger, who cloned a repository knows, and a terminal obeys escapes.
func TestNamesOfFilesAreCleaned(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", cacheHome(t))
	dir := t.TempDir()
	const name = "a\x1b]0;mine\x07"
	put(t, dir, name+".js", "")
	var said bytes.Buffer
	run(t.Context(), []string{"check", filepath.Join(dir, "missing.js")}, &said, &said)
	if !strings.Contains(said.String(), `a\u001b]0;mine`) || strings.Contains(said.String(), "\x1b") {
		t.Errorf("keep check says %q", said.String())
	}
	if err := os.Remove(filepath.Join(dir, name+".js")); err != nil {
		t.Fatal(err)
	}
	put(t, dir, name+".test.toml", "[")
	ctx, stop := context.WithCancel(t.Context())
	f := &spoken{}
	f.more = sync.NewCond(&f.mu)
	var running sync.WaitGroup
	running.Go(func() { run(ctx, []string{"test", "--watch", dir}, f, f) })
	f.wait("mine", 1)
	stop()
	running.Wait()
	if strings.Contains(f.text.String(), "\x1b") {
		t.Errorf("keep test --watch says %q", f.text.String())
	}
}
