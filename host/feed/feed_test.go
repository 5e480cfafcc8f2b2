package feed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/feed"
)

// changed publishes a change of a workflow.
func changed(f *feed.Feed, w keep.WorkflowName, kinds ...feed.Kind) {
	f.Publish(feed.Change{Workflow: w, Kinds: kinds})
}

// next returns what a subscription has, which must be something.
func next(t *testing.T, s *feed.Subscription) []feed.Change {
	t.Helper()
	batch, err := s.Next(t.Context())
	if err != nil || len(batch) == 0 {
		t.Fatalf("Next = %v, %v", batch, err)
	}
	return batch
}

// said writes a batch without ids.
func said(batch []feed.Change) string {
	var list []string
	for _, c := range batch {
		list = append(list, fmt.Sprint(c.Workflow, c.Kinds))
	}
	return strings.Join(list, " ")
}

func TestOf(t *testing.T) {
	for want, changes := range map[string][]keep.Change{
		"w[]":                  {keep.SetKV{}, keep.ResetKV{}},
		"w[run]":               {keep.PutRun{}, keep.AppendLogs{}},
		"w[run mutation]":      {keep.PutMutation{}, keep.PutRun{}},
		"w[event]":             {keep.Reserve{}, keep.Release{}, keep.Publish{}},
		"w[event input]":       {keep.Publish{Event: keep.Event{CausedBy: []keep.InputID{"in"}}}},
		"w[run event input]":   {keep.Finish{}, keep.PutRun{}, keep.SkipEvents{}},
		"w[input]":             {keep.PutInput{}, keep.SkipInput{}},
		"w[item escalation]":   {keep.OpenEscalation{}, keep.CloseEscalation{}, keep.PutItem{}},
		"w[workflow]":          {keep.Deploy{}, keep.SetPaused{}, keep.PutHandler{}, keep.RequestRun{}},
		"w[mutation workflow]": {keep.Deploy{}, keep.PutMutation{}, keep.PutMutation{}},
	} {
		if got := said([]feed.Change{feed.Of(keep.Commit{Workflow: "w", Changes: changes})}); got != want {
			t.Errorf("Of(%T…) = %s, want %s", changes[0], got, want)
		}
	}
}

func TestChangesThatWaitAreMerged(t *testing.T) {
	f := feed.New(8)
	changed(f, "before", feed.Run)
	s := f.Subscribe(t.Context(), "")
	changed(f, "w1", feed.Run)
	changed(f, "w2", feed.Input)
	changed(f, "w1", feed.Event, feed.Run)
	f.Publish(feed.Change{Workflow: "w3"}) // without kinds: nothing
	batch := next(t, s)
	if got, want := said(batch), "w2[input] w1[run event]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if batch[0].ID != "" || batch[1].ID == "" {
		t.Errorf("ids %q and %q: only the last is a place to continue from", batch[0].ID, batch[1].ID)
	}
	changed(f, "w1", feed.Run)
	f.Reset()
	changed(f, "w2", feed.Run)
	if got, want := said(next(t, s)), "[reset] w2[run]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Whoever comes back with the last id that he saw misses nothing, or is told.
func TestGoOn(t *testing.T) {
	f := feed.New(4)
	s := f.Subscribe(t.Context(), "")
	changed(f, "w0", feed.Run)
	last := next(t, s)[0].ID
	for i := 1; i <= 4; i++ {
		changed(f, keep.WorkflowName(fmt.Sprint("w", i)), feed.Run)
	}
	if got, want := said(next(t, f.Subscribe(t.Context(), last))), "w1[run] w2[run] w3[run] w4[run]"; got != want {
		t.Errorf("after %s: %s, want %s", last, got, want)
	}
	changed(f, "w5", feed.Run)
	other := feed.New(4) // an earlier process
	s = other.Subscribe(t.Context(), "")
	changed(other, "w", feed.Run)
	for _, id := range []string{last, "x", "-", last + "0", "x-1", next(t, s)[0].ID, strings.Replace(last, "-", "-+", 1)} {
		again := f.Subscribe(t.Context(), id)
		batch := next(t, again)
		if said(batch) != "[reset]" {
			t.Errorf("after %q: %s, want a reset", id, said(batch))
		}
		changed(f, "later", feed.Run)
		if got := said(next(t, f.Subscribe(t.Context(), batch[0].ID))); !strings.Contains(got, "later[run]") {
			t.Errorf("after the reset for %q: %s", id, got)
		}
	}
}

// Whoever reads after Last, and subscribes later, misses nothing in between.
func TestLast(t *testing.T) {
	f := feed.New(4)
	begin := f.Last()
	changed(f, "w1", feed.Run)
	last := f.Last()
	changed(f, "w2", feed.Run)
	for id, want := range map[string]string{begin: "w1[run] w2[run]", last: "w2[run]"} {
		if got := said(next(t, f.Subscribe(t.Context(), id))); got != want {
			t.Errorf("after %s: %s, want %s", id, got, want)
		}
	}
}

// What is written for another process is read there, and what does not fit or is not
// known means that everything is to be read again.
func TestText(t *testing.T) {
	batch := []feed.Change{{ID: "x-1", Workflow: "w", Kinds: []feed.Kind{feed.Run, feed.Mutation}}, {Kinds: []feed.Kind{feed.Key}}}
	for want, text := range map[string]string{
		"w[run mutation] [key]": feed.Text(batch, 100),
		"[reset]":               feed.Text(batch, 20),
		"[reset] ":              `[{"w":"w","k":["run","of a later version"]}]`,
		"[reset]  ":             "of a later version",
	} {
		if got := said(feed.Read(text)); got != strings.TrimSpace(want) {
			t.Errorf("Read(%s) = %s, want %s", text, got, want)
		}
	}
}

// A subscriber that sleeps is told so once, and then continues.
func TestSlowSubscriberGetsOneReset(t *testing.T) {
	f := feed.New(4)
	s := f.Subscribe(t.Context(), "")
	for i := range 5 {
		changed(f, keep.WorkflowName(fmt.Sprint("w", i)), feed.Run)
	}
	if got := said(next(t, s)); got != "[reset]" {
		t.Errorf("got %s, want one reset", got)
	}
	changed(f, "w", feed.Run)
	if got := said(next(t, s)); got != "w[run]" {
		t.Errorf("got %s after the reset", got)
	}
}

func TestNextWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := feed.New(4)
		ctx, cancel := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		got := make([]string, 100)
		for i := range got {
			s := f.Subscribe(ctx, "")
			wg.Go(func() {
				batch, err := s.Next(ctx)
				got[i] = said(batch)
				if err != nil {
					t.Error(err)
				}
				if _, err = s.Next(ctx); !errors.Is(err, errGone) {
					t.Errorf("Next of an ended context = %v", err)
				}
			})
		}
		synctest.Wait() // all wait
		changed(f, "w", feed.Run)
		synctest.Wait() // all were told, and wait again
		cancel(errGone)
		wg.Wait()
		for i := range got {
			if diff := cmp.Diff("w[run]", got[i]); diff != "" {
				t.Errorf("subscriber %d: %s", i, diff)
			}
		}
	})
}

var errGone = errors.New("gone")

// However many workflows changed, a subscriber gets each once, in the order of their
// last changes.
func TestManyWorkflowsAreMergedOnce(t *testing.T) {
	const n = 4096
	f := feed.New(n)
	s := f.Subscribe(t.Context(), "")
	for round := range 2 {
		for i := range n / 2 {
			changed(f, keep.WorkflowName(fmt.Sprint(i)), []feed.Kind{feed.Run, feed.Item}[round])
		}
	}
	got := next(t, s)
	if len(got) != n/2 {
		t.Fatalf("%d changes, want %d", len(got), n/2)
	}
	for i, c := range got {
		if c.Workflow != keep.WorkflowName(fmt.Sprint(i)) || !slices.Equal(c.Kinds, []feed.Kind{feed.Run, feed.Item}) || (c.ID != "") != (i == n/2-1) {
			t.Fatalf("change %d is %+v", i, c)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	f := feed.New(4096)
	for b.Loop() {
		s := f.Subscribe(b.Context(), f.Last())
		for i := range 4096 {
			f.Publish(feed.Change{Workflow: keep.WorkflowName(fmt.Sprint(i)), Kinds: []feed.Kind{feed.Run}})
		}
		if batch, err := s.Next(b.Context()); err != nil || len(batch) != 4096 {
			b.Fatal(len(batch), err)
		}
	}
}
