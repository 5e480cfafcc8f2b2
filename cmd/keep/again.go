package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/shell"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// confirmation returns the command that does what cmd has only shown, with all that was said to it: a person copies it.
// The words come first, then what more confirms, then the flags that were given.
func confirmation(cmd *cobra.Command, words []string, more ...string) string {
	line := append([]string{cmd.CommandPath()}, words...)
	line = append(line, more...)
	for i, word := range line[1:] {
		line[i+1] = shell.Word(word)
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch value := f.Value.String(); {
		case f.Name == "yes" || f.Name == "verbose" || f.Name == "seen":
		case f.Value.Type() == "bool":
			line = append(line, "--"+f.Name)
		case f.Name == "db" && database.IsPostgres(value): // it may hold a password
			line = append(line, "--db ADDRESS")
		default:
			line = append(line, "--"+f.Name+" "+shell.Word(value))
		}
	})
	return terminal.Clean(strings.Join(line, " "))
}
