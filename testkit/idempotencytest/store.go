// Package idempotencytest holds what every store of idempotency keys must do.
package idempotencytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

var t0 = time.UnixMilli(1_800_000_000_000).UTC()

// Run holds a store to its contract. Open returns an empty one.
func Run(t *testing.T, open func(testing.TB) idempotency.Store) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, idempotency.Store)
	}{
		{"reads the zero record for an unknown id", unknownID},
		{"keeps every field and every byte", everyField},
		{"inserts once", insertsOnce},
		{"refuses a stale record and leaves it as it was", refusesStale},
		{"refuses a record that is not valid", refusesInvalid},
		{"one of a hundred takes a key", oneOfMany},
		{"takes a key or returns its record", takes},
		{"one of a hundred takes a key in one step", takesOnce},
		{"one of a hundred changes a record", changesOnce},
		{"one of a hundred takes an alias", aliasedOnce},
		{"keeps what is live beyond its time", lives},
		{"keeps its bytes to itself", keepsBytes},
		{"completes a record in a transaction or not at all", transactions},
		{"reuses a key that is free again", reuses},
		{"gives an alias to one live record", aliases},
		{"takes none beside a live former one", formers},
		{"executes the request of a former one once", formerOnce},
		{"sweeps what is over in batches and nothing else", sweeps},
		{"lists newest first in pages", lists},
		{"lists what a filter selects", filters},
		{"refuses a cursor that it did not make", badCursor},
		{"does nothing for a context that is over", overContext},
	} {
		t.Run(strings.ReplaceAll(test.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			test.run(t, open(t))
		})
	}
}

// record returns the record of a key that was begun at t0.
func record(t testing.TB, name string) key.Record {
	t.Helper()
	r, err := key.Apply(key.Record{}, key.Fact{
		Evidence: key.Begun, Fence: 7, Lease: 30 * time.Second,
		Claim: key.Claim{ID: key.NewID("h", "caller", name), Key: name, Caller: "c1", Method: "POST", Path: "/x",
			Fingerprint: key.Fingerprint{1, 2, 31: 3}, TTL: time.Hour},
	}, t0)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// next returns r after an event, as the law has it.
func next(t testing.TB, r key.Record, e key.Fact) key.Record {
	t.Helper()
	e.Fence = r.Fence
	after, err := key.Apply(r, e, t0.Add(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return after
}

func mustWrite(t testing.TB, s idempotency.Store, r key.Record) key.Record {
	t.Helper()
	if err := s.Write(t.Context(), r); err != nil {
		t.Fatalf("Write: %v", err)
	}
	return mustRead(t, s, r.ID)
}

func mustRead(t testing.TB, s idempotency.Store, id key.ID) key.Record {
	t.Helper()
	r, err := s.Read(t.Context(), id)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	return r
}

func unknownID(t *testing.T, s idempotency.Store) {
	if r := mustRead(t, s, key.NewID("h", "a", "b")); !cmp.Equal(r, key.Record{}) {
		t.Errorf("Read of an unknown id = %+v, want the zero Record", r)
	}
}

func everyField(t *testing.T, s idempotency.Store) {
	r := mustWrite(t, s, record(t, "a \"key\" ~"))
	body := []byte{0, 0xff, '\n', 0x80}
	body = append(body, bytes.Repeat([]byte("x"), 300_000)...)
	r = next(t, r, key.Fact{Evidence: key.Answered, By: "owner", Answer: key.Answer{
		Status: 201, Header: key.EncodeFields([]key.Field{{Name: "Link", Value: "\xff"}}), Body: body}})
	r.Alias, r.Host = key.ID{1, 15: 2}, "h:1"
	r.Atomic, r.Doubts, r.Fence, r.DoubtAt = true, 3, -9e18, t0.Add(time.Minute)
	got := mustWrite(t, s, r)
	r.Rev = 2
	if diff := cmp.Diff(r, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("record changed (-written +read):\n%s", diff)
	}
}

// aliased returns the record of a caller whose requests have an alias.
func aliased(t testing.TB, caller string, at time.Time) key.Record {
	t.Helper()
	r, err := key.Apply(key.Record{}, key.Fact{Evidence: key.Begun, Fence: 7, Lease: time.Second, Claim: key.Claim{
		ID: key.NewID("h", caller, "k"), Former: key.FormerID(caller, "k"), Alias: key.NewAlias("h", "", "k", key.Fingerprint{}),
		Host: "h", Key: "k", Caller: caller, TTL: time.Hour}}, at)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func aliases(t *testing.T, s idempotency.Store) {
	a, b := aliased(t, "a", t0), aliased(t, "b", t0)
	alias := a.Alias
	holder := func(want key.ID, at time.Time) {
		t.Helper()
		got, err := s.ReadAlias(t.Context(), alias, at)
		if err != nil || got.ID != want {
			t.Errorf("ReadAlias = %s, %v, want %s", got.ID, err, want)
		}
	}
	refused := func(r key.Record) {
		t.Helper()
		if err := s.Write(t.Context(), r); !errors.Is(err, keep.ErrStale) {
			t.Errorf("a second record of an alias: %v, want %v", err, keep.ErrStale)
		}
	}
	holder(key.ID{}, t0)
	a = mustWrite(t, s, a)
	refused(b)
	holder(a.ID, t0)
	a = mustWrite(t, s, next(t, a, key.Fact{Evidence: key.Nothing}))
	holder(key.ID{}, t0)
	b = mustWrite(t, s, b)
	again := aliased(t, "a", t0)
	again.Rev = a.Rev
	refused(again) // a record that is free again has no claim either
	done := mustWrite(t, s, next(t, b, key.Fact{Evidence: key.Answered, Answer: key.Answer{Status: 200}}))
	holder(b.ID, done.ExpiresAt.Add(-time.Millisecond))
	holder(key.ID{}, done.ExpiresAt)
	later := aliased(t, "a", done.ExpiresAt)
	later.Rev = a.Rev
	a = mustWrite(t, s, later)
	holder(a.ID, done.ExpiresAt)
	if got := mustRead(t, s, b.ID); got.State != key.Done {
		t.Errorf("the record that lost its alias is %q", got.State)
	}
}

func formers(t *testing.T, s idempotency.Store) {
	r := aliased(t, "a", t0)
	was := record(t, "k")
	was.ID, was.Version = r.Former, 1
	was = mustWrite(t, s, was)
	for _, f := range []key.Fact{{}, {Evidence: key.Unsure}, {Evidence: key.Happened, Answer: key.Answer{Status: 200}}} {
		if f.Evidence != "" {
			was = mustWrite(t, s, next(t, was, f))
		}
		if err := s.Write(t.Context(), r); !errors.Is(err, keep.ErrStale) {
			t.Errorf("a record beside a former one that is %s: %v, want %v", was.State, err, keep.ErrStale)
		}
	}
	was = mustWrite(t, s, next(t, was, key.Fact{Evidence: key.Forgotten}))
	got := mustWrite(t, s, r)
	if got.Rev != 1 || got.Former != (key.ID{}) {
		t.Errorf("after the former one was released: %+v", got)
	}

	// Another one is imported when the key is free again.
	got = mustWrite(t, s, next(t, got, key.Fact{Evidence: key.Nothing}))
	was.State, was.DoubtAt = key.Unknown, t0
	was = mustWrite(t, s, was)
	again := r
	again.Rev = got.Rev
	if err := s.Write(t.Context(), again); !errors.Is(err, keep.ErrStale) {
		t.Errorf("a free record is taken beside a former one that is %s: %v, want %v", was.State, err, keep.ErrStale)
	}
	mustWrite(t, s, next(t, was, key.Fact{Evidence: key.Absent}))
	if got := mustWrite(t, s, again); got.State != key.InProgress {
		t.Errorf("after the former one was released: %+v", got)
	}
}

// formerOnce has a guard ask the probe about an unknown record of version 1. Meanwhile
// that is released, and another retry executed.
func formerOnce(t *testing.T, s idempotency.Store) {
	id, begun := key.FormerID("", "k"), time.Now().Add(-time.Minute)
	was, err := key.Apply(key.Record{}, key.Fact{Evidence: key.Begun, Fence: 7, Claim: key.Claim{ID: id, Former: id, Key: "k", TTL: time.Hour}}, begun)
	if err != nil {
		t.Fatal(err)
	}
	if was, err = key.Apply(was, key.Fact{Evidence: key.Unsure, Fence: 7}, begun); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, s, was)
	runs := 0
	var h http.Handler
	retry := func() *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set(key.Header, "k")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	var other *httptest.ResponseRecorder
	g, err := idempotency.New(s, idempotency.Config{Logger: slog.New(slog.DiscardHandler), Rules: []idempotency.Rule{{
		Probe: func(ctx context.Context, _ idempotency.Question) (idempotency.Finding, error) {
			if other == nil {
				if _, err := idempotency.NewKeys(s).Resolve(ctx, id.String(), idempotency.Resolution{By: "who"}, time.Now()); err != nil {
					t.Error(err)
				}
				other = retry()
			}
			return idempotency.Finding{}, nil
		}}}})
	if err != nil {
		t.Fatal(err)
	}
	h = g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { runs++; fmt.Fprint(w, runs) }))
	if got := retry(); got.Body.String() != "1" || other.Body.String() != "1" || runs != 1 {
		t.Errorf("two retries get %s and %s, and the request was executed %d times, want once", got.Body, other.Body, runs)
	}
}

func insertsOnce(t *testing.T, s idempotency.Store) {
	r := record(t, "k")
	mustWrite(t, s, r)
	r.Fence = 8
	if err := s.Write(t.Context(), r); !errors.Is(err, keep.ErrStale) {
		t.Errorf("second insert: %v, want %v", err, keep.ErrStale)
	}
	if got := mustRead(t, s, r.ID); got.Fence != 7 || got.Rev != 1 {
		t.Errorf("token %d, rev %d after a refused insert, want 7 and 1", got.Fence, got.Rev)
	}
}

func refusesStale(t *testing.T, s idempotency.Store) {
	r := mustWrite(t, s, record(t, "k"))
	done := next(t, r, key.Fact{Evidence: key.Answered, Answer: key.Answer{Status: 200}})
	mustWrite(t, s, done)
	if err := s.Write(t.Context(), next(t, r, key.Fact{Evidence: key.Unsure})); !errors.Is(err, keep.ErrStale) {
		t.Errorf("Write of a stale record: %v, want %v", err, keep.ErrStale)
	}
	missing := record(t, "missing")
	missing.Rev = 4
	if err := s.Write(t.Context(), missing); !errors.Is(err, keep.ErrStale) {
		t.Errorf("Write in place of a missing record: %v, want %v", err, keep.ErrStale)
	}
	if got := mustRead(t, s, r.ID); got.State != key.Done {
		t.Errorf("state %q, want done", got.State)
	}
}

func refusesInvalid(t *testing.T, s idempotency.Store) {
	r := record(t, "k")
	r.State = "somewhat"
	if err := s.Write(t.Context(), r); err == nil || errors.Is(err, keep.ErrStale) {
		t.Errorf("Write of an invalid record: %v, want an error that says so", err)
	}
}

func oneOfMany(t *testing.T, s idempotency.Store) {
	var won atomic.Int64
	var wg sync.WaitGroup
	for i := range 100 {
		r := record(t, "k")
		r.Fence = key.Fence(i + 1)
		wg.Go(func() {
			switch err := s.Write(context.Background(), r); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, keep.ErrStale):
				t.Errorf("Write: %v", err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d took the key, want 1", won.Load())
	}
}

// writesOnce writes records at once, of which one may be stored, and returns that.
func writesOnce(t *testing.T, s idempotency.Store, records []key.Record) key.Record {
	t.Helper()
	var won atomic.Int64
	var wg sync.WaitGroup
	for i, r := range records {
		wg.Go(func() {
			switch err := s.Write(context.Background(), r); {
			case err == nil && !won.CompareAndSwap(0, int64(i+1)):
				t.Errorf("records %d and %d were stored", won.Load()-1, i)
			case err != nil && !errors.Is(err, keep.ErrStale):
				t.Errorf("Write: %v", err)
			}
		})
	}
	wg.Wait()
	if won.Load() == 0 {
		t.Fatal("none was stored")
	}
	return records[won.Load()-1]
}

// changesOnce has many take a key that is free again, which has a record already.
func changesOnce(t *testing.T, s idempotency.Store) {
	r := mustWrite(t, s, record(t, "k"))
	r = mustWrite(t, s, next(t, r, key.Fact{Evidence: key.Nothing}))
	var records []key.Record
	for i := range 100 {
		again, err := key.Apply(r, key.Fact{Evidence: key.Begun, Fence: key.Fence(i + 100), Lease: time.Second,
			Claim: key.Claim{ID: r.ID, Key: r.Key, TTL: time.Hour}}, t0.Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, again)
	}
	stored := writesOnce(t, s, records)
	if got := mustRead(t, s, r.ID); got.Fence != stored.Fence || got.Rev != r.Rev+1 {
		t.Errorf("the record has token %d and rev %d, want %d, who took it, and %d", got.Fence, got.Rev, stored.Fence, r.Rev+1)
	}
}

func aliasedOnce(t *testing.T, s idempotency.Store) {
	var records []key.Record
	for i := range 100 {
		records = append(records, aliased(t, fmt.Sprint("caller", i), t0))
	}
	stored := writesOnce(t, s, records)
	if got, err := s.ReadAlias(t.Context(), stored.Alias, t0); err != nil || got.ID != stored.ID {
		t.Errorf("ReadAlias = %s, %v, want %s, who took it", got.ID, err, stored.ID)
	}
}

// lives has a record in progress, or unknown, for longer than its answer would have been kept: nobody else may execute its
// request, by its alias or beside one of version 1.
func lives(t *testing.T, s idempotency.Store) {
	refused := func(r key.Record, what string, state key.State) {
		t.Helper()
		if err := s.Write(t.Context(), r); !errors.Is(err, keep.ErrStale) {
			t.Errorf("a record beside %s that is %s: %v, want %v", what, state, err, keep.ErrStale)
		}
	}
	a := mustWrite(t, s, aliased(t, "a", t0))
	late := a.ExpiresAt.Add(time.Hour)
	for range 2 {
		if got, err := s.ReadAlias(t.Context(), a.Alias, late); err != nil || got.ID != a.ID {
			t.Errorf("ReadAlias of a record that is %s = %s, %v, want %s", a.State, got.ID, err, a.ID)
		}
		refused(aliased(t, "b", late), "one of its alias", a.State)
		if a.State == key.InProgress {
			a = mustWrite(t, s, next(t, a, key.Fact{Evidence: key.Unsure}))
		}
	}
	beside := func(at time.Time) key.Record {
		r := aliased(t, "c", at)
		r.Alias = key.ID{}
		return r
	}
	was := record(t, "k")
	was.ID, was.Version = beside(t0).Former, 1
	was = mustWrite(t, s, was)
	refused(beside(late), "a former one", was.State)
	was = mustWrite(t, s, next(t, was, key.Fact{Evidence: key.Unsure}))
	refused(beside(late), "a former one", was.State)
	was = mustWrite(t, s, next(t, was, key.Fact{Evidence: key.Happened, Answer: key.Answer{Status: 200}}))
	refused(beside(was.ExpiresAt.Add(-time.Millisecond)), "a former one", was.State)
	mustWrite(t, s, beside(was.ExpiresAt))
}

func keepsBytes(t *testing.T, s idempotency.Store) {
	body := []byte("body")
	r := mustWrite(t, s, record(t, "k"))
	r = mustWrite(t, s, next(t, r, key.Fact{Evidence: key.Answered, Answer: key.Answer{Status: 200, Body: body}}))
	body[0] = 'x'
	for range 2 {
		got := mustRead(t, s, r.ID)
		if string(got.Answer.Body) != "body" {
			t.Errorf("the body is %q after its caller, or its reader, changed its own", got.Answer.Body)
		}
		clear(got.Answer.Body)
	}
}

func transactions(t *testing.T, s idempotency.Store) {
	store, ok := s.(idempotency.TxStore)
	if !ok {
		return // it need not be one
	}
	r := mustWrite(t, s, record(t, "k"))
	done := next(t, r, key.Fact{Evidence: key.Answered, Answer: key.Answer{Status: 200}})
	for _, c := range []struct {
		what   string
		write  error
		commit bool
		state  key.State
	}{
		{"that is rolled back", nil, false, key.InProgress},
		{"that is committed", nil, true, key.Done},
		{"that writes a stale record", keep.ErrStale, false, key.Done},
	} {
		before := mustRead(t, s, r.ID).State
		tx, err := store.Begin(t.Context())
		if err != nil {
			t.Fatalf("Begin: %v", err)
		}
		if err := tx.Write(t.Context(), done); !errors.Is(err, c.write) {
			t.Errorf("Write in a transaction %s: %v, want %v", c.what, err, c.write)
		}
		if got := mustRead(t, s, r.ID).State; got != before {
			t.Errorf("in a transaction %s others read %q before its end, want %q", c.what, got, before)
		}
		if c.commit {
			if err := tx.Commit(t.Context()); err != nil {
				t.Errorf("Commit: %v", err)
			}
		}
		if err := tx.Rollback(); err != nil {
			t.Errorf("Rollback: %v", err)
		}
		if got := mustRead(t, s, r.ID).State; got != c.state {
			t.Errorf("after a transaction %s the record is %q, want %q", c.what, got, c.state)
		}
	}
}

func takes(t *testing.T, s idempotency.Store) {
	taker, ok := s.(idempotency.Taker)
	if !ok {
		return // it need not be one
	}
	for _, name := range []string{"taken here", "written here"} {
		r := record(t, name)
		if name == "written here" {
			mustWrite(t, s, r)
		} else if there, err := taker.Take(t.Context(), r); err != nil || !cmp.Equal(there, key.Record{}) {
			t.Errorf("Take of a new key = %+v, %v, want the zero Record", there, err)
		}
		want := mustRead(t, s, r.ID)
		want = mustWrite(t, s, next(t, want, key.Fact{Evidence: key.Answered, Answer: key.Answer{Status: 201, Body: []byte("x\x00")}}))
		r.Fence = 8
		for range 2 {
			there, err := taker.Take(t.Context(), r)
			if diff := cmp.Diff(want, there); err != nil || diff != "" {
				t.Errorf("Take of a key that was %s: %v (-read +taken):\n%s", name, err, diff)
			}
		}
		if got := mustRead(t, s, r.ID); !cmp.Equal(got, want) {
			t.Errorf("a Take that found a record changed it to %+v", got)
		}
		if there, err := taker.Take(t.Context(), want); err == nil {
			t.Errorf("Take of a record with rev %d = %+v, want an error", want.Rev, there)
		}
	}
	r := record(t, "invalid")
	r.State = "somewhat"
	if there, err := taker.Take(t.Context(), r); err == nil || errors.Is(err, keep.ErrStale) {
		t.Errorf("Take of an invalid record = %+v, %v, want an error that says so", there, err)
	}
}

func takesOnce(t *testing.T, s idempotency.Store) {
	taker, ok := s.(idempotency.Taker)
	if !ok {
		return
	}
	var won atomic.Int64
	var wg sync.WaitGroup
	for i := range 100 {
		r := record(t, "k")
		r.Fence = key.Fence(i + 1)
		wg.Go(func() {
			there, err := taker.Take(context.Background(), r)
			switch {
			case err != nil:
				t.Errorf("Take: %v", err)
			case there.Rev == 0 && !won.CompareAndSwap(0, int64(r.Fence)):
				t.Errorf("%d and %d took the key", won.Load(), r.Fence)
			}
		})
	}
	wg.Wait()
	if got := mustRead(t, s, record(t, "k").ID); int64(got.Fence) != won.Load() || got.Rev != 1 {
		t.Errorf("the record has token %d and rev %d, want %d, who took it, and 1", got.Fence, got.Rev, won.Load())
	}
}

func reuses(t *testing.T, s idempotency.Store) {
	r := mustWrite(t, s, record(t, "k"))
	r = mustWrite(t, s, next(t, r, key.Fact{Evidence: key.Nothing}))
	again, err := key.Apply(r, key.Fact{Evidence: key.Begun, Fence: 9, Lease: time.Second,
		Claim: key.Claim{ID: r.ID, Key: r.Key, Method: "PUT", Path: "/y", TTL: time.Hour}}, t0.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	got := mustWrite(t, s, again)
	if got.Fence != 9 || got.Method != "PUT" || got.Rev != 3 || !got.CreatedAt.Equal(t0.Add(time.Minute)) {
		t.Errorf("reused record = %+v", got)
	}
}

func sweeps(t *testing.T, s idempotency.Store) {
	over := t0.Add(2 * time.Hour)
	var stays []key.ID
	for i := range 10 {
		r := mustWrite(t, s, record(t, fmt.Sprint("done", i)))
		mustWrite(t, s, next(t, r, key.Fact{Evidence: key.Answered, Answer: key.Answer{Status: 200, Body: []byte("x")}}))
	}
	open := mustWrite(t, s, record(t, "open"))
	unknown := mustWrite(t, s, next(t, mustWrite(t, s, record(t, "unknown")), key.Fact{Evidence: key.Unsure}))
	late := record(t, "late")
	late.ExpiresAt = over.Add(time.Millisecond)
	late = mustWrite(t, s, next(t, mustWrite(t, s, late), key.Fact{Evidence: key.Nothing}))
	stays = append(stays, open.ID, unknown.ID, late.ID)
	for _, e := range []key.Evidence{key.Answered, key.Streamed} {
		kept := record(t, string(e))
		kept.ExpiresAt = over
		kept = mustWrite(t, s, next(t, mustWrite(t, s, kept), key.Fact{Evidence: e, Answer: key.Answer{Status: 200}}))
		stays = append(stays, kept.ID)
	}
	for _, want := range []int{4, 4, 2, 0} {
		n, err := s.Sweep(t.Context(), over, 4)
		if err != nil || n != want {
			t.Errorf("Sweep = %d, %v, want %d", n, err, want)
		}
	}
	for _, id := range stays {
		if mustRead(t, s, id).Rev == 0 {
			t.Errorf("%s was swept", id)
		}
	}
}

func lists(t *testing.T, s idempotency.Store) {
	var want, got []string
	for i := range 7 {
		r := record(t, fmt.Sprint("k", i))
		r = next(t, mustWrite(t, s, r), key.Fact{Evidence: key.Answered, Answer: key.Answer{Status: 200, Body: []byte("x"), Header: key.EncodeFields(nil)}})
		mustWrite(t, s, r)
		want = append([]string{r.Key}, want...)
	}
	pages := 0
	for cursor := ""; ; {
		page, after, err := s.List(t.Context(), key.Filter{}, keep.Page{Limit: 3, After: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page {
			got = append(got, r.Key)
			if r.Answer.Body != nil || r.Answer.Header != nil || r.Answer.Status != 200 {
				t.Errorf("a list has the answer %+v, want only its status", r.Answer)
			}
		}
		if pages++; after == "" {
			break
		}
		cursor = after
	}
	if diff := cmp.Diff(want, got); diff != "" || pages != 3 {
		t.Errorf("%d pages, want 3 (-want +got):\n%s", pages, diff)
	}
}

func filters(t *testing.T, s idempotency.Store) {
	a := mustWrite(t, s, record(t, "a"))
	b := record(t, "b")
	b.Caller = "c2"
	mustWrite(t, s, next(t, mustWrite(t, s, b), key.Fact{Evidence: key.Unsure}))
	for f, want := range map[key.Filter]string{
		{State: key.InProgress}:            "a",
		{State: key.Unknown}:               "b",
		{State: key.Done}:                  "",
		{Key: "a"}:                         "a",
		{Caller: "c2"}:                     "b",
		{Key: "a", Caller: "c2"}:           "",
		{Key: a.Key, State: key.Unknown}:   "",
		{Key: "b", State: key.Unknown}:     "b",
		{Caller: "c1", State: a.State}:     "a",
		{Caller: "nobody", Key: "nothing"}: "",
		{Key: "a\x00"}:                     "",
		{Key: "A"}:                         "",
		{Key: "a "}:                        "",
		{Caller: "C2"}:                     "",
		{Caller: "c2\xff"}:                 "",
	} {
		page, _, err := s.List(t.Context(), f, keep.Page{})
		got := ""
		for _, r := range page {
			got += r.Key
		}
		if err != nil || got != want {
			t.Errorf("List(%+v) = %q, %v, want %q", f, got, err, want)
		}
	}
}

func badCursor(t *testing.T, s idempotency.Store) {
	for _, cursor := range []string{"x", "-1", "1;2"} {
		if _, _, err := s.List(t.Context(), key.Filter{}, keep.Page{After: cursor}); !errors.Is(err, keep.ErrBadCursor) {
			t.Errorf("List after %q: %v, want %v", cursor, err, keep.ErrBadCursor)
		}
	}
}

func overContext(t *testing.T, s idempotency.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := record(t, "k")
	if err := s.Write(ctx, r); err == nil {
		t.Error("Write with a context that is over: no error")
	}
	if taker, ok := s.(idempotency.Taker); ok {
		if _, err := taker.Take(ctx, r); err == nil {
			t.Error("Take with a context that is over: no error")
		}
	}
	if mustRead(t, s, r.ID).Rev != 0 {
		t.Error("it was stored")
	}
}
