package main

import (
	"encoding/json"
	"io"
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
