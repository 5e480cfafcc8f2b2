package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/internal/browsertest"
	"github.com/keep-run/keep/store/sqlite"
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

// String returns all that was said.
func (l *listener) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.said)
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
	if status := run(t.Context(), []string{"init", dir}, io.Discard, io.Discard); status != exit.Done {
		t.Fatalf("init: status %d", status)
	}
	return dir, devIn(t, dir, args...)
}

// devIn runs keep dev in a directory until the test ends, and checks that it ends well.
func devIn(t *testing.T, dir string, args ...string) *listener {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	said := newListener()
	var wg sync.WaitGroup
	var status int
	wg.Go(func() { status = run(ctx, append([]string{"dev", dir}, args...), io.Discard, said) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		if status != exit.Done {
			t.Errorf("dev ended with status %d", status)
		}
	})
	return said
}

// outputOf returns what a command prints, which must end well.
func outputOf(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if status := run(t.Context(), args, &out, t.Output()); status != exit.Done {
		t.Fatalf("keep %v: status %d", args, status)
	}
	return out.String()
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
	said.wait(t, "journal may call journal.write (sends; level C)")
	said.wait(t, "[journal] hello.txt applied")

	edit(t, script, "export default", "export defoult")
	said.wait(t, "journal.js:5:8: ")
	said.wait(t, "    5 | export defoult")
	said.wait(t, "^")
	edit(t, script, "export defoult", "export default")
	said.wait(t, "all problems are fixed")

	edit(t, script, "arrived`", "came`")
	said.wait(t, "deployed journal 2.0 (journal.js)")

	// A second workflow needs another host; the first continues in it.
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
	said.wait(t, "all problems are fixed")
	edit(t, config, `"journal.jsonl"`, `"other.jsonl"`)
	said.wait(t, "running journal (")

	// One that is gone changes nothing either.
	if err := os.Rename(config, config+".aside"); err != nil {
		t.Fatal(err)
	}
	said.wait(t, "keep.toml is gone")
	if err := os.Rename(config+".aside", config); err != nil {
		t.Fatal(err)
	}
	said.wait(t, "all problems are fixed")
}

// A pack is as much a part of the configuration as keep.toml, which names it.
func TestDevTakesPacks(t *testing.T) {
	dir, said := startDev(t)
	said.wait(t, "[journal] hello.txt applied")
	pack := filepath.Join(dir, "packs", "svc.toml")
	const text = "name = \"svc\"\nversion = \"1\"\ntitle = \"Service\"\nbase_url = \"http://127.0.0.1:1\"\n[auth]\nstyle = \"none\"\n[tools.read]\neffect = \"get\"\npath = \"/v1\"\n"
	if err := errors.Join(os.Mkdir(filepath.Dir(pack), 0o755), os.WriteFile(pack, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	edit(t, filepath.Join(dir, "keep.toml"), "[connections.inbox]", "[connections.svc]\nconnector = \"svc\"\n[connections.inbox]")
	said.wait(t, "running journal (")
	edit(t, pack, `"/v1"`, `"/v2"`)
	said.wait(t, "running journal (")
	edit(t, pack, "effect", "efect")
	said.wait(t, "efect: unknown key")
	edit(t, pack, "efect", "effect")
	said.wait(t, "all problems are fixed")
	edit(t, pack, `"/v2"`, `"/v3"`)
	said.wait(t, "running journal (")
}

// A script that keep check calls broken is not deployed: the version before stays, and
// a first start waits for a change.
func TestDevDeploysNothingBroken(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", cacheHome(t))
	dir, said := startDev(t)
	script := filepath.Join(dir, "journal.js")
	said.wait(t, "[journal] hello.txt applied")
	edit(t, script, "ctx.journal.write", "ctx.nowhere.write")
	said.wait(t, "nowhere")
	edit(t, script, "ctx.nowhere.write({ text: `${name} arrived`", "ctx.journal.write({ text: `${name} came`")
	said.wait(t, "deployed journal 2.0")

	second := t.TempDir()
	if status := run(t.Context(), []string{"init", second}, io.Discard, io.Discard); status != exit.Done {
		t.Fatalf("init: status %d", status)
	}
	edit(t, filepath.Join(second, "journal.js"), "ctx.journal.write", "ctx.nowhere.write")
	said = devIn(t, second)
	said.wait(t, "nowhere")
	edit(t, filepath.Join(second, "journal.js"), "ctx.nowhere.write", "ctx.journal.write")
	said.wait(t, "running journal")
	said.wait(t, "[journal] hello.txt applied")
	if out := outputOf(t, "workflows", "--json", "--db", filepath.Join(second, "keep.db")); !strings.Contains(out, `"version": "1.0"`) {
		t.Errorf("the broken script was deployed: %s", out)
	}
}

func TestDevPolls(t *testing.T) {
	dir, said := startDev(t, "--poll")
	said.wait(t, "[journal] hello.txt applied")
	edit(t, filepath.Join(dir, "journal.js"), "arrived`", "came`")
	said.wait(t, "deployed journal 2.0")
}

// What another process does to the database of keep dev is done, and seen: a request
// that it writes to the file runs a producer, and every change shows on the pages.
func TestDevHearsOthers(t *testing.T) {
	dir, said := startDev(t, "--listen", "127.0.0.1:0")
	said.wait(t, "[journal] hello.txt applied")
	said.mu.Lock()
	link := regexp.MustCompile(`(http://[0-9.:]+)/login\?code=(\S+)`).FindSubmatch(said.said)
	said.mu.Unlock()
	if link == nil {
		t.Fatalf("keep dev printed no link: %s", said.said)
	}
	d := &serving{t: t, base: string(link[1])}
	res, _ := d.ask("POST", "/login", "code="+string(link[2]), "Content-Type", "application/x-www-form-urlencoded")
	cookie, _, _ := strings.Cut(res.Header.Get("Set-Cookie"), ";")
	page := d.stream("/live?kind=workflow&workflow=journal", "Cookie", cookie)
	events := d.stream("/api/v1/events", "Cookie", cookie)

	other := sqlite.New(filepath.Join(dir, "keep.db"), sqlite.Config{})
	if err := other.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	commit := func(change keep.Change) {
		t.Helper()
		c := keep.Commit{Workflow: "journal", At: time.Now().UTC().Truncate(time.Millisecond), Changes: []keep.Change{change}}
		if err := other.Commit(context.WithoutCancel(t.Context()), c); err != nil {
			t.Fatal(err)
		}
		events.until("event: reset")
		page.until("event: keep-changed")
	}
	commit(keep.SetPaused{Paused: true})
	commit(keep.SetPaused{Paused: false})
	if err := os.WriteFile(filepath.Join(dir, "inbox", "second.txt"), []byte("second"), 0o644); err != nil {
		t.Fatal(err)
	}
	commit(keep.RequestRun{Handler: "look"})
	said.wait(t, "[journal] second.txt applied")
}

// On a terminal keep dev opens the browser, and whoever sits there is logged in.
func TestDevOpensTheBrowser(t *testing.T) {
	opened := filepath.Join(t.TempDir(), "opened")
	program := filepath.Join(t.TempDir(), "browser")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nprintf '%s' \"$1\" > "+opened+".part && mv "+opened+".part "+opened+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BROWSER", program)
	_, said := startDev(t, "--browser")
	said.wait(t, "Look at")
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var page []byte
	for end := time.Now().Add(time.Minute); len(page) == 0; <-tick.C {
		page, _ = os.ReadFile(opened)
		if time.Now().After(end) {
			t.Fatal("nothing was opened")
		}
	}
	who := browsertest.Sit(t)
	who.Open(string(page))
	who.Shows("Over time")
	if got := who.Script("location.pathname"); got != "/" {
		t.Errorf("the browser is at %s, want the home page", got)
	}
	again := browsertest.Sit(t) // the link worked once
	again.Open(string(page))
	again.Shows("keep login")
}
