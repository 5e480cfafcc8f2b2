package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/script/workflow"

	"github.com/keep-run/keep/cmd/keep/internal/project"
)

// typesCmd writes for editors and language models what scripts may call. They are of keep.toml and not
// of the services: nothing is asked over the network.
func (a *app) typesCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "types",
		Short: "Print a .d.ts for the configured connections",
		Long: `Types prints TypeScript declarations of ctx with the configured connections and
their tools, so that editors and language models can complete scripts.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := a.types(".")
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(map[string]string{"types": text})
			}
			_, err = fmt.Fprint(a.Out, text)
			return err
		},
	}
}

// types returns the declarations for the project that dir is in. Secrets may be
// missing: nothing is called.
func (a *app) types(dir string) (string, error) {
	cfg, err := a.LoadConfig(dir)
	if err != nil {
		return "", err
	}
	conns, err := cfg.Describe()
	if err != nil {
		return "", err
	}
	return workflow.Types(conns), project.CloseConnections(conns)
}
