package chaos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/internal/sandboxtest"
)

var (
	bin   string // the command under test
	cache string // a user's cache directory, with the compiled sandbox in it
)

func TestMain(m *testing.M) {
	os.Setenv("KEEP_CEILING", os.TempDir()) // a keep.toml above belongs to somebody else
	os.Exit(run(m))
}

// run builds the command, runs the tests and removes the command.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp(os.Getenv("KEEP_TEST_BIN"), "keep-chaos-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	bin, cache = filepath.Join(dir, "keep"), filepath.Join(dir, "cache")
	if runtime.GOOS == "windows" {
		bin += ".exe"
	}
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", bin, "../../cmd/keep").CombinedOutput(); err != nil {
		panic("go build: " + string(out))
	}
	if err := sandboxtest.Fill(filepath.Join(cache, "keep")); err != nil {
		panic(err)
	}
	return m.Run()
}

// patience ends a process that hangs. No test waits for it.
const patience = 4 * time.Minute

// A project is a directory with a workflow, its database, and the service that
// the workflow calls.
type project struct {
	*testing.T
	dir, db string
	service *service
	env     []string
}

// newProject returns a project that is to make these contacts. The first letter
// of an id is the level of the tool that makes it.
func newProject(t *testing.T, ids ...string) *project {
	t.Helper()
	p := &project{T: t, dir: t.TempDir(), service: startService(ids...)}
	t.Cleanup(p.service.Close)
	p.db = filepath.Join(p.dir, "keep.db")
	if err := os.CopyFS(p.dir, os.DirFS("testdata/project")); err != nil {
		t.Fatal(err)
	}
	url := p.service.URL
	p.env = []string{"XDG_CACHE_HOME=" + cache, "FEED_URL=" + url, "A_URL=" + url, "C_URL=" + url, "D_URL=" + url}
	return p
}

// set sets variables of the environment of later processes.
func (p *project) set(env ...string) { p.env = append(p.env, env...) }

// command returns a command of keep in the project.
func (p *project) command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.Context()), patience)
	p.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, bin, append(args, "--db", p.db)...)
	cmd.Dir = p.dir
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "KEEP_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, p.env...)
	return cmd
}

// keep runs a command of keep that must succeed, and returns what it printed.
func (p *project) keep(args ...string) string {
	p.Helper()
	var stderr bytes.Buffer
	cmd := p.command(args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		p.Fatalf("keep %s: %v\n%s%s", strings.Join(args, " "), err, out, &stderr)
	}
	return string(out)
}

// list reads what a command of keep prints with --json.
func list[T any](p *project, args ...string) (all []T) {
	p.Helper()
	out := p.keep(append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		p.Fatalf("keep %s --json printed %s: %v", strings.Join(args, " "), out, err)
	}
	return all
}

// A host is a running keep run.
type host struct {
	p     *project
	cmd   *exec.Cmd
	ended chan struct{}

	mu  sync.Mutex // protects out while the process runs
	out bytes.Buffer
	see []watched
}

// watched is a text that somebody waits for.
type watched struct {
	text string
	seen chan struct{}
}

// start begins keep run. It ends with the test.
func (p *project) start(args ...string) *host {
	p.Helper()
	return p.startCommand(p.command(append([]string{"run", "."}, args...)...))
}

func (p *project) startCommand(cmd *exec.Cmd) *host {
	p.Helper()
	h := &host{p: p, ended: make(chan struct{}), cmd: cmd}
	h.cmd.Stdout, h.cmd.Stderr = h, h
	if err := h.cmd.Start(); err != nil {
		p.Fatal(err)
	}
	go func() {
		defer close(h.ended)
		_ = h.cmd.Wait() // how it ended is asked for by status
	}()
	p.Cleanup(func() {
		_ = h.cmd.Process.Kill() // it may have ended
		<-h.ended
		h.checkBackstop()
	})
	return h
}

// Write takes what the process prints.
func (h *host) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.out.Write(b)
	left := h.see[:0]
	for _, w := range h.see {
		if strings.Contains(h.out.String(), w.text) {
			close(w.seen)
		} else {
			left = append(left, w)
		}
	}
	h.see = left
	return len(b), nil
}

// printed returns what the process printed so far.
func (h *host) printed() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.out.String()
}

// waitFor returns when the process has printed text.
func (h *host) waitFor(text string) {
	h.p.Helper()
	w := watched{text, make(chan struct{})}
	h.mu.Lock()
	if strings.Contains(h.out.String(), text) {
		close(w.seen)
	} else {
		h.see = append(h.see, w)
	}
	h.mu.Unlock()
	select {
	case <-w.seen:
	case <-h.ended:
		if !strings.Contains(h.printed(), text) {
			h.p.Fatalf("the host ended (%v) before it printed %q:\n%s", h.cmd.ProcessState, text, h.printed())
		}
	}
}

// wait waits for the end of the process, which must have one of these statuses.
func (h *host) wait(statuses ...int) {
	h.p.Helper()
	<-h.ended
	got := h.cmd.ProcessState.ExitCode()
	for _, want := range statuses {
		if got == want {
			return
		}
	}
	h.p.Fatalf("keep run ended with %v, want one of %v\n%s", h.cmd.ProcessState, statuses, h.printed())
}

// checkBackstop fails the test if a unique index of the store, and not the law,
// prevented a duplicate: the engine reports such a commit as a failed step.
func (h *host) checkBackstop() {
	h.p.Helper()
	for _, err := range []error{keep.ErrMutationExists, keep.ErrRunOpen} {
		if strings.Contains(h.printed(), err.Error()) {
			h.p.Errorf("a unique index prevented a duplicate; the law must decide before:\n%s", h.printed())
		}
	}
}

// finish runs the project until nothing is left to do and to decide. A person who
// looks at the service answers each question.
func (p *project) finish() {
	p.Helper()
	for range 50 {
		h := p.start("--timeout", "2m")
		h.wait(exitDone, exitNeedsPerson)
		if h.cmd.ProcessState.ExitCode() == exitDone {
			p.check()
			return
		}
		p.decide()
	}
	p.Fatalf("there are questions after 50 rounds of answers")
}

// Exit statuses of keep run; see keep help exit-codes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitNeedsPerson = 4
)

// decide answers every open question as somebody does who looked at the service.
// Only a tool that can't be asked leaves one.
func (p *project) decide() {
	p.Helper()
	for _, q := range list[api.Escalation](p, "inbox") {
		if q.Kind == keep.AskBreaker { // so many outcomes of that tool are unknown
			p.keep("inbox", "do", string(q.ID), string(keep.Retry), "--yes")
			continue
		}
		if q.Kind != keep.AskUnknownOutcome || q.Mutation == nil {
			p.Fatalf("a question of kind %s: %s", q.Kind, q.Why)
		}
		m := p.mutation(string(*q.Mutation))
		if m.Level != keep.LevelNone {
			p.Errorf("a person is asked about %s of level %s: %s", m.Tool, m.Level, q.Why)
		}
		action := keep.DidNotHappen
		if p.service.effectsOf(idOf(p, m)) > 0 {
			action = keep.Skip
		}
		p.keep("inbox", "do", string(q.ID), string(action), "--yes", "--note", "looked at the service")
	}
}

// mutation returns a record by its key.
func (p *project) mutation(key string) (m api.Mutation) {
	p.Helper()
	out := p.keep("mutations", "show", key, "--json")
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		p.Fatalf("keep mutations show --json printed %s: %v", out, err)
	}
	return m
}

// idOf returns which contact a record is about.
func idOf(p *project, m api.Mutation) string {
	p.Helper()
	var c contact
	if err := json.Unmarshal(m.Payload, &c); err != nil {
		p.Fatalf("payload %s: %v", m.Payload, err)
	}
	return c.ID
}

// doctor fails the test if the database breaks a law.
func (p *project) doctor() {
	p.Helper()
	p.keep("doctor")
}

// check compares the truth with the ledger when everything is done.
func (p *project) check() {
	p.Helper()
	p.doctor()
	p.service.mu.Lock()
	feed := append([]contact(nil), p.service.feed...)
	p.service.mu.Unlock()
	for _, c := range feed {
		if n := p.service.effectsOf(c.ID); n != 1 {
			p.Errorf("%s was made %d times, want once", c.ID, n)
		}
	}
	ended := map[string]bool{}
	for _, e := range list[api.Event](p, "events", "--topic", "found", "--all") {
		ended[string(e.MessageID)] = e.Status != keep.EventPending
	}
	for _, c := range feed {
		if !ended[c.ID] {
			p.Errorf("the event %s is lost or not done", c.ID)
		}
	}
	for _, m := range list[api.Mutation](p, "mutations", "--all") {
		if err := agrees(m, p.service.effectsOf(idOf(p, m))); err != nil {
			p.Errorf("%s: %v", idOf(p, m), err)
		}
	}
}

// agrees reports how a record that is done contradicts the number of effects.
func agrees(m api.Mutation, effects int) error {
	switch {
	case m.State == keep.Applied && effects == 1:
		return nil
	case m.State == keep.Skipped && m.Level == keep.LevelNone: // a person continued without knowing
		return nil
	}
	return fmt.Errorf("the ledger says %s, and the service made it %d times", m.State, effects)
}

// must ends the test if there is an error.
func (p *project) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// until waits for a time, or for the end of the test.
func (p *project) until(at time.Time) {
	p.Helper()
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.Context().Done():
		p.must(errors.New("the test is over"))
	}
}
