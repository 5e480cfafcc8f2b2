package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/script/workflow"
)

// checkCmd changes nothing: it reads the database, if there is one, and calls no tool. It is what
// CI runs, where secrets are not set: a missing one is no reason to fail.
func (a *app) checkCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [PATH]",
		Short: "Parse, validate, list effects and reconcile levels; no side effect",
		Long: `Check reads the scripts of a file or a directory and keep.toml, and tells what
they would do: which tools each handler uses in which phase, how the outcome of
each change can be known, and everything that is wrong or odd. It calls no tool. If
there is a database, it looks there for work of what may have another name now. A
secret that is not set here is only a warning.

With --db and no path it checks a database instead, like keep doctor.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && a.DB != "" {
				return a.checkStore(cmd.Context())
			}
			return a.check(cmd.Context(), cmp.Or(append(args, ".")...))
		},
	}
	return cmd
}

// A checkReport is what keep check --json prints.
type checkReport struct {
	OK        bool               `json:"ok"`
	Problems  []terminal.Problem `json:"problems"`
	Workflows []workflowEffects  `json:"workflows"`
}

// A workflowEffects is what one script would do.
type workflowEffects struct {
	File string `json:"file"`
	workflow.Report
}

// check collects everything that is wrong before it prints anything, so that one run shows all
// there is to repair. Errors that are not about the project, as of the sandbox, end it at once.
func (a *app) check(ctx context.Context, path string) error {
	p, err := a.OpenProject(path)
	if err != nil && (p == nil || !exit.Rejected(err)) {
		return err
	}
	r := checkReport{Workflows: []workflowEffects{}}
	// Described and not opened: secrets need not be set here.
	conns, connErr := p.Cfg.Describe()
	defer project.CloseConnections(conns)
	r.Problems = append(r.Problems, project.Problems("", errors.Join(err, connErr))...)
	broken := len(r.Problems) > 0
	r.Problems = append(r.Problems, project.OfSettings(p.Cfg)...)
	limits := p.Cfg
	if broken {
		limits = &config.Config{} // the limits may be what is wrong; the defaults will do
	}
	rt, err := project.OpenSandbox(ctx, limits, a.log)
	if err != nil {
		return err
	}
	defer rt.Close()
	scripts, found, err := project.Load(ctx, rt, p)
	if err != nil {
		return err
	}
	r.Problems = append(r.Problems, found...)
	if broken {
		fmt.Fprintln(a.Err, "Which tools the scripts use is not checked before keep.toml is in order.")
		// Every tool of a connection that could not be read would be reported as unknown.
		scripts = nil
	}
	for _, s := range scripts {
		effects, err := workflow.Effects(s.Declaration, s.Sources, conns)
		if err != nil {
			return fmt.Errorf("effects of %s: %w", s.File, err)
		}
		r.Problems = append(r.Problems, project.Findings(p.Root, effects)...)
		effects.Findings = []workflow.Finding{} // they are among the problems
		r.Workflows = append(r.Workflows, workflowEffects{terminal.Short(filepath.Join(p.Root, s.File)), effects})
	}
	if !broken {
		whole := isDir(path) && !terminal.HasErrors(found) // what a script that cannot be read declares is not known
		r.Problems = append(r.Problems, a.checkNames(ctx, p, scripts, whole, conns)...)
		r.Problems = append(r.Problems, checkAround(ctx, whole, p, scripts, r.Workflows)...)
	}
	terminal.SortProblems(r.Problems)
	return a.printCheck(ctx, r)
}

// lookLimit is how long keep check waits for a database. The scripts can be judged without it, and
// an address that does not answer must not hold up CI.
const lookLimit = 5 * time.Second

// isDir reports whether path is a directory: all scripts of a project.
func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// checkNames returns what may be, by another name, what the database has work of, and, if the scripts are the whole
// project, what continues without one. A database that cannot be read is no mistake of the project.
func (a *app) checkNames(ctx context.Context, p *project.Project, scripts []project.Script, whole bool, conns []connector.Connection) []terminal.Problem {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	db, err := database.Open(ctx, p.Cfg, database.ToRead)
	if errors.Is(err, keep.ErrNoDatabase) {
		return nil
	}
	if err == nil {
		defer db.Close()
		if err = project.Continue(ctx, db, p.Cfg, scripts); err == nil {
			err = project.Renamed(ctx, db, p.Root, scripts, conns)
		}
	}
	if found := project.Problems(p.Root, err); len(found) > 0 {
		return found
	}
	if err == nil {
		var all []keep.Workflow
		var names []string
		if all, err = db.Workflows(ctx); err == nil {
			names, err = project.WithoutScript(all, project.NamesOf(scripts), project.Entries(ctx, db))
		}
		switch {
		case err != nil:
		case whole && len(names) > 0:
			return []terminal.Problem{{Severity: string(workflow.Warning), Code: "no-script", Message: project.Continues(names), Fix: project.HowToEnd(names)}}
		default:
			return nil
		}
	}
	return []terminal.Problem{{Severity: string(workflow.Warning), Code: "names-unchecked",
		Message: "whether something was renamed that the database has work of is not checked: " + err.Error()}}
}

// checkAround reports what is odd in what is around the scripts, as far as the database can be read.
// Only of a whole directory is it known that no script declares what a hook delivers to. Why the
// database cannot be read was said by checkNames.
func checkAround(ctx context.Context, whole bool, p *project.Project, scripts []project.Script, workflows []workflowEffects) []terminal.Problem {
	around := project.Around{Cfg: p.Cfg, Scripts: scripts, Whole: whole}
	for _, w := range workflows {
		for _, t := range w.Tools {
			around.Tools = append(around.Tools, t.Tool)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	if !around.NeedsAccounts() {
		return around.Problems(ctx, nil)
	}
	db, err := database.Open(ctx, p.Cfg, database.ToRead)
	if err != nil {
		return around.Problems(ctx, nil)
	}
	defer db.Close()
	return around.Problems(ctx, db)
}

// printCheck prints the report and returns the error that ends the command: status 2 if there is
// an error. Warnings alone leave it at 0, but not if it was stopped: what was not looked at since is no warning.
func (a *app) printCheck(ctx context.Context, r checkReport) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// The JSON and the status are of one count, also where warnings stand beside errors.
	failed := 0
	for _, c := range r.Problems {
		if c.Severity == string(workflow.Error) {
			failed++
		}
	}
	r.OK = failed == 0
	if a.JSON {
		if r.Problems == nil {
			r.Problems = []terminal.Problem{}
		}
		if err := a.PrintJSON(r); err != nil {
			return err
		}
	} else {
		for _, c := range r.Problems {
			fmt.Fprint(a.Out, a.OutInk.Problem(c))
		}
		for i, w := range r.Workflows {
			if i > 0 || len(r.Problems) > 0 {
				fmt.Fprintln(a.Out)
			}
			if err := printEffects(a.Out, a.OutInk, w); err != nil {
				return err
			}
		}
	}
	if failed > 0 {
		fmt.Fprintf(a.Err, "%s %s\n", a.Ink.Red("keep:"), terminal.Plural(failed, "problem")+" found")
		return exit.With(exit.Misused)
	}
	return nil
}

// printEffects tells a person what one script would do.
func printEffects(w io.Writer, ink terminal.Ink, e workflowEffects) error {
	fmt.Fprintf(w, "%s (%s)\n", ink.Bold(string(e.Workflow)), terminal.Clean(e.File))
	for _, h := range e.Handlers {
		fmt.Fprintf(w, "  %s %s%s\n", h.Kind, h.Handler, terminal.Clean(about(h)))
		for _, u := range h.Uses {
			level := ""
			if u.Level != nil {
				level = ", level " + string(*u.Level)
			}
			fmt.Fprintf(w, "    %-10s %s (%s%s)\n", u.Place, u.Tool, u.Effect, level)
		}
	}
	for _, t := range e.Tools {
		// How its outcome can be known is a question only of a call that changes something.
		if t.Effect != connector.Mutate {
			continue
		}
		fmt.Fprintf(w, "  %s\n", ink.Bold(string(t.Tool)))
		for _, n := range t.Notes {
			fmt.Fprintf(w, "    %s\n", terminal.Clean(n))
		}
	}
	return nil
}

// about says what a handler listens to, publishes, and when it runs.
func about(h workflow.HandlerReport) string {
	var b strings.Builder
	if len(h.Subscribe) > 0 {
		fmt.Fprintf(&b, ", subscribes to %s", names(h.Subscribe))
	}
	switch {
	case !h.Declared && h.Kind != keep.Producer: // it may publish to any topic, and need not
	case len(h.Publishes) == 0:
		b.WriteString(", publishes nothing")
	default:
		fmt.Fprintf(&b, ", publishes %s", names(h.Publishes))
	}
	if h.Order != nil && *h.Order != "all" {
		fmt.Fprintf(&b, ", order %s", *h.Order)
	}
	switch {
	case h.Schedule == nil:
	case h.Schedule.Cron != "":
		fmt.Fprintf(&b, ", at %q %s", h.Schedule.Cron, cmp.Or(h.Schedule.Timezone, "UTC"))
	default:
		fmt.Fprintf(&b, ", every %s", h.Schedule.Interval)
	}
	return b.String()
}

// names returns topics on one line.
func names(topics []keep.TopicName) string {
	out := make([]string, len(topics))
	for i, t := range topics {
		out[i] = string(t)
	}
	return strings.Join(out, ", ")
}
