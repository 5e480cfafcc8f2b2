package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/config"
	"github.com/keep-run/keep/engine"
	"github.com/spf13/cobra"
)

// inboxCmd lists, shows and decides questions. Only open ones are listed; show
// finds the others too.
func (a *app) inboxCmd() *cobra.Command {
	list := func() *cobra.Command {
		return listCmd(a, "", "Open questions and what you can do about them", listing[api.Escalation]{
			header: []string{"QUESTION", "WORKFLOW", "KIND", "SINCE", "ACTIONS", "ABOUT"},
			fetch: func(ctx context.Context, db database, f listFlags, p keep.Page) ([]api.Escalation, string, error) {
				qs, next, err := db.Escalations(ctx, keep.EscalationFilter{Workflow: keep.WorkflowName(f.workflow), Open: true}, p)
				out := make([]api.Escalation, 0, len(qs))
				for _, q := range qs {
					out = append(out, api.EscalationOf(q))
				}
				return out, next, err
			},
			row: func(q api.Escalation) []string {
				return []string{string(q.ID), string(q.Workflow), string(q.Kind), a.at(q.CreatedAt),
					actionNames(q.Actions), cutTo(clean(cmp.Or(orEmpty(q.Title), q.Question)), maxTitle)}
			},
		})
	}
	show := showCmd(a, "show ID", "Show one question with its evidence", 1,
		func(ctx context.Context, db database, args []string) (api.Escalation, error) {
			q, err := db.Escalation(ctx, keep.EscalationID(args[0]))
			return api.EscalationOf(q), err
		},
		func(ctx context.Context, db database, q api.Escalation) error {
			fmt.Fprintln(a.out, a.outInk.questionText(q))
			return a.printTold(ctx, db, q.ID)
		})
	show.ValidArgsFunction = a.byPosition(questionIDs)
	return noun("inbox", list, show, a.decideCmd())
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
			return a.decide(cmd.Context(), keep.EscalationID(args[0]), keep.Action(args[1]), note)
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "`text` that is recorded with the decision")
	cmd.ValidArgsFunction = func(c *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		return a.byPosition(questionIDs, questionActions)(c, args, toComplete)
	}
	return cmd
}

// questionActions completes the actions that a question offers.
func questionActions(ctx context.Context, db database, args []string) ([]string, error) {
	q, err := db.Escalation(ctx, keep.EscalationID(args[0]))
	var out []string
	for _, c := range q.Choices {
		out = append(out, described(string(c.Action), c.Effect))
	}
	return out, err
}

// maxNote bounds what is recorded of a person's words, in bytes.
const maxNote = 4000

// decide records a decision. It works beside a running host, which looks for
// such changes once a second.
func (a *app) decide(ctx context.Context, id keep.EscalationID, action keep.Action, note string) error {
	if len(note) > maxNote {
		return misusef("--note has %d bytes, want at most %d", len(note), maxNote)
	}
	return a.withEngine(ctx, func(db database, e *engine.Engine) error {
		err := e.Decide(ctx, id, keep.Decision{Action: action, By: who(), From: "cli", Note: note})
		if refused, ok := errors.AsType[*engine.ActionError](err); ok {
			return a.refuse(ctx, db, refused)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(a.err, "Recorded: %s.\n", action)
		q, err := db.Escalation(ctx, id)
		if err != nil || !a.json {
			return err
		}
		return a.printJSON(api.EscalationOf(q))
	})
}

// refuse says why an action cannot be taken, and which can.
func (a *app) refuse(ctx context.Context, db database, refused *engine.ActionError) error {
	q, err := db.Escalation(ctx, refused.ID)
	if err == nil && len(q.Choices) > 0 && !q.Allows(refused.Action) {
		return misusef("question %s does not offer %q; choose from %s", refused.ID, string(refused.Action), actionNames(q.Choices))
	}
	return refused
}

// who returns the name that a decision is recorded under.
func who() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return cmp.Or(os.Getenv("USER"), os.Getenv("USERNAME"), "unknown")
}

// withEngine opens the database beside a host, to record what a person decides.
func (a *app) withEngine(ctx context.Context, f func(db database, e *engine.Engine) error) error {
	return a.withStore(ctx, toDecide, func(_ *config.Config, db database) error {
		tools, err := engine.NewTools(nil)
		if err != nil {
			return err
		}
		e, err := engine.New(db, nil, tools, engine.Config{Logger: a.log, Leases: leasesOf(db)})
		if err == nil {
			err = e.Sync(ctx)
		}
		if err != nil {
			return err
		}
		return f(db, e)
	})
}
