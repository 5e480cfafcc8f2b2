package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/cmd/keep/internal/dev"
	"github.com/keep-run/keep/cmd/keep/internal/project"
)

// devCmd is for the person who writes a script. It is a host as keep serve is, with real effects;
// it differs in watching the files, and in showing one page of status on a terminal.
func (a *app) devCmd() *cobra.Command {
	var poll, browser bool
	var listen string
	cmd := &cobra.Command{
		Use:   "dev [PATH]",
		Short: "Run and watch: reload on change, one page of status",
		Long: `Dev runs the workflows of a file or a directory and deploys them again whenever
a script, keep.toml or a pack that it names changes. A script that is broken is shown
with its line, and the version before it continues. On a terminal there is one page of status;
elsewhere there are plain lines. On a terminal of this machine it opens the pages
in the browser ($BROWSER names the program), logged in.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "."
			if len(args) == 1 {
				path = args[0]
			}
			// A wrong path ends it here, before the terminal is taken for the page of status.
			if _, _, err := project.LookForScripts(path); err != nil {
				return err
			}
			cfg := dev.Config{Terminal: a.Terminal, Log: a.log, Flags: a.Flags, Path: path, Poll: poll, Listen: listen}
			if !cmd.Flags().Changed("browser") {
				browser = a.TTY && os.Getenv("SSH_CONNECTION") == "" // somebody sits at this machine
			}
			if browser {
				cfg.Open = openPage
			}
			return dev.Run(cmd.Context(), cfg)
		},
	}
	listenFlag(cmd, &listen)
	cmd.Flags().BoolVar(&browser, "browser", false, "open the pages in the browser, logged in (default: on a terminal, not over SSH)")
	cmd.Flags().BoolVar(&poll, "poll", false, "look at the files every second, for file systems that report no changes")
	return a.anewFlag(cmd)
}
