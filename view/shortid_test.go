package view_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/view"
)

func TestFullID(t *testing.T) {
	s := memory.New()
	at := time.UnixMilli(1)
	for _, id := range []keep.InputID{"in_abcdef111111", "in_abcdef222222", "in_xy"} {
		in := keep.Input{ID: id, Workflow: "w", Source: "s", Type: "t", ExternalID: string(id), Title: "x", Status: keep.InputPending, CreatedAt: at}
		if err := s.Commit(t.Context(), keep.Commit{Workflow: "w", At: at, Changes: []keep.Change{keep.PutInput{Input: in}}}); err != nil {
			t.Fatal(err)
		}
	}
	for given, want := range map[string]string{
		"in_abcdef111111": "in_abcdef111111",
		"abcdef111111":    "in_abcdef111111",
		"in_abcdef1":      "in_abcdef111111",
		"111111":          "in_abcdef111111",
		"in_222222":       "in_abcdef222222",
		"in_xy":           "in_xy",
		"last":            "in_xy",
	} {
		if got, err := view.FullID(t.Context(), s, keep.NounInput, given); got != want || err != nil {
			t.Errorf("FullID %q = %q, %v, want %q", given, got, err, want)
		}
	}
	for _, given := range []string{"", "xy", "bcdef1", "11111", "in_11111", "in_none"} {
		if got, err := view.FullID(t.Context(), s, keep.NounInput, given); !errors.Is(err, keep.ErrNotFound) {
			t.Errorf("FullID %q = %q, %v, want not found", given, got, err)
		}
	}
	for _, n := range keep.Nouns()[:2] {
		if got, err := view.FullID(t.Context(), s, n, "last"); !errors.Is(err, keep.ErrNotFound) {
			t.Errorf("FullID of the last %s = %q, %v, want not found", n, got, err)
		}
	}
	_, err := view.FullID(t.Context(), s, keep.NounInput, "abcdef")
	var several *view.AmbiguousError
	if !errors.As(err, &several) {
		t.Fatalf("FullID of two = %v, want an AmbiguousError", err)
	}
	if diff := cmp.Diff([]string{"in_abcdef222222", "in_abcdef111111"}, several.Names); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
	if _, err := view.Why(t.Context(), s, "abcdef"); !errors.As(err, &several) {
		t.Errorf("Why of two = %v, want an AmbiguousError", err)
	}
}

// The whole id of a question is taken however many others begin with it, as those of a budget do that was asked about often.
func TestFullIDOfAQuestion(t *testing.T) {
	s := memory.New()
	at := time.UnixMilli(1)
	for n := range 110 {
		q := keep.Escalation{ID: keep.EscalationID(fmt.Sprintf("esc_budget_money_%d", n+1)), Kind: keep.AskBudget, Budget: "money", Workflow: "w", Question: "?", CreatedAt: at}
		if err := s.Commit(t.Context(), keep.Commit{Workflow: "w", At: at, Changes: []keep.Change{keep.OpenEscalation{Escalation: q}}}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := view.FullID(t.Context(), s, keep.NounQuestion, "esc_budget_money_1"); got != "esc_budget_money_1" || err != nil {
		t.Errorf("FullID = %q, %v, want the question of that id", got, err)
	}
}

// What an AmbiguousError names is taken as an id, and tells which one is meant.
func TestWhyOfAPlace(t *testing.T) {
	s, at := memory.New(), time.UnixMilli(1)
	changes := []keep.Change{keep.PutItem{Item: keep.Item{Workflow: "w", ID: "a/1", Title: "x", Status: keep.ItemDone, Attempt: 1}}}
	for _, topic := range []keep.TopicName{"t", "u"} {
		changes = append(changes, keep.Publish{Event: keep.Event{Workflow: "w", Topic: topic, MessageID: "a/1", Payload: []byte("{}"), Status: keep.EventPending, CreatedAt: at}})
	}
	if err := s.Commit(t.Context(), keep.Commit{Workflow: "w", At: at, Changes: changes}); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]view.Nature{"w/t/a/1": view.IsEvent, "w/u/a/1": view.IsEvent, "w/a/1": view.IsItem} {
		if story, err := view.Why(t.Context(), s, id); err != nil || story.Is != want || story.Workflow != "w" {
			t.Errorf("Why of %s = %s of %s, %v, want an %s", id, story.Is, story.Workflow, err, want)
		}
	}
	for _, id := range []string{"w/v/a/1", "v/t/a/1", "w/b/1", "w//", "/"} {
		if _, err := view.Why(t.Context(), s, id); !errors.Is(err, keep.ErrNotFound) {
			t.Errorf("Why of %s = %v, want not found", id, err)
		}
	}
}
