package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/prove"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/connector"
)

// proveFlags are those of keep prove.
type proveFlags struct {
	calls  int
	yes    bool
	params string
	wait   time.Duration
	page   string
}

// proveCmd tries the tools of a connection on a sandbox account. It records nothing in the ledger:
// what it makes belongs to no workflow, and losing answers on purpose would open questions.
func (a *app) proveCmd() *cobra.Command {
	var f proveFlags
	cmd := &cobra.Command{
		Use: "prove CONNECTION[.TOOL]", Short: "Find out on a sandbox account what a service does with lost and repeated calls",
		Long: `Prove makes real calls of the tools that change something: use an account that may be
harmed. It first says what it will make, and asks. Then it loses answers, repeats
calls, makes them twice at once and breaks them off, and counts their effects by the
tool's lookup. It prints the level that was shown for each tool, how long effects took
to show, what a repeat answered, and what to write into the pack.

The params are the example of each tool; a tool of keep.toml may have its own
(example = {…}). {n} in a text of them stands for something new in each call.
Nothing is recorded in the database. The report is also a page, proofs/CONNECTION.html
beside keep.toml.

The status is 1 if a tool showed less than the level that is configured.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.prove(cmd, args[0], f) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.calls, "calls", 20, "the most calls of each tool that change something")
	flags.BoolVar(&f.yes, "yes", false, "do not ask first")
	flags.StringVar(&f.params, "params", "", "`JSON` of the params, for one tool")
	flags.DurationVar(&f.wait, "wait", time.Minute, "how long an effect may take to show")
	flags.StringVar(&f.page, "page", "", "`file` of the page")
	return cmd
}

// prove tries one tool of a connection, or all. If it is interrupted, what was shown until then is
// reported all the same: the calls were made, and the person has to know of them.
func (a *app) prove(cmd *cobra.Command, name string, f proveFlags) error {
	if f.calls < prove.MinCalls {
		return exit.Misusef("--calls is %d, want at least %d: fewer show nothing", f.calls, prove.MinCalls)
	}
	cfg, err := a.LoadConfig(".")
	if err != nil {
		return err
	}
	name, tool, _ := strings.Cut(name, ".")
	conn, err := cfg.ConnectOne(name)
	if errors.Is(err, fs.ErrNotExist) {
		return &keep.NotFoundError{What: "connection", ID: name}
	}
	if err != nil {
		return err
	}
	if conn.Close != nil {
		defer conn.Close()
	}
	plans, err := provePlans(conn, tool, f)
	if err != nil {
		return err
	}
	if err := mayReplace(pageOf(cfg, name, f.page), beginsPage); err != nil { // before the first call
		return err
	}
	if err := a.agree(cmd, name, plans, f.yes); err != nil {
		return err
	}
	r := prove.Report{Connection: name, Pack: conn.Pack, At: api.Time(a.Now()), Budget: f.calls * len(plans), Tools: []prove.Tool{}}
	for _, p := range plans {
		stop := a.Animate(func() string { return "trying " + name + "." + p.Tool.Spec().Name })
		t := prove.Try(cmd.Context(), name, p, f.wait)
		stop()
		r.Tools = append(r.Tools, t)
		r.Spent += t.Calls
		// The tools after it were not tried; the report says that it was stopped.
		if r.Stopped = cmd.Context().Err() != nil; r.Stopped {
			break
		}
	}
	return a.reportProof(cfg, r, f.page)
}

// provePlans returns what is to be tried. The error is about what was asked for, of all tools at once.
// Reads are not tried: they leave nothing by which a loss could be seen.
func provePlans(conn *connector.Connection, tool string, f proveFlags) (plans []prove.Plan, err error) {
	var names []string
	for _, t := range conn.Tools {
		m, ok := t.(connector.Mutator)
		if !ok {
			continue
		}
		names = append(names, t.Spec().Name)
		if tool == "" || t.Spec().Name == tool {
			plans = append(plans, prove.Plan{Tool: m, Params: t.Spec().Example, Calls: f.calls})
		}
	}
	switch {
	case len(plans) == 0 && tool == "":
		return nil, exit.Misusef("no tool of connection %s changes something, and only those are tried", conn.Name)
	case len(plans) == 0:
		return nil, &keep.NotFoundError{What: "tool that changes something in connection " + conn.Name + " with the name", ID: tool}
	case f.params != "" && tool == "":
		return nil, exit.Misusef("--params is for one tool: CONNECTION.TOOL with one of %s", strings.Join(names, ", "))
	case f.params != "":
		plans[0].Params = json.RawMessage(f.params)
	}
	var bad []error
	for _, p := range plans {
		if err := p.Check(); err != nil {
			bad = append(bad, exit.Misusef("%w", err))
		}
	}
	return plans, errors.Join(bad...)
}

// agree says what will be made and asks whether it may be. Without an agreement nothing is
// sent. Where nobody can be asked, only --yes agrees; a pipe that says yes does not.
func (a *app) agree(cmd *cobra.Command, name string, plans []prove.Plan, yes bool) error {
	t := terminal.Table{Header: []string{"TOOL", "LEVEL", "CALLS", "PARAMS"}}
	for _, p := range plans {
		spec := p.Tool.Spec()
		t.Add(spec.Name, string(spec.Level), fmt.Sprintf("at most %d", p.Calls), string(p.Params)) // all of them: nobody agrees to what he did not see
	}
	fmt.Fprintf(a.Err, "%s is called for real. On its account this will be made, and not removed:\n\n", terminal.Clean(name))
	if err := t.Print(a.Err, a.Ink); err != nil {
		return err
	}
	if yes {
		return nil
	}
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return exit.Misusef("nothing was sent: say --yes if this may be made")
	}
	fmt.Fprint(a.Err, "\nMay it be made? Write yes: ")
	line, err := bufio.NewReader(untilDone{cmd.Context(), in}).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "yes" {
		return exit.Failedf("nothing was sent")
	}
	return nil
}

// pageOf returns the file of a report's page.
func pageOf(cfg *config.Config, connection, file string) string {
	return cmp.Or(file, filepath.Join(cfg.Dir, "proofs", connection+".html"))
}

// reportProof prints a report and writes its page; one does not depend on the other. The status is 1
// if a tool showed less than keep.toml believes of it, or if the proof was stopped.
func (a *app) reportProof(cfg *config.Config, r prove.Report, file string) error {
	file = pageOf(cfg, r.Connection, file)
	err := writePage(file, r)
	if a.JSON {
		err = errors.Join(a.PrintJSON(r), err)
	} else {
		err = errors.Join(a.printProof(r), err)
		fmt.Fprintf(a.Err, "The page is %s.\n", terminal.Short(file))
	}
	if err == nil && !r.Passed() {
		err = exit.With(exit.Failed)
	}
	return err
}

// writePage writes the page of a report. Params may be private: nobody else reads it.
func writePage(file string, r prove.Report) (err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	// Over the page of an earlier proof: the newest counts.
	f, err := openReport(file, beginsPage, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(r.Page(f), f.Close())
}

// printProof prints a report for people. A level that was not reached is red.
func (a *app) printProof(r prove.Report) error {
	t := terminal.Table{Header: []string{"TOOL", "LEVEL", "SHOWN", "CALLS", "FOUND", "P50", "P99"}}
	for _, p := range r.Tools {
		shown := string(p.Grade)
		// Levels are letters, and A is the best.
		if p.Grade > p.Level {
			shown = a.OutInk.Red(shown)
		}
		t.Add(p.Tool, string(p.Level), shown, fmt.Sprint(p.Calls), fmt.Sprint(p.Found), visible(p.VisibleP50), visible(p.VisibleP99))
	}
	if err := t.Print(a.Out, a.OutInk); err != nil {
		return err
	}
	for _, p := range r.Tools {
		var repeated []string
		if p.Repeat != "" { // else none was tried
			repeated = []string{"A repeat was " + p.Repeat + "."}
		}
		for _, line := range slices.Concat(repeated, p.Faults, p.Advice) {
			fmt.Fprintf(a.Out, "%s: %s\n", p.Tool, terminal.Clean(line))
		}
	}
	return nil
}

// visible writes a time that may not be known.
func visible(ms *float64) string {
	if ms == nil {
		return "-"
	}
	return (time.Duration(*ms*1000) * time.Microsecond).Round(time.Millisecond).String()
}
