package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// A manyFilter says which questions are answered together. Without --all nothing is: a name that is
// left out must not become an answer to everything.
type manyFilter struct {
	all                  bool
	workflow, kind, tool string
	seen                 string // of the list that the person read; empty: whatever there is
}

// check refuses what means nothing.
func (f manyFilter) check() error {
	if !f.all && (f.workflow != "" || f.kind != "" || f.tool != "" || f.seen != "") {
		return exit.Misusef("--workflow, --kind, --tool and --seen go with --all")
	}
	if f.kind != "" && !slices.Contains(keep.EscalationKinds(), keep.EscalationKind(f.kind)) {
		return exit.Misusef("--kind is %q, want one of %s", f.kind, strings.Join(words(keep.EscalationKinds()), ", "))
	}
	return nil
}

// hintTool says that no grant and no call names the tool. That is no mistake for sure: a workflow that needs no
// grants, or an agent, may call it later, and a command that cron gives continues.
func (f manyFilter) hintTool(ctx context.Context, c *api.Client, out io.Writer) error {
	if f.tool == "" {
		return nil
	}
	calls, err := c.Mutations(ctx, api.MutationQuery{Tool: keep.ToolName(f.tool)}, api.Paging{Limit: 1})
	if err != nil || len(calls.Items) > 0 {
		return err
	}
	grants, err := c.Grants(ctx)
	if err != nil {
		return err
	}
	for _, g := range grants {
		if (keep.Grant{Tools: api.Granted(g.Tools)}).Covers(keep.ToolName(f.tool)) {
			return nil
		}
	}
	fmt.Fprintf(out, "No grant and no call names the tool %q; keep check names the tools that a script calls.\n", f.tool)
	return nil
}

// args takes an action with --all, and a question before it without.
func (f manyFilter) args(cmd *cobra.Command, args []string) error {
	if f.all {
		return cobra.ExactArgs(1)(cmd, args)
	}
	return cobra.ExactArgs(2)(cmd, args)
}

// matches reports whether a question is one of those.
func (f manyFilter) matches(q api.Escalation) bool {
	return (f.kind == "" || string(q.Kind) == f.kind) && (f.tool == "" || calledTool(q) == f.tool)
}

// calledTool returns the tool of the call that a question is about; empty: it is about none. A
// question that does not name its tool says what was attempted, as TOOL on TARGET.
func calledTool(q api.Escalation) string {
	if q.Tool != nil {
		return string(*q.Tool)
	}
	tool, _, _ := strings.Cut(q.Attempted, " on ")
	return tool
}

// An answeredAll is one of several questions that are answered together.
type answeredAll struct {
	ID       keep.EscalationID `json:"id"`
	Workflow keep.WorkflowName `json:"workflow"`
	Action   keep.Action       `json:"action"`
	Effect   string            `json:"effect"`
	Tool     *keep.ToolName    `json:"tool"`
	View     *string           `json:"view"`
	Marks    int               `json:"marks"`
	Done     bool              `json:"done"`
	Refused  *string           `json:"refused"` // why it was not done; null: it was, or was not tried
}

// answerAll lists what an action does to each open question that matches, and with yes does
// it: to those that were just listed, and to no other.
func (a *app) answerAll(ctx context.Context, f manyFilter, d api.DecisionRequest) error {
	return a.decide(ctx, func(c *api.Client) error {
		list, err := a.listAll(ctx, c, f, d.Action)
		if err == nil && len(list) == 0 && !a.JSON {
			err = f.hintTool(ctx, c, a.Err)
		}
		// What could not be listed was seen by nobody.
		if err == nil && d.Confirm {
			err = a.Lost()
		}
		if err == nil && f.seen != "" && f.seen != seenOf(list) {
			err = fmt.Errorf("the %s that offer %s now are others than those that were shown: nothing was changed; look at them, and say --seen %s", terminal.Plural(len(list), "question"), d.Action, seenOf(list))
		}
		if err != nil {
			return err
		}
		refused := 0
		var broken error
		// Without --yes the list is the answer.
		if d.Confirm {
			refused, broken = a.doAll(ctx, c, list, d)
		}
		if a.JSON {
			err = a.PrintJSON(list)
		} else {
			err = a.sayAll(list, d, refused)
		}
		if err = errors.Join(broken, err); err == nil && refused > 0 {
			err = exit.With(exit.Failed)
		}
		return err
	})
}

// listAll reads the questions that match and offer the action, each whole, and prints them as it
// reads. All are read before the first is answered: what comes meanwhile was not seen by the
// person, and is not in the list.
func (a *app) listAll(ctx context.Context, c *api.Client, f manyFilter, action keep.Action) ([]answeredAll, error) {
	list := []answeredAll{}
	for p := (api.Paging{Limit: 1000}); ; {
		page, err := c.Escalations(ctx, api.EscalationQuery{Workflow: keep.WorkflowName(f.workflow)}, p)
		if err != nil {
			return nil, err
		}
		for _, q := range page.Items {
			for _, choice := range q.Actions {
				if choice.Action != action || !f.matches(q.Escalation) {
					continue
				}
				// A list cuts what was attempted and leaves the payload out: nobody agrees to what he did not see.
				whole, err := c.Escalation(ctx, q.ID)
				if err != nil {
					return nil, err
				}
				if !a.JSON {
					fmt.Fprintf(a.Out, "%s\n", a.OutInk.QuestionText(oneChoice(whole.Escalation, choice)))
				}
				list = append(list, answeredAll{ID: q.ID, Workflow: q.Workflow, Action: action, Effect: choice.Effect, Tool: q.Tool, View: whole.View, Marks: len(whole.Marks)})
			}
		}
		if page.Next == nil {
			return list, nil
		}
		p.Cursor = *page.Next
	}
}

// seenOf names a list of questions and the answer to them: any other one has another name.
func seenOf(list []answeredAll) string {
	var about []string
	for _, q := range list {
		about = append(about, string(q.ID)+" "+string(q.Action))
	}
	slices.Sort(about)
	sum := sha256.Sum256([]byte(strings.Join(about, "\n")))
	return hex.EncodeToString(sum[:6])
}

// oneChoice returns q with one of its actions alone.
func oneChoice(q api.Escalation, choice api.Choice) api.Escalation {
	q.Actions = []api.Choice{choice}
	return q
}

// doAll answers each question, and returns how many were refused. One that is refused, as when
// somebody else was first, does not keep the others from being answered. Of one that was neither answered nor refused
// nobody knows what became of it: it ends there.
func (a *app) doAll(ctx context.Context, c *api.Client, list []answeredAll, d api.DecisionRequest) (refused int, err error) {
	for i := range list {
		_, err := c.Decide(ctx, list[i].ID, d)
		if no, ok := errors.AsType[*api.Problem](err); ok && no.Status < http.StatusInternalServerError {
			why := err.Error()
			list[i].Refused = &why
			refused++
			continue
		}
		if err != nil {
			return refused, fmt.Errorf("whether question %s was answered is not known, and those after it were not: %w", list[i].ID, err)
		}
		list[i].Done = true
	}
	return refused, nil
}

// sayAll says what became of the questions.
func (a *app) sayAll(list []answeredAll, d api.DecisionRequest, refused int) error {
	if len(list) == 0 {
		fmt.Fprintf(a.Err, "No open question that matches offers %s.\n", d.Action)
		return nil
	}
	if !d.Confirm {
		fmt.Fprintf(a.Err, "Nothing was changed. To answer %s with %s, add --yes; with --seen %s only if no other one is asked or answered meanwhile.\n",
			terminal.Plural(len(list), "question"), d.Action, seenOf(list))
		return nil
	}
	recorded := 0
	for _, q := range list {
		if q.Done {
			recorded++
		}
		if q.Refused != nil {
			fmt.Fprintf(a.Err, "%s %s: %s\n", a.Ink.Red("refused"), q.ID, terminal.Clean(*q.Refused))
		}
	}
	fmt.Fprintf(a.Err, "Recorded: %s, %s; refused: %d.\n", d.Action, terminal.Plural(recorded, "question"), refused)
	return nil
}
