package view

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
)

// An Act is what a person did with an input, an event, an item or a workflow, beside answers to questions.
type Act struct {
	keep.Decision
	Input   keep.InputID     // of an event: the input about which it was decided; empty: the event itself
	Handler keep.HandlerName // of a workflow: the producer or job about which it was decided; empty: the workflow itself
}

// Did says what was done, as a heading.
func (a Act) Did() string {
	switch a.Action {
	case keep.Skip:
		return "Skipped"
	case keep.Unskip:
		return "Skip undone"
	case keep.Reprocess:
		return "Reprocessed"
	case keep.DoneAgain:
		return "Done again"
	case keep.Cancel:
		return "Run cancelled"
	case keep.Pause:
		return "Paused"
	case keep.Resume:
		return "Resumed"
	case keep.Deployed:
		return "Deployed"
	case keep.Trigger:
		return "Run asked for"
	case keep.SetCheckpoint:
		return "Checkpoint changed"
	case keep.ResetCheckpoint:
		return "Checkpoint reset"
	case keep.Drain:
		return "Drained"
	case keep.Undrain:
		return "Drain undone"
	case keep.Issue:
		return "Made"
	case keep.Revoke:
		return "Revoked"
	case keep.Connect:
		return "Connected"
	case keep.Export:
		return "Exported"
	case keep.MoveAway:
		return "Moved away"
	case keep.SetSecret:
		return "Set"
	case keep.Remove:
		return "Removed"
	}
	return string(a.Action)
}

// sentence tells it.
func (a Act) sentence() string {
	what := map[keep.Action]string{keep.Skip: "skipped it", keep.Unskip: "undid its skip", keep.Reprocess: "had it start over", keep.DoneAgain: "had it done again",
		keep.Cancel: "cancelled its run, which skipped it", keep.Pause: "paused it"}[a.Action]
	if a.Input != "" {
		what += " with input " + string(a.Input)
	}
	text := fmt.Sprintf("%s %s at %s", cmp.Or(a.By, "Somebody"), cmp.Or(what, "did "+string(a.Action)), a.At.UTC().Format(time.RFC3339))
	if a.Note != "" {
		text += ": " + a.Note
	}
	return text + "."
}

// Acts returns what people did with an input or an item, oldest first.
func Acts(ctx context.Context, s store.Decisions, about keep.Subject) (acts []Act, err error) {
	list, err := s.Decided(ctx, about)
	for _, d := range list {
		acts = append(acts, Act{Decision: d.Decision})
	}
	return acts, err
}

// ActsOfEvent returns what people did with an event, and with the first inputs that caused it, oldest first.
func ActsOfEvent(ctx context.Context, s store.Decisions, ev keep.Event) (acts []Act, err error) {
	for _, d := range ev.Redone {
		acts = append(acts, Act{Decision: keep.Decision{Action: keep.DoneAgain, By: d.By, From: d.From, Note: d.Note, At: d.At}})
	}
	about := []keep.Subject{{Workflow: ev.Workflow, Kind: keep.AboutEvent, Topic: ev.Topic, ID: string(ev.MessageID)}}
	for _, in := range ev.CausedBy[:min(len(ev.CausedBy), maxRelated)] {
		about = append(about, keep.Subject{Workflow: ev.Workflow, Kind: keep.AboutInput, ID: string(in)})
	}
	for i, subject := range about {
		list, err := Acts(ctx, s, subject)
		if err != nil {
			return nil, err
		}
		for _, a := range list {
			if i > 0 && a.Action == keep.DoneAgain {
				continue // the event says it itself, if it was one of those
			}
			if i > 0 {
				a.Input = keep.InputID(subject.ID)
			}
			acts = append(acts, a)
		}
	}
	return byTime(acts), nil
}

// ActsOfWorkflow returns what people did with a workflow, and with the producers and jobs of its current version, oldest first. That
// something asks for many runs leaves who paused the workflow in sight: of each of them the newest keep.MaxDecided are read.
func ActsOfWorkflow(ctx context.Context, s store.Decisions, w keep.WorkflowName, def keep.Definition) ([]Act, error) {
	acts, err := Acts(ctx, s, w.Subject())
	for _, h := range def.Handlers {
		if err != nil || h.Kind == keep.Consumer {
			continue
		}
		var list []Act
		list, err = Acts(ctx, s, h.Subject(w))
		for _, a := range list {
			a.Handler = h.Name
			acts = append(acts, a)
		}
	}
	return byTime(acts), err
}

// byTime sorts acts by time. Those of one thing stay in the order in which they were decided if their times do not say otherwise.
func byTime(acts []Act) []Act {
	slices.SortStableFunc(acts, func(a, b Act) int { return a.At.Compare(b.At) })
	return acts
}

// PauseOf returns who paused a workflow that is paused, of what people did with it; nil: that is in no record.
func PauseOf(w keep.Workflow, acts []Act) *Act {
	for i, a := range slices.Backward(acts) {
		switch {
		case !w.Paused || a.Action == keep.Resume, a.Action == keep.Pause && !strings.HasPrefix(w.PauseNote, a.Note):
			return nil // an older Keep paused it since
		case a.Action == keep.Pause:
			return &acts[i]
		}
	}
	return nil
}

// acted returns sentences of acts.
func acted(acts []Act) (lines []string) {
	for _, a := range acts {
		lines = append(lines, a.sentence())
	}
	return lines
}
