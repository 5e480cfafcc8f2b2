package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/law/grant"
)

// grantsCmd lists what workflows may do, and changes it. A grant is all that a workflow may call;
// each change makes another one, and those before are kept.
func (a *app) grantsCmd() *cobra.Command {
	list := func() *cobra.Command {
		cmd := listCmd(a, "", "Grants: which tools each workflow may call", listing[api.Grant]{
			header: []string{"WORKFLOW", "MAY CALL", "GIVEN BY", "FROM", "WHEN"},
			fetch: func(ctx context.Context, c *api.Client, f listFlags, p api.Paging) (api.Page[api.Grant], error) {
				all, err := c.Grants(ctx)
				var of []api.Grant
				for _, g := range all {
					if f.workflow == "" || g.Workflow == keep.WorkflowName(f.workflow) {
						of = append(of, g)
					}
				}
				return inMemory(of, p, func(g api.Grant) string { return string(g.Workflow) }, err)
			},
			row: func(g api.Grant) []string {
				if g.TakenAt != nil {
					return []string{string(g.Workflow), "nothing: all was taken", terminal.Clean(terminal.OrEmpty(g.TakenBy)), g.From, a.At(*g.TakenAt)}
				}
				return []string{string(g.Workflow), toolNames(g), terminal.Clean(g.GivenBy), g.From, a.At(g.GivenAt)}
			},
		})
		cmd.Long = `Grants lists which tools each workflow may call. A workflow that was never given a
grant may call every tool, and is not listed: one that an earlier version of Keep deployed.
keep run, dev, deploy and serve PATH give a workflow what its script calls, unless keep.toml
has a [grants.WORKFLOW] for it, which is then all that it may do.`
		return cmd
	}
	show := showCmd(a, "show WORKFLOW", "Show what a workflow may do, and what it might before", 1,
		func(ctx context.Context, c *api.Client, args []string) (api.GrantDetail, error) {
			return c.Grant(ctx, keep.WorkflowName(args[0]))
		}, func(_ context.Context, _ *api.Client, g api.GrantDetail) error { return a.printGrant(g) })
	show.ValidArgsFunction = a.byPosition(workflowNames)
	return noun("grants", list, show, a.giveCmd(), a.takeCmd())
}

// toolNames returns the tools of a grant, in short.
func toolNames(g api.Grant) string {
	if len(g.Tools) == 0 {
		return "nothing"
	}
	var out []string
	for _, t := range g.Tools {
		name := t.Tool
		if t.When != nil || t.Approve != nil {
			name += " (conditions)"
		}
		out = append(out, name)
	}
	return terminal.Clean(strings.Join(out, ", "))
}

// printGrant shows a grant and those before it: who gave what, and when, is what a person asks after
// a call that should not have been made.
func (a *app) printGrant(g api.GrantDetail) error {
	var s terminal.Sheet
	s.Add("workflow", "%s", g.Workflow)
	if g.TakenAt != nil {
		s.Add("may call", "nothing: %s took all at %s", terminal.Clean(terminal.OrEmpty(g.TakenBy)), a.At(*g.TakenAt))
	}
	for _, t := range api.Granted(g.Tools) {
		s.Add("may call", "%s", terminal.Clean(grant.Text(t)))
	}
	s.Add("given", "by %s (%s) at %s, to version %s", terminal.Clean(g.GivenBy), terminal.Clean(g.From), a.At(g.GivenAt), g.Version)
	if err := s.Print(a.Out, a.OutInk); err != nil || len(g.History) < 2 {
		return err
	}
	fmt.Fprintln(a.Out)
	t := terminal.Table{Header: []string{"GRANT", "MAY CALL", "BY", "FROM", "WHEN"}}
	for _, h := range g.History {
		by, at := h.GivenBy, h.GivenAt
		if h.TakenAt != nil {
			by, at = terminal.OrEmpty(h.TakenBy), *h.TakenAt
		}
		t.Add(h.ID, toolNames(h), terminal.Clean(by), h.From, a.At(at))
	}
	return t.Print(a.Out, a.OutInk)
}

// giveCmd adds tools to a grant.
func (a *app) giveCmd() *cobra.Command {
	var when, approve string
	var yes bool
	cmd := &cobra.Command{
		Use: "give WORKFLOW TOOL…", Short: "Let a workflow call tools",
		Long: `Give adds tools to what a workflow may call, or gives them other conditions. A tool is
bank.pay, or bank.* for all of a connection. Without --yes it only shows the difference.
Conditions are expressions (CEL) over params. A workflow that has no grant yet may call
every tool, and from then on only these.`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var more []keep.GrantedTool
			for _, tool := range args[1:] {
				// A tool that is misspelled would be granted, and the right one refused in a run.
				t := keep.GrantedTool{Tool: tool, When: when, Approve: approve}
				if err := a.grantable(t); err != nil {
					return err
				}
				more = append(more, t)
			}
			// Before a grant is stored that no call could be held against.
			if _, err := grant.Compile(more); err != nil {
				return exit.Misusef("%w", err)
			}
			return a.changeGrant(cmd.Context(), keep.WorkflowName(args[0]), yes, func(now []keep.GrantedTool) ([]keep.GrantedTool, error) {
				// A tool that is named again gets the conditions of now; the others keep theirs.
				return grant.Merge(now, more), nil
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&when, "when", "", "`condition` that params must meet")
	fs.StringVar(&approve, "approve", "", "`condition` on which a person must agree to the call, or always")
	fs.BoolVar(&yes, "yes", false, "do it")
	cmd.ValidArgsFunction = a.byPosition(workflowNames)
	return cmd
}

// takeCmd takes tools from a grant. It takes names as the grant has them: from bank.* no single tool
// can be taken, which would leave a grant that nobody wrote.
func (a *app) takeCmd() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "take WORKFLOW [TOOL…]", Short: "Take tools from a workflow, or all of them",
		Long: `Take revokes tools of a workflow: nothing of them is sent again, and what may
have happened is still looked up. Tools are named as its grant names them; without any, all
are taken. Without --yes it only shows the difference. What keep.toml grants comes back when
that is read again.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeGrant(cmd.Context(), keep.WorkflowName(args[0]), yes, func(now []keep.GrantedTool) ([]keep.GrantedTool, error) {
				if len(args) == 1 {
					return nil, nil
				}
				rest, missing := grant.Without(now, args[1:])
				if len(missing) > 0 {
					return nil, exit.Failedf("the grant of %s does not name %s; see keep grants show %s", args[0], strings.Join(missing, ", "), args[0])
				}
				return rest, nil
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	cmd.ValidArgsFunction = a.byPosition(workflowNames)
	return cmd
}

// grantable refuses a tool that no connection of keep.toml has, and an approve of one that reads. A configuration
// that cannot be read is no reason to refuse.
func (a *app) grantable(t keep.GrantedTool) error {
	cfg, err := a.LoadConfig(".")
	if err != nil {
		return nil
	}
	conns, err := cfg.Describe()
	defer project.CloseConnections(conns)
	if err != nil {
		return nil
	}
	if why := cfg.Ungrantable(t, conns); why != "" {
		return exit.Misusef("%s; keep check shows the tools that a script calls", why)
	}
	return nil
}

// changeGrant shows what a change of a grant comes to, and makes it if the person said yes. What is
// made names the grant that was shown: if somebody gave another one meanwhile, nothing changes.
func (a *app) changeGrant(ctx context.Context, w keep.WorkflowName, yes bool, change func([]keep.GrantedTool) ([]keep.GrantedTool, error)) error {
	return a.decide(ctx, func(c *api.Client) error {
		// A workflow without a grant and a name that is none have the same answer below.
		if _, err := c.Workflow(ctx, w); err != nil {
			return err
		}
		now, err := c.Grant(ctx, w)
		if err != nil && !errors.Is(err, keep.ErrNotFound) {
			return err
		}
		old := api.Granted(now.Tools)
		next, err := change(old)
		if err != nil {
			return err
		}
		if now.ID == "" {
			fmt.Fprintf(a.Err, "Workflow %s has no grant, and may call every tool until it has one.\n", w)
		}
		for _, line := range grant.Difference(old, next) {
			fmt.Fprintln(a.Err, terminal.Clean(line))
		}
		if !yes {
			fmt.Fprintln(a.Err, "Nothing was changed. Do it with --yes.")
			return a.grantJSON(now)
		}
		// All is taken. That has no condition: to end what a workflow may do must always work.
		if next == nil {
			now, err = c.TakeGrant(ctx, w)
		} else {
			now, err = c.GiveGrant(ctx, w, newGrant(next, now.ID))
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Err, "Workflow %s may call: %s.\n", w, toolNames(now.Grant))
		return a.grantJSON(now)
	})
}

// grantJSON prints a grant for programs; null: the workflow has none, and may call everything.
func (a *app) grantJSON(g api.GrantDetail) error {
	if !a.JSON {
		return nil
	}
	if g.ID == "" {
		return a.PrintJSON(nil)
	}
	return a.PrintJSON(g)
}

// newGrant returns tools as the API takes them, in the place of the grant over; empty: of none.
func newGrant(tools []keep.GrantedTool, over string) api.NewGrant {
	return api.NewGrant{Tools: api.GrantOf(keep.Grant{Tools: tools}).Tools, Over: &over}
}
