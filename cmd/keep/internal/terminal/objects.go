package terminal

import (
	"fmt"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
)

// At returns a time of an object as people read it.
func (t *Terminal) At(v api.Time) string { return t.When(time.Time(v)) }

// PausedText says whether a person paused the workflow.
func PausedText(paused bool) string {
	if paused {
		return "paused"
	}
	return "on"
}

// ErrorText returns a failure as one line: what, where, of which class.
func ErrorText(f *api.Failure) string {
	s := Clean(f.Message)
	if f.Tool != nil {
		s = string(*f.Tool) + ": " + s
	}
	if f.At != nil {
		s = Clean(*f.At) + ": " + s
	}
	return fmt.Sprintf("%s (%s, %s)", s, f.Class, f.Code)
}

// QuestionText returns a question with all that a person needs to decide it.
//
// What will be sent comes first, as Keep sees it, and what the script says of it later and marked as a
// claim. Texts are cleaned one by one: each may be of a stranger, and a terminal obeys escapes.
func (i Ink) QuestionText(q api.Escalation) string {
	var b strings.Builder
	of := "" // an account's has no workflow
	if q.Workflow != "" {
		of = "workflow " + string(q.Workflow) + ", "
	}
	fmt.Fprintf(&b, "%s\n  %s, %s%s\n", i.Bold(Indented(q.Question)), q.ID, of, q.Kind)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %s %s\n", i.Dim(name+":"), strings.ReplaceAll(CleanText(value), "\n", "\n    "))
		}
	}
	if q.View != nil {
		fmt.Fprintf(&b, "  %s\n    %s\n", i.Dim("what will be sent, as Keep sees it:"), strings.ReplaceAll(CleanText(*q.View), "\n", "\n    "))
	}
	for _, m := range q.Marks {
		fmt.Fprintf(&b, "  %s %s: %s\n", i.Red("look twice:"), Clean(m.Path), Indented(m.Detail))
	}
	if q.Claim != nil {
		fmt.Fprintf(&b, "  %s\n", i.Dim("what the script says of it (nobody checked that):"))
		for _, l := range q.Claim.Lines() {
			fmt.Fprintf(&b, "    %s: %s\n", Clean(l.Label), strings.ReplaceAll(CleanText(l.Text), "\n", "\n      "))
		}
	}
	line("attempted", q.Attempted)
	line("why", q.Why)
	if q.ExpiresAt != nil {
		line("ends", q.ExpiresAt.String())
	}
	if q.Title != nil && q.Claim == nil {
		line("the script calls it", Clean(*q.Title))
	}
	line("item", Clean(OrEmpty(q.Item)))
	line("run", OrEmpty(q.Run))
	line("mutation", OrEmpty(q.Mutation))
	line("to verify by hand", OrEmpty(q.VerifyByHand))
	for _, c := range q.Actions {
		result := ""
		if c.Result == string(keep.ResultRequired) {
			result = " --result JSON"
		}
		if c.Confirm {
			result += " --yes"
		}
		fmt.Fprintf(&b, "  keep inbox do %s %s%s\n      %s\n", q.ID, c.Action, result, i.Dim(Indented(c.Effect)))
	}
	return strings.TrimRight(b.String(), "\n")
}
