package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/cmd/keep/internal/buildinfo"
)

// versionCmd prints what the Go tool knows about the binary.
func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := buildinfo.Read()
			if a.JSON {
				return a.PrintJSON(v)
			}
			text := "keep " + v.Version
			if v.Revision != nil {
				text += " (" + *v.Revision + ")"
			}
			_, err := fmt.Fprintf(a.Out, "%s %s %s\n", text, v.Go, v.Platform)
			return err
		},
	}
}
