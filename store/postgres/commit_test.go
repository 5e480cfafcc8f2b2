package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/testkit/storetest"
)

// Scripts choose texts, and JavaScript allows what Postgres has no text for.
func TestTextsComeBackToTheByte(t *testing.T) {
	t.Parallel()
	db := openDB(t, pgtest.SchemaURL(t), postgres.Config{})
	mem := memory.New()
	for i, s := range []string{"a\x00b", "\x00", "\xff\xfe", "\x1a", "\x1a00", "é\x1a\x00\xed\xa0\x80z", "\ufffd"} {
		w := keep.WorkflowName(fmt.Sprint("w", i))
		r := keep.Run{ID: keep.RunID(fmt.Sprint("run_", i)), Chain: keep.RunID(fmt.Sprint("run_", i)), Workflow: w, Handler: "h", Kind: keep.Consumer,
			Phase: keep.Prepared, Status: keep.StatusActive, Title: s, Prepared: json.RawMessage(s),
			Reservations: []keep.Reservation{{Topic: "t", IDs: []keep.MessageID{keep.MessageID("m" + s)}}}}
		if i == 2 || i == 5 { // ids are UTF-8, by Validate
			r.Reservations = nil
		}
		changes := []keep.Change{
			keep.PutRun{Run: r},
			keep.AppendLogs{Lines: []keep.LogLine{{Run: r.ID, Text: s, Where: s}}},
			keep.PutItem{Item: keep.Item{Workflow: w, ID: "i" + s, Title: s, Status: keep.ItemDone, Attempt: 1}},
			keep.PutInput{Input: keep.Input{ID: keep.InputID("in" + s), Workflow: w, Source: s, Type: s, ExternalID: s, Title: s}},
			keep.SetKV{Producer: "p", Key: s, Value: json.RawMessage(s)},
			keep.OpenEscalation{Escalation: keep.Escalation{ID: keep.EscalationID("esc" + s), Kind: keep.AskLogic, Workflow: w, Question: s}},
		}
		for _, v := range r.Reservations {
			changes = append(changes, keep.Publish{Event: keep.Event{Workflow: w, Topic: "t", MessageID: v.IDs[0], Payload: json.RawMessage(s),
				CausedBy: []keep.InputID{keep.InputID("in" + s)}}}, keep.Reserve{Chain: r.ID, Reservation: v})
		}
		for _, store := range []store.Store{db, mem} {
			if err := store.Commit(t.Context(), keep.Commit{Workflow: w, At: time.UnixMilli(int64(i + 1)), Changes: changes}); err != nil {
				t.Fatalf("%q: %v", s, err)
			}
		}
		if v, err := db.KV(t.Context(), w, "p", s); err != nil || string(v) != s {
			t.Errorf("KV = %q, %v, want %q", v, err, s)
		}
	}
	storetest.Same(t, mem, db)
}

// A commit that the server refuses, which only a bug can make, does not take those
// with it that share its transaction.
func TestRefusedByTheServer(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	db := openDB(t, url, postgres.Config{Writers: 1})
	put := func(w keep.WorkflowName, status keep.ItemStatus) error {
		return db.Commit(t.Context(), keep.Commit{Workflow: w, At: time.UnixMilli(1), Changes: []keep.Change{
			keep.PutItem{Item: keep.Item{Workflow: w, ID: "i", Status: status, Attempt: 1}}}})
	}
	if err := put("first", keep.ItemDone); err != nil {
		t.Fatal(err)
	}
	// One group waits for a lock that is held here; the next one forms behind it.
	blocker := connect(t, url)
	tx, err := blocker.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM lease FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := db.Commit(t.Context(), keep.Commit{Workflow: "first", At: time.UnixMilli(1)}); err != nil {
			t.Errorf("the first commit: %v", err)
		}
	})
	until(t, func() bool { return db.Groups() == 1 })
	for i := range 5 {
		wg.Go(func() {
			if err := put(keep.WorkflowName(fmt.Sprint("good", i)), keep.ItemDone); err != nil {
				t.Errorf("a good commit: %v", err)
			}
		})
	}
	wg.Go(func() {
		if put("bad", "well") == nil {
			t.Error("the bad commit was accepted")
		}
	})
	until(t, func() bool { return db.Queued() == 6 })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	items, _, err := db.Items(t.Context(), keep.ItemFilter{}, keep.Page{})
	if err != nil || len(items) != 6 {
		t.Errorf("%d items, %v, want the 6 good ones", len(items), err)
	}
}

// A connection that breaks while the server commits leaves doubt, and the next
// commit gets another one.
func TestLostDuringCommit(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	db := openDB(t, url, postgres.Config{})
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), `
		CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER die AFTER INSERT ON item DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
			WHEN (NEW.title = 'deadly') EXECUTE FUNCTION die()`); err != nil {
		t.Fatal(err)
	}
	put := func(id, title string) error {
		return db.Commit(t.Context(), keep.Commit{Workflow: "w", At: time.UnixMilli(1), Changes: []keep.Change{
			keep.PutItem{Item: keep.Item{Workflow: "w", ID: id, Title: title, Status: keep.ItemDone, Attempt: 1}}}})
	}
	err := put("a", "deadly")
	for _, law := range []error{nil, keep.ErrStale, keep.ErrNotFound, keep.ErrFenced} {
		if errors.Is(err, law) {
			t.Errorf("Commit = %v, which claims to know", err)
		}
	}
	if err := put("b", "harmless"); err != nil {
		t.Errorf("the next commit: %v", err)
	}
	if _, err := db.Item(t.Context(), "w", "b"); err != nil {
		t.Error(err)
	}
}

// A caller who leaves before anybody took his commit takes it along; one whose
// commit was taken waits for its fate.
func TestLeavingTheQueue(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	db := openDB(t, url, postgres.Config{Writers: 1})
	commit := func(ctx context.Context, w keep.WorkflowName) error {
		return db.Commit(ctx, keep.Commit{Workflow: w, At: time.UnixMilli(1), Changes: []keep.Change{
			keep.PutItem{Item: keep.Item{Workflow: w, ID: "i", Status: keep.ItemDone, Attempt: 1}}}})
	}
	if err := db.Commit(t.Context(), keep.Commit{Workflow: "taken", At: time.UnixMilli(1)}); err != nil {
		t.Fatal(err)
	}
	tx, err := connect(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM lease FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	why := errors.New("the host is stopping")
	ctx, leave := context.WithCancelCause(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := commit(ctx, "taken"); err != nil {
			t.Errorf("a commit that was taken: %v", err)
		}
	})
	until(t, func() bool { return db.Groups() == 1 })
	wg.Go(func() {
		if err := commit(ctx, "queued"); !errors.Is(err, why) {
			t.Errorf("a commit that was not taken: %v", err)
		}
	})
	until(t, func() bool { return db.Queued() == 1 })
	leave(why)
	until(t, func() bool { return db.Queued() == 0 })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if _, err := db.Item(t.Context(), "queued", "i"); !errors.Is(err, keep.ErrNotFound) {
		t.Errorf("what was dropped: %v", err)
	}
}

// connect returns a connection of the test's own.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// until waits for a fact.
func until(t *testing.T, fact func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !fact() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("it does not come to that")
		}
	}
}
