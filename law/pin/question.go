package pin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/keep-run/keep"
)

// Where pins are kept, as checkpoints of the workflow of the gateway.
const (
	Agreed = "agreed:" // and a server: by tool, the pin that was agreed to
	Listed = "listed:" // and a server: by tool, the pin of what is listed otherwise

	entries = "tool:" // and a tool: the entries of both
)

// Pins returns the name of the checkpoint with the pins of a kind, of a server.
func Pins(kind, server string) keep.HandlerName { return keep.HandlerName(kind + server) }

// EntryOf returns where the entry of a pin of a kind is.
func EntryOf(kind, server, tool string) (keep.HandlerName, string) {
	return keep.HandlerName(entries + server + "." + tool), strings.TrimSuffix(kind, ":")
}

// Put returns the changes that store a pin and its entry.
func Put(kind, server, tool string, p Pin) []keep.Change {
	value, _ := json.Marshal(p)
	at, key := EntryOf(kind, server, tool)
	return []keep.Change{
		keep.SetKV{Producer: Pins(kind, server), Key: tool, Value: value},
		keep.SetKV{Producer: at, Key: key, Value: p.Entry},
	}
}

// Forget returns the changes that delete a pin and its entry.
func Forget(kind, server, tool string) []keep.Change {
	at, key := EntryOf(kind, server, tool)
	return []keep.Change{keep.SetKV{Producer: Pins(kind, server), Key: tool}, keep.SetKV{Producer: at, Key: key}}
}

// QuestionID returns the id of the n-th question, from 1, about a tool that is listed with that hash. The one
// before was closed by the host, since the tool was as it was agreed to again.
func QuestionID(tool keep.ToolName, hash string, n int) keep.EscalationID {
	sum := sha256.Sum256([]byte(string(tool) + "\n" + hash))
	return keep.EscalationID(fmt.Sprintf("esc_tool_%s_%d", hex.EncodeToString(sum[:10]), n))
}

// maxAsked is how much of a change a question shows, in bytes: what a page shows whole.
const maxAsked = 60 << 10

// Question returns what a person is asked about a tool that its server changed. One that cannot show all that changed does not offer to
// agree to it.
func Question(id keep.EscalationID, w keep.WorkflowName, tool keep.ToolName, agreed, listed *Pin, at time.Time) keep.Escalation {
	var b strings.Builder
	for _, c := range Changes(agreed, listed) {
		fmt.Fprintf(&b, "%s\n", c.Member)
		for _, side := range []struct{ before, text string }{{"- ", c.Old}, {"+ ", c.New}} {
			for line := range strings.Lines(side.text) {
				fmt.Fprintf(&b, "%s%s\n", side.before, strings.TrimRight(line, "\n"))
			}
		}
	}
	shown := strings.TrimSpace(b.String())
	why := fmt.Sprintf("it was agreed to as %s, and is %s now; no call of it is passed on until you decide", Short(agreed.Hash), Short(listed.Hash))
	_, wasKnown := members(agreed)
	_, isKnown := members(listed)
	var choices []keep.Choice
	if wasKnown && isKnown && len(shown) <= maxAsked {
		choices = append(choices, keep.Choice{Action: keep.Approve, Label: "Approve", Effect: "agents see the tool as it is now, and may call it"})
	} else {
		why += fmt.Sprintf("; not all that changed can be shown here, so it is accepted at a terminal alone: keep gateway tools accept %s", Mark(string(tool)))
	}
	if len(shown) > maxAsked {
		shown = strings.ToValidUTF8(shown[:maxAsked], "") + "\n…"
	}
	return keep.Escalation{
		ID: id, Kind: keep.AskToolChanged, Workflow: w, Connection: tool.Connection(), Title: Mark(string(tool)), PayloadHash: listed.Hash, CreatedAt: at,
		Question:  fmt.Sprintf("The MCP server %s changed its tool %s. May agents call it as it is now?", tool.Connection(), Mark(string(tool))),
		Attempted: shown, Why: why,
		Choices: append(choices, keep.Choice{Action: keep.Reject, Label: "Reject", Effect: "the tool stays stopped until its server lists it as it was agreed to, or changes it again"}),
	}
}
