package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
)

var crashKills = flag.Int("crash-kills", 15, "how often TestCrash kills the command")

const (
	crashEvents = 100
	crashSeed   = 20261120
)

// TestCrash kills the real command with SIGKILL again and again, at random points
// of its calls, and lets it finish. Law: once, all-or-nothing, nothing-lost. Half
// of the calls go to a tool that can be asked (level C), half to one that honours
// a key (level A).
func TestCrash(t *testing.T) {
	t.Parallel()
	kills := *crashKills
	if testing.Short() {
		kills = 8
	}
	w := newCrashWorld(t)
	done := 0
	for killed := 0; killed < kills; {
		if w.runUntilKilled() {
			killed++
		} else if done++; done > kills {
			t.Fatalf("killed %d times only: there was nothing left to do", killed)
		}
		w.doctor()
	}
	if out, err := w.keep("run", "."); err != nil {
		t.Fatalf("run to the end: %v\n%s", err, out)
	}
	w.doctor()
	w.checkOnce()
}

// A crashWorld is a project, the service that it calls and the command.
type crashWorld struct {
	*testing.T
	bin, dir string
	crm      *service
	rng      *rand.Rand
	env      []string

	mu      sync.Mutex // protects the fields below
	process *os.Process
	kill    func() error // nil: kills the process
	target  string       // point at which to kill
	left    int          // how often it is passed before
	killed  bool
}

func newCrashWorld(t *testing.T) *crashWorld {
	w := &crashWorld{
		T: t, dir: t.TempDir(), crm: startService(), rng: rand.New(rand.NewPCG(crashSeed, 1)),
		bin: buildKeep(t),
	}
	t.Cleanup(w.crm.Close)
	w.crm.fill(crashEvents)
	w.crm.tell(w.reach)
	if err := os.CopyFS(w.dir, os.DirFS("testdata/crash")); err != nil {
		t.Fatal(err)
	}
	w.env = append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t), "CRM_URL="+w.crm.URL)
	return w
}

// command returns the command in the project's directory.
func (w *crashWorld) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.Context(), w.bin, args...)
	cmd.Dir, cmd.Env = w.dir, w.env
	return cmd
}

func (w *crashWorld) keep(args ...string) ([]byte, error) { return w.command(args...).CombinedOutput() }

// reach kills the command if the point is the one that was chosen. What the
// service does after that, it does for a caller who is gone.
func (w *crashWorld) reach(point string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process == nil || w.killed || point != w.target {
		return
	}
	if w.left--; w.left >= 0 {
		return
	}
	w.killed = true
	kill := w.kill
	if kill == nil {
		kill = w.process.Kill
	}
	if err := kill(); err != nil {
		w.Errorf("kill: %v", err)
	}
}

// runUntilKilled runs the command until it is killed at a random point, or until
// it is done. It reports whether it was killed.
func (w *crashWorld) runUntilKilled() bool {
	points := []string{"arrived", "arrived", "done", "done", "answered", "answered", "lookup", "feed"}
	var out bytes.Buffer
	cmd := w.command("run", ".")
	cmd.Stdout, cmd.Stderr = &out, &out
	w.mu.Lock()
	w.target, w.left, w.killed = points[w.rng.IntN(len(points))], w.rng.IntN(3), false
	if w.target == "feed" || w.target == "lookup" {
		w.left = 0 // these are rare
	}
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.process = cmd.Process
	w.mu.Unlock()
	err := cmd.Wait()
	for _, refused := range []error{keep.ErrMutationExists, keep.ErrRunOpen} {
		if strings.Contains(out.String(), refused.Error()) {
			w.Errorf("a unique index prevented a duplicate; the law must decide before:\n%s", out.Bytes())
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.process = nil
	if err != nil && (!w.killed || w.kill != nil) {
		w.Fatalf("run: %v\n%s", err, out.Bytes())
	}
	if err == nil {
		w.crm.more(10) // it did all there was before the point came
	}
	return w.killed
}

// doctor checks every record of the database.
func (w *crashWorld) doctor() {
	w.Helper()
	if out, err := w.keep("doctor"); err != nil {
		w.Fatalf("doctor after a kill at %q: %v\n%s", w.target, err, out)
	}
}

// checkOnce checks that every event ended and every effect happened once.
func (w *crashWorld) checkOnce() {
	w.Helper()
	data, err := w.command("events", "--all", "--json").Output()
	if err != nil {
		w.Fatal(err)
	}
	var events []api.Event
	if err := json.Unmarshal(data, &events); err != nil {
		w.Fatal(err)
	}
	found, made := 0, 0
	for _, e := range events {
		if e.Topic == "made" {
			made++
			continue
		}
		found++
		if e.Status != keep.EventConsumed {
			w.Errorf("event %s is %s, want consumed", e.MessageID, e.Status)
		}
		if n := w.crm.effects(string(e.MessageID)); n != 1 {
			w.Errorf("%s was created %d times, want once", e.MessageID, n)
		}
	}
	if found < crashEvents || made != found {
		w.Errorf("%d events and %d results of them, want at least %d and as many", found, made, crashEvents)
	}
}
