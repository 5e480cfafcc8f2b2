package host_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/store/sqlite"
)

// await reads changes until every kind of want was seen for a workflow, or for
// none in particular.
func await(t *testing.T, s *feed.Subscription, wf keep.WorkflowName, want ...feed.Kind) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(want) > 0 {
		batch, err := s.Next(ctx)
		if err != nil {
			t.Fatalf("no change of %v: %v", want, err)
		}
		for _, c := range batch {
			if c.Workflow == wf {
				want = slices.DeleteFunc(want, func(k feed.Kind) bool { return slices.Contains(c.Kinds, k) })
			}
		}
	}
}

// Whoever follows the feed is notified of what a deploy and the runs commit.
func TestCommitsAreTold(t *testing.T) {
	w := newWorld(t)
	s := w.open().Changes().Subscribe(t.Context(), "")
	w.deploy(`export default Keep.workflow({ name: "w", topics: { in: {} }, producers: { async p(ctx) {
		const input = await ctx.registerInput({ source: "s", type: "t", id: "1", title: "One" });
		await ctx.publish("in", { messageId: "1", inputId: input }); } },
		consumers: { c: Keep.consumer({ subscribe: ["in"],
			async prepare(ctx, e) { return { reservations: e ? [{ topic: "in", ids: [e.messageId] }] : [], data: {} } },
			async mutate(ctx) { await ctx.svc.create({ id: 1 }) }, async next() {} }) } })`)
	await(t, s, "w", feed.Workflow)
	w.start()
	await(t, s, "w", feed.Run, feed.Event, feed.Input, feed.Mutation)
}

// What another process commits is not known in detail: look at everything.
func TestForeignCommitsAreAReset(t *testing.T) {
	w := newFileWorld(t)
	w.unwatched = true
	s := w.open().Changes().Subscribe(t.Context(), "")
	w.start()
	await(t, s, "", feed.Reset) // the first look
	other := sqlite.New(filepath.Clean(w.path), sqlite.Config{})
	if err := other.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	err := other.Commit(t.Context(), keep.Commit{Workflow: "w", At: now(), Changes: []keep.Change{
		keep.PutInput{Input: keep.Input{ID: "in_1", Workflow: "w", ExternalID: "1", CreatedAt: now()}}}})
	if err != nil {
		t.Fatal(err)
	}
	await(t, s, "", feed.Reset)
}
