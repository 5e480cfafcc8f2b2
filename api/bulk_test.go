package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/memory"
)

// mortal is a store whose process dies at a commit: before it, or after it and
// before anybody learns of it. It is dead from then on.
type mortal struct {
	*memory.Store
	left  int  // commits until the last
	after bool // the last one is made
}

var errDead = errors.New("the process is dead")

func (m *mortal) Commit(ctx context.Context, c keep.Commit) error {
	if m.left--; m.left < 0 || m.left == 0 && !m.after {
		return errDead
	}
	err := m.Store.Commit(ctx, c)
	if m.left == 0 {
		return errDead
	}
	return err
}

// manyInputs makes n pending inputs in two workflows, those of every third with an
// event that the next one caused as well, and returns the store.
func manyInputs(t *testing.T, n int) *memory.Store {
	t.Helper()
	s := memory.New()
	for i := range n {
		putInput(t, s, i, "Invoice")
	}
	putInput(t, s, n, "Holiday") // does not match
	return s
}

func putInput(t *testing.T, s *memory.Store, i int, title string) {
	t.Helper()
	w := keep.WorkflowName([]string{"a", "b"}[i/5%2])
	id := keep.InputID(fmt.Sprintf("in_%05d", i))
	ev := keep.Event{Workflow: w, Topic: "t", MessageID: keep.MessageID(id), Status: keep.EventPending, CausedBy: []keep.InputID{id}}
	if i%3 == 1 {
		ev.CausedBy = append(ev.CausedBy, keep.InputID(fmt.Sprintf("in_%05d", i-1)))
		if (i-1)/5%2 != i/5%2 {
			ev.CausedBy = ev.CausedBy[:1]
		}
	}
	err := s.Commit(t.Context(), keep.Commit{Workflow: w, At: noon, Changes: []keep.Change{
		keep.PutInput{Input: keep.Input{ID: id, Workflow: w, Source: "s", ExternalID: string(id), Title: title, CreatedAt: noon}},
		keep.Publish{Event: ev},
	}})
	if err != nil {
		t.Fatal(err)
	}
}

func skipper(t *testing.T, s operator.Store) *operator.Operator {
	t.Helper()
	e, err := operator.New(s, operator.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// A process that dies at any commit of a skip of all that match leaves each input
// skipped whole or not at all, and the same cursor continues to the same end; what came
// after the plan is left alone.
func TestSkipAllSurvivesEveryDeath(t *testing.T) {
	const n = 1300
	for death := 1; ; death++ {
		after := death%2 == 0
		s := manyInputs(t, n)
		plan, err := api.PlanSkip(t.Context(), s, "", "invoice", time.Now())
		if err != nil || plan.Total != n {
			t.Fatalf("PlanSkip = %+v, %v, want %d inputs", plan, err, n)
		}
		putInput(t, s, n+1, "Invoice that came later")
		m := &mortal{Store: s, left: (death + 1) / 2, after: after}
		until := time.Now().Add(time.Hour)
		_, err = api.SkipPart(t.Context(), s, skipper(t, m), plan, ann, until)
		if err == nil {
			break // it had fewer commits
		}
		if !errors.Is(err, errDead) {
			t.Fatalf("SkipPart = %v", err)
		}
		pendingEvents(t, s)
		again, err := api.ParseSkipPlan(plan.Cursor()) // all that the client knows
		if err != nil {
			t.Fatal(err)
		}
		if again, err = api.SkipPart(t.Context(), s, skipper(t, s), again, ann, until); err != nil || !again.Over() {
			t.Fatalf("SkipPart again = %+v, %v", again, err)
		}
		counts, err := s.CountInputs(t.Context(), keep.InputFilter{})
		if diff := cmp.Diff(map[keep.InputStatus]int{keep.InputSkipped: n, keep.InputPending: 2}, counts); err != nil || diff != "" {
			t.Fatalf("death %d: %v (-want +got):\n%s", death, err, diff)
		}
		pendingEvents(t, s)
		for err := range s.Check(t.Context()) {
			t.Errorf("death %d: Check: %v", death, err)
		}
	}
}

// pendingEvents wants that an event is pending only if none of its inputs is skipped,
// and skipped only if one of them is.
func pendingEvents(t *testing.T, s *memory.Store) {
	t.Helper()
	events, _, err := s.Events(t.Context(), keep.EventFilter{}, keep.Page{Limit: keep.MaxPage})
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range events {
		skipped := false
		for _, id := range ev.CausedBy {
			in, err := s.Input(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			skipped = skipped || in.Status == keep.InputSkipped
		}
		if skipped != (ev.Status == keep.EventSkipped) {
			t.Errorf("event %s is %s, one of its inputs is skipped: %t", ev.MessageID, ev.Status, skipped)
		}
	}
}

// Over HTTP a skip of all says how many there are, does them, and says how far it
// came; a cursor of before is no harm.
func TestSkipAll(t *testing.T) {
	s := manyInputs(t, 1200)
	w := newWorld(t, func(c *api.Config) {
		c.Store, c.Actor = s, skipper(t, s)
	})
	const path = api.Prefix + "/inputs/skip-all"
	for _, body := range []string{`{}`, `{"match": {}, "cursor": "x"}`, `{"cursor": "x", "preview": true}`, `{"cursor": "x"}`} {
		if a := w.ask("bob operator", "POST", path, body); a.Status/100 != 4 {
			t.Errorf("%s: %d %s", body, a.Status, a.Body)
		}
	}
	if a := w.ask("vera viewer", "POST", path, `{"match": {}}`); a.Status != 403 {
		t.Errorf("a viewer: %d %s", a.Status, a.Body)
	}
	preview := decode[api.SkippedAll](t, w.ask("bob operator", "POST", path, `{"match": {"q": "invoice"}, "preview": true}`))
	if preview.Total != 1200 || preview.Skipped != 0 || preview.Cursor == nil {
		t.Fatalf("preview = %+v", preview)
	}
	if a := w.ask("bob operator", "POST", api.Prefix+"/inputs/skip", `{"match": {"q": "invoice"}}`); a.Status != 422 || !strings.Contains(a.Body, "skip-all") {
		t.Errorf("skip = %d %s, want the way to skip all", a.Status, a.Body)
	}
	body := `{"cursor": "` + *preview.Cursor + `"}`
	got := decode[api.SkippedAll](t, w.ask("bob operator", "POST", path, body))
	for got.Cursor != nil { // a slow machine answers before all are skipped
		got = decode[api.SkippedAll](t, w.ask("bob operator", "POST", path, `{"cursor": "`+*got.Cursor+`"}`))
	}
	if got != (api.SkippedAll{Total: 1200, Skipped: 1200}) {
		t.Errorf("skip all = %+v", got)
	}
	if got := decode[api.SkippedAll](t, w.ask("bob operator", "POST", path, body)); got != (api.SkippedAll{Total: 1200}) {
		t.Errorf("the same again = %+v", got)
	}
	if got := decode[api.SkippedAll](t, w.ask("bob operator", "POST", path, `{"match": {}}`)); got != (api.SkippedAll{Total: 1, Skipped: 1}) {
		t.Errorf("the rest = %+v", got)
	}
}

// decode reads an answer that must be 200.
func decode[T any](t *testing.T, a answer) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.Body), &v); err != nil || a.Status != 200 {
		t.Fatalf("%d %s: %v", a.Status, a.Body, err)
	}
	return v
}

// A moving store changes between the count and the list of a plan.
type moving struct {
	*memory.Store
	others func()
}

func (m *moving) CountInputs(ctx context.Context, f keep.InputFilter) (map[keep.InputStatus]int, error) {
	counts, err := m.Store.CountInputs(ctx, f)
	m.others()
	return counts, err
}

// No more inputs are skipped than the plan said, also if one comes in while it is made.
func TestSkipAllIsWhatWasCounted(t *testing.T) {
	s := manyInputs(t, 3)
	came := false
	m := &moving{s, func() {
		if !came {
			came = true
			putInput(t, s, 4, "Invoice that came while it was counted")
		}
	}}
	plan, err := api.PlanSkip(t.Context(), m, "", "invoice", time.Now())
	if err != nil || plan.Total != 3 {
		t.Fatalf("PlanSkip = %+v, %v", plan, err)
	}
	if plan, err = api.SkipPart(t.Context(), s, skipper(t, s), plan, ann, time.Now().Add(time.Hour)); err != nil || plan.Done.Inputs != 3 {
		t.Errorf("SkipPart = %+v, %v, want the three that were counted", plan, err)
	}
}

// An input that somebody had done again since the plan is left alone, whichever it is: it was done when the plan was made. One that was
// done again before is pending, and counted.
func TestSkipAllLeavesWhatWasDoneAgain(t *testing.T) {
	s := manyInputs(t, 5)
	change := func(at time.Time, changes ...keep.Change) {
		t.Helper()
		if err := s.Commit(t.Context(), keep.Commit{Workflow: "a", At: at, Changes: changes}); err != nil {
			t.Fatal(err)
		}
	}
	again := func(id keep.MessageID, at time.Time) {
		t.Helper()
		change(at, keep.RedoEvents{Topic: "t", IDs: []keep.MessageID{id}, Attempt: 1, Chain: keep.RunID("run_" + id), By: "ann", From: "cli"})
	}
	for _, id := range []keep.MessageID{"in_00000", "in_00002"} { // one of which caused another event, which is pending
		run := keep.RunID("run_" + id)
		change(noon, keep.PutRun{Run: keep.Run{ID: run, Chain: run, Workflow: "a", Handler: "h", Kind: keep.Consumer, Lane: keep.KeyLane("h", string(id)), Phase: keep.Committed, Status: keep.StatusCommitted, Closed: true}},
			keep.Reserve{Chain: run, Reservation: keep.Reservation{Topic: "t", IDs: []keep.MessageID{id}}}, keep.Finish{Chain: run, Status: keep.EventConsumed})
	}
	again("in_00000", noon.Add(time.Minute))
	plan, err := api.PlanSkip(t.Context(), s, "", "invoice", time.Now())
	if err != nil || plan.Total != 4 {
		t.Fatalf("PlanSkip = %+v, %v, want those that are pending", plan, err)
	}
	again("in_00002", time.Now())
	if plan, err = api.ParseSkipPlan(plan.Cursor()); err != nil { // all that the client knows
		t.Fatal(err)
	}
	if plan, err = api.SkipPart(t.Context(), s, skipper(t, s), plan, ann, time.Now().Add(time.Hour)); err != nil || plan.Done.Inputs != 4 || !plan.Over() {
		t.Errorf("SkipPart = %+v, %v, want the four that were counted", plan, err)
	}
	for id, want := range map[keep.InputID]keep.InputStatus{"in_00000": keep.InputSkipped, "in_00002": keep.InputPending} {
		if in, err := s.Input(t.Context(), id); err != nil || in.Status != want {
			t.Errorf("%s is %s, %v, want %s", id, in.Status, err, want)
		}
	}
}

// A listing store has others at work after each list of inputs.
type listing struct {
	store.Reader
	others func()
}

// Inputs implements store.Reader.
func (l *listing) Inputs(ctx context.Context, f keep.InputFilter, p keep.Page) ([]keep.Input, string, error) {
	list, next, err := l.Reader.Inputs(ctx, f, p)
	l.others()
	return list, next, err
}

// So it is of all that match in one request: what was done, and is done again by somebody, since they were found stays. Whoever names
// inputs means these.
func TestSkipOfAMatchLeavesWhatWasDoneAgain(t *testing.T) {
	others := func() {}
	w := newWorld(t, func(c *api.Config) {
		c.Store = &listing{c.Store, func() { others() }}
	})
	for i := range 4 {
		putInput(t, w.store, 3*i, "Zebra") // which have one event each
	}
	others = sync.OnceFunc(func() {
		run := keep.RunID("run_zebra")
		for at, changes := range [][]keep.Change{
			{keep.PutRun{Run: keep.Run{ID: run, Chain: run, Workflow: "a", Handler: "h", Kind: keep.Consumer, Lane: keep.KeyLane("h", "zebra"), Phase: keep.Committed, Status: keep.StatusCommitted, Closed: true}},
				keep.Reserve{Chain: run, Reservation: keep.Reservation{Topic: "t", IDs: []keep.MessageID{"in_00003"}}}, keep.Finish{Chain: run, Status: keep.EventConsumed}},
			{keep.RedoEvents{Topic: "t", IDs: []keep.MessageID{"in_00003"}, Attempt: 1, Chain: run, By: "ann", From: "cli"}},
		} {
			if err := w.store.Commit(context.WithoutCancel(t.Context()), keep.Commit{Workflow: "a", At: time.Now().Add(time.Duration(at) * time.Millisecond), Changes: changes}); err != nil {
				t.Error(err)
			}
		}
	})
	a := w.ask("bob operator", "POST", api.Prefix+"/inputs/skip", `{"match": {"q": "zebra"}}`)
	if got := decode[api.Page[api.Skipped]](t, a); len(got.Items) != 3 {
		t.Errorf("%d inputs were skipped, want the three that nobody took up: %s", len(got.Items), a.Body)
	}
	status := func(want keep.InputStatus) {
		t.Helper()
		if in, err := w.store.Input(t.Context(), "in_00003"); err != nil || in.Status != want {
			t.Errorf("what was done again is %s, %v, want %s", in.Status, err, want)
		}
	}
	status(keep.InputPending)
	w.ask("bob operator", "POST", api.Prefix+"/inputs/skip", `{"ids": ["in_00003"]}`).want(t, 200)
	status(keep.InputSkipped)
}

// ann decides.
var ann = keep.Decision{By: "ann", From: "api"}

// stopping skips the inputs of one workflow, and finds those of the next one changed at each try.
type stopping struct{ api.Actor }

func (s stopping) SkipInputsAsOf(ctx context.Context, w keep.WorkflowName, ids []keep.InputID, at time.Time, d keep.Decision) (operator.InputsSkipped, error) {
	if w == "a" {
		return operator.InputsSkipped{}, fmt.Errorf("inputs of a: %w", keep.ErrStale)
	}
	return s.Actor.SkipInputsAsOf(ctx, w, ids, at, d)
}

// A part that fails after some inputs were skipped is not said to have done nothing.
func TestHalfAPartIsSaid(t *testing.T) {
	s := manyInputs(t, 20)
	w := newWorld(t, func(c *api.Config) { c.Store, c.Actor = s, stopping{skipper(t, s)} })
	got := w.ask("bob operator", "POST", api.Prefix+"/inputs/skip-all", `{"match": {"q": "invoice"}}`)
	got.want(t, 500, "internal", "inputs that were skipped: 1;")
}
