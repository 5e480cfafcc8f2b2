package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/shell"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/law/key"
)

// whyCmd says of any id what it is, what it waits for and what came of it. It is for the person who
// has an id from a log or a mail, and does not know of what it is.
func (a *app) whyCmd() *cobra.Command {
	cmd := showCmd(a, "why ID", "What any id names, what it waits for and what came of it", 1,
		func(ctx context.Context, c *api.Client, args []string) (api.Why, error) {
			if args[0] == "" {
				return api.Why{}, exit.Misusef("the id is empty")
			}
			w, err := c.Why(ctx, args[0])
			return w, orWorkflow(ctx, c, args[0], err)
		},
		func(_ context.Context, _ *api.Client, w api.Why) error { return a.printWhy(w) })
	cmd.Long = `Why takes the id of a run, a call of the ledger, an input or a question, the message
id of an event, the id of an item, or a version as WORKFLOW@VERSION, and tells what it
is, what it waits for, what came of it, and what belongs to it. Six or more characters
that an id begins or ends with stand for it; with its prefix, as in run_7k2m9q, for that
of a run alone. A part that a run shares with its call is the run, and last is the
newest run.

Several topics may have an event of one message id, and several workflows an item of
one id: then they are named, and the status is 2. By those names, WORKFLOW/TOPIC/ID and
WORKFLOW/ID, each is found. Of an idempotency key, key_…, keep keys show tells.`
	cmd.ValidArgsFunction = a.byPosition(runIDs)
	return cmd
}

// orWorkflow says of an id that is none whether a workflow has that name, or whether it is the reference of an idempotency key.
func orWorkflow(ctx context.Context, c *api.Client, id string, err error) error {
	if !errors.Is(err, keep.ErrNotFound) {
		return err
	}
	if _, other := key.ParseID(id); other == nil {
		return fmt.Errorf("%w; it is the reference of an idempotency key of HTTP requests: keep keys show %s", err, id)
	}
	if _, other := c.Workflow(ctx, keep.WorkflowName(id)); other != nil {
		return err // what is not there is said, and not why it is no workflow
	}
	return fmt.Errorf("%w; it is a workflow: keep workflows show %s", err, terminal.Clean(id))
}

// printWhy prints sentences first, and then what else can be asked for, as commands that can be
// copied.
func (a *app) printWhy(w api.Why) error {
	fmt.Fprintln(a.Out, terminal.Clean(w.Sentence))
	if w.WaitsFor != nil {
		fmt.Fprintf(a.Out, "%s %s\n", a.OutInk.Dim("waits for:"), terminal.Clean(*w.WaitsFor))
	}
	for _, line := range w.Became {
		fmt.Fprintln(a.Out, "  "+terminal.Clean(line))
	}
	var s terminal.Sheet
	for _, id := range w.Inputs {
		s.Add("input", "keep inputs show %s", id)
	}
	for _, e := range w.Events {
		s.Add("event", "keep events show %s %s %s", w.Workflow, e.Topic, terminal.Clean(shell.Word(string(e.MessageID))))
	}
	for _, id := range w.Runs {
		s.Add("run", "keep runs show %s", id)
	}
	for _, key := range w.Mutations {
		s.Add("call", "keep mutations show %s", key)
	}
	for _, id := range w.Questions {
		s.Add("question", "keep inbox show %s", id)
	}
	return s.Print(a.Out, a.OutInk)
}
