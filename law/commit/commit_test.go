package commit_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
)

// The refusals, and what every change does, are tested by storetest on each store and
// against memory, which shares no code with this package. These tests are about what
// a store must know.

var at = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

// commitOf returns a commit to workflow w.
func commitOf(changes ...keep.Change) keep.Commit {
	return keep.Commit{Workflow: "w", At: at, Changes: changes}
}

// run returns a consumer's run of workflow w.
func run(rev int, closed bool) keep.Run {
	return keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Handler: "h", Kind: keep.Consumer, Rev: rev, Closed: closed}
}

// mutation returns a valid record of that run.
func mutation(rev int) keep.Mutation {
	return keep.Mutation{Key: "mut_1", Workflow: "w", Run: "run_1", Tool: "crm.create", Level: keep.LevelKey, State: keep.InFlight,
		Token: "t", Attempts: 1, CallDeadline: at, Rev: rev}
}

func TestExpect(t *testing.T) {
	for _, test := range []struct {
		name   string
		commit keep.Commit
		reads  commit.ReadSet
	}{
		{"begin a run", commitOf(
			keep.PutRun{Run: run(0, false)},
			keep.Reserve{Chain: "run_1", Reservation: keep.Reservation{Topic: "t", IDs: []keep.MessageID{"1", "2"}}},
			keep.PutMutation{Mutation: mutation(0)},
		), commit.ReadSet{Topics: []keep.TopicName{"t"}}},
		{"end a run", commitOf(
			keep.PutMutation{Mutation: mutation(1)},
			keep.Finish{Chain: "run_1", Status: keep.EventConsumed},
			keep.Publish{Event: keep.Event{Workflow: "w", Topic: "u", MessageID: "1", CausedBy: []keep.InputID{"in_1"}}},
			keep.PutHandler{State: keep.HandlerState{Workflow: "w", Handler: "h"}},
			keep.AppendLogs{Lines: []keep.LogLine{{Run: "run_1"}}},
			keep.PutRun{Run: run(1, true)},
		), commit.ReadSet{Topics: []keep.TopicName{"u"}, Held: []keep.RunID{"run_1"}, Events: []keep.EventRef{{Topic: "u", MessageID: "1"}}}},
		{"a run that begins and ends", commitOf(
			keep.PutRun{Run: run(0, true)},
			keep.Reserve{Chain: "run_1", Reservation: keep.Reservation{Topic: "t", IDs: []keep.MessageID{"1"}}},
			keep.Finish{Chain: "run_1", Status: keep.EventConsumed},
		), commit.ReadSet{Open: true, Topics: []keep.TopicName{"t"}, Runs: []keep.RunID{"run_1"}, Held: []keep.RunID{"run_1"},
			Events: []keep.EventRef{{Topic: "t", MessageID: "1"}}}},
		{"an input and its event", commitOf(
			keep.PutInput{Input: keep.Input{Workflow: "w", ID: "in_1"}},
			keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: "1", CausedBy: []keep.InputID{"in_1"}}},
		), commit.ReadSet{Topics: []keep.TopicName{"t"}, NewInputs: []keep.Input{{Workflow: "w", ID: "in_1"}}, Events: []keep.EventRef{{Topic: "t", MessageID: "1"}}}},
		{"publish and skip", commitOf(
			keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: "1", CausedBy: []keep.InputID{"in_1"}}},
			keep.SkipEvents{Topic: "t", IDs: []keep.MessageID{"1"}},
		), commit.ReadSet{Topics: []keep.TopicName{"t"}, Inputs: []keep.InputID{"in_1"},
			Events: []keep.EventRef{{Topic: "t", MessageID: "1"}, {Topic: "t", MessageID: "1"}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, reads := commit.Expect(test.commit)
			if diff := cmp.Diff(test.reads, reads); diff != "" {
				t.Errorf("what must be read (-want +got):\n%s", diff)
			}
			// What is read is not there: only a reserved event that must be read matters.
			var reserved *keep.ReservationError
			if _, err := s.Decide(test.commit); err != nil && !errors.As(err, &reserved) && !errors.Is(err, keep.ErrNotFound) {
				t.Errorf("a commit that finds what it expects is refused: %v", err)
			}
		})
	}
}

// TestDecide tests what a plan has: a record that a commit changes twice is one row,
// which replaces the revision that is stored.
func TestDecide(t *testing.T) {
	t.Run("one row", func(t *testing.T) {
		s := new(commit.Snapshot)
		s.Runs.Put("run_1", &commit.Run{Workflow: "w", Chain: "run_1", Handler: "h", Kind: keep.Consumer, Rev: 3})
		s.Open.Put(commit.LaneKey{Workflow: "w"}, "run_1")
		plan, err := s.Decide(commitOf(keep.PutRun{Run: run(3, false)}, keep.PutRun{Run: run(4, true)}))
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.Runs) != 1 || plan.Runs[0].Was != 3 || plan.Runs[0].Put.Rev != 5 || !plan.Runs[0].Put.Closed {
			t.Errorf("the plan has %+v", plan.Runs)
		}
	})
	t.Run("no change", func(t *testing.T) {
		s := new(commit.Snapshot)
		s.Inputs.Put("in_1", &commit.Input{Workflow: "w", ID: "in_1"})
		plan, err := s.Decide(commitOf(
			keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: "1", CausedBy: []keep.InputID{"in_1"}}},
			keep.SkipEvents{Topic: "t", IDs: []keep.MessageID{"1"}}))
		if err != nil {
			t.Fatal(err)
		}
		if by := plan.Inputs[0].By; by != 0 {
			t.Errorf("the input has %d more unfinished events", by)
		}
		if got, want := plan.Topics[0], (commit.Topic{Name: "t", Skipped: 1}); got != want {
			t.Errorf("the topic changes by %+v, want %+v", got, want)
		}
	})
	t.Run("many records", func(t *testing.T) {
		// Tables change how they look keys up as they grow.
		s, c := new(commit.Snapshot), commitOf()
		for i := range 100 {
			id := keep.MessageID(rune('a' + i))
			c.Changes = append(c.Changes, keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: id}},
				keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: id}})
		}
		plan, err := s.Decide(c)
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.Events) != 100 {
			t.Errorf("%d events, want 100", len(plan.Events))
		}
	})
}

// Two open runs of a workflow, each in a lane of its own, are about to make the same call:
// whichever is decided first, the other is refused, in the same group and under another name of
// the tool too.
func TestRivalsOfTwoLanes(t *testing.T) {
	s := new(commit.Snapshot)
	names := []keep.ToolName{"crm.once", "svc.once"}
	for _, tool := range names {
		s.Rivals.Put(commit.IdentityKey{Tool: tool, Identity: "1"}, nil) // it was read, and there was none
	}
	var calls []keep.Mutation
	for i, k := range []string{"a", "b"} {
		id, lane := keep.RunID("run_"+k), keep.KeyLane("h", k)
		s.Runs.Put(id, &commit.Run{Workflow: "w", Chain: id, Handler: "h", Kind: keep.Consumer, Rev: 1})
		s.Open.Put(commit.LaneKey{Workflow: "w", Lane: lane}, id)
		m := mutation(0)
		m.Key, m.Run, m.Tool, m.Identity = keep.MutationKey("mut_"+k), id, names[i], []byte("1")
		calls = append(calls, m)
	}
	record := func(m keep.Mutation) error {
		own := append([]keep.ToolName{m.Tool}, names...)
		_, err := s.Decide(commitOf(keep.Unlike{Key: m.Key, Tools: own, Identity: m.Identity},
			keep.PutMutation{Mutation: m, Moves: []keep.Move{{To: keep.InFlight, By: "call"}}}))
		return err
	}
	if err := record(calls[0]); err != nil {
		t.Fatal(err)
	}
	rival, ok := errors.AsType[*keep.RivalError](record(calls[1]))
	if !ok || rival.Rival != calls[0].Key {
		t.Errorf("the second call is refused because of %+v, want %s (law: once)", rival, calls[0].Key)
	}
}

// Of a sweep and a commit that makes an event be done again only one is taken: its payload
// would be gone.
func TestSweepAndRedo(t *testing.T) {
	ids := []keep.MessageID{"m"}
	sweep := keep.Sweep{Chain: "run_1", Before: at}
	redo := keep.RedoEvents{Topic: "t", IDs: ids, Chain: "run_1", Attempt: 1}
	for name, order := range map[string][]keep.Change{"sweep first": {sweep, redo}, "redo first": {redo, sweep},
		"sweep before the skip is undone": {sweep, keep.UnskipEvents{Topic: "t", IDs: ids, Chain: "run_1"}}} {
		s := new(commit.Snapshot)
		s.AddEvent(&commit.Event{EventKey: commit.EventKey{Workflow: "w", Topic: "t", ID: "m"}, Status: keep.EventSkipped, ReservedBy: "run_1"})
		s.Chains.Put("run_1", &commit.Chain{Workflow: "w", Over: true})
		_, first := s.Decide(commitOf(order[0]))
		_, second := s.Decide(commitOf(order[1]))
		if first != nil || !errors.Is(second, keep.ErrStale) {
			t.Errorf("%s: %v, then %v", name, first, second)
		}
	}
}

// Of a sweep and a commit that makes an item be done again only one is taken, if a store
// decides both on what it read before.
func TestSweepAndReopen(t *testing.T) {
	again := keep.PutItem{Item: keep.Item{Workflow: "w", ID: "i", Status: keep.ItemProcessing, Attempt: 1, Rev: 1}}
	sweep := keep.Sweep{Chain: "run_1", Before: at}
	for name, order := range map[string][]keep.Change{"sweep first": {sweep, again}, "item first": {again, sweep}} {
		s := new(commit.Snapshot)
		s.Items.Put(commit.ItemKey{Workflow: "w", ID: "i"}, &commit.Item{Rev: 1, Status: keep.ItemSkipped, Attempt: 1})
		s.Chains.Put("run_1", &commit.Chain{Workflow: "w", Over: true})
		_, first := s.Decide(commitOf(order[0]))
		_, second := s.Decide(commitOf(order[1]))
		if first != nil || !errors.Is(second, keep.ErrStale) {
			t.Errorf("%s: %v, then %v", name, first, second)
		}
	}
}

// A commit that is refused leaves the records of its workflow as they were: the call that it
// would have settled is still a rival for the commits of other workflows in its group.
func TestRefusedCommitTakesNoRivalAway(t *testing.T) {
	identity := json.RawMessage(`{"id":1}`)
	s := new(commit.Snapshot)
	s.AddRival(commit.IdentityKey{Tool: "crm.create", Identity: string(identity)}, "mut_1")
	s.Mutations.Put("mut_1", &commit.Mutation{Workflow: "w", Tool: "crm.create", Rev: 3})
	s.Runs.Put("run_1", &commit.Run{Workflow: "w", Chain: "run_1", Handler: "h", Kind: keep.Consumer, Rev: 7})

	failed := mutation(3)
	failed.Identity, failed.State = identity, keep.Failed
	if _, err := s.Decide(commitOf(keep.PutMutation{Mutation: failed}, keep.PutRun{Run: run(6, false)})); !errors.Is(err, keep.ErrStale) {
		t.Fatalf("Decide = %v, want ErrStale", err)
	}
	other := mutation(0)
	other.Key, other.Workflow, other.Run, other.Identity = "mut_2", "v", "run_2", identity
	_, err := s.Decide(keep.Commit{Workflow: "v", At: at, Changes: []keep.Change{
		keep.Unlike{Key: other.Key, Tools: []keep.ToolName{other.Tool}, Identity: identity}, keep.PutMutation{Mutation: other},
	}})
	if r, ok := errors.AsType[*keep.RivalError](err); !ok || r.Rival != "mut_1" {
		t.Errorf("Decide = %v, want a *RivalError: mut_1 is in doubt", err)
	}
}

// Of two commits of a group one records a call and the other one is about to send an earlier one again, which says something else: whichever
// is decided first, the other is refused, under another name of the tool and with another subkey too.
func TestSettingsOfOneGroup(t *testing.T) {
	names := []keep.ToolName{"crm.set", "svc.set"}
	at := time.UnixMilli(5000).UTC()
	for _, first := range []string{"recorded", "sent again"} {
		s := new(commit.Snapshot)
		for i, id := range []keep.RunID{"run_a", "run_b"} {
			s.Runs.Put(id, &commit.Run{Workflow: "w", Chain: id, Handler: "h", Kind: keep.Consumer, Rev: 1})
			s.Settings.Put(commit.SettingKey{Tool: names[i], Identity: "1"}, nil) // it was read, and there was none
		}
		doubt, later := mutation(0), mutation(0)
		doubt.Key, doubt.Run, doubt.Tool, doubt.Identity, doubt.PayloadHash, doubt.Rev, doubt.State = "mut_a", "run_a", names[0], []byte("1"), "a", 1, keep.NeedsReconcile
		doubt.CreatedAt, doubt.CallDeadline, doubt.NextReconcileAt = at.Add(-time.Second), at.Add(time.Minute), at.Add(time.Minute)
		s.Mutations.Put(doubt.Key, &commit.Mutation{Workflow: "w", Tool: names[0], Item: doubt.Item, Attempt: doubt.Attempt, Rev: 1})
		later.Key, later.Run, later.Tool, later.Identity, later.PayloadHash, later.Subkey = "mut_b", "run_b", names[1], []byte("1"), "b", "s"
		later.CreatedAt = at
		decide := func(m keep.Mutation, since time.Time) error {
			_, err := s.Decide(keep.Commit{Workflow: "w", At: at, Changes: []keep.Change{
				keep.Setting{Key: m.Key, Tools: names, Identity: m.Identity, PayloadHash: m.PayloadHash, Since: since}, keep.PutMutation{Mutation: m}}})
			return err
		}
		again := func() error { return decide(doubt, doubt.CreatedAt) }
		record := func() error { return decide(later, time.Time{}) }
		order, loser := []func() error{record, again}, later.Key
		if first == "sent again" {
			order, loser = []func() error{again, record}, doubt.Key
		}
		if err := order[0](); err != nil {
			t.Fatal(err)
		}
		if rival, ok := errors.AsType[*keep.RivalError](order[1]()); !ok || rival.Rival != loser {
			t.Errorf("after one that is %s the other is refused because of %+v, want %s", first, rival, loser)
		}
	}
}
