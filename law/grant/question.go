package grant

import (
	"fmt"
	"strings"

	"github.com/keep-run/keep"
)

// QuestionID returns the id of the one question about a version that waits.
func QuestionID(p keep.Proposal) keep.EscalationID {
	return keep.EscalationID(fmt.Sprintf("esc_grant_%s_%d_%d", p.Workflow, p.Version.Major, p.Version.Minor))
}

// Question returns what a person is asked about a version that calls more than is granted.
func Question(p keep.Proposal) keep.Escalation {
	meanwhile := fmt.Sprintf("version %s continues until then", p.Over)
	if p.Over.IsZero() {
		meanwhile = "the workflow is new, and does nothing until then"
	}
	return keep.Escalation{
		ID: p.Question, Kind: keep.AskGrant, Workflow: p.Workflow, CreatedAt: p.CreatedAt,
		Question:  fmt.Sprintf("May version %s of workflow %s call what it was not granted: %s?", p.Version, p.Workflow, firstNames(p.Tools)),
		Attempted: strings.Join(Difference(nil, p.Tools), "\n"),
		Why:       fmt.Sprintf("%s (%s) deployed %s, and may not give that; %s", p.By, p.From, p.Entry, meanwhile),
		Choices: []keep.Choice{
			{Action: keep.Approve, Label: "Approve", Effect: fmt.Sprintf("grants these calls and makes version %s current; needs the role admin", p.Version)},
			{Action: keep.Reject, Label: "Reject", Effect: "keeps everything as it is; the version is stored, and never runs"},
		},
	}
}

// firstNames returns the names of at most three tools, and how many there are beside them.
func firstNames(tools []keep.GrantedTool) string {
	const most = 3
	var names []string
	for _, t := range tools[:min(most, len(tools))] {
		names = append(names, t.Tool)
	}
	if more := len(tools) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
