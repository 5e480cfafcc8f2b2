package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/law/lifecycle"
)

// A redoer has events and inputs done again. Each step is shown by the host before it is done, and
// is done with the mark of what was shown: if anything changed in between, it is refused.
type redoer struct {
	a    *app
	yes  bool
	note string

	all     bool
	status  string
	text    string
	since   string
	until   string
	attempt int

	sum redoSummary
}

// A redoSummary is what keep events redo and keep inputs redo did, or would do.
type redoSummary struct {
	Preview bool            `json:"preview"`
	Redone  int             `json:"redone"` // or would be
	Refused int             `json:"refused"`
	Events  []api.RedoEvent `json:"events"`
}

// redoBatch is how many events of a filter are done again in one step, all or none. The host works on
// in between; a refusal at the last moment ends the command with whole steps done.
const redoBatch = 25

// maxRedoShown is how many events are described one by one; nobody reads more of them.
const maxRedoShown = 20

// redoEventsCmd has events of one topic done again. --all takes only first attempts unless told
// otherwise, so that the same command, repeated after an interruption, does nothing twice.
func (a *app) redoEventsCmd() *cobra.Command {
	d := &redoer{a: a}
	cmd := &cobra.Command{
		Use: "redo WORKFLOW TOPIC (ID…|--all)", Short: "Do finished events again, as new attempts",
		Long: `Redo makes consumed and skipped events pending again, each in its old place and as a new
attempt: their consumer runs again, and its calls are new ones, with keys of their own. So
what the attempts before did may be done a second time. Without --yes it only shows what
that is: their calls, what they published, and what followed from that.

Of events that are named, all are redone or none; --all takes those of the topic that match the
filter, in steps of 25, and leaves out what is refused. It takes events at --attempt, which
is 1: one that was redone is not taken again when the command is repeated.

An event is refused that is pending, whose payload was deleted, or below which the outcome of
a call is not known: answer that first. Who did it, when and why is in the history of the
event.`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return d.events(cmd.Context(), args) },
	}
	d.flags(cmd)
	cmd.Flags().BoolVar(&d.all, "all", false, "all events of the topic that match")
	cmd.Flags().StringVar(&d.status, "status", "", "with --all: only `consumed` or skipped ones")
	cmd.Flags().StringVar(&d.text, "text", "", "with --all: only those with these words: a `text`")
	cmd.Flags().StringVar(&d.since, "since", "", "with --all: made at this `time` or later: 90s, 2h, 3d ago, or RFC 3339")
	cmd.Flags().StringVar(&d.until, "until", "", "with --all: made before this `time`")
	cmd.Flags().IntVar(&d.attempt, "attempt", 1, "with --all: only those at attempt `n`")
	cmd.ValidArgsFunction = a.byPosition(workflowNames, topicNames)
	return cmd
}

// redoInputsCmd has all that came from outside with an input done again.
func (a *app) redoInputsCmd() *cobra.Command {
	d := &redoer{a: a}
	cmd := &cobra.Command{
		Use: "redo ID…", Short: "Do inputs again, as new attempts of their events",
		Long: `Redo has the events of inputs done again that came from outside, as keep events redo does:
those that a producer, a hook or a person published. What consumers published follows from
them again. Of each input all such events are redone, or none. Without --yes it only shows
what that would cause.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return d.inputs(cmd.Context(), args) },
	}
	d.flags(cmd)
	cmd.ValidArgsFunction = a.byPosition(inputIDs)
	return cmd
}

// flags adds what both commands take.
func (d *redoer) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&d.yes, "yes", false, "do it")
	cmd.Flags().StringVar(&d.note, "note", "", "why: `text` for the history of each event")
}

// events does events of a topic again.
func (d *redoer) events(ctx context.Context, args []string) error {
	w, topic := keep.WorkflowName(args[0]), keep.TopicName(args[1])
	var ids []keep.MessageID
	for _, id := range args[2:] {
		ids = append(ids, keep.MessageID(id))
	}
	filtered := d.status != "" || d.text != "" || d.since != "" || d.until != "" || d.attempt != 1
	switch {
	case d.all && len(ids) > 0, !d.all && len(ids) == 0:
		return exit.Misusef("name events, or take those of the topic that match with --all")
	// Who named events and a filter means that the filter still holds; it would not.
	case filtered && !d.all:
		return exit.Misusef("--status, --text, --since, --until and --attempt go with --all")
	case len(ids) > maxNamed:
		return exit.Misusef("%d events are named, want at most %d", len(ids), maxNamed)
	case d.status != "" && d.status != string(keep.EventConsumed) && d.status != string(keep.EventSkipped):
		return exit.Misusef("--status is %q, want consumed or skipped", d.status)
	}
	return d.a.decide(ctx, func(c *api.Client) error {
		do := func(ids []keep.MessageID) func(api.RedoBody) (api.RedoDone, error) {
			return func(in api.RedoBody) (api.RedoDone, error) { return c.RedoEvents(ctx, w, topic, ids, in) }
		}
		if !d.all {
			return d.ended(d.redo(do(ids)))
		}
		ids, err := d.matching(ctx, c, w, topic)
		if err != nil {
			return err
		}
		return d.batches(ids, do)
	})
}

// matching returns the events of a topic that the filter takes, oldest first, as they came the first
// time; lists begin with the newest.
func (d *redoer) matching(ctx context.Context, c *api.Client, w keep.WorkflowName, topic keep.TopicName) (ids []keep.MessageID, err error) {
	for p := (api.Paging{Limit: pageSize}); ; {
		page, err := c.Events(ctx, w, api.EventQuery{Topic: topic, Status: keep.EventStatus(d.status), Made: api.Made{Since: d.since, Until: d.until}, Text: d.text}, p)
		if err != nil {
			return nil, err
		}
		for _, e := range page.Items {
			if e.Attempt == d.attempt && (e.Status == keep.EventConsumed || e.Status == keep.EventSkipped) {
				ids = append(ids, e.MessageID)
			}
		}
		if page.Next == nil {
			slices.Reverse(ids)
			return ids, nil
		}
		p.Cursor = *page.Next
	}
}

// batches does events again step by step, without those that are refused: a preview of the step tells
// which. If it ends in the middle, whole steps are done, and the command may be repeated.
func (d *redoer) batches(ids []keep.MessageID, do func([]keep.MessageID) func(api.RedoBody) (api.RedoDone, error)) error {
	for some := range slices.Chunk(ids, redoBatch) {
		seen, err := do(some)(api.RedoBody{Preview: true})
		if err != nil {
			return d.ended(err)
		}
		var left []keep.MessageID
		for _, e := range seen.Events {
			if e.Refused == nil {
				left = append(left, e.MessageID)
			} else {
				d.tell(e)
			}
		}
		if len(left) > 0 {
			before := d.sum.Redone
			if err := d.redo(do(left)); err != nil {
				return d.ended(err)
			}
			if d.sum.Redone == before { // one of them is refused by now, which was said
				return d.ended(exit.Failedf("what can be done again changed while this was at work: %s were left, with all that come after them; the same command continues with those", terminal.Plural(len(left), "event")))
			}
		}
		if d.yes {
			fmt.Fprintf(d.a.Err, "Redone: %s of %s.\n", terminal.Number(d.sum.Redone), terminal.Plural(len(ids), "event"))
		}
	}
	return d.finish()
}

// inputs does inputs again, each in a step of its own. All are looked for before the first: who corrects a name
// that is none, and repeats the command, would have the others done once more.
func (d *redoer) inputs(ctx context.Context, args []string) error {
	if len(args) > maxNamed {
		return exit.Misusef("%d inputs are named, want at most %d", len(args), maxNamed)
	}
	return d.a.decide(ctx, func(c *api.Client) error {
		ids, err := fixedIDs[keep.InputID](ctx, c, keep.NounInput, args)
		if err != nil {
			return err
		}
		for _, id := range ids { // a whole id is not looked up by fixedIDs
			if _, err := c.Input(ctx, id); err != nil {
				return err
			}
		}
		for _, id := range ids {
			err := d.redo(func(in api.RedoBody) (api.RedoDone, error) { return c.RedoInput(ctx, id, in) })
			if err != nil {
				return d.ended(fmt.Errorf("input %s: %w", id, err))
			}
		}
		return d.finish()
	})
}

// redo shows what doing something again will cause, and does it if nothing is refused and
// the person said so.
func (d *redoer) redo(do func(api.RedoBody) (api.RedoDone, error)) error {
	seen, err := do(api.RedoBody{Preview: true})
	if err != nil {
		return err
	}
	refused, before := false, d.sum
	for _, e := range seen.Events {
		d.tell(e)
		refused = refused || e.Refused != nil
	}
	// What is named together is done together: the reasons were said, and nothing is done.
	if refused {
		return nil
	}
	if d.yes && len(seen.Events) > 0 {
		if _, err := do(api.RedoBody{Mark: seen.Mark, Note: d.note}); err != nil {
			d.sum = before
			return err
		}
	}
	d.sum.Redone += len(seen.Events)
	return nil
}

// ended is finish after an error, which may have come when a part was done: that is said beside it, since
// whoever repeats the command has that part done once more.
func (d *redoer) ended(err error) error {
	if err != nil && d.sum.Redone == 0 {
		return err
	}
	return errors.Join(err, d.finish())
}

// finish says what was done. A refusal is an error of what was named; of a filter it is one only if
// nothing else was left.
func (d *redoer) finish() error {
	d.sum.Preview = !d.yes
	if d.sum.Events == nil {
		d.sum.Events = []api.RedoEvent{}
	}
	switch {
	case d.sum.Redone > 0 && d.yes:
		fmt.Fprintf(d.a.Err, "%s pending again, as new attempts.\n", terminal.Plural(d.sum.Redone, "event"))
	case d.sum.Redone > 0:
		fmt.Fprintf(d.a.Err, "%s would be done again. Nothing was changed. Add --yes to do it.\n", terminal.Plural(d.sum.Redone, "event"))
	// Most likely all were redone before, and are at a later attempt.
	case d.sum.Refused == 0 && d.all:
		fmt.Fprintf(d.a.Err, "There is no such event at attempt %d (--attempt). Nothing was changed.\n", d.attempt)
	case d.sum.Refused == 0:
		fmt.Fprintln(d.a.Err, "There is no such event. Nothing was changed.")
	}
	if d.a.JSON {
		if err := d.a.PrintJSON(d.sum); err != nil {
			return err
		}
	}
	if d.sum.Refused > 0 && (!d.all || d.sum.Redone == 0) {
		return exit.With(exit.Failed)
	}
	return nil
}

// tell says what doing an event again will cause, and counts it: what may happen a second time, what
// is published again, and what the ledger cannot say any more.
func (d *redoer) tell(e api.RedoEvent) {
	out := d.a.Err
	// Kept also beyond what is shown: --json prints all.
	if d.sum.Events = append(d.sum.Events, e); e.Refused != nil {
		d.sum.Refused++
	}
	if n := len(d.sum.Events); n > maxRedoShown {
		if n == maxRedoShown+1 {
			fmt.Fprintln(out, "More events are not shown one by one; --json has all.")
		}
		return
	}
	name := fmt.Sprintf("Event %s in topic %s", terminal.Clean(string(e.MessageID)), e.Topic)
	if e.Refused != nil {
		fmt.Fprintf(out, "%s cannot be done again: %s.\n", name, terminal.Clean(*e.Refused))
		return
	}
	fmt.Fprintf(out, "%s is %s at attempt %d. In attempt %d it goes to %s.\n", name, e.Status, e.Attempt, e.Attempt+1, joinIDs(e.Readers))
	for _, c := range e.Calls {
		fmt.Fprintf(out, "  %s on %s: %s (%s)\n", c.Tool, terminal.Clean(c.Target), repeatWords(c.Repeat), c.Mutation)
	}
	if e.Forgotten > 0 {
		fmt.Fprintf(out, "  of %s the records were deleted: nobody knows what happened\n", terminal.Plural(e.Forgotten, "attempt"))
	}
	for _, p := range e.Published {
		what := "has an id of the script, so it stays one event: nothing more follows from it"
		if p.Again {
			what = "is published again as another event, and what reads it works again"
		}
		fmt.Fprintf(out, "  event %s in topic %s %s\n", terminal.Clean(string(p.MessageID)), p.Topic, what)
	}
	if e.BelowTotal > 0 {
		fmt.Fprintf(out, "  %s followed from what was published\n", terminal.Plural(e.BelowTotal, "call"))
	}
}

// repeatWords says what an equal call of the new attempt would be.
func repeatWords(r lifecycle.Repeat) string {
	switch r {
	case lifecycle.SecondTime:
		return "happened, and may happen a second time"
	case lifecycle.NotBefore:
		return "did not happen before"
	}
	return "nobody knows whether it happened, and it may happen a second time"
}

// noted returns a note as it stands behind what was done.
func noted(note *string) string {
	if note == nil {
		return ""
	}
	return ": " + *note
}
