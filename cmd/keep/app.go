package main

import (
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// An app is one execution of the command: where it writes, and the flags that
// all verbs have.
type app struct {
	*terminal.Terminal
	project.Flags

	log     *slog.Logger
	hangups func() (<-chan os.Signal, func()) // nil: no process, as in tests
	outlive func()                            // nil: the same
	started bool                              // arguments and flags were in order

	verbose   int
	logFormat string
	admin     string // of keep keys
}

// newApp returns an app that writes to the two streams. Colours and animation
// follow from what they are.
func newApp(stdout, stderr io.Writer) *app {
	return &app{Terminal: terminal.New(stdout, stderr), log: slog.New(slog.DiscardHandler)}
}

// root returns the command with all its verbs.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "keep",
		Short: "Run automations that must not do things twice",
		Long: `Keep runs automations that must not do things twice. Every change to the
outside world goes through a durable ledger. When the outcome of a call is
unknown, Keep asks the service what happened, and when nobody can know, it
stops and asks you.

Start with: keep demo, keep init, keep dev .`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmd.ValidateFlagGroups(); err != nil { // which cobra looks at after this
				return err
			}
			a.started = true
			if a.outlive != nil && slices.Contains(hosting, cmd.CommandPath()) {
				a.outlive()
			}
			return a.setUp(cmd.Name() == "serve")
		},
	}
	f := root.PersistentFlags()
	f.StringVar(&a.DB, "db", "", "database `file`; default: db of keep.toml, or keep.db beside it")
	f.StringVar(&a.Config, "config", "", "configuration `file`; default: the nearest keep.toml upwards")
	f.BoolVar(&a.JSON, "json", false, "print JSON on stdout")
	f.CountVarP(&a.verbose, "verbose", "v", "log more: -v info, -vv debug")
	f.StringVar(&a.logFormat, "log-format", "", "`form` of the log on stderr: text or json (default text; json for keep serve where stderr is no terminal)")
	root.AddGroup(
		&cobra.Group{ID: groupWrite, Title: "Write and run:"},
		&cobra.Group{ID: groupLook, Title: "Look:"},
		&cobra.Group{ID: groupDecide, Title: "Decide:"},
		&cobra.Group{ID: groupOther, Title: "Other:"},
	)
	root.SetHelpCommandGroupID(groupOther)
	root.SetCompletionCommandGroupID(groupOther)
	a.addVerbs(root)
	a.addTopics(root)
	addExamples(root)
	explainArgs(root)
	root.SetFlagErrorFunc(wrongFlag)
	return root
}

// hosting are the commands that have calls out for others, which the end of a log or of one client must not break off.
var hosting = []string{"keep run", "keep serve", "keep dev", "keep gateway", "keep proxy"}

// Groups of verbs, as help shows them.
const (
	groupWrite  = "write"
	groupLook   = "look"
	groupDecide = "decide"
	groupOther  = "other"
)

// addVerbs adds every verb, in the groups that help shows.
func (a *app) addVerbs(root *cobra.Command) {
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupWrite, a.demoCmd(), a.initCmd(), a.checkCmd(), a.testCmd(), a.planCmd(), a.writeCmd(), a.editCmd(), a.devCmd(), a.runCmd(), a.serveCmd(), a.deployCmd(), a.typesCmd(), a.guideCmd(), a.docsCmd(), a.mcpCmd(), a.gatewayCmd(), a.packsCmd(), a.connectCmd(), a.proveCmd(), a.proxyCmd())
	add(groupLook, a.statusCmd(), a.whyCmd(), a.workflowsCmd(), a.inputsCmd(), a.runsCmd(), a.eventsCmd(), a.topicsCmd(),
		a.mutationsCmd(), a.itemsCmd(), a.keysCmd(), a.hostsCmd(), a.auditCmd(), a.hooksCmd(), a.grantsCmd(), a.budgetsCmd(), a.proposalsCmd(), a.repairsCmd(),
		a.checkpointsCmd())
	add(groupDecide, a.inboxCmd(), a.pauseCmd(), a.resumeCmd(), a.triggerCmd(), a.publishCmd())
	add(groupOther, a.loginCmd(), a.tokenCmd(), a.apiCmd(), a.doctorCmd(), a.trustCmd(), a.accountsCmd(), a.secretsCmd(), a.dbCmd(), a.idempotencyCmd(), a.updateCmd(), a.versionCmd())
}

// setUp checks the flags that all verbs have, and makes the logger. A daemon that
// nobody looks at writes for programs.
func (a *app) setUp(daemon bool) error {
	if a.logFormat == "" {
		a.logFormat = "text"
		if daemon && !a.TTY {
			a.logFormat = "json"
		}
	}
	// What a person should know is a warning; a verb says the rest itself.
	level := slog.LevelWarn
	switch {
	case a.verbose == 1:
		level = slog.LevelInfo
	case a.verbose > 1:
		level = slog.LevelDebug
	}
	opts := &slog.HandlerOptions{Level: level}
	switch a.logFormat {
	case "text":
		a.log = slog.New(slog.NewTextHandler(a.Err, opts))
	case "json":
		a.log = slog.New(slog.NewJSONHandler(a.Err, opts))
	default:
		return exit.Misusef("--log-format is %q, want text or json", a.logFormat)
	}
	return nil
}

// anewFlag lets a command begin anew where a database was and is gone or empty. Without the flag
// such a command is refused: a ledger that was lost with its file would otherwise be begun again
// silently, and everything done a second time.
func (a *app) anewFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&a.Anew, "new", false, "begin anew where a database was and is gone, or lost keys: all that it knew is done again")
	return cmd
}
