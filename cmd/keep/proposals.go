package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// proposalsCmd lists versions that somebody wrote who may not decide about them, and takes what a person decides.
func (a *app) proposalsCmd() *cobra.Command {
	return a.proposalsOf("proposals", "", "Proposals: versions that wait, or waited, for a person",
		`Proposals lists the versions that a repair, a model (keep write, keep edit), an agent, or a person
who may not give what they call wrote, and what became of each. One that waits is accepted or
rejected here, or by its question in keep inbox.`)
}

// repairsCmd is proposalsCmd for what repairs wrote.
func (a *app) repairsCmd() *cobra.Command {
	return a.proposalsOf("repairs", keep.OriginRepair, "Repairs: what was tried for scripts that failed",
		`Repairs lists what was tried for scripts that failed, if [repair] of keep.toml names a
service of language models. Failures with the same workflow, version, handler, code and
place share one repair. A version that a repair wrote and that is not proved to be
safe waits for a person: accept or reject it here, or answer its question in keep inbox.
They are the keep proposals whose origin is repair.`)
}

// proposalsOf returns the command of a noun that has the proposals of an origin; empty: all. Repairs
// have a noun of their own, by which people look for them.
func (a *app) proposalsOf(use string, origin keep.Origin, short, long string) *cobra.Command {
	list := func() *cobra.Command {
		query := api.ProposalQuery{Origin: origin}
		cmd := listCmd(a, "", short, listing[api.Proposal]{
			header:   []string{"ID", "WORKFLOW", "ORIGIN", "FROM", "VERSION", "STATE", "VERDICT", "TOKENS", "WHEN"},
			statuses: words(api.ProposalStates()),
			fetch: func(ctx context.Context, c *api.Client, f listFlags, p api.Paging) (api.Page[api.Proposal], error) {
				query.Workflow, query.Status = keep.WorkflowName(f.workflow), api.ProposalState(f.status)
				return c.Proposals(ctx, query, p)
			},
			row: func(p api.Proposal) []string {
				return []string{p.ID, string(p.Workflow), string(p.Origin), terminal.OrDash(p.BaseVersion), terminal.OrDash(p.Version), string(p.State),
					terminal.OrDash(p.Verdict), fmt.Sprint(p.Tokens), a.At(p.CreatedAt)}
			},
		})
		cmd.Long = long
		if origin == "" {
			cmd.Flags().StringVar((*string)(&query.Origin), "origin", "", "only those of this `origin`: "+strings.Join(words(keep.Origins()), ", "))
			a.completeFlag(cmd, "origin", fixed(words(keep.Origins())))
			// Not in fetch: the database need not be opened to refuse it.
			cmd.PreRunE = func(*cobra.Command, []string) error { return knownOrigin(query.Origin) }
		}
		return cmd
	}
	show := showCmd(a, "show ID", "Show one: what was tried, what its version changes, and what it would have done otherwise", 1,
		func(ctx context.Context, c *api.Client, args []string) (api.Proposal, error) {
			return orNewest(args[0], func() (api.Proposal, error) { return c.Judged(ctx, args[0]) }, func() (api.Proposal, error) {
				page, err := c.Proposals(ctx, api.ProposalQuery{Origin: origin}, api.Paging{Limit: 1})
				newest, err := firstOf("proposal", page, err)
				if err != nil {
					return newest, err
				}
				return c.Judged(ctx, newest.ID)
			})
		},
		func(_ context.Context, _ *api.Client, p api.Proposal) error { return a.printProposal(p) })
	return noun(use, list, show,
		a.settleProposalCmd("accept", keep.Approve, "Make the version the current one, and grant what it calls"),
		a.settleProposalCmd("reject", keep.Reject, "Keep the version that is current"))
}

// knownOrigin refuses an origin that does not exist, whose list would be empty.
func knownOrigin(o keep.Origin) error {
	if o != "" && !slices.Contains(keep.Origins(), o) {
		return exit.Misusef("--origin is %q, want one of %s", o, strings.Join(words(keep.Origins()), ", "))
	}
	return nil
}

// printProposal shows a proposal in the order in which a person judges it: who wrote it and why, what
// it needs, what was tried, and then the change itself. What its author says of it is marked as
// a claim.
func (a *app) printProposal(p api.Proposal) error {
	var s terminal.Sheet
	s.Add("proposal", "%s of %s, %s", p.ID, p.Workflow, p.State)
	s.Add("origin", "%s, by %s, from %s", p.Origin, terminal.Clean(p.By), terminal.OrDash(p.BaseVersion))
	if f := p.Failure; f != nil {
		s.Add("failure", "%s at %s in %s, last in run %s", terminal.Clean(f.Code), terminal.Clean(f.At), f.Handler, terminal.OrDash(p.Run))
	}
	for i, t := range p.Attempts {
		what := terminal.OrDash(t.Verdict)
		if t.Why != "" {
			what = t.Why
		}
		s.Add(fmt.Sprintf("attempt %d", i+1), "%s (%d tokens)", terminal.Clean(what), t.Tokens)
	}
	if p.Version != nil {
		s.Add("version", "%s, %s", *p.Version, terminal.OrDash(p.Verdict))
	}
	for _, why := range p.Reasons {
		s.Add("because", "%s", terminal.Clean(why))
	}
	if len(p.Grants) > 0 {
		s.Add("needs", "%s", terminal.Clean(strings.Join(p.Grants, ", ")))
	}
	if p.Note != "" {
		s.Add("its author says", "%s (nobody checked that)", terminal.Clean(p.Note))
	}
	if p.Why != "" {
		s.Add("ended", "%s", terminal.Clean(p.Why))
	}
	if p.DecidedBy != nil {
		s.Add("decided", "by %s", terminal.Clean(*p.DecidedBy))
	}
	if p.Question != nil {
		s.Add("question", "%s: keep proposals accept|reject %s", *p.Question, p.ID)
	}
	if p.Replay != nil {
		s.Add("replay", "%s", countsOf(*p.Replay))
	}
	if err := s.Print(a.Out, a.OutInk); err != nil {
		return err
	}
	if len(p.Diff) > 0 {
		fmt.Fprintln(a.Out)
	}
	for _, line := range p.Diff {
		fmt.Fprintln(a.Out, terminal.Clean(line))
	}
	if p.Blast == nil || len(p.Blast.Mutations) == 0 {
		return nil
	}
	fmt.Fprintln(a.Out)
	t := terminal.Table{Header: []string{"CALL", "TOOL", "CHANGE", "WHAT CAN BE DONE"}}
	for _, m := range p.Blast.Mutations {
		t.Add(string(m.Key), string(m.Tool), m.Change, m.Remedy)
	}
	return t.Print(a.Out, a.OutInk)
}

// countsOf says how many recorded runs would have been the same or not.
func countsOf(r api.ProposalReplay) string {
	var parts []string
	for _, c := range []struct {
		n    int
		what string
	}{{r.Same, "same"}, {r.Changed, "changed"}, {r.Missing, "missing"}, {r.Added, "added"}, {r.Failed, "failed"}, {r.Inconclusive, "inconclusive"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	if len(parts) == 0 {
		return "no run is recorded"
	}
	return "runs that are recorded: " + strings.Join(parts, ", ")
}

// settleProposalCmd answers the question about a version. It is the same answer as in the inbox, and
// so is given once. The version is the one that was proposed: a later proposal has another
// question.
func (a *app) settleProposalCmd(verb string, action keep.Action, short string) *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use: verb + " ID", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.decide(ctx, func(c *api.Client) error {
				p, err := c.Proposal(ctx, args[0])
				if err != nil {
					return err
				}
				// Decided already, or never proposed: the state says which.
				if p.Question == nil {
					return fmt.Errorf("no version of proposal %s waits for a person: it is %s", p.ID, p.State)
				}
				if _, err := c.Decide(ctx, *p.Question, api.DecisionRequest{Action: action, Note: note}); err != nil {
					return err
				}
				// What it is now is read again: the answer is about the question.
				if p, err = c.Proposal(ctx, args[0]); err != nil {
					return err
				}
				if a.JSON {
					return a.PrintJSON(p)
				}
				fmt.Fprintf(a.Out, "Version %s of %s is %s.\n", terminal.OrDash(p.Version), p.Workflow, p.State)
				return a.warnOfFile(ctx, c, p.Workflow)
			})
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "why, for whoever reads the history")
	return cmd
}
