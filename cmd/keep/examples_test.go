package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestExamples reads each example of help as a shell would, up to a redirection, and looks that the
// command takes it: its flags, and as many arguments.
func TestExamples(t *testing.T) {
	t.Parallel()
	for path, text := range examples {
		for line := range strings.Lines(text) {
			args := shellWords(line)
			if i := slices.Index(args, "keep"); i < 0 || strings.HasPrefix(line, "claude ") {
				args = args[slices.Index(args, "--")+1:]
			}
			if len(args) == 0 || args[0] != "keep" {
				t.Errorf("%s: %q calls something else", path, line)
				continue
			}
			cmd, rest, err := newApp(io.Discard, io.Discard).root().Find(args[1:])
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
			if err == nil {
				err = cmd.ValidateFlagGroups()
			}
			if err != nil {
				t.Errorf("%s: %q: %v", path, line, err)
			}
		}
	}
}

// TestEveryCommandHasAnExample looks at every command that does something.
func TestEveryCommandHasAnExample(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		path := strings.TrimPrefix(cmd.CommandPath(), "keep ")
		used[path] = true
		isList := cmd.Name() == "list" // which is the noun alone
		group := cmd.HasSubCommands() && cmd.Args != nil && !cmd.HasLocalFlags()
		if _, ok := examples[path]; !ok && cmd.Runnable() && !isList && !group && path != "version" {
			t.Errorf("keep %s has no example", path)
		}
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() && !sub.IsAdditionalHelpTopicCommand() {
				look(sub)
			}
		}
	}
	for _, sub := range newApp(io.Discard, io.Discard).root().Commands() {
		if sub.IsAvailableCommand() {
			look(sub)
		}
	}
	for path := range examples {
		if !used[path] {
			t.Errorf("there is no keep %s", path)
		}
	}
}

// shellWords splits a line into words as a shell does, up to a redirection or another command.
func shellWords(line string) (words []string) {
	var b strings.Builder
	quote, begun := rune(0), false
	end := func() {
		if begun {
			words = append(words, b.String())
		}
		b.Reset()
		begun = false
	}
	for _, c := range strings.TrimSpace(line) {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			b.WriteRune(c)
		case c == '\'' || c == '"':
			quote, begun = c, true
		case c == ' ':
			end()
		case c == '<' || c == '>' || c == '|':
			end()
			return words
		default:
			b.WriteRune(c)
			begun = true
		}
	}
	end()
	return words
}
