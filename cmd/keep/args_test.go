package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// Every command says what it takes when it got something else, and takes no empty argument.
func TestArguments(t *testing.T) {
	t.Chdir(t.TempDir())
	n := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			walk(c)
		}
		if !cmd.HasParent() || !cmd.Runnable() && !cmd.HasSubCommands() { // keep itself, and what keep help says beside the verbs
			return
		}
		n++
		path := strings.Fields(cmd.CommandPath())[1:]
		refused := func(want string, args ...string) {
			t.Helper()
			var said bytes.Buffer
			line := append(append([]string{}, path...), args...)
			if status := run(t.Context(), line, io.Discard, &said); status != exit.Misused || !strings.Contains(said.String(), want) || !strings.Contains(said.String(), "Try: "+cmd.CommandPath()+" --help") {
				t.Errorf("keep %q: status %d, want %d and %q:\n%s", line, status, exit.Misused, want, said.String())
			}
		}
		if cmd.Args == nil {
			t.Errorf("%s does not say what it takes", cmd.CommandPath())
			return
		}
		refused("unknown flag: --nosuch", "--nosuch")
		refused("is empty; want: "+cmd.CommandPath(), "")
		refused("is empty; want: "+cmd.CommandPath(), "a", "", "b")
		if cmd.Args(cmd, nil) != nil {
			refused("no argument was given; want: " + cmd.CommandPath() + " ")
		}
	}
	walk(newApp(io.Discard, io.Discard).root())
	if n < 100 {
		t.Errorf("only %d commands were looked at", n)
	}
}
