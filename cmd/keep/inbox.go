package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/user"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/spf13/cobra"
)

// inboxCmd lists, shows and decides questions. Only open ones are listed; show
// finds the others too.
func (a *app) inboxCmd() *cobra.Command {
	list := func() *cobra.Command {
		return listCmd(a, "", "Open questions and what you can do about them", listing[api.Escalation]{
			header: []string{"QUESTION", "WORKFLOW", "KIND", "SINCE", "ACTIONS", "ABOUT"},
			fetch: func(ctx context.Context, c *api.Client, f listFlags, p api.Paging) (api.Page[api.Escalation], error) {
				return c.Escalations(ctx, api.EscalationQuery{Workflow: keep.WorkflowName(f.workflow)}, p)
			},
			row: func(q api.Escalation) []string {
				return []string{string(q.ID), string(q.Workflow), string(q.Kind), a.at(q.CreatedAt),
					actionNames(q.Actions), cutTo(clean(cmp.Or(orEmpty(q.Title), q.Question)), maxTitle)}
			},
		})
	}
	show := showCmd(a, "show ID", "Show one question with its evidence", 1,
		func(ctx context.Context, c *api.Client, args []string) (api.Answered, error) {
			return c.Escalation(ctx, keep.EscalationID(args[0]))
		}, a.printQuestion)
	show.ValidArgsFunction = a.byPosition(questionIDs)
	return noun("inbox", list, show, a.decideCmd())
}

// printQuestion shows a question, who was told of it, and how it was answered.
func (a *app) printQuestion(ctx context.Context, c *api.Client, q api.Answered) error {
	fmt.Fprintln(a.out, a.outInk.questionText(q.Escalation))
	if d := q.Decision; d != nil {
		fmt.Fprintf(a.out, "  %s %s by %s, from the %s, %s\n", a.outInk.dim("decided:"), d.Action, clean(d.By), d.From, a.at(d.At))
		if d.Note != nil {
			fmt.Fprintf(a.out, "  %s %s\n", a.outInk.dim("note:"), clean(*d.Note))
		}
	} else if q.ClosedAt != nil {
		fmt.Fprintf(a.out, "  %s %s, since it no longer applied\n", a.outInk.dim("closed:"), a.at(*q.ClosedAt))
	}
	return a.printTold(ctx, c, q.ID)
}

// actionNames returns what a person can type after keep inbox do ID.
func actionNames(choices []keep.Choice) string {
	out := make([]string, len(choices))
	for i, c := range choices {
		out[i] = string(c.Action)
	}
	return strings.Join(out, ", ")
}

// questionText returns a question with all that a person needs to decide it.
func (i ink) questionText(q api.Escalation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n  %s, workflow %s, %s\n", i.bold(cleanText(q.Question)), q.ID, q.Workflow, q.Kind)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %s %s\n", i.dim(name+":"), strings.ReplaceAll(cleanText(value), "\n", "\n    "))
		}
	}
	line("attempted", q.Attempted)
	line("why", q.Why)
	if q.Title != nil {
		line("the script calls it", clean(*q.Title))
	}
	line("item", clean(orEmpty(q.Item)))
	line("run", orEmpty(q.Run))
	line("mutation", orEmpty(q.Mutation))
	line("to verify by hand", orEmpty(q.VerifyByHand))
	for _, c := range q.Actions {
		fmt.Fprintf(&b, "  keep inbox do %s %s\n      %s\n", q.ID, c.Action, i.dim(cleanText(c.Effect)))
	}
	return strings.TrimRight(b.String(), "\n")
}

// decideCmd is the one verb that answers a question.
func (a *app) decideCmd() *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use:     "do ID ACTION",
		Short:   "Decide a question",
		Long:    "Do records your decision about a question, once. keep inbox show ID says which\nactions there are and what each will cause.",
		Example: "  keep inbox do esc_… did-not-happen --note \"looked in the sent folder\"",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.answer(cmd.Context(), keep.EscalationID(args[0]), keep.Action(args[1]), note)
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "`text` that is recorded with the decision")
	cmd.ValidArgsFunction = func(c *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		return a.byPosition(questionIDs, questionActions)(c, args, toComplete)
	}
	return cmd
}

// questionActions completes the actions that a question offers.
func questionActions(ctx context.Context, c *api.Client, args []string) ([]string, error) {
	q, err := c.Escalation(ctx, keep.EscalationID(args[0]))
	var out []string
	for _, choice := range q.Actions {
		out = append(out, described(string(choice.Action), choice.Effect))
	}
	return out, err
}

// maxNote bounds what is recorded of a person's words, in bytes.
const maxNote = 4000

// answer records a decision.
func (a *app) answer(ctx context.Context, id keep.EscalationID, action keep.Action, note string) error {
	if len(note) > maxNote {
		return misusef("--note has %d bytes, want at most %d", len(note), maxNote)
	}
	return a.decide(ctx, func(c *api.Client) error {
		q, err := c.Decide(ctx, id, action, note)
		if err != nil {
			return err
		}
		fmt.Fprintf(a.err, "Recorded: %s.\n", action)
		if !a.json {
			return nil
		}
		return a.printJSON(q)
	})
}

// who returns the name that a decision is recorded under.
func who() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return cmp.Or(os.Getenv("USER"), os.Getenv("USERNAME"), "unknown")
}
