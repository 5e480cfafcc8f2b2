//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// The name of a file is shown on the line that it stands on: a part of it that looks like a line of Keep is none.
func TestNamesOfFilesForgeNoLines(t *testing.T) {
	t.Chdir(t.TempDir())
	const forged = "keep: all is well"
	put(t, ".", "a\n"+forged+" .js", "export default 7;")
	put(t, ".", "b\n"+forged+" .js", "export default [;")
	for line, want := range map[string]int{"check .": exit.Misused, "check none.js": exit.NotFound, "plan .": exit.Misused, "test .": exit.Misused} {
		out, talk, status := runCommand(t, strings.Fields(line)...)
		if status != want || strings.Contains("\n"+out+"\n"+talk, "\n"+forged) || !strings.Contains(out+talk, `a\n`+forged) {
			t.Errorf("keep %s: status %d, want %d\n%s%s", line, status, want, out, talk)
		}
	}
}
