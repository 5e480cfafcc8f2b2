package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/cmd/keep/internal/trust"
)

// trustCmd allows keep.toml files that others could have written. It reads none of them: whether it
// may be read is the question.
func (a *app) trustCmd() *cobra.Command {
	return &cobra.Command{
		Use: "trust [DIR]", Short: "Trust the keep.toml of a directory that others own or may write",
		Long: `Trust allows the keep.toml in DIR for this user. One that was found in a directory
above is refused if another user owns it or its directory, or if everybody or a group
may write one of them: it can run commands and receive secrets. A group whose only member
is this user, as many systems give each user one, may. The directories in KEEP_TRUST are
trusted, too. Without DIR, trust lists those that were allowed.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.listTrusted()
			}
			dir, err := trust.Add(args[0])
			if err == nil {
				fmt.Fprintf(a.Err, "Trusted: %s\n", terminal.Clean(dir))
			}
			return err
		},
	}
}

// listTrusted prints what was allowed by this command; KEEP_TRUST is not part of it.
func (a *app) listTrusted() error {
	all, err := trust.List()
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(append([]string{}, all...))
	}
	for _, dir := range all {
		fmt.Fprintln(a.Out, terminal.Clean(dir))
	}
	return nil
}
