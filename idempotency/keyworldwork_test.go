package idempotency_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// An execution is a run of the handler.
type execution struct {
	n       int
	p       *keyProcess
	of      *wanted
	try     string // of the client, whose request it was
	how     string
	effects int
	waits   bool      // a service may do it yet
	fence   key.Fence // of its record
	bare    bool      // it had no record
	fenced  bool      // what it does is in the transaction of its key, which a later owner refuses
	staged  bool      // it did so, and says how that ends
	denied  bool      // its client was told that nothing of it happened
	sent    keySent   // what a backend answered
	over    bool      // the handler has returned
	body    string
}

func (e *execution) String() string {
	return fmt.Sprintf("execution %d of %s at process %d", e.n, e.of, e.p.n)
}

// atWork reports whether there may be an effect yet.
func (e *execution) atWork() bool { return e.waits || !e.over && !e.p.gone.Load() }

// callerNamed is the caller of worlds whose callers have names.
func callerNamed(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }

func isRepeatable(*http.Request, []byte) bool { return true }

// Ways of the handler. What comes after the effect is true of each policy that allows it.
const (
	makes       = "makes"
	refuses     = "refuses"
	isBusy      = "is busy"
	failsBefore = "500 before"
	failsAfter  = "500 after"
	cutBefore   = "502 before"
	cutAfter    = "502 after"
	panicBefore = "panics before"
	panicAfter  = "panics after"
	doubtBefore = "doubts before"
	doubtAfter  = "doubts after"
	releases    = "releases"
	streams     = "streams"
	loses       = "says 409"
)

// way draws what a handler does. mu is held.
func (w *keyWorld) way(f keyFile) string {
	of := []string{makes, makes, makes, makes, refuses, isBusy, releases, loses, streams, failsBefore, cutBefore, panicBefore, doubtBefore}
	if f.policy == key.AtMostOnce && !f.repeatable {
		of = append(of, failsAfter, cutAfter, panicAfter)
	}
	of = append(of, doubtAfter)
	select {
	case <-w.calm:
		return pick(w.lucky, makes, makes, makes, refuses)
	default:
		return pick(w.lucky, of...)
	}
}

// handler is the one of a process.
func (p *keyProcess) handler(rw http.ResponseWriter, r *http.Request) {
	w := p.w
	body, _ := io.ReadAll(r.Body)
	if p.at("before a handler") {
		panic(http.ErrAbortHandler) // it never comes to it, and whatever the guard does now reaches nobody
	}
	w.mu.Lock()
	e := w.executes(p, r, body)
	before, after := span(w.lucky, time.Second), span(w.lucky, time.Second)
	if chance(w.lucky, 0.2) {
		before = span(w.lucky, 50*time.Second)
	}
	if chance(w.lucky, 0.2) {
		after = span(w.lucky, 45*time.Second)
	}
	remote := p.file.remote
	w.note("process %d executes %s (%s): %s, %s and %s, remote %t", p.n, e.of, e.try, e.how, before, after, remote)
	w.saw("handler: " + e.how)
	w.mu.Unlock()
	if w.kind == kindTx {
		p.worksInTx(e, rw, r, before, after)
		return
	}
	defer p.ends(e)
	effect := slices.Contains([]string{makes, failsAfter, cutAfter, panicAfter, doubtAfter, streams}, e.how)
	switch {
	case effect && remote:
		w.mu.Lock()
		e.waits = true
		w.mu.Unlock()
		done := make(chan struct{})
		w.working.Go(func() {
			defer close(done)
			time.Sleep(before)
			w.mu.Lock()
			defer w.mu.Unlock()
			e.waits = false
			w.effect(e)
		})
		<-done
	case effect:
		time.Sleep(before)
		w.mu.Lock()
		if !p.gone.Load() {
			w.effect(e)
		}
		w.mu.Unlock()
	default:
		time.Sleep(before)
	}
	time.Sleep(after)
	e.answer(rw, r)
}

// answer is how a handler ends.
func (e *execution) answer(rw http.ResponseWriter, r *http.Request) {
	switch e.how {
	case panicBefore, panicAfter:
		panic(http.ErrAbortHandler)
	case doubtBefore, doubtAfter, panicDoubts:
		if idempotency.Doubt(r.Context(), http.StatusGatewayTimeout); e.how == panicDoubts {
			panic(http.ErrAbortHandler)
		}
	case releases, refusesToBegin:
		idempotency.Release(r.Context())
	case streams:
		rw.Header().Set("Content-Type", "text/event-stream")
	}
	rw.Header().Set("X-Execution", fmt.Sprint(e.n))
	rw.WriteHeader(e.status())
	_, _ = io.WriteString(rw, e.body)
}

// status is that of the answer of an execution.
func (e *execution) status() int {
	switch e.how {
	case refuses:
		return http.StatusUnprocessableEntity
	case isBusy:
		return http.StatusTooManyRequests
	case loses:
		return http.StatusConflict
	case failsBefore, failsAfter:
		return http.StatusInternalServerError
	case cutBefore, cutAfter:
		return http.StatusBadGateway
	case doubtBefore, doubtAfter:
		return http.StatusGatewayTimeout
	case releases, refusesToBegin:
		return http.StatusServiceUnavailable
	}
	return cmp.Or(e.sent.status, http.StatusCreated)
}

// nothing reports whether a handler says that it did nothing, which frees the key.
func (e *execution) nothing() bool {
	switch e.how {
	case isBusy, releases, loses, refusesToBegin:
		return true
	case failsBefore, cutBefore, panicBefore:
		return e.p.file.policy == key.Retry5xx || e.p.file.repeatable || e.p.file.atomic && e.how != failsBefore
	case cutAfter, panicAfter:
		return e.p.file.atomic && !e.waits
	}
	return e.sent.nothing
}

// passes reports whether an answer is passed on, and not kept.
func (e *execution) passes() bool { return e.how == streams || e.sent.passed }

const refusesToBegin = "has no transaction"

// probe asks what became of a request.
func (p *keyProcess) probe(ctx context.Context, q idempotency.Question) (idempotency.Finding, error) {
	w := p.w
	w.mu.Lock()
	slow := span(w.lucky, time.Second)
	if chance(w.lucky, 0.1) {
		slow = span(w.lucky, 20*time.Second)
	}
	fails := chance(w.lucky, 0.2) && w.faults > 0
	w.mu.Unlock()
	select {
	case <-time.After(slow / 2):
	case <-ctx.Done():
		return idempotency.Finding{}, ctx.Err()
	}
	w.mu.Lock()
	m := w.byReference(q.Header.Get("X-Wanted")).as(p.file.stable)
	var f idempotency.Finding
	if m.effects > 0 {
		f = idempotency.Finding{Happened: true, Status: 201, Body: []byte(m.String() + " found")}
	}
	w.note("process %d probes %s: %t", p.n, m, f.Happened)
	w.saw(fmt.Sprintf("probe: %t", f.Happened))
	w.mu.Unlock()
	select {
	case <-time.After(slow / 2):
	case <-ctx.Done():
		return idempotency.Finding{}, ctx.Err()
	}
	if fails || p.gone.Load() {
		return idempotency.Finding{}, errors.New("the service did not answer")
	}
	return f, nil
}

// decideAll has a person resolve what nobody knows, until the world ends.
func (w *keyWorld) decideAll(gone chan struct{}) {
	r := rand.New(rand.NewPCG(w.seed, 3))
	keys, looks := idempotency.NewKeys(w.store), 20*time.Second
	if w.probes { // and knows more often than not
		looks = 2 * time.Minute
	}
	for {
		select {
		case <-gone:
			return
		case <-time.After(span(r, looks)):
		}
		ctx := context.Background()
		list, _, err := keys.List(ctx, key.Filter{}, keep.Page{Limit: keep.MaxPage})
		if err != nil {
			w.t.Error(err)
			return
		}
		var open []idempotency.View
		for _, v := range list {
			if v.State == key.Unknown || v.State == key.Done && !w.file.repeatable && chance(r, 0.002) {
				open = append(open, v)
			}
		}
		if len(open) > 0 {
			w.decide(ctx, r, keys, pick(r, open...))
		}
	}
}

// decide says what a person knows of a request.
func (w *keyWorld) decide(ctx context.Context, r *rand.Rand, keys *idempotency.Keys, v idempotency.View) {
	rec := w.record(ctx, v.Reference)
	w.mu.Lock()
	m := w.wanted[rec.Fingerprint].as(w.callers[rec.ID])
	if rec.Rev == 0 || m.atWork() {
		w.mu.Unlock()
		return
	}
	now, by, seen := time.Now(), "pat", v.Seen
	happened := m.effects > 0
	if chance(r, 0.5) {
		seen = ""
	}
	was := *m.life
	switch {
	case v.State == key.Done:
		m.begins()
	case !happened:
		m.resolved(rec.ID)
	}
	w.mu.Unlock()
	var err error
	what := "resolves"
	if v.State == key.Done {
		what = "forgets"
		_, err = keys.ForgetSeen(ctx, v.Reference, by, v.Seen, now)
	} else {
		_, err = keys.Resolve(ctx, v.Reference, idempotency.Resolution{Happened: happened, Status: 201, Body: m.String() + " found", By: by, Seen: seen}, now)
	}
	rec = w.record(ctx, v.Reference)
	w.mu.Lock()
	defer w.mu.Unlock()
	m.as(w.callers[rec.ID])
	w.note("person %s %s (%s), happened %t: %v", what, m, v.State, happened, err)
	if err != nil {
		*m.life = was
		return
	}
	w.saw(fmt.Sprintf("person: %s, happened %t", what, happened))
	if rec.State == key.Done {
		m.expires = rec.ExpiresAt
	}
}

// record returns the record of a reference.
func (w *keyWorld) record(ctx context.Context, reference string) key.Record {
	id, err := key.ParseID(reference)
	if err != nil {
		w.t.Fatal(err)
	}
	rec, err := w.store.Read(ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return rec
}

// ends notes that the process is over with an execution.
func (p *keyProcess) ends(e *execution) {
	w := p.w
	w.mu.Lock()
	e.over = true
	if e.nothing() && !p.gone.Load() {
		e.of.as(p.file.stable).held = false
	}
	w.mu.Unlock()
	p.at("after a handler")
}
