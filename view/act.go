package view

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
)

// ActRedo is the action of an Act by which a person had an event done again.
const ActRedo keep.Action = "redo"

// An Act is what a person did with an input, an event or an item, beside answers to questions.
type Act struct {
	keep.Decision
	Input keep.InputID // of an event: the input about which it was decided; empty: the event itself
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
	case ActRedo:
		return "Done again"
	}
	return string(a.Action)
}

// sentence tells it.
func (a Act) sentence() string {
	what := map[keep.Action]string{keep.Skip: "skipped it", keep.Unskip: "undid its skip", keep.Reprocess: "had it start over", ActRedo: "had it done again"}[a.Action]
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
		acts = append(acts, Act{Decision: keep.Decision{Action: ActRedo, By: d.By, From: d.From, Note: d.Note, At: d.At}})
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
			if i > 0 {
				a.Input = keep.InputID(subject.ID)
			}
			acts = append(acts, a)
		}
	}
	slices.SortStableFunc(acts, func(a, b Act) int { return a.At.Compare(b.At) })
	return acts, nil
}

// acted returns sentences of acts.
func acted(acts []Act) (lines []string) {
	for _, a := range acts {
		lines = append(lines, a.sentence())
	}
	return lines
}
