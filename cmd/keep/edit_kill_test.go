//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/internal/llmtest"
)

// An edit that is killed leaves the version that is current, and each file whole: as before or
// as after, and the script of after only beside its tests and grants. The same edit can be made
// again, and asks one question in all.
func TestEditKilled(t *testing.T) {
	t.Parallel()
	changed := strings.Replace(writtenScript, `" arrived"`, `" came"`, 1)
	tests := strings.Replace(writtenTests, " arrived", " came", 1)
	const change = "say came in the place of arrived"
	for _, at := range []string{"the script", ".drafts/keep-write-*/*", ".keep-write-*",
		"note-files.test.toml", "note-files.grants.toml", "note-files.js"} {
		t.Run(strings.ReplaceAll(at, "/", "_"), func(t *testing.T) {
			t.Parallel()
			var kill func()
			killed := make(chan struct{})
			dir, _ := editProject(t, func(q llmtest.Request) llmtest.Reply {
				<-killed // of the first process: its first request waits until kill is known
				if q.N == 1 && at == "the script" {
					kill()
				}
				return proposes(changed, tests)
			})
			before := ""
			if strings.HasPrefix(at, "note-files") {
				before = textOfFile(t, dir, at)
			}
			cmd := exec.CommandContext(t.Context(), buildKeep(t), "edit", "note-files", change, "--force")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t), "TMPDIR="+draftsOf(t, dir))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			kill = func() { _ = cmd.Process.Kill() }
			close(killed)
			killWhen(dir, at, before, cmd, kill)
			oldOrNew(t, dir, changed, tests)
			firstIsCurrent(t, dir)
			out, talk, status := writes(t, dir, "edit", "note-files", change, "--force", "--json")
			if status != 4 || writtenOf(t, out).State != "waiting" {
				t.Fatalf("again: %d %s %s", status, out, talk)
			}
			if textOfFile(t, dir, "note-files.js") != changed || textOfFile(t, dir, "note-files.test.toml") != tests {
				t.Error("the files are not those of the change")
			}
			oldOrNew(t, dir, changed, tests)
			firstIsCurrent(t, dir)
			if out, talk, status := writes(t, dir, "db", "check"); status != 0 {
				t.Errorf("the database: %d %s %s", status, out, talk)
			}
			if out, _, _ := writes(t, dir, "inbox", "--json"); strings.Count(out, `"kind": "proposal"`) != 1 {
				t.Errorf("not one question is open: %s", out)
			}
		})
	}
}

// killWhen kills a command as soon as a file that matches a pattern is there, or is not as before,
// and returns when the command has ended.
func killWhen(dir, at, before string, cmd *exec.Cmd, kill func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its status is of the signal, or of who was faster
	}()
	for {
		found, _ := filepath.Glob(filepath.Join(dir, at))
		if len(found) > 0 {
			if now, err := os.ReadFile(found[0]); before == "" || err == nil && string(now) != before {
				kill()
			}
		}
		select {
		case <-ended:
			return
		default:
		}
	}
}

// firstIsCurrent fails the test if another version than the first one is current.
func firstIsCurrent(t *testing.T, dir string) {
	t.Helper()
	if out, talk, _ := writes(t, dir, "workflows", "show", "note-files", "--json"); !strings.Contains(out, `"version": "1.0"`) {
		t.Errorf("version 1.0 is not current: %s %s", out, talk)
	}
}

// oldOrNew fails the test if a file is neither as before nor as after, or is as after before those
// that come first.
func oldOrNew(t *testing.T, dir, script, tests string) {
	t.Helper()
	was := false // a file is as before
	for _, f := range []struct{ name, old, new string }{{"note-files.test.toml", writtenTests, tests}, {"note-files.js", writtenScript, script}} {
		switch textOfFile(t, dir, f.name) {
		case f.old:
			was = true
		case f.new:
			if was {
				t.Errorf("%s changed before the files that come first", f.name)
			}
		default:
			t.Errorf("%s is not whole", f.name)
		}
	}
	if grants := textOfFile(t, dir, "note-files.grants.toml"); !strings.HasSuffix(grants, "]\n") {
		t.Errorf("the grants are not whole: %q", grants)
	}
}
