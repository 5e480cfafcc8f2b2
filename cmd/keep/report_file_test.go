package main

import (
	"os"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// A report takes the place of one of before, and of nothing else: who forgets the name of the report gives that of a script or of its tests.
// Nothing is run, read or called for it before.
func TestReportsReplaceReportsAlone(t *testing.T) {
	t.Chdir(t.TempDir())
	if out, talk, status := runCommand(t, "init", "."); status != exit.Done {
		t.Fatal(out, talk)
	}
	toml, err := os.ReadFile("keep.toml")
	noError(t, err)
	put(t, ".", "keep.toml", string(toml)+"\n[connections.out]\nconnector = \"log\"\npath = \"out.log\"\n")
	for _, c := range []struct{ line, file string }{
		{"plan --html journal.js", "journal.js"}, {"test --junit journal.test.toml", "journal.test.toml"},
		{`prove out.write --yes --params {"text":"{n}"} --page keep.toml`, "keep.toml"},
	} {
		before, err := os.ReadFile(c.file)
		noError(t, err)
		out, talk, status := runCommand(t, strings.Fields(c.line)...)
		if after, err := os.ReadFile(c.file); err != nil || string(after) != string(before) {
			t.Fatalf("keep %s replaced %s: %v\n%s", c.line, c.file, err, after)
		}
		if status != exit.Misused || out != "" {
			t.Errorf("keep %s: status %d\n%s%s", c.line, status, out, talk)
		}
	}
	if _, err := os.Stat("out.log"); err == nil {
		t.Error("something was called")
	}
	put(t, ".", "empty.html", "")
	for _, line := range []string{"plan . --html plan.html", "plan . --html plan.html", "plan . --html empty.html", "test --junit report.xml", "test --junit report.xml", "test --junit " + os.DevNull} {
		if out, talk, status := runCommand(t, strings.Fields(line)...); status != exit.Done {
			t.Errorf("keep %s: status %d\n%s%s", line, status, out, talk)
		}
	}
}
