package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/rehearsal/replay"
	"github.com/keep-run/keep/script/sandbox"
)

// replayCmd goes through a run again and changes nothing. A difference is status 1, so that CI can
// hold a changed script against the runs that it came from.
func (a *app) replayCmd() *cobra.Command {
	p := replayer{app: a}
	cmd := &cobra.Command{
		Use: "replay ID", Short: "Go through a run again with what it saw, and show where a script differs",
		Long: `Replay goes through a run phase by phase, with the answers, the clock and the chance
that its script had, and compares what comes of it: reservations, the call with its
identity and payload, publishes, items, errors. Without a flag the script is that of
the run's own version. Nothing is sent, and nothing is read from a service.

What is not known is said and never made up: a read that the run did not make, or whose
answer is not kept ([trace] in keep.toml), ends the replay.

Exit codes: 0 equal, 1 it differs or could not be replayed to its end ("verdict" of
--json tells which: different or inconclusive), 2 the script is refused, 3 no such
run, version or file.

` + shortHelp,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().StringVar(&p.with, "with", "", "with the script in this `FILE`")
	cmd.Flags().StringVar(&p.version, "version", "", "with another `VERSION` of the workflow")
	cmd.Flags().BoolVar(&p.current, "current", false, "with the current version of the workflow")
	cmd.ValidArgsFunction = a.byPosition(runIDs)
	return cmd
}

// A replayer goes through one run.
type replayer struct {
	*app
	with, version string
	current       bool
}

// run asks for the replay: the host has what the run saw. A script of --with is compiled here first, so
// that its mistakes have the places of the file.
func (p *replayer) run(ctx context.Context, run string) error {
	q := api.ReplayRequest{Version: p.version}
	if p.with != "" && p.version != "" || p.current && p.with+p.version != "" {
		return exit.Misusef("--with, --version and --current each name a script: give one of them")
	}
	if p.current {
		q.Version = "current"
	}
	if p.with != "" {
		s, err := p.script()
		if err != nil {
			return err
		}
		q.Script = &s
	}
	return p.look(ctx, func(c *api.Client) error {
		id, err := fullID[keep.RunID](ctx, c, keep.NounRun, run)
		if err != nil {
			return err
		}
		r, err := c.Replay(ctx, id, q)
		if found := project.Problems("", err); len(found) > 0 {
			p.PrintProblems(found)
			return exit.With(exit.Misused)
		}
		if err != nil {
			return err
		}
		return p.print(r)
	})
}

// script returns the script of --with with what it imports. A file of the project is built from the
// directory of keep.toml, as a deploy would: names in errors and imports are then the same.
func (p *replayer) script() (api.Script, error) {
	file, err := project.LookForScript(p.with)
	if err != nil {
		return api.Script{}, err
	}
	root := filepath.Dir(file)
	if cfg, _ := p.LoadConfig("."); cfg != nil {
		if rel, err := filepath.Rel(cfg.Dir, file); err == nil && filepath.IsLocal(rel) {
			root = cfg.Dir
		}
	}
	if err := project.FinishWrites(root); err != nil { // of an edit that was killed
		return api.Script{}, err
	}
	b, err := sandbox.Build(root, file)
	if found := project.Problems(root, err); len(found) > 0 {
		p.PrintProblems(found)
		return api.Script{}, exit.With(exit.Misused)
	}
	if err != nil {
		return api.Script{}, exit.Misusef("%w", err)
	}
	return filesOf(b), nil
}

// print prints what came of the replay and returns the error that ends the command.
func (p *replayer) print(r api.Replay) error {
	if p.JSON {
		if err := p.PrintJSON(r); err != nil {
			return err
		}
	} else {
		p.text(p.Out, r)
	}
	if r.Verdict != string(replay.Equal) {
		return exit.With(exit.Failed)
	}
	return nil
}

// text prints the replay for a person. Of two values only the lines between the equal beginning and
// the equal end are shown.
func (p *replayer) text(w io.Writer, r api.Replay) {
	for _, d := range r.Differences {
		fmt.Fprintf(w, "%s: %s\n", p.OutInk.Bold(terminal.Clean(d.Phase)), terminal.Clean(d.What))
		was, now := linesOf(d.Recorded), linesOf(d.Now)
		for len(was) > 0 && len(now) > 0 && was[0] == now[0] {
			was, now = was[1:], now[1:]
		}
		for len(was) > 0 && len(now) > 0 && was[len(was)-1] == now[len(now)-1] {
			was, now = was[:len(was)-1], now[:len(now)-1]
		}
		for _, line := range was {
			fmt.Fprintln(w, p.OutInk.Red("- "+line))
		}
		for _, line := range now {
			fmt.Fprintln(w, p.OutInk.Green("+ "+line))
		}
	}
	for _, m := range r.Missing {
		where := strings.TrimSpace(m.Phase + " " + m.Tool)
		if string(m.Params) != "null" {
			where += " " + terminal.CutTo(string(m.Params), maxSeen)
		}
		if where != "" {
			where += ": "
		}
		fmt.Fprintf(w, "%s %s%s\n", p.OutInk.Yellow("not known:"), terminal.Clean(where), terminal.Clean(m.Why))
	}
	phases := strings.Join(r.Phases, ", ")
	phases = cmp.Or(phases, "no phase")
	fmt.Fprintf(w, "%s: gone through %s of a run of version %s. Nothing was sent.\n", p.OutInk.Bold(r.Verdict), terminal.Clean(phases), r.Version)
}

// linesOf returns a value as lines that can be shown; null has none.
func linesOf(v json.RawMessage) []string {
	if len(v) == 0 || string(v) == "null" {
		return nil
	}
	var b bytes.Buffer
	if json.Indent(&b, v, "", "  ") != nil {
		return []string{terminal.Clean(string(v))}
	}
	lines := strings.Split(b.String(), "\n")
	for i, line := range lines {
		lines[i] = terminal.Clean(line)
	}
	return lines
}
