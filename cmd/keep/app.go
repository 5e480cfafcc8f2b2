package main

import (
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// An app is one execution of the command: where it writes, and the flags that
// all verbs have.
type app struct {
	out io.Writer     // data
	err *lockedWriter // talk
	tty bool          // err is a terminal: it may be animated
	ink ink           // colours of err

	outInk ink // colours of out

	log     *slog.Logger
	started bool // arguments and flags were in order

	db        string
	config    string
	json      bool
	verbose   int
	logFormat string
	admin     string // of keep keys

	clock func() time.Time // of the machine; nil: time.Now
}

// newApp returns an app that writes to the two streams. Colours and animation
// follow from what they are.
func newApp(stdout, stderr io.Writer) *app {
	a := &app{out: stdout, err: &lockedWriter{w: stderr}, tty: isTerminal(stderr), log: slog.New(slog.DiscardHandler)}
	a.ink, a.outInk = inkFor(stderr), inkFor(stdout)
	return a
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
			a.started = true
			return a.setUp(cmd.Name() == "serve")
		},
	}
	f := root.PersistentFlags()
	f.StringVar(&a.db, "db", "", "database `file`; default: db of keep.toml, or keep.db beside it")
	f.StringVar(&a.config, "config", "", "configuration `file`; default: the nearest keep.toml upwards")
	f.BoolVar(&a.json, "json", false, "print JSON on stdout")
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
	return root
}

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
	add(groupWrite, a.demoCmd(), a.initCmd(), a.checkCmd(), a.devCmd(), a.runCmd(), a.serveCmd(), a.deployCmd(), a.typesCmd(), a.proxyCmd())
	add(groupLook, a.statusCmd(), a.workflowsCmd(), a.inputsCmd(), a.runsCmd(), a.eventsCmd(), a.topicsCmd(),
		a.mutationsCmd(), a.itemsCmd(), a.keysCmd(), a.hostsCmd())
	add(groupDecide, a.inboxCmd(), a.pauseCmd(), a.resumeCmd(), a.triggerCmd())
	add(groupOther, a.loginCmd(), a.tokenCmd(), a.apiCmd(), a.doctorCmd(), a.dbCmd(), a.idempotencyCmd(), a.tortureCmd(), a.versionCmd())
}

// setUp checks the flags that all verbs have, and makes the logger. A daemon that
// nobody looks at writes for programs.
func (a *app) setUp(daemon bool) error {
	if a.logFormat == "" {
		a.logFormat = "text"
		if daemon && !a.tty {
			a.logFormat = "json"
		}
	}
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
		a.log = slog.New(slog.NewTextHandler(a.err, opts))
	case "json":
		a.log = slog.New(slog.NewJSONHandler(a.err, opts))
	default:
		return misusef("--log-format is %q, want text or json", a.logFormat)
	}
	return nil
}

// now returns the time as people are told it.
func (a *app) now() time.Time {
	if a.clock != nil {
		return a.clock().UTC()
	}
	return time.Now().UTC()
}

// A lockedWriter lets the log and the talk of several goroutines share stderr.
type lockedWriter struct {
	mu       sync.Mutex // protects the fields below
	w        io.Writer
	animated bool // the last line may be one of progress
}

// clearLine takes a line of progress away.
const clearLine = "\r\x1b[K"

// Write writes all of p, over a line of progress if there is one.
func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.animated {
		if _, err := io.WriteString(l.w, clearLine); err != nil {
			return 0, err
		}
	}
	return l.w.Write(p)
}

// animate says whether lines of progress are shown from now on.
func (l *lockedWriter) animate(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.animated = on
}

// redirect sends what follows to w, and returns where it went before.
func (l *lockedWriter) redirect(w io.Writer) (before io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, l.w = l.w, w
	return before
}

// isTerminal reports whether w is a terminal that understands escapes.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// An ink colours text, or leaves it alone.
type ink bool

// inkFor returns colours for a terminal, unless NO_COLOR says otherwise.
func inkFor(w io.Writer) ink { return ink(isTerminal(w) && os.Getenv("NO_COLOR") == "") }

// paint returns s in the colour of an SGR code.
func (i ink) paint(code, s string) string {
	if !i || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (i ink) red(s string) string    { return i.paint("31;1", s) }
func (i ink) yellow(s string) string { return i.paint("33", s) }
func (i ink) green(s string) string  { return i.paint("32", s) }
func (i ink) dim(s string) string    { return i.paint("2", s) }
func (i ink) bold(s string) string   { return i.paint("1", s) }
