package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// A decision is what a person says of a request.
type decision struct {
	by       string
	forgets  bool
	happened bool
	hasty    bool // it is said without knowing
	body     string
	status   int
	landed   int // how often it was recorded
}

// A keyPerson decides at a host of their own, whose store is slow and loses what is written.
type keyPerson struct {
	w    *keyWorld
	rng  *rand.Rand
	keys *idempotency.Keys
	host *keyProcess
	n    int
}

// newPerson returns a person at a host that lives as long as the world.
func (w *keyWorld) newPerson(n uint64) *keyPerson {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &keyProcess{w: w, n: int(n), file: w.file, dead: make(chan struct{}), lucky: rand.New(rand.NewPCG(w.seed, 50+n))}
	return &keyPerson{w: w, rng: rand.New(rand.NewPCG(w.seed, 60+n)), host: p, keys: idempotency.NewKeys(keyStore{w.store, p})}
}

// decideTogether has two persons resolve what nobody knows, often the same at the same time, until the world ends.
func (w *keyWorld) decideTogether(gone chan struct{}) {
	people := []*keyPerson{w.newPerson(901), w.newPerson(902)}
	shown := idempotency.NewKeys(w.store)
	for {
		select {
		case <-gone:
			return
		case <-time.After(span(w.kin, 15*time.Second)):
		}
		list, _, err := shown.List(context.Background(), key.Filter{}, keep.Page{Limit: keep.MaxPage})
		if err != nil {
			w.t.Error(err)
			return
		}
		open := slices.DeleteFunc(list, func(v idempotency.View) bool {
			return v.State == key.Released || v.State == key.InProgress && !chance(w.kin, 0.2) || v.State != key.Unknown && v.State != key.InProgress && !chance(w.kin, 0.01)
		})
		if len(open) == 0 {
			continue
		}
		v := pick(w.kin, open...)
		var both sync.WaitGroup
		for _, p := range people[:1+w.kin.IntN(2)] {
			delay := span(w.kin, pick(w.kin, time.Millisecond, time.Second))
			both.Go(func() {
				time.Sleep(delay)
				p.decides(shown, v.Reference)
			})
		}
		both.Wait()
	}
}

// decides says what the person knows of a request, until that is recorded or refused.
func (p *keyPerson) decides(shown *idempotency.Keys, reference string) {
	w, ctx := p.w, context.Background()
	w.mu.Lock()
	v, err := shown.Show(ctx, reference)
	if err != nil || v.State == key.Released { // it was swept, or decided
		w.mu.Unlock()
		return
	}
	id, err := key.ParseID(reference)
	if err != nil {
		w.t.Error(err)
	}
	rec, _ := w.store.Read(ctx, id)
	m := w.wanted[rec.Fingerprint].as(w.callers[id])
	p.n++
	d := &decision{by: fmt.Sprintf("%d-%d", p.host.n, p.n), forgets: v.State != key.Unknown && v.State != key.InProgress, happened: m.effects > 0,
		hasty: chance(p.rng, 0.15), status: pick(p.rng, 200, 201, 422)}
	d.body = fmt.Sprintf("%s by hand of %s", m, d.by)
	if d.hasty {
		d.happened = chance(p.rng, 0.5)
	}
	if m.atWork() && !d.hasty || d.forgets && (m.atWork() || w.file.failOpen) {
		w.mu.Unlock()
		return
	}
	seen := v.Seen
	if d.hasty && chance(p.rng, 0.5) && !d.forgets {
		seen = ""
	}
	w.persons[d.by] = d
	w.note("person %s decides %s (%s): forgets %t, happened %t, hasty %t", d.by, m, v.State, d.forgets, d.happened, d.hasty)
	w.mu.Unlock()
	for range 3 {
		if p.says(ctx, m, d, reference, seen) {
			return
		}
		time.Sleep(span(p.rng, 3*time.Second))
	}
}

// says says it once, and reports whether there was an answer.
func (p *keyPerson) says(ctx context.Context, m *wanted, d *decision, reference, seen string) bool {
	w, before := p.w, d.landed
	ctx, done := context.WithTimeout(ctx, 10*time.Second)
	defer done()
	var err error
	if d.forgets {
		_, err = p.keys.ForgetSeen(ctx, reference, d.by, seen, time.Now())
	} else {
		_, err = p.keys.Resolve(ctx, reference, idempotency.Resolution{Happened: d.happened, Status: d.status, Body: d.body, By: d.by, Seen: seen}, time.Now())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("person %s: %v", d.by, err)
	landed, refused := d.landed-before, errors.Is(err, idempotency.ErrNotUnknown) || errors.Is(err, keep.ErrStale) || errors.Is(err, keep.ErrNotFound)
	switch {
	case err == nil && landed != 1:
		w.broken("truth", "person %s is told that it is recorded what they said of %s, and it was %d times", d.by, m, landed)
	case refused && landed > 0 && !errors.Is(err, errLost):
		w.broken("truth", "person %s is refused (%v), and it is recorded what they said of %s", d.by, err, m)
	case refused:
		w.saw("person: refused")
	case err != nil:
		w.saw("person: lost")
	}
	return err == nil || refused && !errors.Is(err, errLost)
}

// personWrites looks at what a person has decided, and reports whether that is what is written. mu is held.
func (w *keyWorld) personWrites(m *wanted, was, r key.Record) bool {
	by, ok := strings.CutPrefix(r.ResolvedBy, "person: ")
	if !ok || w.kind != kindPeople || was.ResolvedBy == r.ResolvedBy {
		return false
	}
	d := w.persons[by]
	if d.landed++; d.landed > 1 {
		w.broken("settled-stays", "what %s said of %s is recorded twice", by, m)
	}
	w.saw(fmt.Sprintf("person: forgets %t, happened %t, hasty %t", d.forgets, d.happened, d.hasty))
	switch {
	case d.forgets:
		if was.State != key.Done && was.State != key.DoneWithoutBody {
			w.broken("settled-stays", "%s forgets an answer of %s, which is %s", by, m, was.State)
		}
		m.begins()
	case was.State != key.Unknown:
		w.broken("settled-stays", "%s decides about %s, which is %s", by, m, was.State)
	case d.happened:
		m.hands, m.expires = append(m.hands, d.body), r.ExpiresAt
		if m.effects == 0 {
			m.guessed = true
		}
		if r.State != key.Done || string(r.Answer.Body) != d.body || r.Answer.Status != d.status {
			w.broken("kept", "%s said that %s is answered %d %q, and %s is %d %q", by, m, d.status, d.body, r.State, r.Answer.Status, r.Answer.Body)
		}
	default:
		if m.effects > 0 || m.mayAct() {
			if m.excused++; !d.hasty && m.bare == 0 { // what has no record changes none
				w.broken("doubt-is-not-failure", "%s knew that %s did not happen, and since then it did, or may", by, m)
			}
		}
		m.resolved(r.ID)
	}
	return true
}

func isByHand(m *wanted, body string) bool { return strings.HasPrefix(body, m.String()+" by hand of ") }

// byHand looks at an answer that a person gave, and reports whether it is one. mu is held.
func (w *keyWorld) byHand(m *wanted, a *keyAnswer) bool {
	if !isByHand(m, a.body) {
		return false
	}
	d := w.persons[a.body[strings.LastIndex(a.body, " ")+1:]]
	w.saw("answer: by hand")
	switch {
	case d.landed == 0, !slices.Contains(m.hands, a.body), a.status != d.status:
		w.broken("permitted", "%s is answered %d %q, which nobody has recorded", m, a.status, a.body)
	case m.effects == 0 && !m.guessed && m.hands[len(m.hands)-1] == a.body:
		w.broken("truth", "%s is answered by hand, and has no effect", m)
	}
	return true
}

func peopleSights() []string {
	return []string{
		"person: refused", "person: lost", "person: forgets false, happened true, hasty false", "person: forgets false, happened false, hasty false",
		"person: forgets false, happened true, hasty true", "person: forgets false, happened false, hasty true", "answer: by hand",
		"problem: outcome-unknown", "problem: in-progress", "a doubt", "killed",
	}
}
