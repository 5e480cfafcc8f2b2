package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/shell"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/law/pin"
)

// gatewayToolsCmd shows the tools of the servers, and which are stopped. It asks the servers itself,
// also beside a gateway that runs; programs are started for it, and end with it.
func (a *app) gatewayToolsCmd() *cobra.Command {
	takes := false
	cmd := &cobra.Command{
		Use: "tools", Short: "List the tools of MCP servers, and which are stopped",
		Long: `Tools starts the MCP servers, lists their tools, and says how each stands; it calls none. A tool is pinned as
it is listed first to an agent, or with --pin. One that its server changes later is shown to agents as it was,
and is not called until a person accepts it (keep inbox, or keep gateway tools accept).

What a server says of its tools (description, annotations) is shown, and not believed. Characters that nobody
sees are written as \u{200B}.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.gatewayTools(cmd.Context(), takes) },
	}
	cmd.Flags().BoolVar(&takes, "pin", false, "agree to the tools that are new, as they are listed now")
	cmd.AddCommand(a.acceptToolCmd())
	return cmd
}

// acceptToolCmd agrees to what a server changed. It takes two commands, and the second one names by
// its hash what the first one showed: a server may change the tool in between.
func (a *app) acceptToolCmd() *cobra.Command {
	var shown string
	cmd := &cobra.Command{
		Use: "accept SERVER.TOOL", Short: "Show what a server changed of a tool, and accept it",
		Long: `Accept shows a tool as it was agreed to beside what its server lists now. Characters that nobody
sees are written as \u{200B}. With --as and the hash of what was shown, it accepts that; if the server
changed the tool once more meanwhile, nothing is accepted. A gateway that runs calls it from then on.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.acceptTool(cmd.Context(), keep.ToolName(args[0]), shown)
		},
	}
	cmd.Flags().StringVar(&shown, "as", "", "accept what was shown with this `hash`")
	return cmd
}

// A gatewayTool is a tool in JSON.
type gatewayTool struct {
	Server      string          `json:"server"`
	Tool        keep.ToolName   `json:"tool"`
	Name        string          `json:"name"` // by which agents call it
	Effect      string          `json:"effect"`
	Level       *keep.Level     `json:"level"` // of one that may change something
	Hash        string          `json:"hash"`  // of what was agreed to; of a new one, of what is listed
	State       pin.State       `json:"state"`
	Annotations json.RawMessage `json:"annotations"`
	Description string          `json:"description"`
	AgreedAt    *api.Time       `json:"agreed_at"`
	AgreedBy    *string         `json:"agreed_by"` // null: it was in the first list
	Listed      *string         `json:"listed"`    // the hash of what its server lists otherwise
	ListedAt    *api.Time       `json:"listed_at"`
	Changes     []pin.Change    `json:"changes"`
}

// newGatewayTool returns a tool as it is shown.
func newGatewayTool(p gateway.ToolPin, rule gateway.Rule) gatewayTool {
	t := gatewayTool{Tool: p.Tool, Server: p.Tool.Connection(), Name: p.Name(), Effect: "mutate", State: p.State,
		Annotations: p.Annotations, Description: p.Description, Changes: append([]pin.Change{}, p.Changes...)}
	if level := rule.Level(); rule.Read {
		t.Effect = "read"
	} else {
		t.Level = &level
	}
	if p.Listed != nil {
		at := api.Time(p.Listed.At)
		t.Hash, t.Listed, t.ListedAt = p.Listed.Hash, &p.Listed.Hash, &at
	}
	// After what is listed, since what was agreed to is what agents are shown.
	if p.Agreed != nil {
		at := api.Time(p.Agreed.At)
		t.Hash, t.AgreedAt = p.Agreed.Hash, &at
		if p.Agreed.By != "" {
			t.AgreedBy = &p.Agreed.By
		}
	}
	return t
}

// withTools calls f with the tools of the servers of the gateway, or of one of them, and the database. With
// ToRead it is nil if there is none: then nothing is pinned.
func (a *app) withTools(ctx context.Context, r database.Role, only string, f func(*config.Config, database.DB, []gateway.ToolPin) error) (err error) {
	cfg, err := a.LoadConfig(".")
	if err != nil {
		return err
	}
	servers := slices.DeleteFunc(slices.Clone(cfg.Gateway.Servers), func(s mcp.ServerConfig) bool { return only != "" && s.Name != only })
	onlyReads := r == database.ToRead
	if onlyReads && cfg.Gateway.UsesAccounts() {
		r = database.ToDecide // a token may have to be renewed
	}
	db, err := database.Open(ctx, cfg, r)
	if _, missing := os.Lstat(cfg.DB); err != nil && (!errors.Is(err, keep.ErrNoDatabase) || !onlyReads || missing == nil) {
		return err // a file that is there and holds nothing was emptied: that is no beginning
	}
	l := gateway.Lister{Servers: servers, Now: a.Now, Logger: a.log, Silent: func(server string, err error) {
		fmt.Fprintf(a.Err, "%s the MCP server %s does not answer (%s); its tools are shown as they were listed last.\n", a.Ink.Yellow("keep:"), server, terminal.Clean(err.Error()))
	}}
	if err != nil {
		db = nil
	} else {
		l.Pins = db
		defer func() { err = errors.Join(err, db.Close()) }()
		cfg.UseAccounts(a.env().NewAccounts(func() *config.Config { return cfg }, db, nil))
	}
	found, err := l.Tools(ctx)
	if err != nil {
		return err
	}
	return f(cfg, db, found)
}

// gatewayTools prints the list, and with takes agrees to what is new. What was agreed to before and
// is changed is not taken with the rest: each change is for a person to look at.
func (a *app) gatewayTools(ctx context.Context, takes bool) error {
	role := database.ToRead
	if takes {
		role = database.ToDeploy
	}
	return a.withTools(ctx, role, "", func(cfg *config.Config, db database.DB, found []gateway.ToolPin) error {
		if takes {
			if err := gateway.PinTools(ctx, db, found, daemon.User(), a.Now()); err != nil {
				return err
			}
		}
		list := []gatewayTool{}
		for _, p := range found {
			list = append(list, newGatewayTool(p, cfg.Gateway.Rules[p.Tool]))
		}
		switch {
		case a.JSON:
			return a.PrintJSON(list)
		case len(list) == 0:
			fmt.Fprintln(a.Err, "No server of [gateway.servers] lists a tool.")
			return nil
		}
		return a.printTools(list)
	})
}

// printTools prints the list as a table, and what to do about tools that are stopped.
func (a *app) printTools(list []gatewayTool) error {
	t := terminal.Table{Header: []string{"TOOL", "EFFECT", "LEVEL", "STATE", "SINCE", "CHANGED", "DESCRIPTION"}}
	stopped := 0
	for _, g := range list {
		var members []string
		for _, c := range g.Changes {
			members = append(members, c.Member)
		}
		since, at := g.AgreedAt, "-"
		if g.State.Stopped() {
			since = g.ListedAt
		}
		if since != nil {
			at = a.At(*since)
		}
		if g.State == pin.Changed {
			stopped++
		} else {
			members = nil
		}
		changed := strings.Join(members, ", ")
		says, _, _ := strings.Cut(g.Description, "\n")
		says = terminal.CutTo(terminal.Clean(says), maxSaid)
		t.Add(terminal.Clean(string(g.Tool)), g.Effect, terminal.OrDash(g.Level), string(g.State), at, terminal.OrDash(&changed), terminal.OrDash(&says))
	}
	if stopped > 0 {
		defer fmt.Fprintf(a.Err, "%s stopped. See what changed, and accept it: keep gateway tools accept SERVER.TOOL\n", terminal.Plural(stopped, "tool"))
	}
	return t.Print(a.Out, a.OutInk)
}

// maxSaid is how much of a description the table shows, in columns.
const maxSaid = 60

// acceptTool shows what a server changed of a tool, or accepts it.
func (a *app) acceptTool(ctx context.Context, tool keep.ToolName, shown string) error {
	role := database.ToRead
	if shown != "" {
		role = database.ToDecide
	}
	return a.withTools(ctx, role, tool.Connection(), func(cfg *config.Config, db database.DB, found []gateway.ToolPin) error {
		i := slices.IndexFunc(found, func(p gateway.ToolPin) bool { return p.Tool == tool })
		if i < 0 {
			return &keep.NotFoundError{What: "tool", ID: string(tool)}
		}
		if shown != "" {
			accepted, err := gateway.AcceptTool(ctx, db, found[i], shown, daemon.User(), a.Now())
			if err != nil {
				return err
			}
			found[i] = accepted
		}
		t := newGatewayTool(found[i], cfg.Gateway.Rules[tool])
		switch {
		case a.JSON:
			return a.PrintJSON(t)
		case shown != "":
			fmt.Fprintf(a.Err, "%s is accepted as %s.\n", terminal.Clean(string(tool)), pin.Short(t.Hash))
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
	fmt.Fprintf(a.Out, "%s is %s (%s).\n", terminal.Clean(string(t.Tool)), t.State, a.At(*t.ListedAt))
	for _, c := range t.Changes {
		fmt.Fprintf(a.Out, "\n%s\n", terminal.Clean(c.Member))
		printLines(a, "  - ", c.Old)
		printLines(a, "  + ", c.New)
	}
	fmt.Fprintf(a.Err, "\nNothing was changed. To accept it: keep gateway tools accept %s --as %s\n", terminal.Clean(shell.Word(string(t.Tool))), pin.Short(*t.Listed))
}

// printLines prints a text of a server, each of its lines with the same beginning.
func printLines(a *app, before, text string) {
	if text == "" {
		return
	}
	for line := range strings.Lines(text) {
		fmt.Fprintf(a.Out, "%s%s\n", before, terminal.Clean(strings.TrimRight(line, "\n")))
	}
}
