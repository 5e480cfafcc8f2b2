package notify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/notify"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/store/memory"
)

// A target fails as it is told to, and remembers what it got.
type target struct {
	mu       sync.Mutex // protects the fields below
	fail     []error    // of the next deliveries, one each; then they succeed
	messages []notify.Message
	onHear   func()        // called during each delivery; nil: nothing
	told     chan struct{} // gets a value after each delivery
}

func newTarget(fail ...error) *target {
	return &target{fail: fail, told: make(chan struct{}, 1000)}
}

func (t *target) Sink() keep.Sink { return "test" }

func (t *target) Deliver(_ context.Context, m notify.Message) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() { t.told <- struct{}{} }()
	t.messages = append(t.messages, m)
	if t.onHear != nil {
		t.onHear()
	}
	if len(t.fail) == 0 {
		return nil
	}
	err := t.fail[0]
	t.fail = t.fail[1:]
	return err
}

func (t *target) ids() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ids []string
	for _, m := range t.messages {
		ids = append(ids, m.ID)
	}
	return ids
}

// A world is a store with questions, and a log.
type world struct {
	*testing.T
	store *memory.Store
	log   *bytes.Buffer
}

func newWorld(t *testing.T, ids ...keep.EscalationID) world {
	w := world{t, memory.New(), new(bytes.Buffer)}
	w.ask(ids...)
	return w
}

func (w world) ask(ids ...keep.EscalationID) {
	w.Helper()
	for _, id := range ids {
		w.commit(keep.OpenEscalation{Escalation: keep.Escalation{ID: id, Kind: keep.AskLogic, Workflow: "w", Question: "Why?", CreatedAt: time.Unix(1_800_000_000, 0)}})
	}
}

func (w world) commit(changes ...keep.Change) {
	w.Helper()
	if err := w.store.Commit(w.Context(), keep.Commit{Workflow: "w", At: time.Now(), Changes: changes}); err != nil {
		w.Fatal(err)
	}
}

// notice returns the record of telling the test's target of a question.
func (w world) notice(id keep.EscalationID) keep.Notice {
	w.Helper()
	all, err := w.store.Notices(w.Context(), id)
	if err != nil || len(all) > 1 {
		w.Fatalf("Notices = %v, %v", all, err)
	}
	if len(all) == 0 {
		return keep.Notice{}
	}
	return all[0]
}

// notifier returns a notifier that never waits long between attempts.
func (w world) notifier(repeats int, pause time.Duration, targets ...notify.Target) *notify.Notifier {
	w.Helper()
	n, err := notify.New(notify.Config{
		Store:   w.store,
		Targets: targets,
		Encode: func(q keep.Escalation) (json.RawMessage, error) {
			return json.Marshal(map[string]any{"id": q.ID, "question": q.Question})
		},
		Retry:  policy.Backoff{First: pause, Max: pause, Attempts: repeats},
		Logger: slog.New(slog.NewTextHandler(w.log, nil)),
	})
	if err != nil {
		w.Fatal(err)
	}
	return n
}

// The times of deliveries are those of the database, not of this machine.
func TestTimesAreTheDatabases(t *testing.T) {
	w := newWorld(t, "esc_1")
	database := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	n, err := notify.New(notify.Config{
		Store: w.store, Targets: []notify.Target{newTarget(errors.New("down"))}, Now: func() time.Time { return database },
		Encode: func(keep.Escalation) (json.RawMessage, error) { return json.RawMessage(`{}`), nil },
		Retry:  policy.Backoff{First: time.Hour, Max: time.Hour, Attempts: 3}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	n.Flush(t.Context())
	if got := w.notice("esc_1"); !got.UpdatedAt.Equal(database) || !got.NextAt.After(database) || got.NextAt.After(database.Add(time.Hour)) {
		t.Errorf("tried at %s, next at %s; want at %s and within an hour", got.UpdatedAt, got.NextAt, database)
	}
	database = database.Add(time.Hour)
	n.Flush(t.Context())
	if got := w.notice("esc_1"); got.Attempts != 2 {
		t.Errorf("%d attempts when the database's clock has come to the next one, want 2", got.Attempts)
	}
}

// A clock that was ahead when an attempt failed, and was set back since, keeps no question from anybody until the time that it showed.
func TestTheClockIsSetBack(t *testing.T) {
	w := newWorld(t, "esc_1", "esc_2", "esc_3")
	clock := time.Date(2027, 2, 3, 4, 5, 6, 0, time.UTC)
	to := newTarget(errors.New("down"), errors.New("down"), errors.New("down"), errors.New("down"))
	n, err := notify.New(notify.Config{
		Store: w.store, Targets: []notify.Target{to}, Now: func() time.Time { return clock },
		Encode: func(keep.Escalation) (json.RawMessage, error) { return json.RawMessage(`{}`), nil },
		Retry:  policy.Backoff{First: time.Hour, Max: time.Hour, Attempts: 3}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	clock = clock.AddDate(1, 0, 0)
	n.Flush(t.Context()) // each of them
	clock = clock.AddDate(-1, 0, 0)
	n.Flush(t.Context())
	if got := to.ids(); len(got) != 6 {
		t.Fatalf("%v were told; want each once more, as the clock was set back (law: nothing-lost)", got)
	}
	n.Flush(t.Context()) // one failed again, an instant ago
	if got := to.ids(); len(got) != 6 {
		t.Errorf("%v were told; want no more: the pause of the last failure holds", got)
	}
}

// until runs a notifier until the target was told that often.
func until(t *testing.T, n *notify.Notifier, to *target, times int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { n.Run(ctx) })
	for range times {
		receive(t, to.told)
	}
	cancel()
	wg.Wait()
}

// receive returns the next value, which comes soon.
func receive[T any](t *testing.T, ch <-chan T) (v T) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	select {
	case v = <-ch:
	case <-deadline.C:
		t.Fatal("nothing happened for a minute")
	}
	return v
}

func TestAQuestionIsToldUntilItIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "esc_1", "esc_2")
	to := newTarget(errors.New("no"), errors.New("no"), errors.New("no"))
	until(t, w.notifier(10, time.Millisecond, to), to, 5)
	if diff := cmp.Diff(to.ids()[:2], []string{"esc_1", "esc_2"}); diff != "" {
		t.Errorf("the first attempts (-got +want): %s", diff)
	}
	attempts := 0
	for _, id := range []keep.EscalationID{"esc_1", "esc_2"} {
		n := w.notice(id)
		attempts += n.Attempts
		if n.Status != keep.NoticeDelivered || n.Error != "" {
			t.Errorf("notice of %s = %+v, want delivered", id, n)
		}
	}
	if attempts != 5 {
		t.Errorf("%d attempts are recorded, want 5", attempts)
	}
	want := `{"type":"question.opened","timestamp":"2027-01-15T08:00:00Z","data":{"id":"esc_1","question":"Why?"}}`
	for _, m := range to.messages {
		if m.ID == "esc_1" && string(m.Body) != want {
			t.Errorf("body = %s, want %s", m.Body, want)
		}
	}
	until(t, w.notifier(10, time.Millisecond, to), to, 0)
	if n := len(to.ids()); n != 5 {
		t.Errorf("after a restart the target was told again: %d deliveries", n)
	}
}

// A target that cannot be reached is given up, once and loudly.
func TestATargetIsGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "esc_1")
	to := newTarget(errors.New("no"), errors.New("no"), errors.New("gone for good"))
	until(t, w.notifier(2, time.Millisecond, to), to, 3)
	n := w.notice("esc_1")
	if n.Status != keep.NoticeGivenUp || n.Attempts != 3 || n.Error != "gone for good" {
		t.Errorf("notice = %+v, want given up after 3 attempts", n)
	}
	if !bytes.Contains(w.log.Bytes(), []byte(`level=ERROR msg="gave up telling of a question; see keep inbox" sink=test question=esc_1 workflow=w attempts=3 err="gone for good"`)) {
		t.Errorf("the log does not say so:\n%s", w.log)
	}
	w.notifier(2, time.Millisecond, to).Flush(t.Context())
	if n := len(to.ids()); n != 3 {
		t.Errorf("a target that was given up was tried again: %d deliveries", n)
	}
}

// Backoff survives a restart: it is on disk.
func TestTheNextHostWaitsAsLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "esc_1")
	to := newTarget(errors.New("no"))
	w.notifier(2, time.Hour, to).Flush(t.Context())
	n := w.notice("esc_1")
	if wait := time.Until(n.NextAt); n.Status != keep.NoticePending || n.Error != "no" || wait < 40*time.Minute || wait > time.Hour {
		t.Errorf("notice = %+v, want the next attempt in about an hour", n)
	}
	w.notifier(2, time.Hour, to).Flush(t.Context())
	if n := len(to.ids()); n != 1 {
		t.Errorf("%d deliveries, want 1 before the pause is over", n)
	}
}

// The host may die at any point of an attempt. What it leaves is tried again.
func TestAnAttemptThatNobodyFinishedIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "esc_1")
	began := keep.Notice{Escalation: "esc_1", Sink: "test", Status: keep.NoticePending, Attempts: 1, NextAt: time.Now(), UpdatedAt: time.Now()}
	w.commit(keep.PutNotice{Notice: began})
	to := newTarget()
	until(t, w.notifier(2, time.Millisecond, to), to, 1)
	if n := w.notice("esc_1"); n.Status != keep.NoticeDelivered || n.Attempts != 2 || to.messages[0].ID != "esc_1" {
		t.Errorf("notice = %+v, told %v, want the second attempt delivered with the id of the first", n, to.ids())
	}
	w.ask("esc_2")
	began.Escalation, began.Attempts = "esc_2", 3
	w.commit(keep.PutNotice{Notice: began})
	w.notifier(2, time.Millisecond, to).Flush(t.Context())
	if n := w.notice("esc_2"); n.Status != keep.NoticeGivenUp || len(to.ids()) != 1 {
		t.Errorf("notice = %+v, want given up: all attempts were begun", n)
	}
}

// A question that is answered is told to nobody any more, also when the answer
// comes during an attempt.
func TestAClosedQuestionIsNotTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "esc_1", "esc_2")
	to := newTarget(errors.New("no"))
	to.onHear = func() { w.commit(keep.CloseEscalation{ID: "esc_1"}); to.onHear = nil }
	w.commit(keep.CloseEscalation{ID: "esc_2"})
	n := w.notifier(10, time.Nanosecond, to)
	n.Flush(t.Context())
	n.Flush(t.Context())
	if diff := cmp.Diff(to.ids(), []string{"esc_1"}); diff != "" {
		t.Errorf("told (-got +want): %s", diff)
	}
	if n := w.notice("esc_1"); n.Status != keep.NoticeMoot {
		t.Errorf("notice = %+v, want moot", n)
	}
}

// A target that hangs delays no other.
func TestTargetsAreIndependent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "esc_1")
	entered, release := make(chan struct{}), make(chan struct{})
	slow, fast := newTarget(), newTarget()
	slow.onHear = func() { close(entered); <-release }
	n := w.notifier(1, time.Hour, renamed{slow}, fast)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { n.Run(ctx) })
	receive(t, fast.told)
	receive(t, entered)
	cancel()
	close(release) // what has begun is finished and recorded
	wg.Wait()
	all, err := w.store.Notices(t.Context(), "esc_1")
	if err != nil || len(all) != 2 || all[0].Status != keep.NoticeDelivered || all[1].Status != keep.NoticeDelivered {
		t.Errorf("notices = %+v, %v, want both delivered", all, err)
	}
}

// renamed is a target of another sink.
type renamed struct{ notify.Target }

func (renamed) Sink() keep.Sink { return "other" }

// A new question is told without a wait for the clock.
func TestWake(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	to := newTarget()
	n := w.notifier(1, time.Hour, to)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { n.Run(ctx) })
	w.ask("esc_1")
	n.Wake()
	receive(t, to.told)
	cancel()
	wg.Wait()
	var nobody *notify.Notifier
	nobody.Wake()
	nobody.Run(t.Context())
	nobody.Flush(t.Context())
}
