package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
)

// A listener is a writer that a test can wait on.
type listener struct {
	mu   sync.Mutex // protects said and from
	cond *sync.Cond
	said []byte
	from int // what was waited for is before it
}

func newListener() *listener {
	l := &listener{}
	l.cond = sync.NewCond(&l.mu)
	return l
}

func (l *listener) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, p...)
	l.cond.Broadcast()
	return len(p), nil
}

// wait waits until text is said, after what was waited for before.
func (l *listener) wait(t *testing.T, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	defer context.AfterFunc(ctx, func() { l.mu.Lock(); l.cond.Broadcast(); l.mu.Unlock() })()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if i := bytes.Index(l.said[l.from:], []byte(text)); i >= 0 {
			l.from += i + len(text)
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("keep did not say %q; it said:\n%s", text, l.said)
		}
		l.cond.Wait()
	}
}

// startDev runs keep dev on a new project until the test ends, and checks that it
// ends well.
func startDev(t *testing.T, args ...string) (dir string, said *listener) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", cacheHome(t))
	dir = t.TempDir()
	if status := run(t.Context(), []string{"init", dir}, io.Discard, io.Discard); status != exitDone {
		t.Fatalf("init: status %d", status)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	said = newListener()
	var wg sync.WaitGroup
	var status int
	wg.Go(func() { status = run(ctx, append([]string{"dev", dir}, args...), io.Discard, said) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		if status != exitDone {
			t.Errorf("dev ended with status %d", status)
		}
	})
	return dir, said
}

// edit replaces text in a file of the project.
func edit(t *testing.T, file, old, new string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if old != "" && !strings.Contains(string(data), old) {
		t.Fatalf("%s has no %q", file, old)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(data), old, new, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestDevReloads(t *testing.T) {
	dir, said := startDev(t)
	script := filepath.Join(dir, "journal.js")
	said.wait(t, "[journal] hello.txt applied")

	edit(t, script, "export default", "export defoult")
	said.wait(t, "journal.js:5:8: ")
	said.wait(t, "    5 | export defoult")
	said.wait(t, "^")
	edit(t, script, "export defoult", "export default")
	said.wait(t, "all problems are mended")

	edit(t, script, "arrived`", "came`")
	said.wait(t, "deployed journal 2.0 (journal.js)")

	// A second workflow needs another host; the first goes on in it.
	data, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	second := strings.Replace(string(data), `name: "journal"`, `name: "second"`, 1)
	if err := os.WriteFile(filepath.Join(dir, "second.js"), []byte(second), 0o644); err != nil {
		t.Fatal(err)
	}
	said.wait(t, "running second (")
	said.wait(t, "[second] hello.txt applied")

	// A broken keep.toml changes nothing; a good one is taken.
	config := filepath.Join(dir, "keep.toml")
	edit(t, config, "[connections.inbox]", "[conections.inbox]")
	said.wait(t, "conections: unknown key (did you mean connections?)")
	edit(t, config, "[conections.inbox]", "[connections.inbox]")
	said.wait(t, "all problems are mended")
	edit(t, config, `"journal.jsonl"`, `"other.jsonl"`)
	said.wait(t, "running journal (")
}

func TestDevPolls(t *testing.T) {
	dir, said := startDev(t, "--poll")
	said.wait(t, "[journal] hello.txt applied")
	edit(t, filepath.Join(dir, "journal.js"), "arrived`", "came`")
	said.wait(t, "deployed journal 2.0")
}

// A page shows problems, what the database says and the log, within the size of
// the terminal and without anything hostile.
func TestPage(t *testing.T) {
	var terminal bytes.Buffer
	a := newApp(io.Discard, io.Discard)
	p := newPage(a)
	p.terminal = &terminal
	p.problems([]complaint{{Severity: "error", File: "a.js", Line: 3, Column: 5, Message: "no \x1b[2J\u202e", source: "\tx = \x1b"}})
	p.body = []string{"journal 1.0, on", strings.Repeat("wide", 50)}
	p.commit(keep.Commit{Workflow: "journal", Changes: []keep.Change{keep.AppendLogs{Lines: []keep.LogLine{
		{Level: "warn", Text: "hello\x1b]0;x\a"},
	}}}})
	if _, err := p.Write([]byte("level=WARN first\nlevel=WARN half")); err != nil {
		t.Fatal(err)
	}
	p.draw()
	got := terminal.String()
	for _, want := range []string{"These files are broken", `a.js:3:5: no \u001b[2J\u202e`, `x = \u001b`,
		"journal 1.0, on", `[journal] warn hello\u001b]0;x\u0007`, "level=WARN first"} {
		if !strings.Contains(got, want) {
			t.Errorf("the page has no %q:\n%q", want, got)
		}
	}
	if strings.Contains(got, "half") {
		t.Error("a line is shown before it ends")
	}
	for line := range strings.SplitSeq(got, "\r\n") {
		line = strings.NewReplacer("\x1b[H", "", "\x1b[K", "", "\x1b[J", "", "\x1b[0m", "").Replace(line)
		if columns(line) > 80 {
			t.Errorf("a line of %d columns: %q", columns(line), line)
		}
	}
	for i := range 100 {
		p.say("line %d", i)
	}
	terminal.Reset()
	p.draw()
	if n := strings.Count(terminal.String(), "\r\n"); n >= 24 {
		t.Errorf("the page has %d lines, and the terminal 24", n+1)
	}
}
