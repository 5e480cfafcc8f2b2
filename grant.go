package keep

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Grant says which tools a workflow may call. The grants of a workflow replace one
// another and none is ever changed: N counts them from 1, and the last one holds. A
// workflow that was never given one may call every tool; see docs/design/0010-consent.md.
type Grant struct {
	Workflow WorkflowName
	N        int
	Version  Version // of the workflow, current when the grant was made
	Tools    []GrantedTool
	GivenBy  string // who gave it
	From     string // by which way: such as cli, keep.toml or api
	GivenAt  time.Time
	TakenBy  string    // who took all away, with this grant, which allows nothing; empty: nobody
	TakenAt  time.Time // zero: nobody
}

// A GrantedTool is a tool that a workflow may call, or several. The conditions are
// expressions (CEL) over params, which law/grant reads; empty ones hold.
type GrantedTool struct {
	Tool    string `json:"tool"`              // full name, or such as bank.* for all of a connection
	When    string `json:"when,omitempty"`    // the call is allowed if this is true
	Approve string `json:"approve,omitempty"` // a person must agree if this is true; "always"
}

// MaxGranted is how many tools a grant names at most (law: bounded).
const MaxGranted = 500

// ID names the grant for people.
func (g Grant) ID() string { return fmt.Sprintf("%s/%d", g.Workflow, g.N) }

// IsTaken reports whether the grant is the record that all was taken away.
func (g Grant) IsTaken() bool { return !g.TakenAt.IsZero() }

// Covers reports whether the grant names a tool, whatever its conditions say.
func (g Grant) Covers(tool ToolName) bool {
	return slices.ContainsFunc(g.Tools, func(t GrantedTool) bool { return t.Matches(tool) })
}

// Matches reports whether t is about a tool.
func (t GrantedTool) Matches(tool ToolName) bool {
	if conn, all := strings.CutSuffix(t.Tool, ".*"); all {
		of, _, _ := strings.Cut(string(tool), ".")
		return of == conn
	}
	return t.Tool == string(tool)
}

// Validate reports what is wrong with a grant, except in its conditions.
func (g Grant) Validate() error {
	switch {
	case g.Workflow == "" || g.N < 1:
		return fmt.Errorf("grant %s: workflow and number required", g.ID())
	case g.GivenAt.IsZero():
		return fmt.Errorf("grant %s: time required", g.ID())
	case g.IsTaken() != (g.TakenBy != ""), g.IsTaken() && len(g.Tools) > 0:
		return fmt.Errorf("grant %s: what is taken allows nothing, and says by whom", g.ID())
	case len(g.Tools) > MaxGranted:
		return fmt.Errorf("grant %s: %d tools: at most %d; use patterns such as bank.*", g.ID(), len(g.Tools), MaxGranted)
	}
	for _, t := range g.Tools {
		conn, name, ok := strings.Cut(t.Tool, ".")
		if !ok || conn == "" || name == "" || strings.Contains(conn, "*") || name != "*" && strings.Contains(name, "*") {
			return fmt.Errorf("grant %s: tool %q: want the name of a tool, or such as bank.* for all of a connection", g.ID(), t.Tool)
		}
	}
	return nil
}

// Clone returns a copy that shares nothing with g.
func (g Grant) Clone() Grant {
	g.Tools = slices.Clone(g.Tools)
	return g
}
