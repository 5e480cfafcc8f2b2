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

// A write that is killed leaves nothing active, and no file that is half there: whatever of the
// script's files is there is whole, and the script only beside its tests and grants. The same
// write can be made again.
func TestWriteKilled(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"the first question", "the script", ".drafts/keep-write-*/*", "keep.db", ".keep-write-*",
		"note-files.test.toml", "note-files.grants.toml", "note-files.js"} {
		t.Run(strings.ReplaceAll(at, "/", "_"), func(t *testing.T) {
			t.Parallel()
			var kill func()
			killed := make(chan struct{})
			dir, _ := writeProject(t, false, func(q llmtest.Request) llmtest.Reply {
				<-killed // of the first process: its first request waits until kill is known
				if q.N == 1 && at == "the first question" || q.N == 2 && at == "the script" {
					kill()
				}
				if q.N == 1 {
					return calls("test", map[string]string{"source": writtenScript, "tests": writtenTests})
				}
				return proposes(writtenScript, writtenTests)
			})
			cmd := exec.CommandContext(t.Context(), buildKeep(t), "write", writtenIntent)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t), "TMPDIR="+draftsOf(t, dir))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			kill = func() { _ = cmd.Process.Kill() }
			close(killed)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = cmd.Wait() // its status is of the signal, or of who was faster
			}()
			for over := false; !over; {
				if found, _ := filepath.Glob(filepath.Join(dir, at)); len(found) > 0 {
					kill()
				}
				select {
				case <-ended:
					over = true
				default:
				}
			}
			wholeFiles(t, dir)
			inactive(t, dir)
			out, talk, status := writes(t, dir, "write", writtenIntent, "--force", "--json")
			if status != 4 || writtenOf(t, out).State != "waiting" {
				t.Fatalf("again: %d %s %s", status, out, talk)
			}
			wholeFiles(t, dir)
			if _, err := os.Stat(filepath.Join(dir, "note-files.js")); err != nil {
				t.Error(err)
			}
			inactive(t, dir)
			if out, talk, status := writes(t, dir, "db", "check"); status != 0 {
				t.Errorf("the database: %d %s %s", status, out, talk)
			}
			if out, _, _ := writes(t, dir, "inbox", "--json"); strings.Count(out, `"kind": "proposal"`) != 1 {
				t.Errorf("not one question is open: %s", out)
			}
		})
	}
}

// wholeFiles fails the test if a file of the script is not whole, or the script is there alone.
func wholeFiles(t *testing.T, dir string) {
	t.Helper()
	missing := false
	for _, f := range []struct{ name, want string }{{"note-files.test.toml", writtenTests}, {"note-files.grants.toml", ""}, {"note-files.js", writtenScript}} {
		text, err := os.ReadFile(filepath.Join(dir, f.name))
		switch {
		case os.IsNotExist(err):
			missing = true
		case err != nil:
			t.Error(err)
		case missing:
			t.Errorf("%s is there before the files that come first", f.name)
		case f.want != "" && string(text) != f.want || !strings.HasSuffix(string(text), "\n"):
			t.Errorf("%s is not whole: %q", f.name, text)
		}
	}
}
