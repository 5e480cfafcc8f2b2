package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// hostsCmd lists hosts, and lets one give its workflows to the others.
func (a *app) hostsCmd() *cobra.Command {
	list := func() *cobra.Command {
		return listCmd(a, "", "Hosts that share a Postgres: which has which workflows, since when", listing[api.Host]{
			none:   "None: only hosts on a Postgres are listed, and not the one process that may work on a file.",
			header: []string{"HOST", "NAME", "VERSION", "STATE", "WORKFLOWS", "STARTED"},
			fetch: func(ctx context.Context, c *api.Client, f listFlags, p api.Paging) (api.Page[api.Host], error) {
				all, err := c.Hosts(ctx)
				if f.workflow != "" {
					all = having(all, keep.WorkflowName(f.workflow))
				}
				return inMemory(all, p, func(h api.Host) string { return string(h.ID) }, err)
			},
			row: func(h api.Host) []string {
				return []string{string(h.ID), h.Name, h.Version, stateOf(h), terminal.Number(len(h.Workflows)), a.When(time.Time(h.StartedAt))}
			},
		})
	}
	show := showCmd(a, "show HOST", "Show one host with its workflows", 1,
		func(ctx context.Context, c *api.Client, args []string) (api.Host, error) {
			return c.Host(ctx, args[0])
		}, a.printHost)
	return noun("hosts", list, show, a.drainCmd())
}

// having returns the host of a workflow; while its lease passes on, there may be none.
func having(all []api.Host, name keep.WorkflowName) (out []api.Host) {
	for _, h := range all {
		for _, l := range h.Workflows {
			if l.Workflow == name {
				out = append(out, h)
			}
		}
	}
	return out
}

// stateOf says in a word or two how a host is. Partial is one that has certain workflows only, as keep
// run; what it is unlike in are the connections that other hosts have otherwise.
func stateOf(h api.Host) string {
	words := []string{}
	switch {
	case !h.Alive:
		words = append(words, "gone")
	case h.Draining:
		words = append(words, "draining")
	default:
		words = append(words, "up")
	}
	if h.Partial {
		words = append(words, "partial")
	}
	if len(h.Unlike) > 0 {
		words = append(words, "unlike others: "+terminal.Clean(strings.Join(h.Unlike, ", ")))
	}
	return strings.Join(words, ", ")
}

// printHost shows a host and its workflows. Its leases end together, at the time that is shown.
func (a *app) printHost(_ context.Context, _ *api.Client, h api.Host) error {
	var s terminal.Sheet
	s.Add("host", "%s", h.ID)
	s.Add("name", "%s", terminal.Clean(h.Name))
	s.Add("version", "%s", terminal.Clean(h.Version))
	s.Add("state", "%s", stateOf(h))
	s.Add("started", "%s", a.When(time.Time(h.StartedAt)))
	s.Add("leases until", "%s", a.When(time.Time(h.Until)))
	for _, l := range h.Workflows {
		s.Add("has", "%s, since %s", l.Workflow, a.When(time.Time(l.Since)))
	}
	return s.Print(a.Out, a.OutInk)
}

// drainCmd is how a host is emptied before it is stopped, or kept empty.
func (a *app) drainCmd() *cobra.Command {
	var undo bool
	cmd := &cobra.Command{
		Use: "drain HOST", Short: "Let a host give its workflows to the others, and take no new ones",
		Long: `Drain lets a host give each of its workflows to the others as soon as it is
between two runs, and take no new ones. The process continues. SIGTERM does the
same and ends it; drain first where a stop has to be quick.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.decide(cmd.Context(), func(c *api.Client) error {
				h, err := c.Drain(cmd.Context(), args[0], undo)
				if err != nil {
					return err
				}
				fmt.Fprintf(a.Err, "Host %s: %s.\n", h.ID, map[bool]string{false: "draining", true: "takes workflows again"}[undo])
				if !a.JSON {
					return nil
				}
				return a.PrintJSON(h)
			})
		},
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "let it take workflows again")
	return cmd
}
