package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// auditCmd lists what people did.
func (a *app) auditCmd() *cobra.Command {
	global := false
	cmd := listCmd(a, "audit", "What people did, newest first: who skipped, paused, deployed, or made and ended access", listing[api.AuditEntry]{
		header: []string{"WHEN", "WHO", "FROM", "WHAT", "ABOUT", "OF", "NOTE"},
		fetch: func(ctx context.Context, c *api.Client, f listFlags, p api.Paging) (api.Page[api.AuditEntry], error) {
			return c.Audit(ctx, api.AuditQuery{Workflow: keep.WorkflowName(f.workflow), Global: global}, p)
		},
		row: func(e api.AuditEntry) []string {
			return []string{a.At(e.At), terminal.Clean(e.By), terminal.Clean(e.From), string(e.What), string(e.Kind) + " " + terminal.Clean(e.ID),
				terminal.OrDash(e.Workflow), terminal.OrDash(e.Note)}
		},
		flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&global, "global", false, "only what was done with hosts, tokens, sessions, accounts and secrets, which are of no workflow")
		},
	})
	cmd.Long = `Audit lists what people did by commands, pages and the API: with inputs, events, items and
workflows, and with hosts, tokens, sessions, accounts and secrets. Nothing removes an
entry. Answers to questions stay with the questions: keep inbox show ID, and the page Inbox,
where those that are decided are listed.`
	return cmd
}
