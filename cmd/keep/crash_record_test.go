package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keep-run/keep/api"
)

// TestCrashRecord makes tests of runs that a SIGKILL interrupted, at each point of a call, and that
// the next process recovered; and then of the runs of their events that are done again. Each
// passes as it was recorded; those of the first point fail when the script makes another call, or
// none, which doesn't depend on how far the first process came.
func TestCrashRecord(t *testing.T) {
	t.Parallel()
	w := newCrashWorld(t)
	w.crm.fill(0)
	script, err := os.ReadFile(filepath.Join(w.dir, "contacts.js"))
	if err != nil {
		t.Fatal(err)
	}
	for i, point := range []string{"arrived", "done", "answered"} {
		for range 2 { // one for each level: calls of odd ids can be asked for, of even ones repeated
			w.crm.more(1)
			died := w.killAt(point)
			if out, err := w.keep("run", "."); err != nil {
				t.Fatalf("recover: %v\n%s", err, out)
			}
			if out, err := w.keep("test", "--record", string(died.ID)); err == nil || !strings.Contains(string(out), "the host died in it") {
				t.Errorf("record of the run that died: %v\n%s", err, out)
			}
			// What it saw went with the commit before its call, although prepare had read nothing.
			if out, err := w.keep("runs", "replay", string(died.ID)); err != nil || !strings.Contains(string(out), "equal: gone through prepare, mutate of a run") {
				t.Errorf("replay of the run that died: %v\n%s", err, out)
			}
			run := w.listRuns("--handler", "create", "--limit", "1")[0]
			if run.RetryOf == nil || *run.RetryOf != died.ID {
				t.Fatalf("%s continued %v, want %s", run.ID, run.RetryOf, died.ID)
			}
			w.recorded(run, string(script), i == 0)
		}
		id := fmt.Sprintf("c%d", 2*i+1)
		if out, err := w.keep("events", "redo", "contacts", "found", id, "--yes"); err != nil {
			t.Fatalf("redo: %v\n%s", err, out)
		}
		if out, err := w.keep("run", "."); err != nil {
			t.Fatalf("run: %v\n%s", err, out)
		}
		redone := w.listRuns("--handler", "create", "--limit", "1")[0]
		if a := redone.Reservations[0].Attempts; len(a) != 1 || a[0] != 2 {
			t.Fatalf("the run of %s is of the attempts %v", id, a)
		}
		w.recorded(redone, string(script), i == 0)
	}
}

// killAt kills the command at a point of its next call and returns the run that it was in.
func (w *crashWorld) killAt(point string) api.Run {
	w.Helper()
	w.mu.Lock()
	w.target, w.left, w.killed = point, 0, false
	cmd := w.command("run", ".")
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.process = cmd.Process
	w.mu.Unlock()
	_ = cmd.Wait() // it is killed
	w.mu.Lock()
	killed := w.killed
	w.process = nil
	w.mu.Unlock()
	open := w.listRuns("--open")
	if !killed || len(open) != 1 {
		w.Fatalf("killed %t at %s, and %d runs are open", killed, point, len(open))
	}
	return open[0]
}

func (w *crashWorld) listRuns(flags ...string) []api.Run {
	w.Helper()
	data, err := w.command(append([]string{"runs", "list", "--json"}, flags...)...).Output()
	if err != nil {
		w.Fatal(err)
	}
	var runs []api.Run
	if err := json.Unmarshal(data, &runs); err != nil {
		w.Fatalf("%v: %s", err, data)
	}
	return runs
}

// recorded makes a test of a run, and tries it with its script and, if wanted, with others.
func (w *crashWorld) recorded(run api.Run, script string, others bool) {
	w.Helper()
	dir := w.TempDir()
	config, err := os.ReadFile(filepath.Join(w.dir, "keep.toml"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "keep.toml"), config, 0o600)
	}
	if err != nil {
		w.Fatal(err)
	}
	file := filepath.Join(dir, "contacts.test.toml")
	if out, err := w.keep("test", "--record", string(run.ID), "--out", file); err != nil {
		w.Fatalf("record %s: %v\n%s", run.ID, err, out)
	}
	made, err := os.ReadFile(file)
	if err != nil {
		w.Fatal(err)
	}
	made = regexp.MustCompile(`(?m)^script = .*$`).ReplaceAll(made, nil) // it is of the script beside it
	if err := os.WriteFile(file, made, 0o600); err != nil {
		w.Fatal(err)
	}
	for _, test := range []struct{ name, text, wants string }{
		{"its own script", script, "1 passed, 0 failed"},
		{"another payload", strings.Replace(script, "data: event.payload", `data: { ...event.payload, name: "Eve" }`, 1), "calls[0]: want"},
		{"the other tool", strings.Replace(script, "% 2) await", "% 2 === 0) await", 1), "calls[0]: want"},
		{"no call", strings.Replace(script, "const { id } = prepared.data;", "return;", 1), "0 passed, 1 failed"},
		{"another event published", strings.Replace(script, `ctx.publish("made", { messageId:`, `ctx.publish("made", { messageId: "x" +`, 1), "publishes[0]: want"},
	} {
		if test.text == script && test.wants != "1 passed, 0 failed" {
			w.Fatalf("%s changes nothing", test.name)
		}
		if test.text != script && !others {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "contacts.js"), []byte(test.text), 0o600); err != nil {
			w.Fatal(err)
		}
		out, err := w.keep("test", dir)
		if (err == nil) != (test.text == script) || !strings.Contains(string(out), test.wants) {
			w.Errorf("%s of %s: %v, want %q\n%s\n%s", test.name, run.Trigger.MessageID, err, test.wants, out, made)
		}
	}
}
