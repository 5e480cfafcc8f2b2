package examples_test

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/keep-run/keep/internal/port"
)

// saveAs is the first line of a file that a document tells the reader to save.
var saveAs = regexp.MustCompile(`^(?:#|//) ([\w.-]+\.(?:toml|js))\n`)

// The tutorial does what it says, with the command alone: each block that is to be saved is saved, each
// command is run, and prints what stands there.
func TestTutorial(t *testing.T) {
	t.Parallel()
	dir, addr := tutorial(t)
	all := stepsOf(t, "docs/tutorial.md")
	if len(all) < 12 {
		t.Fatalf("the tutorial has %d commands", len(all))
	}
	for i := range all {
		all[i].command = strings.ReplaceAll(all[i].command, "127.0.0.1:9010", addr)
	}
	all[0].command += " && cp ../files/* ." // the reader saves them with an editor
	runSteps(t, "docs/tutorial.md", dir, all)
}

// The ten tasks are done by the commands that the page says, in the project of the tutorial, and after them
// what an operator does.
func TestTasks(t *testing.T) {
	t.Parallel()
	dir, addr := tutorial(t)
	before := []step{{command: "cd files && { keep demo bank --listen " + addr + " 2>bank.log & } && sleep 1; keep run . >/dev/null 2>&1 || true"}}
	all := stepsOf(t, "docs/tasks.md")
	if len(all) < 15 {
		t.Fatalf("the page has %d commands", len(all))
	}
	runSteps(t, "docs/tasks.md", dir, append(before, all...))
	how := stepsOf(t, "docs/howto.md")
	if len(how) < 15 {
		t.Fatalf("the page has %d commands", len(how))
	}
	runSteps(t, "docs/howto.md", filepath.Join(dir, "files"), how)
}

// tutorial returns a directory with the files of the tutorial below files, and the address of its bank.
func tutorial(t *testing.T) (dir, addr string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the commands are for a POSIX shell")
	}
	dir, addr = t.TempDir(), port.Addr(t)
	if err := os.MkdirAll(filepath.Join(dir, "files"), 0o755); err != nil {
		t.Fatal(err)
	}
	saved := 0
	for _, b := range blocks(t, "docs/tutorial.md") {
		m := saveAs.FindStringSubmatch(b.text)
		if m == nil {
			continue
		}
		saved++
		if err := os.WriteFile(filepath.Join(dir, "files", m[1]), []byte(strings.ReplaceAll(b.text, "127.0.0.1:9010", addr)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if saved != 2 {
		t.Fatalf("the tutorial has %d files, want 2", saved)
	}
	return dir, addr
}
