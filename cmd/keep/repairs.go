package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/web"
)

// repairsCmd lists what was done about scripts that failed, and takes what a person decides about it.
func (a *app) repairsCmd() *cobra.Command {
	list := func() *cobra.Command {
		cmd := listCmd(a, "", "Repairs: what was tried for scripts that failed", listing[api.Repair]{
			header: []string{"ID", "WORKFLOW", "FAILED", "STATE", "VERDICT", "VERSION", "ATTEMPTS", "TOKENS", "WHEN"},
			fetch: func(ctx context.Context, c *api.Client, f listFlags, p api.Paging) (api.Page[api.Repair], error) {
				all, err := c.Repairs(ctx, keep.WorkflowName(f.workflow))
				return inMemory(all, p, func(r api.Repair) string { return r.ID }, err)
			},
			row: func(r api.Repair) []string {
				return []string{r.ID, string(r.Workflow), r.BaseVersion, string(r.State), terminal.OrDash(r.Verdict), terminal.OrDash(r.Version),
					fmt.Sprint(r.Attempt), fmt.Sprint(r.Tokens), a.At(r.CreatedAt)}
			},
		})
		cmd.Long = `Repairs lists what was tried for scripts that failed, if [repair] of keep.toml names a
service of language models. Failures with the same workflow, version, handler, code and
place share one repair. A version that a repair wrote and that is not proved to be
safe waits for a person: accept or reject it here, or answer its question in keep inbox.`
		return cmd
	}
	show := showCmd(a, "show ID", "Show a repair: what was tried, and what the version changes", 1,
		func(ctx context.Context, c *api.Client, args []string) (shownRepair, error) {
			return a.repair(ctx, c, args[0])
		},
		func(_ context.Context, _ *api.Client, r shownRepair) error { return a.printRepair(r) })
	return noun("repairs", list, show,
		a.settleRepairCmd("accept", keep.Approve, "Make the version of a repair the current one"),
		a.settleRepairCmd("reject", keep.Reject, "Keep the version that is current"))
}

// A shownRepair is what repairs show prints.
type shownRepair struct {
	api.Repair
	Diff   []string        `json:"diff"`   // of the scripts, by lines
	Replay *api.Comparison `json:"replay"` // what the version would have done otherwise; null: there is no version, or nobody can compare it
}

// repair reads a repair, and compares its version with the one that failed.
func (a *app) repair(ctx context.Context, c *api.Client, id string) (shownRepair, error) {
	r, err := orNewest(id, func() (api.Repair, error) { return c.Repair(ctx, id) }, func() (api.Repair, error) {
		all, err := c.Repairs(ctx, "")
		newest, err := firstOf("repair", api.Page[api.Repair]{Items: all}, err)
		if err != nil {
			return newest, err
		}
		return c.Repair(ctx, newest.ID)
	})
	out := shownRepair{Repair: r, Diff: []string{}}
	if err != nil || r.Source == "" {
		return out, err
	}
	out.Diff = append(out.Diff, web.Diff(r.BaseSource, r.Source)...)
	if r.Version == nil {
		return out, nil
	}
	replay, err := c.Compare(ctx, r.Workflow, api.CompareRequest{From: r.BaseVersion, Version: *r.Version})
	if err != nil {
		return out, err
	}
	out.Replay = &replay
	return out, nil
}

// printRepair shows a repair.
func (a *app) printRepair(r shownRepair) error {
	var s terminal.Sheet
	s.Add("repair", "%s of %s %s, %s", r.ID, r.Workflow, r.BaseVersion, r.State)
	s.Add("failure", "%s at %s in %s, last in run %s", terminal.Clean(r.Code), terminal.Clean(r.At), r.Handler, r.Run)
	for i, t := range r.Attempts {
		what := terminal.OrDash(t.Verdict)
		if t.Why != "" {
			what = t.Why
		}
		s.Add(fmt.Sprintf("attempt %d", i+1), "%s (%d tokens)", terminal.Clean(what), t.Tokens)
	}
	if r.Version != nil {
		s.Add("version", "%s, %s", *r.Version, terminal.OrDash(r.Verdict))
	}
	for _, why := range r.Reasons {
		s.Add("because", "%s", terminal.Clean(why))
	}
	if r.Note != "" {
		s.Add("the model says", "%s (nobody checked that)", terminal.Clean(r.Note))
	}
	if r.Why != "" {
		s.Add("ended", "%s", terminal.Clean(r.Why))
	}
	if r.Question != nil {
		s.Add("question", "%s: keep repairs accept|reject %s", *r.Question, r.ID)
	}
	if r.Replay != nil {
		s.Add("replay", "%s", countsOf(*r.Replay))
	}
	if err := s.Print(a.Out, a.OutInk); err != nil {
		return err
	}
	if len(r.Diff) > 0 {
		fmt.Fprintln(a.Out)
	}
	for _, line := range r.Diff {
		fmt.Fprintln(a.Out, terminal.Clean(line))
	}
	if r.Replay == nil || len(r.Replay.Mutations) == 0 {
		return nil
	}
	fmt.Fprintln(a.Out)
	t := terminal.Table{Header: []string{"CALL", "TOOL", "CHANGE", "WHAT CAN BE DONE"}}
	for _, m := range r.Replay.Mutations {
		t.Add(string(m.Key), string(m.Tool), m.Change, m.Remedy)
	}
	return t.Print(a.Out, a.OutInk)
}

// countsOf says how many recorded runs would have been the same or not.
func countsOf(c api.Comparison) string {
	var parts []string
	for _, change := range []string{"same", "changed", "missing", "added", "failed", "inconclusive"} {
		if n := c.Counts[change]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, change))
		}
	}
	if len(parts) == 0 {
		return "no run is recorded"
	}
	return "runs that are recorded: " + strings.Join(parts, ", ")
}

// settleRepairCmd answers the question about the version of a repair.
func (a *app) settleRepairCmd(verb string, action keep.Action, short string) *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use: verb + " ID", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.decide(ctx, func(c *api.Client) error {
				r, err := c.Repair(ctx, args[0])
				if err != nil {
					return err
				}
				if r.Question == nil {
					return fmt.Errorf("no version of repair %s waits for a person: it is %s", r.ID, r.State)
				}
				if _, err := c.Decide(ctx, *r.Question, api.DecisionRequest{Action: action, Note: note}); err != nil {
					return err
				}
				if r, err = c.Repair(ctx, args[0]); err != nil {
					return err
				}
				if a.JSON {
					return a.PrintJSON(r)
				}
				fmt.Fprintf(a.Out, "Version %s of %s is %s.\n", terminal.OrDash(r.Version), r.Workflow, r.State)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "why, for whoever reads the history")
	return cmd
}
