package keep

import (
	"strings"
	"time"
)

// CodeBreaker means that no call of a tool is made, in any workflow, since calls of it failed too
// often: a person decides.
const CodeBreaker = "breaker"

// toolGate begins the names of gates of tools. No connection has such a name.
const toolGate = "tool:"

// ToolGate returns the name of the gate of a tool.
func ToolGate(t ToolName) string { return toolGate + string(t) }

// OfTool returns the tool whose gate g is; empty: of a connection or a budget.
func (g Gate) OfTool() ToolName {
	name, ok := strings.CutPrefix(g.Connection, toolGate)
	if !ok {
		return ""
	}
	return ToolName(name)
}

// OfConnection reports whether g is the gate of a connection.
func (g Gate) OfConnection() bool { return !strings.Contains(g.Connection, ":") }

// Shared reports whether a question of kind k is about more than its run, and stays when that
// continues.
func (k EscalationKind) Shared() bool { return k == AskConnection || k == AskBreaker }

// A Breaker says when all calls of a tool stop. Its zero value never stops them.
type Breaker struct {
	Failures int           // of one cause, over all workflows; 0: never
	Within   time.Duration // of each other
}
