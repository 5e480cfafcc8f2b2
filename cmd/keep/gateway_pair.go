package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/pair"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/prove"
	"github.com/keep-run/keep/cmd/keep/internal/shell"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/connector/mcp"
)

// pairFlags are those of keep gateway pair.
type pairFlags struct {
	proveFlags
	mark, lookup, args string
}

// gatewayPairCmd drafts a pairing, and proves it. A guess never counts by itself: a tool that is
// wrongly believed to be found again would be sent twice.
func (a *app) gatewayPairCmd() *cobra.Command {
	var f pairFlags
	cmd := &cobra.Command{
		Use: "pair SERVER[.TOOL]", Short: "Draft what is known of an MCP server's tools, and prove it",
		Long: `Pair lists the tools of a server of [gateway.servers], and prints a pairing that is guessed from their
names and schemas. It calls nothing and writes nothing; a guess is a comment, and each tool of level D.

With the name of a tool and --params it proves what is guessed of that tool, by real calls: use an account that
may be harmed. It first says what it will make, and asks. It makes calls that carry a mark, finds them by
a tool that reads, looks that a call that was never made is not found, and measures how long effects take to
show. What was shown, and nothing else, is added to pairings/SERVER.toml beside keep.toml; a report of what was made
is proofs/SERVER.TOOL.html. Nothing is recorded in the database.

{n} in a text of the params stands for something new in each call. The status is 1 if nothing was shown.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.gatewayPair(cmd, args[0], f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.params, "params", "", "`JSON` of the params of the calls that are made")
	flags.StringVar(&f.mark, "mark", "", "`param` to which the mark is appended, in place of the guess")
	flags.StringVar(&f.lookup, "lookup", "", "`tool` that shows what was made, in place of the guesses")
	flags.StringVar(&f.args, "args", "", "`JSON` of the arguments of --lookup; texts in it take {param} and {token}")
	flags.IntVar(&f.calls, "calls", 8, "the most calls that change something")
	flags.BoolVar(&f.yes, "yes", false, "do not ask first")
	flags.DurationVar(&f.wait, "wait", time.Minute, "how long an effect may take to show")
	return cmd
}

// gatewayPair drafts the pairing of a server, or proves what is guessed of one tool. It calls the
// tool only if --params are given: nobody can guess params that do no harm.
func (a *app) gatewayPair(cmd *cobra.Command, name string, f pairFlags) error {
	if f.calls < prove.MinCalls+1 {
		return exit.Misusef("--calls is %d, want at least %d: fewer show nothing", f.calls, prove.MinCalls+1)
	}
	// The names of servers have no dot; what follows the first one is all of the tool.
	name, tool, _ := strings.Cut(name, ".")
	if tool == "" && (f.params != "" || f.mark != "" || f.lookup != "" || f.args != "") {
		return exit.Misusef("name the tool: keep gateway pair %s.TOOL", name)
	}
	return a.withServer(cmd.Context(), name, func(cfg *config.Config, server *mcp.Server) error {
		listed, err := server.Tools(cmd.Context())
		if err != nil {
			return exit.Failedf("the MCP server %s does not answer: %w", name, err)
		}
		drafts := pair.Draft(listed)
		if tool == "" {
			return a.printDraft(name, drafts)
		}
		i := slices.IndexFunc(drafts, func(t pair.Tool) bool { return t.Name == tool })
		if i < 0 {
			return &keep.NotFoundError{What: "tool", ID: name + "." + tool}
		}
		var arguments map[string]string
		if f.args != "" {
			if err := json.Unmarshal([]byte(f.args), &arguments); err != nil || f.lookup == "" {
				return exit.Misusef("--args is an object of texts, for --lookup: %v", err)
			}
		}
		// Flags of the person come in the place of guesses; they are proved in the same way.
		chosen, err := drafts[i].Choose(f.mark, f.lookup, arguments, listed)
		if err != nil {
			return exit.Misusef("%w", err)
		}
		if f.params == "" {
			return a.printDraft(name, []pair.Tool{chosen})
		}
		trial := pair.Trial{Server: server, Tool: chosen, Params: json.RawMessage(f.params), Calls: f.calls, Wait: f.wait, Run: prove.NewRun()}
		return a.provePairing(cmd, cfg, trial, f)
	})
}

// withServer calls f with a server of the gateway, which ends with it. It starts the server itself,
// also beside a gateway that runs. Secrets of other servers may be missing.
func (a *app) withServer(ctx context.Context, name string, f func(*config.Config, *mcp.Server) error) (err error) {
	cfg, err := a.LoadConfig(".")
	if err != nil {
		return project.WithConnectionErrors(&project.Project{Cfg: cfg}, err)
	}
	i := slices.IndexFunc(cfg.Gateway.Servers, func(s mcp.ServerConfig) bool { return s.Name == name })
	if i < 0 {
		return &keep.NotFoundError{What: "MCP server", ID: name}
	}
	if err := cfg.Lacks("gateway.servers." + name); err != nil {
		return err
	}
	if cfg.Gateway.Servers[i].Account != "" {
		db, err := database.Open(ctx, cfg, database.ToDecide) // a token may have to be renewed
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		cfg.UseAccounts(a.env().NewAccounts(func() *config.Config { return cfg }, db, nil))
	}
	server := mcp.NewServer(cfg.Gateway.Servers[i])
	return errors.Join(f(cfg, server), server.Close())
}

// printDraft prints what is guessed, and how it is proved.
func (a *app) printDraft(server string, drafts []pair.Tool) error {
	if a.JSON {
		return a.PrintJSON(drafts)
	}
	fmt.Fprint(a.Out, pair.Text(server, drafts))
	// The example is one that can be proved: a tool with a key, or with a mark that another tool shows.
	i := slices.IndexFunc(drafts, func(t pair.Tool) bool { return t.Key != "" || t.Mark != "" && len(t.Lookups) > 0 })
	if i < 0 {
		fmt.Fprintln(a.Err, "\nNothing was called, and nothing written. No tool of these takes a mark that another one could show.")
		return nil
	}
	fmt.Fprintf(a.Err, "\nNothing was called, and nothing written. A guess counts when it was proved by calls, on an account that may be harmed:\n  keep gateway pair %s --params %s\n",
		terminal.Clean(shell.Word(server+"."+drafts[i].Name)), terminal.Clean(shell.Word(drafts[i].Example()))) // a server says both
	return nil
}

// A pairingFile is the one to which what is shown is added.
type pairingFile struct {
	name, path string
	text       string // as it is; of one that is not there, its beginning
	there      bool
}

// pairingFileOf returns the project's file for a server's tool. The error is about a file that says something of the
// tool already.
func (a *app) pairingFileOf(cfg *config.Config, server *mcp.Server, tool string) (pairingFile, error) {
	f := pairingFile{name: server.Name()}
	if p := server.Pack(); p != nil {
		f.name = p.Name
	}
	f.text = pair.Head(f.name)
	f.path = filepath.Join(cfg.Dir, config.PairingDir, f.name+".toml")
	list, err := config.Pairings(cfg.Dir)
	if err != nil {
		return f, err
	}
	i := slices.IndexFunc(list, func(p config.Pairing) bool { return p.Name == f.name })
	if i < 0 || list[i].BuiltIn && server.Pack() == nil { // a server may happen to be called as one that Keep knows
		return f, nil
	}
	if _, said := list[i].Tools[tool]; said {
		return f, exit.Misusef("%s says something of %s already: take it out of there first, in a copy of yours in %s/ if it is one of Keep's", list[i].File, tool, config.PairingDir)
	}
	f.text, f.there = list[i].Text(), !list[i].BuiltIn
	return f, nil
}

// provePairing proves what is guessed of a tool, if its owner agrees, and writes what was shown.
// All that can be refused is refused before the first call, which cannot be taken back.
func (a *app) provePairing(cmd *cobra.Command, cfg *config.Config, trial pair.Trial, f pairFlags) error {
	if _, err := a.pairingFileOf(cfg, trial.Server, trial.Tool.Name); err != nil {
		return err
	}
	plan := trial.Plan()
	if err := plan.Check(); err != nil {
		return exit.Misusef("%w", err)
	}
	var asked []string
	for _, l := range trial.Tool.Lookups {
		asked = append(asked, terminal.Clean(l.Tool))
	}
	switch {
	case f.lookup != "":
		fmt.Fprintf(a.Err, "What is made is looked for by %s, which you named: it is called each time, whether it reads or not.\n", terminal.Clean(f.lookup))
	case len(asked) > 0:
		fmt.Fprintf(a.Err, "What is made is looked for by %s, which read by their names.\n", strings.Join(asked, ", "))
	}
	note := filepath.Join(cfg.Dir, "proofs", "pair-"+trial.Server.Name()+"."+url.PathEscape(trial.Tool.Name)+".txt")
	if err := a.brokenOff(note); err != nil {
		return err
	}
	if err := a.agree(cmd, trial.Server.Name(), []prove.Plan{plan}, f.yes); err != nil {
		return err
	}
	// From here on something may be made. If this process dies, the note says what, and no file claims anything.
	line := fmt.Sprintf("%s: keep gateway pair calls %s.%s at most %d times. What that makes has %s- in place of {n}, and the mark prove-%s-. This proof did not end.\n",
		a.Now().UTC().Format(time.RFC3339), trial.Server.Name(), terminal.Clean(trial.Tool.Name), trial.Calls, trial.Run, trial.Run)
	if err := changeNote(note, func(text string) string { return text + line }); err != nil {
		return err
	}
	stop := a.Animate(func() string { return "trying " + trial.Server.Name() + "." + terminal.Clean(trial.Tool.Name) })
	proof := trial.Prove(cmd.Context())
	stop()
	r := prove.Report{Connection: trial.Server.Name(), Pack: trial.Server.Pack(), At: api.Time(a.Now()), Budget: trial.Calls, Spent: proof.Tool.Calls,
		Tools: []prove.Tool{proof.Tool}, Stopped: cmd.Context().Err() != nil}
	if err := a.writeProof(cfg, trial, proof, r); err != nil {
		return err
	}
	status := a.reportProof(cfg, r, filepath.Join(cfg.Dir, "proofs", trial.Server.Name()+"."+url.PathEscape(trial.Tool.Name)+".html"))
	// What no report names stays in the note.
	if e, said := errors.AsType[*exit.Error](status); status != nil && !(said && e.Reported()) {
		return status
	}
	// Only the line of this proof goes; that of an earlier one stays until a person removes it, and that of another one which
	// runs beside it until that ends.
	return errors.Join(status, changeNote(note, func(text string) string { return strings.Replace(text, line, "", 1) }))
}

// brokenOff shows the note of proofs that did not end, if there is one.
func (a *app) brokenOff(note string) error {
	text, err := os.ReadFile(note)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if len(text) > 0 {
		fmt.Fprintf(a.Err, "%s A proof of before was broken off, or another one runs now. If none does, look for what it made, and then remove %s:\n%s\n",
			a.Ink.Yellow("keep:"), terminal.Short(note), terminal.CleanText(string(text)))
	}
	return err
}

// changeNote changes what is said of what may be made, whole; without a text there is no note. Proofs of one tool share it, and
// may run at once.
func changeNote(name string, change func(string) string) (err error) {
	unlock, err := lockPairs(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	now := change(string(text))
	if now == "" {
		if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return writeFile(project.File{Name: name, Text: now}, true)
}

// lockPairs waits until no other proof changes its note, or a pairing. Dir has the reports.
func lockPairs(dir string) (unlock func() error, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	one := flock.New(filepath.Join(dir, ".pair.lock"))
	if err := one.Lock(); err != nil {
		return nil, fmt.Errorf("lock %s, which other proofs write to: %w", terminal.Short(dir), err)
	}
	return one.Unlock, nil
}

// writeProof adds what was shown to the pairing, and says how it counts. The text is checked as keep.toml's reader
// would, so that a gateway never finds a pairing that it cannot read. A proof that was stopped
// shows nothing: what was not tried is not known.
//
// The file is read when it is written: a proof takes minutes, and its owner or another proof may have written it meanwhile. Other
// proofs wait from there on.
func (a *app) writeProof(cfg *config.Config, trial pair.Trial, proof pair.Proof, r prove.Report) (err error) {
	server := trial.Server.Name()
	if r.Stopped || proof.Tool.Grade == keep.LevelNone || proof.Tool.Grade != proof.Pairing.Level() {
		fmt.Fprintf(a.Err, "Nothing was written: %s.%s stays at level D, and you are asked after each lost answer.\n", server, terminal.Clean(trial.Tool.Name))
		return nil
	}
	unlock, err := lockPairs(filepath.Join(cfg.Dir, "proofs"))
	if err != nil {
		return notWritten(err, proof.Block(a.Now()))
	}
	defer func() { err = errors.Join(err, unlock()) }()
	file, err := a.pairingFileOf(cfg, trial.Server, trial.Tool.Name)
	if err != nil { // the calls were made, and are not made again for this
		return notWritten(err, proof.Block(a.Now()))
	}
	// Behind what is there: comments and tools that the owner wrote stay.
	text := file.text + proof.Block(a.Now())
	if err := config.CheckPairing(file.name, text); err != nil {
		return err
	}
	err = os.MkdirAll(filepath.Dir(file.path), 0o755)
	if err == nil {
		err = writeFile(project.File{Name: file.path, Text: text}, file.there)
	}
	if err != nil {
		return notWritten(err, proof.Block(a.Now()))
	}
	fmt.Fprintf(a.Err, "%s.%s is of level %s in %s. It counts from the next start of keep gateway on", server, terminal.Clean(trial.Tool.Name), proof.Tool.Grade, terminal.Short(file.path))
	if trial.Server.Pack() == nil {
		fmt.Fprintf(a.Err, ", with this in keep.toml:\n[gateway.servers.%s]\npairing = %s\n", server, pair.Quote(file.name))
		return nil
	}
	fmt.Fprintln(a.Err, ".")
	return nil
}

// notWritten is the error of a proof whose calls were made, and which is not on disk.
func notWritten(err error, shown string) error {
	return fmt.Errorf("%w\nThis was shown, and not written:\n%s", err, shown)
}
