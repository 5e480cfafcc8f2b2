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

// Question returns what a person is asked about a version that waits. why is what speaks against
// it, besides that it calls what is not granted; empty: nothing.
func Question(p keep.Proposal, why string) keep.Escalation {
	if p.IsRepair() {
		return repairQuestion(p, why)
	}
	meanwhile := fmt.Sprintf("version %s continues until then", p.Over)
	if p.Over.IsZero() {
		meanwhile = "the workflow is new, and does nothing until then"
	}
	kind, effect := keep.AskGrant, fmt.Sprintf("grants these calls and makes version %s current; needs the role admin", p.Version)
	question := fmt.Sprintf("May version %s of workflow %s call what it was not granted: %s?", p.Version, p.Workflow, firstNames(p.Tools))
	said := fmt.Sprintf("%s (%s) deployed %s, and may not give that; %s", p.By, p.From, p.Entry, meanwhile)
	if len(p.Tools) == 0 {
		question = fmt.Sprintf("May version %s become the current one of workflow %s? It calls nothing that was not granted.", p.Version, p.Workflow)
		said = fmt.Sprintf("%s (%s) proposed %s; %s", p.By, p.From, p.Entry, meanwhile)
		effect = fmt.Sprintf("makes version %s current; needs the role admin", p.Version)
	}
	if p.Origin() != keep.OriginDeploy {
		kind, said = keep.AskProposal, fmt.Sprintf("%s proposed %s; %s", p.By, p.Entry, meanwhile)
	}
	said += fmt.Sprintf("; keep proposals show %s@%s shows the script", p.Workflow, p.Version) // who reads this at a terminal has no page of it
	return keep.Escalation{
		ID: p.Question, Kind: kind, Workflow: p.Workflow, CreatedAt: p.CreatedAt,
		Question:  question,
		Attempted: strings.Join(Difference(nil, p.Tools), "\n"),
		Why:       strings.TrimSpace(said + "\n" + why),
		Choices: []keep.Choice{
			{Action: keep.Approve, Label: "Approve", Effect: effect},
			{Action: keep.Reject, Label: "Reject", Effect: "keeps everything as it is; the version is stored, and never runs"},
		},
	}
}

// repairQuestion returns what a person is asked about a version that a repair wrote.
func repairQuestion(p keep.Proposal, why string) keep.Escalation {
	return keep.Escalation{
		ID: p.Question, Kind: keep.AskProposal, Workflow: p.Workflow, CreatedAt: p.CreatedAt,
		Question:  fmt.Sprintf("May version %s, which a repair wrote, become the current one of workflow %s in the place of %s?", p.Version, p.Workflow, p.Over),
		Attempted: fmt.Sprintf("keep repairs show %s says what it changes, and what it would have done", p.By),
		Why:       why,
		Choices: []keep.Choice{
			{Action: keep.Approve, Label: "Accept", Effect: fmt.Sprintf("makes version %s current, and what failed is tried again with it; needs the role author", p.Version)},
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
