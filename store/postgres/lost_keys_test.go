package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/postgres"
)

// A keyPast is a database of keys that can lose what came last.
type keyPast struct {
	*testing.T
	url         string
	keys, other *postgres.Keys
}

func newKeyPast(t *testing.T) *keyPast {
	t.Parallel()
	p := &keyPast{T: t, url: pgtest.SchemaURL(t)}
	p.keys, _ = open(t, p.url)
	p.other, _ = open(t, p.url)
	if err := p.take(p.keys, "before"); err != nil {
		t.Fatal(err)
	}
	return p
}

// record returns a key that is taken now.
func (p *keyPast) record(name string) key.Record {
	p.Helper()
	r, err := key.Apply(key.Record{}, key.Fact{Evidence: key.Begun, Fence: 7, Lease: time.Hour,
		Claim: key.Claim{ID: key.NewID("h", "", name), Host: "h", Key: name, Method: "POST", Path: "/", TTL: 48 * time.Hour}}, time.Now())
	if err != nil {
		p.Fatal(err)
	}
	return r
}

func (p *keyPast) take(k *postgres.Keys, name string) error {
	p.Helper()
	there, err := k.Take(p.Context(), p.record(name))
	if err == nil && there.Rev != 0 {
		err = errors.New("it is taken")
	}
	return err
}

// finish completes a key, in a transaction or without.
func (p *keyPast) finish(name string, tx bool) {
	p.Helper()
	r, err := p.keys.Read(p.Context(), key.NewID("h", "", name))
	if err != nil {
		p.Fatal(err)
	}
	if r, err = key.Apply(r, key.Fact{Evidence: key.Answered, Fence: 7, By: "owner", Answer: key.Answer{Status: 200}}, time.Now()); err != nil {
		p.Fatal(err)
	}
	write := p.keys.Write
	if tx {
		write = func(ctx context.Context, r key.Record) error {
			t, err := p.keys.Begin(ctx)
			if err != nil {
				return err
			}
			return errors.Join(t.Write(ctx, r), t.Commit(ctx))
		}
	}
	if err := write(p.Context(), r); err != nil {
		p.Fatal(err)
	}
}

// loses makes the server forget what f wrote.
func (p *keyPast) loses(f func()) {
	p.Helper()
	exec(p.T, p.url, `CREATE TABLE past AS SELECT * FROM idempotency_key`)
	f()
	exec(p.T, p.url, `DELETE FROM idempotency_key; INSERT INTO idempotency_key OVERRIDING SYSTEM VALUE SELECT * FROM past; DROP TABLE past`)
}

// Who finds that the server lacks keys which it said are stored takes no more of them, and neither does anybody else
// until a person says so.
func TestServerLacksKeys(t *testing.T) {
	for name, lost := range map[string]func(*keyPast){
		"taken":                 func(p *keyPast) { _ = p.take(p.keys, "lost") },
		"done":                  func(p *keyPast) { p.finish("before", false) },
		"done in a transaction": func(p *keyPast) { p.finish("before", true) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newKeyPast(t)
			p.loses(func() { lost(p) })
			for _, name := range []string{"new", "another"} {
				if err := p.take(p.keys, name); !errors.Is(err, keep.ErrReplaced) || !strings.Contains(err.Error(), "keep proxy --new") {
					t.Errorf("Take(%s) = %v, want ErrReplaced with what to do", name, err)
				}
			}
			if r, err := p.other.Read(t.Context(), key.NewID("h", "", "new")); err != nil || r.Rev != 0 {
				t.Errorf("a refused key is stored: %+v, %v", r, err)
			}
			if err := p.take(p.other, "new"); !errors.Is(err, keep.ErrReplaced) {
				t.Errorf("Take of another process = %v, want ErrReplaced", err)
			}
			p.settles()
			later, _ := open(t, p.url)
			if err := later.Lost(t.Context()); !errors.Is(err, keep.ErrReplaced) {
				t.Errorf("Lost, asked by the next process, = %v, want ErrReplaced", err)
			}
			if err := later.AcceptLoss(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(later.Lost(t.Context()), p.take(later, "new")); err != nil {
				t.Errorf("after a person accepted the loss: %v", err)
			}
		})
	}
}

// settles shows that people can decide about keys of which the outcome is unknown, meanwhile too.
func (p *keyPast) settles() {
	p.Helper()
	exec(p.T, p.url, `UPDATE idempotency_key SET lease_until = 1 WHERE key = 'before'`)
	keys := idempotency.NewKeys(p.other)
	r, err := p.other.Read(p.Context(), key.NewID("h", "", "before"))
	if err == nil && r.State == key.InProgress {
		_, err = keys.Resolve(p.Context(), r.ID.String(), idempotency.Resolution{By: "ann"}, time.Now())
	}
	if err != nil {
		p.Errorf("Resolve = %v", err)
	}
}

// What is over and swept is not lost, and neither is what others changed since.
func TestSweptKeysAreNotLost(t *testing.T) {
	p := newKeyPast(t)
	p.finish("before", false)
	exec(t, p.url, `UPDATE idempotency_key SET rev = rev + 3`)
	if err := p.take(p.keys, "a"); err != nil {
		t.Errorf("after another process wrote it: %v", err)
	}
	r := p.record("short")
	r.CreatedAt, r.ExpiresAt = r.CreatedAt.Add(-2*time.Hour), r.CreatedAt.Add(10*time.Second)
	if err := p.keys.Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	exec(t, p.url, `DELETE FROM idempotency_key WHERE key = 'short'`) // it is over by a clock that is ahead
	if err := p.take(p.keys, "b"); err != nil {
		t.Errorf("after a sweep: %v", err)
	}
}

// What a process swept itself is not lost, although its clock was set back since.
func TestSweptBeforeTheClockWasSetBack(t *testing.T) {
	p := newKeyPast(t)
	p.finish("before", false)
	if n, err := p.keys.Sweep(t.Context(), time.Now().Add(100*time.Hour), 10); n != 1 || err != nil {
		t.Fatalf("Sweep = %d, %v, want 1", n, err)
	}
	if err := p.take(p.keys, "after"); err != nil {
		t.Errorf("Take = %v", err)
	}
}

// A guard whose server lost keys executes nothing.
func TestGuardOfLostKeys(t *testing.T) {
	p := newKeyPast(t)
	ran := 0
	g, err := idempotency.New(p.keys, idempotency.Config{Rules: []idempotency.Rule{{FailOpen: true}}})
	if err != nil {
		t.Fatal(err)
	}
	h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { ran++; fmt.Fprint(w, "done") }))
	post := func(k string) int {
		r := httptest.NewRequest("POST", "/", strings.NewReader("x"))
		r.Header.Set("Idempotency-Key", k)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	p.loses(func() {
		if post("paid") != 200 {
			t.Error("it is not executed")
		}
	})
	for range 2 {
		if code := post("paid"); code != 503 {
			t.Errorf("the retry of a request whose key is lost got %d, want 503", code)
		}
	}
	if ran != 1 {
		t.Errorf("it was executed %d times, want once", ran)
	}
	if err := g.Run(t.Context()); !errors.Is(err, keep.ErrReplaced) {
		t.Errorf("Run = %v, want ErrReplaced", err)
	}
}

// A key that was given free, and is taken by a request whose answer is kept for less, is not lost when that is swept: who
// wrote it before remembers that it was to be kept longer.
func TestShorterKeysAreNotLost(t *testing.T) {
	p := newKeyPast(t)
	r := p.record("k")
	write := func(k *postgres.Keys, f key.Fact) {
		t.Helper()
		next, err := key.Apply(r, f, time.Now())
		if err == nil {
			err = k.Write(t.Context(), next)
		}
		if err != nil {
			t.Fatal(err)
		}
		r = next
		r.Rev++
	}
	if err := p.keys.Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	r.Rev++
	write(p.keys, key.Fact{Evidence: key.Nothing, Fence: 7, By: "owner"})
	write(p.other, key.Fact{Evidence: key.Begun, Fence: 8, Lease: time.Hour,
		Claim: key.Claim{ID: r.ID, Host: "h", Key: "k", Method: "POST", Path: "/short", TTL: time.Minute}})
	write(p.other, key.Fact{Evidence: key.Answered, Fence: 8, By: "owner", Answer: key.Answer{Status: 200}})
	if _, err := p.other.Sweep(t.Context(), time.Now().Add(time.Hour), 10); err != nil {
		t.Fatal(err)
	}
	if err := p.take(p.keys, "next"); err != nil {
		t.Errorf("after a sweep: %v", err)
	}
}
