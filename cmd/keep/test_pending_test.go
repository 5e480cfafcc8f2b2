package main

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
)

// After an edit that was killed while it replaced files, a script is tested by the tests of the same edit, and gone through as the edit wrote it.
func TestFilesOfAKilledEditAreReadTogether(t *testing.T) {
	const (
		script = `export default Keep.workflow({ name: "w", topics: { t: {} }, producers: { async poll(ctx) { await ctx.publish("t", { messageId: "old" }); } } });`
		tests  = "[[test]]\nname = \"a\"\nhandler = \"poll\"\n[test.expect]\npublishes = [{ topic = \"t\", messageId = \"old\" }]\n"
	)
	killed := func() {
		t.Helper()
		t.Chdir(t.TempDir())
		put(t, ".", "keep.toml", "workflows = [\"*.js\"]\n")
		var files []project.File
		for name, text := range map[string]string{"w.js": script, "w.test.toml": tests} {
			put(t, ".", name, text)
			files = append(files, project.File{Name: name, Text: strings.ReplaceAll(text, "old", "new"), Was: project.Hash(text)})
		}
		list, err := json.Marshal(files)
		noError(t, err)
		put(t, ".", ".keep-pending.json", string(list))
	}
	killed()
	if out, talk, status := runCommand(t, "test", "."); status != exit.Done {
		t.Errorf("status %d\n%s%s", status, out, talk)
	}
	killed()
	s, err := (&replayer{app: newApp(io.Discard, io.Discard), with: "w.js"}).script()
	noError(t, err)
	text, err := json.Marshal(s)
	noError(t, err)
	if !strings.Contains(string(text), "new") || strings.Contains(string(text), "old") {
		t.Errorf("gone through is %s", text)
	}
}

// An edit that was killed in a project below another one is worked off before the other one reads its scripts, too.
func TestKilledEditOfAProjectBelow(t *testing.T) {
	const script = `export default Keep.workflow({ name: "w", topics: { t: {} }, producers: { async poll(ctx) { await ctx.publish("t", { messageId: "old" }); } } });`
	t.Chdir(t.TempDir())
	noError(t, os.MkdirAll("a/b", 0o700))
	put(t, ".", "keep.toml", "workflows = [\"a/*/*.js\"]\n")
	put(t, ".", "a/b/w.js", script)
	list, err := json.Marshal([]project.File{{Name: "b/w.js", Text: strings.ReplaceAll(script, "old", "new"), Was: project.Hash(script)}})
	noError(t, err)
	put(t, ".", "a/.keep-pending.json", string(list))
	noError(t, os.Chmod("a/.keep-pending.json", 0o600))
	if out, talk, status := runCommand(t, "check", "."); status != exit.Done {
		t.Errorf("status %d\n%s%s", status, out, talk)
	}
	if text, err := os.ReadFile("a/b/w.js"); err != nil || !strings.Contains(string(text), "new") {
		t.Errorf("what was checked is %s, %v", text, err)
	}
}
