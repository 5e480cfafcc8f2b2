package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/keep-run/keep/internal/llmtest"
)

// On a terminal the person is asked what the model asks, sees the plan, and agrees or does not.
func TestWriteOnATerminal(t *testing.T) {
	t.Parallel()
	ask := llmtest.Reply{Calls: []llmtest.Call{{Name: "ask", Arguments: map[string]string{"question": "Each file?\x1b[2J"}}}}
	changed := strings.Replace(writtenScript, `" arrived"`, `" came"`, 1)
	dir, s := writeProject(t, false, inTurn(ask, proposes(writtenScript, writtenTests), ask, proposes(writtenScript, writtenTests),
		proposes(changed, strings.Replace(writtenTests, " arrived", " came", 1)), ask))
	on := func(args ...string) *screen {
		cmd := exec.CommandContext(t.Context(), buildKeep(t), args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "TERM=xterm", "XDG_CACHE_HOME="+cacheHome(t), "TMPDIR="+draftsOf(t, dir))
		return onScreen(t, cmd)
	}
	no := on("write", "note each file", "--out", "first.js")
	no.sees("Each file?")
	no.types("yes, each\r")
	no.sees("Write yes: ")
	no.types("no\r")
	if status := no.ends(); status != 4 || strings.Contains(no.shown.String(), "\x1b[2J") || !strings.Contains(no.shown.String(), "1 change would be made outside") {
		t.Errorf("who does not agree: %d %q", status, no.shown.String())
	}
	inactive(t, dir)
	if last := s.Requests()[1].Last; !strings.Contains(last, "yes, each") {
		t.Errorf("the model was told %q", last)
	}
	yes := on("write", "note each file")
	yes.sees("Each file?")
	yes.types("yes, each\r")
	yes.sees("Write yes: ")
	yes.types("yes\r")
	yes.sees("is current")
	if status := yes.ends(); status != 0 {
		t.Errorf("who agrees: %d %q", status, yes.shown.String())
	}
	if out, _, _ := writes(t, dir, "grants", "show", "note-files"); !strings.Contains(out, "journal.write") {
		t.Errorf("the grant: %s", out)
	}
	edit := on("edit", "note-files", "say came")
	edit.sees("Write yes: ")
	edit.types("yes\r")
	edit.sees("is current")
	if status := edit.ends(); status != 0 || textOfFile(t, dir, "note-files.js") != changed {
		t.Errorf("an edit: %d %q", status, edit.shown.String())
	}
	gone := on("write", "note each file", "--out", "third.js")
	gone.sees("Each file?")
	gone.types("\x03")
	if status := gone.ends(); status == 0 {
		t.Errorf("Ctrl-C: %d %q", status, gone.shown.String())
	}
}
