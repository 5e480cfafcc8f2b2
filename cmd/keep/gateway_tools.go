package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/law/pin"
)

// gatewayToolsCmd shows the tools of the servers, and which are stopped.
func (a *app) gatewayToolsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "tools", Short: "List the tools of MCP servers, and which are stopped",
		Long: `Tools lists what the MCP servers listed last, and how each tool stands. A tool is pinned as it is
listed first. One that its server changes later is shown to agents as it was, and is not called until a
person accepts it (keep inbox, or keep gateway tools accept).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.gatewayTools(cmd.Context()) },
	}
	cmd.AddCommand(a.acceptToolCmd())
	return cmd
}

// acceptToolCmd agrees to what a server changed.
func (a *app) acceptToolCmd() *cobra.Command {
	var shown string
	cmd := &cobra.Command{
		Use: "accept SERVER.TOOL", Short: "Show what a server changed of a tool, and accept it",
		Long: `Accept shows a tool as it was agreed to beside what its server lists now. Characters that nobody
sees are written as \u{200B}. With --as and the hash of what was shown, it accepts that; if the server
changed the tool once more meanwhile, nothing is accepted. A gateway that runs calls it from then on.`,
		Example: "  keep gateway tools accept tracker.create_issue\n  keep gateway tools accept tracker.create_issue --as 3f9c0a1be2d4",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.acceptTool(cmd.Context(), keep.ToolName(args[0]), shown)
		},
	}
	cmd.Flags().StringVar(&shown, "as", "", "accept what was shown with this `hash`")
	return cmd
}

// A gatewayTool is a tool in JSON.
type gatewayTool struct {
	Tool     keep.ToolName `json:"tool"`
	Server   string        `json:"server"`
	Effect   string        `json:"effect"`
	Level    keep.Level    `json:"level,omitempty"` // of one that may change something
	State    pin.State     `json:"state"`
	Hash     string        `json:"hash,omitempty"` // of what was agreed to
	AgreedAt *api.Time     `json:"agreed_at,omitempty"`
	AgreedBy string        `json:"agreed_by,omitempty"`
	Listed   string        `json:"listed,omitempty"` // the hash of what its server lists otherwise
	ListedAt *api.Time     `json:"listed_at,omitempty"`
	Changes  []pin.Change  `json:"changes,omitempty"`
}

// newGatewayTool returns a tool as it is shown.
func newGatewayTool(p gateway.ToolPin, rule gateway.Rule) gatewayTool {
	t := gatewayTool{Tool: p.Tool, Server: p.Tool.Connection(), Effect: "mutate", Level: rule.Level(), State: p.State, Changes: p.Changes}
	if rule.Read {
		t.Effect, t.Level = "read", ""
	}
	if p.Agreed != nil {
		at := api.Time(p.Agreed.At)
		t.Hash, t.AgreedAt, t.AgreedBy = p.Agreed.Hash, &at, p.Agreed.By
	}
	if p.Listed != nil {
		at := api.Time(p.Listed.At)
		t.Listed, t.ListedAt = p.Listed.Hash, &at
	}
	return t
}

// withPins calls f with the configuration and its database.
func (a *app) withPins(ctx context.Context, r database.Role, f func(*config.Config, database.DB) error) error {
	cfg, err := a.LoadConfig(".")
	if err != nil {
		return err
	}
	db, err := database.Open(ctx, cfg, r)
	if err != nil {
		return err
	}
	return errors.Join(f(cfg, db), db.Close())
}

// gatewayTools prints the list.
func (a *app) gatewayTools(ctx context.Context) error {
	return a.withPins(ctx, database.ToRead, func(cfg *config.Config, db database.DB) error {
		var servers []string
		for _, s := range cfg.Gateway.Servers {
			servers = append(servers, s.Name)
		}
		found, err := gateway.ToolPins(ctx, db, servers)
		if err != nil {
			return err
		}
		list := []gatewayTool{}
		for _, p := range found {
			list = append(list, newGatewayTool(p, cfg.Gateway.Rules[p.Tool]))
		}
		switch {
		case a.JSON:
			return a.PrintJSON(list)
		case len(list) == 0:
			fmt.Fprintln(a.Err, "No tool is known yet: the servers are listed when an agent first asks keep gateway.")
			return nil
		}
		return a.printTools(list)
	})
}

// printTools prints the list as a table, and what to do about tools that are stopped.
func (a *app) printTools(list []gatewayTool) error {
	t := terminal.Table{Header: []string{"TOOL", "EFFECT", "LEVEL", "STATE", "SINCE", "CHANGED"}}
	stopped := 0
	for _, g := range list {
		var members []string
		for _, c := range g.Changes {
			members = append(members, c.Member)
		}
		since, changed := g.AgreedAt, strings.Join(members, ", ")
		if g.State.Stopped() {
			stopped++
			since = g.ListedAt
		}
		t.Add(terminal.Clean(string(g.Tool)), g.Effect, terminal.OrDash(&g.Level), string(g.State), a.At(*since), terminal.OrDash(&changed))
	}
	if stopped > 0 {
		defer fmt.Fprintf(a.Err, "%s stopped. See what changed, and accept it: keep gateway tools accept SERVER.TOOL\n", terminal.Plural(stopped, "tool"))
	}
	return t.Print(a.Out, a.OutInk)
}

// acceptTool shows what a server changed of a tool, or accepts it.
func (a *app) acceptTool(ctx context.Context, tool keep.ToolName, shown string) error {
	role := database.ToRead
	if shown != "" {
		role = database.ToDecide
	}
	return a.withPins(ctx, role, func(cfg *config.Config, db database.DB) error {
		if shown != "" {
			if err := gateway.AcceptTool(ctx, db, tool, shown, daemon.User(), a.Now()); err != nil {
				return err
			}
		}
		found, err := gateway.ToolPins(ctx, db, []string{tool.Connection()})
		if err != nil {
			return err
		}
		i := slices.IndexFunc(found, func(p gateway.ToolPin) bool { return p.Tool == tool })
		if i < 0 {
			return &keep.NotFoundError{What: "tool", ID: string(tool)}
		}
		t := newGatewayTool(found[i], cfg.Gateway.Rules[tool])
		switch {
		case a.JSON:
			return a.PrintJSON(t)
		case shown != "":
			fmt.Fprintf(a.Err, "%s is accepted as %s.\n", tool, pin.Short(t.Hash))
			return nil
		case !t.State.Stopped():
			return exit.Misusef("%s is as it was agreed to: there is nothing to accept", tool)
		}
		a.printChanges(t)
		return nil
	})
}

// printChanges prints old beside new. Every line of a server's text is indented and clean, so
// that none can look like one of Keep's own.
func (a *app) printChanges(t gatewayTool) {
	fmt.Fprintf(a.Out, "%s is %s (%s).\n", t.Tool, t.State, a.At(*t.ListedAt))
	for _, c := range t.Changes {
		fmt.Fprintf(a.Out, "\n%s\n", terminal.Clean(c.Member))
		printLines(a, "  - ", c.Old)
		printLines(a, "  + ", c.New)
	}
	fmt.Fprintf(a.Err, "\nNothing was changed. To accept it: keep gateway tools accept %s --as %s\n", t.Tool, pin.Short(t.Listed))
}

func printLines(a *app, before, text string) {
	if text == "" {
		return
	}
	for line := range strings.Lines(text) {
		fmt.Fprintf(a.Out, "%s%s\n", before, terminal.Clean(strings.TrimRight(line, "\n")))
	}
}
