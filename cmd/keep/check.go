package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/config"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/workflow"
	"github.com/spf13/cobra"
)

// checkCmd never touches the outside: it opens no database and calls no tool.
func (a *app) checkCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [PATH]",
		Short: "Parse, validate, list effects and reconcile levels; no side effect",
		Long: `Check reads the scripts of a file or a directory and keep.toml, and tells what
they would do: which tools each handler uses in which phase, how the outcome of
each change can be known, and everything that is wrong or odd. It opens no
database and calls no tool. A secret that is not set here is only a warning.

With --db and no path it checks a database instead, like keep doctor.`,
		Example: "  keep check .\n  keep check invoices.js --json\n  keep check --db keep.db",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && a.db != "" {
				return a.checkStore(cmd.Context())
			}
			return a.check(cmd.Context(), cmp.Or(append(args, ".")...))
		},
	}
	return cmd
}

// A checkReport is what keep check --json prints.
type checkReport struct {
	OK        bool              `json:"ok"`
	Problems  []complaint       `json:"problems"`
	Workflows []workflowEffects `json:"workflows"`
}

// A workflowEffects is what one script would do.
type workflowEffects struct {
	File string `json:"file"`
	workflow.Report
}

// check collects everything that is wrong before it prints anything.
func (a *app) check(ctx context.Context, path string) error {
	p, err := a.openProject(path)
	if err != nil && (p == nil || !isRejected(err)) {
		return err
	}
	r := checkReport{Workflows: []workflowEffects{}}
	conns, connErr := p.cfg.Describe()
	defer closeAll(conns)
	r.Problems = append(r.Problems, a.complaints("", errors.Join(err, connErr))...)
	broken := len(r.Problems) > 0
	r.Problems = append(r.Problems, ofConfig(p.cfg.Missing, workflow.Warning)...)
	r.Problems = append(r.Problems, ofConfig(p.cfg.Warnings, workflow.Warning)...)
	limits := p.cfg
	if broken {
		limits = &config.Config{} // the limits may be what is wrong; the defaults will do
	}
	rt, err := a.openRuntime(ctx, limits)
	if err != nil {
		return err
	}
	defer rt.Close()
	scripts, found, err := a.load(ctx, rt, p)
	if err != nil {
		return err
	}
	r.Problems = append(r.Problems, found...)
	if broken {
		fmt.Fprintln(a.err, "Which tools the scripts use is not checked before keep.toml is in order.")
		scripts = nil
	}
	for _, s := range scripts {
		effects, err := workflow.Effects(s.Declaration, s.Sources, conns)
		if err != nil {
			return fmt.Errorf("effects of %s: %w", s.file, err)
		}
		r.Problems = append(r.Problems, findings(p.root, effects)...)
		effects.Findings = []workflow.Finding{} // they are among the problems
		r.Workflows = append(r.Workflows, workflowEffects{short(filepath.Join(p.root, s.file)), effects})
	}
	sortComplaints(r.Problems)
	return a.printCheck(r)
}

// findings returns what Effects noticed as complaints.
func findings(root string, r workflow.Report) []complaint {
	var out []complaint
	for _, f := range r.Findings {
		c := at(root, f.Position, fmt.Sprintf("%s, %s: %s", f.Handler, f.Place, f.Message), f.Fix)
		c.Severity = string(f.Severity)
		out = append(out, c)
	}
	return out
}

// printCheck prints the report and returns the error that ends the command.
func (a *app) printCheck(r checkReport) error {
	failed := 0
	for _, c := range r.Problems {
		if c.Severity == string(workflow.Error) {
			failed++
		}
	}
	r.OK = failed == 0
	if a.json {
		if r.Problems == nil {
			r.Problems = []complaint{}
		}
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else {
		for _, c := range r.Problems {
			fmt.Fprint(a.out, a.outInk.complaint(c))
		}
		for _, w := range r.Workflows {
			if err := printEffects(a.out, a.outInk, w); err != nil {
				return err
			}
		}
	}
	if failed > 0 {
		fmt.Fprintf(a.err, "%s %s\n", a.ink.red("keep:"), plural(failed, "problem")+" found")
		return said(exitMisused)
	}
	return nil
}

// printEffects tells a person what one script would do.
func printEffects(w io.Writer, ink ink, e workflowEffects) error {
	fmt.Fprintf(w, "\n%s (%s)\n", ink.bold(string(e.Workflow)), clean(e.File))
	for _, h := range e.Handlers {
		fmt.Fprintf(w, "  %s %s%s\n", h.Kind, h.Handler, clean(about(h)))
		for _, u := range h.Uses {
			level := ""
			if u.Level != nil {
				level = ", level " + string(*u.Level)
			}
			fmt.Fprintf(w, "    %-10s %s (%s%s)\n", u.Place, u.Tool, u.Effect, level)
		}
	}
	for _, t := range e.Tools {
		if t.Effect != connector.Mutate {
			continue
		}
		fmt.Fprintf(w, "  %s\n", ink.bold(string(t.Tool)))
		for _, n := range t.Notes {
			fmt.Fprintf(w, "    %s\n", clean(n))
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
	case h.Publishes != nil && len(h.Publishes) == 0:
		b.WriteString(", publishes nothing")
	case h.Publishes != nil:
		fmt.Fprintf(&b, ", publishes %s", names(h.Publishes))
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
