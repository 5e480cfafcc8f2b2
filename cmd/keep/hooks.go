package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// hooksCmd lists hooks, and why each refused last what it refused.
func (a *app) hooksCmd() *cobra.Command {
	cmd := listCmd(a, "hooks", "Hooks: where services deliver events, what came and what was refused", listing[api.Hook]{
		header: []string{"HOOK", "WORKFLOW", "TOPIC", "VERIFY", "ACCEPTED", "REPEATED", "REFUSED", "LAST", "LAST REFUSED"},
		fetch: func(ctx context.Context, c *api.Client, f listFlags, p api.Paging) (api.Page[api.Hook], error) {
			all, err := c.Hooks(ctx)
			var of []api.Hook
			for _, h := range all {
				if f.workflow == "" || h.Workflow == keep.WorkflowName(f.workflow) {
					of = append(of, h)
				}
			}
			return inMemory(of, p, func(h api.Hook) string { return h.Name }, err)
		},
		row: func(h api.Hook) []string {
			refused := a.sinceThen(h.LastRefusedAt)
			if h.LastRefusal != nil {
				refused += ": " + terminal.Clean(*h.LastRefusal)
			}
			return []string{h.Name, string(h.Workflow), string(h.Topic), h.Verify, terminal.Number(int(h.Accepted)), terminal.Number(int(h.Repeated)),
				terminal.Number(int(h.Refused)), a.sinceThen(h.LastAt), refused}
		},
	})
	cmd.Long = `Hooks lists the [hooks.NAME] of keep.toml: the URL that a service delivers to, and how
many deliveries became an event, were one already, or were refused. The URL is in --json.`
	return cmd
}

// sinceThen returns a time that may not be there.
func (a *app) sinceThen(t *api.Time) string {
	if t == nil {
		return "-"
	}
	return a.When(time.Time(*t))
}
