package web_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/web"
)

// failing is a store of which a commit fails, and none after it.
type failing struct {
	*memory.Store
	left int // commits until that one
}

func (f *failing) Commit(ctx context.Context, c keep.Commit) error {
	if f.left--; f.left == 0 {
		return errors.New("the disk is full")
	}
	return f.Store.Commit(ctx, c)
}

// A part of a skip of all that match that fails in its middle says how many it skipped, and continues from there, with the same note: the
// error alone would hide what was done.
func TestHalfASkipIsSaid(t *testing.T) {
	db := memory.New()
	for i := range 6 {
		name := keep.WorkflowName([]string{"a", "b"}[i%2])
		id := keep.InputID(fmt.Sprintf("in_%d", i))
		if err := db.Commit(t.Context(), keep.Commit{Workflow: name, At: keepNow(), Changes: []keep.Change{
			keep.PutInput{Input: keep.Input{ID: id, Workflow: name, Source: "s", ExternalID: string(id), Title: "Invoice", CreatedAt: keepNow()}},
			keep.Publish{Event: keep.Event{Workflow: name, Topic: "t", MessageID: keep.MessageID(id), Status: keep.EventPending, CausedBy: []keep.InputID{id}}},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	actor, err := operator.New(&failing{db, 3}, operator.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t}
	w.serve(web.Config{Store: db, Actor: actor, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(w.site.Close)
	c := w.as("ada", "operator")
	a := c.post("/skip-inputs", append(formOf(t, c.get("/skip-inputs?q=invoice").body), "note", "a \u200btest")...)
	counts, err := db.CountInputs(t.Context(), keep.InputFilter{})
	w.must(err)
	done := counts[keep.InputSkipped]
	if done == 0 || done == 6 {
		t.Fatalf("%d inputs were skipped before the store failed, want some", done)
	}
	a.want(t, 500, fmt.Sprintf("%d inputs skipped", done), "Continue")
	if strings.Contains(a.body, "data-auto") {
		t.Error("the page continues by itself")
	}
	c.post("/skip-inputs", formOf(t, a.body)...).want(t, 200, "6 inputs skipped", "Done.")
	for i := range 6 {
		about := keep.Subject{Workflow: keep.WorkflowName([]string{"a", "b"}[i%2]), Kind: keep.AboutInput, ID: fmt.Sprintf("in_%d", i)}
		if list, err := db.Decided(t.Context(), about); err != nil || len(list) != 1 || list[0].Decision.Note != "a \u200btest" {
			t.Errorf("what was decided about %s is %v, %v", about.ID, list, err)
		}
	}
}
