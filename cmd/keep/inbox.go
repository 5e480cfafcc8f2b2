package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/host/feed"
)

// inboxCmd lists, shows and decides questions.
func (a *app) inboxCmd() *cobra.Command {
	list := func() *cobra.Command {
		var closed bool
		return listCmd(a, "", "Open questions and what you can do about them", listing[api.Answered]{
			header: []string{"QUESTION", "WORKFLOW", "KIND", "SINCE", "ACTIONS", "ABOUT"},
			flags: func(cmd *cobra.Command) {
				cmd.Flags().BoolVar(&closed, "closed", false, "those that were answered, or no longer apply; ACTIONS says how each ended")
			},
			fetch: func(ctx context.Context, c *api.Client, f listFlags, p api.Paging) (api.Page[api.Answered], error) {
				return c.Escalations(ctx, api.EscalationQuery{Workflow: keep.WorkflowName(f.workflow), Closed: closed, Made: f.made(), Text: f.text}, p)
			},
			words: "titles, questions, what was attempted, and why",
			row: func(q api.Answered) []string {
				return []string{string(q.ID), string(q.Workflow), string(q.Kind), a.At(q.CreatedAt),
					actionsOf(q), terminal.CutTo(terminal.Clean(cmp.Or(terminal.OrEmpty(q.Title), q.Question)), terminal.MaxTitle)}
			},
			key: func(q api.Answered) string { return string(q.ID) }, kinds: []feed.Kind{feed.Escalation},
		})
	}
	show := showCmd(a, "show ID", "Show one question with its evidence", 1,
		func(ctx context.Context, c *api.Client, args []string) (api.Answered, error) {
			id, err := fullID[keep.EscalationID](ctx, c, keep.NounQuestion, args[0])
			if err != nil {
				return api.Answered{}, err
			}
			return c.Escalation(ctx, id)
		}, a.printQuestion)
	show.ValidArgsFunction = a.byPosition(questionIDs)
	return noun("inbox", list, show, a.decideCmd())
}

// printQuestion shows a question, who was notified of it, and how it was answered.
func (a *app) printQuestion(ctx context.Context, c *api.Client, q api.Answered) error {
	if q.ClosedAt != nil || q.Decision != nil {
		q.Actions = nil // nothing is to be done any more
	}
	fmt.Fprintln(a.Out, a.OutInk.QuestionText(q.Escalation))
	if d := q.Decision; d != nil {
		fmt.Fprintf(a.Out, "  %s %s by %s, from the %s, %s\n", a.OutInk.Dim("decided:"), d.Action, terminal.Clean(d.By), d.From, a.At(d.At))
		if d.Note != nil {
			fmt.Fprintf(a.Out, "  %s %s\n", a.OutInk.Dim("note:"), terminal.Clean(*d.Note))
		}
	} else if q.ClosedAt != nil {
		fmt.Fprintf(a.Out, "  %s %s, since it no longer applied\n", a.OutInk.Dim("closed:"), a.At(*q.ClosedAt))
	}
	return a.printTold(ctx, c, q.ID)
}

// actionsOf returns what a person can do about a question, or how it ended.
func actionsOf(q api.Answered) string {
	switch {
	case q.Decision != nil:
		return fmt.Sprintf("%s by %s", q.Decision.Action, terminal.Clean(q.Decision.By))
	case q.ClosedAt != nil:
		return "no longer applied"
	}
	return actionNames(q.Actions)
}

// actionNames returns what a person can type after keep inbox do ID.
func actionNames(choices []api.Choice) string {
	out := make([]string, len(choices))
	for i, c := range choices {
		out[i] = string(c.Action)
	}
	return strings.Join(out, ", ")
}

// decideCmd is the one verb that answers a question, of whatever kind: what the actions are and
// what they cause comes with the question.
func (a *app) decideCmd() *cobra.Command {
	var note, result, until string
	var limit float64
	var yes bool
	var f manyFilter
	cmd := &cobra.Command{
		Use:   "do ID ACTION | --all ACTION",
		Short: "Decide a question, or many that are alike",
		Long: `Do records your decision about a question, once. keep inbox show ID says which
actions there are and what each will cause. An action that may send something again
needs --yes: without it, do shows what would be sent and changes nothing.

The action happened says that a call was made whose answer was lost. What it would
have answered goes with it as --result, since the script continues with that: JSON that
fits the schema of the tool. Without --result it is read from the service, if the tool
says how (result_from), or is null, if null fits and the script does not look at it.

The action treat-as-done says of a call that waits for approval that it was done already,
outside of what Keep knows, such as before a restore: nothing is sent, and the script continues
as after the call, with --result as for happened.

With --all it is the answer to each open question that offers the action, and that
--workflow, --kind and --tool select. Without --yes it lists what each will do, and
changes nothing; with --yes it answers those that it has just listed, and no others. With
--seen, as the list without --yes ends, it answers nothing if these are others by then: what
was asked since was seen by nobody.`,
		Args: func(cmd *cobra.Command, args []string) error { return f.args(cmd, args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			end, err := a.endOf(until)
			if err = errors.Join(err, f.check()); err != nil {
				return err
			}
			if f.all && cmd.Flags().Changed("result") && strings.TrimSpace(result) != "null" {
				return exit.Misusef("--result is the answer of one call: with --all it can only be null, where no answer is known")
			}
			if f.all {
				if !slices.Contains(keep.Actions(), keep.Action(args[0])) {
					return exit.Misusef("there is no action %q; there are %s", args[0], strings.Join(words(keep.Actions()), ", "))
				}
				return a.answerAll(cmd.Context(), f, api.DecisionRequest{Action: keep.Action(args[0]), Note: note, Confirm: yes, Result: json.RawMessage(result), Limit: limit, Until: end})
			}
			return a.answer(cmd, args[0], api.DecisionRequest{
				Action: keep.Action(args[1]), Note: note, Confirm: yes, Result: json.RawMessage(result), Limit: limit, Until: end})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm an action that may send something again, or --all")
	cmd.Flags().BoolVar(&f.all, "all", false, "answer every open question that matches")
	cmd.Flags().StringVar(&f.workflow, "workflow", "", "with --all: those of one `workflow`")
	cmd.Flags().StringVar(&f.kind, "kind", "", "with --all: those of one `kind`, such as approval")
	cmd.Flags().StringVar(&f.tool, "tool", "", "with --all: those about calls of one `tool`")
	cmd.Flags().StringVar(&f.seen, "seen", "", "with --all: only if the questions are those that were `shown`, as the list without --yes names them")
	cmd.Flags().StringVar(&result, "result", "", "with happened, or treat-as-done of an approval: what the call would have answered, as `JSON`")
	cmd.Flags().Float64Var(&limit, "limit", 0, "with raise: the `limit` that the budget gets")
	cmd.Flags().StringVar(&until, "until", "", "with raise: the `time` at which the raise ends, such as 2h or 2026-12-24T18:00:00Z; without it, it has no end")
	cmd.Flags().StringVar(&note, "note", "", "`text` that is recorded with the decision")
	cmd.ValidArgsFunction = func(c *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		return a.byPosition(questionIDs, questionActions)(c, args, toComplete)
	}
	return cmd
}

// endOf returns the time that a person means, of now on if he wrote how long; nil: none.
func (a *app) endOf(text string) (*api.Time, error) {
	if text == "" {
		return nil, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		d, wrong := config.ParseDuration(text)
		if wrong != nil || d <= 0 {
			return nil, exit.Misusef("--until %q: want a time from now, such as 2h, or such as 2026-12-24T18:00:00Z", text)
		}
		// By the clock of this machine, which the person means by "in two hours".
		at = a.Now().Add(d)
	}
	// The API has times in milliseconds of UTC.
	end := api.Time(at.UTC().Truncate(time.Millisecond))
	return &end, nil
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

// maxNote bounds what is recorded of a person's words, in bytes. The API takes as many characters.
const maxNote = 4000

// answer records a decision. If it is not confirmed and may send something again, nothing is
// recorded, and it shows what would be sent. A question that was answered meanwhile is an
// error: the first answer stands.
func (a *app) answer(cmd *cobra.Command, name string, d api.DecisionRequest) error {
	ctx := cmd.Context()
	switch {
	case len(d.Note) > maxNote:
		return exit.Misusef("--note has %d bytes, want at most %d", len(d.Note), maxNote)
	case len(d.Result) > 0 && !json.Valid(d.Result):
		return exit.Misusef("--result is not JSON: a text needs quotes, as in --result '\"ok\"'")
	case d.Action == keep.Raise && d.Limit <= 0:
		return exit.Misusef("raise needs the limit that the budget gets, as in --limit 5000")
	case d.Action != keep.Raise && (d.Limit != 0 || d.Until != nil):
		return exit.Misusef("--limit and --until are for raise; %s takes none", d.Action)
	}
	return a.decide(ctx, func(c *api.Client) error {
		id, err := fixedID[keep.EscalationID](ctx, c, keep.NounQuestion, name)
		if err != nil {
			return err
		}
		q, err := c.Decide(ctx, id, d)
		// Which actions need it is decided by the API, so that pages and programs are asked for it too.
		if p, ok := errors.AsType[*api.Problem](err); ok && p.Kind == api.KindConfirm {
			return a.askConfirmation(cmd, c, id, d.Action)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Err, "Recorded: %s.\n", d.Action)
		if !a.JSON {
			return nil
		}
		return a.PrintJSON(q)
	})
}

// askConfirmation shows what an action may send again, and to whom. Nothing was changed, and the
// status says that the command line lacks something: a script must not take it for an answer.
func (a *app) askConfirmation(cmd *cobra.Command, c *api.Client, id keep.EscalationID, action keep.Action) error {
	ctx := cmd.Context()
	q, err := c.Escalation(ctx, id)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Err, "%s may send this again:\n", action)
	var s terminal.Sheet
	if q.Mutation != nil && q.Kind != keep.AskAlreadyDone { // there it is the earlier call
		m, err := c.Mutation(ctx, keep.MutationKey(*q.Mutation))
		if err != nil {
			return err
		}
		s.Add("  tool", "%s", m.Tool)
		s.Add("  target", "%s", m.Target)
		s.Add("  payload", "%s", m.Payload)
	} else {
		s.Add("  attempted", "%s", q.Attempted)
	}
	if err := s.Print(a.Err, a.Ink); err != nil {
		return err
	}
	fmt.Fprintf(a.Err, "Nothing was changed. To confirm: %s\n", confirmation(cmd, []string{string(id), string(action)}, "--yes"))
	return exit.With(exit.Misused)
}
