package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/demo"
	"github.com/keep-run/keep/store/sqlite"
)

// demoCommand returns keep demo as a process of its own.
func demoCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	bin := buildKeep(t)
	cmd := exec.CommandContext(t.Context(), bin, append([]string{"demo"}, args...)...)
	// What the user has set for other projects must not disturb the demo.
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t), "KEEP_DB=elsewhere.db", "TMPDIR="+t.TempDir())
	return cmd
}

// Every mishap of the demo happens to a real process, and every invoice is paid
// once. Law: once, doubt-is-not-failure.
func TestDemo(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "demo")
	cmd := demoCommand(t, "--json", "--dir", dir)
	var talk bytes.Buffer
	cmd.Stderr = &talk
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("demo: %v\n%s", err, &talk)
	}
	var got demo.Report
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	want := demo.Report{Dir: dir, Agree: true}
	for _, in := range demo.Invoices() {
		line := demo.Line{Invoice: in.ID, Mishap: in.Mishap, Paid: 1, State: keep.Applied, Calls: 1, KnownBy: []string{"the answer"}}
		switch in.Mishap {
		case demo.LostAfter, demo.KilledIn:
			line.KnownBy = []string{"asking: it is there"}
		case demo.LostBefore:
			line.Calls, line.KnownBy = 2, []string{"asking: not there", "the answer"}
		case demo.LostFax:
			line.Calls, line.KnownBy = 2, []string{"a person: didn't happen", "the answer"}
		}
		want.Invoices = append(want.Invoices, line)
	}
	for i := range got.Invoices {
		got.Invoices[i].Mutation = ""
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the comparison differs (-want +got):\n%s", diff)
	}
	for _, line := range []string{
		"INV-05: asked for, not there; no order can be under way any more", "the ledger it leaves says of INV-06: in_flight",
		"Did bank.fax on invoice=INV-10 happen?", "Recorded: did-not-happen.",
	} {
		if !strings.Contains(talk.String(), line) {
			t.Errorf("the demo does not say %q:\n%s", line, &talk)
		}
	}
	takeOver(t, dir)
}

// A demo without a directory of its own to leave removes what it made.
func TestDemoLeavesNothing(t *testing.T) {
	t.Parallel()
	cmd := demoCommand(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("demo: %v", err)
	}
	if n := strings.Count(string(out), " 1x "); n != 10 {
		t.Errorf("the table has %d invoices that were paid once, want 10:\n%s", n, out)
	}
	tmp, ok := "", false
	for _, v := range cmd.Env { // the last counts
		if v, is := strings.CutPrefix(v, "TMPDIR="); is {
			tmp, ok = v, true
		}
	}
	if left, err := filepath.Glob(filepath.Join(tmp, "*")); !ok || err != nil || len(left) > 0 {
		t.Errorf("the demo left %v in %s (%v)", left, tmp, err)
	}
}

// A demo that is killed takes the process with it that it started.
func TestDemoKilled(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "demo")
	cmd := demoCommand(t, "--dir", dir)
	talk, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(talk)
	for lines.Scan() && !strings.Contains(lines.Text(), "INV-05: asked for") {
		// From that line on keep run waits for three seconds.
	}
	if err := tryToHost(t, dir); !errors.Is(err, keep.ErrLocked) {
		t.Errorf("before the kill the database is free (%v), want a host", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, talk)
	_ = cmd.Wait() // it was killed
	takeOver(t, dir)
}

// tryToHost opens the database of a demo as its host, and closes it.
func tryToHost(t *testing.T, dir string) error {
	t.Helper()
	db := sqlite.New(filepath.Join(dir, "keep.db"), sqlite.Config{Host: true})
	if err := db.Open(t.Context()); err != nil {
		return err
	}
	for broken := range db.Check(t.Context()) {
		t.Error(broken)
	}
	return db.Close()
}

// takeOver waits until no other process is the host of a demo's database.
func takeOver(t *testing.T, dir string) {
	t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := tryToHost(t, dir)
		if err == nil {
			return
		}
		if !errors.Is(err, keep.ErrLocked) {
			t.Fatal(err)
		}
		select {
		case <-again.C:
		case <-deadline.C:
			t.Fatalf("a process that the demo started still runs: %v", err)
		}
	}
}
