package idempotency_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// A wanted request is one that a client wants to be done once.
type wanted struct {
	n                       int
	client, host, key, body string
	another                 bool // it uses the key of another request, and is to be refused

	*life                     // as the caller that a guard knows last
	lives      map[bool]*life // by whether callers have names
	named      bool           // which of them it is
	hands      []string       // answers of persons, the one that is kept last
	guessed    bool           // a person was wrong about it
	halved     bool           // a probe's answer may have been half of one
	executions []*execution
	reference  string // that a problem said last
	tries      int
	renewedAt  int // the try from which on another credential was used; 0: none
	end        string
}

// A life is what is known of a request since its key was free last.
type life struct {
	from     int            // the last execution before it
	effects  int            // of those since then
	excused  int            // of them, which may be more than one
	bare     int            // executions without a record, for FailOpen
	held     bool           // one began, and it is not known that it did nothing
	attempts map[key.ID]int // of AfterCrashRetry, by record
	shown    string         // the answer that was shown, and is kept
	expires  time.Time      // when the record of the answer does; zero: there is none
	promised time.Time      // until when a client was told that its answer is kept
	doubtful bool           // its owner took it over after a doubt
	again    int            // how often it was taken over and not executed since
	id       key.ID         // of the record that was taken last
}

func (m *wanted) String() string { return fmt.Sprintf("request %d of %s at %s", m.n, m.client, m.host) }

// begins a new life: the time of the key is over, or a person forgot it.
func (m *wanted) begins() {
	*m.life = life{attempts: make(map[key.ID]int)}
	if n := len(m.executions); n > 0 {
		m.from = m.executions[n-1].n
	}
}

// resolved notes that it is known that a request did not happen.
func (m *wanted) resolved(id key.ID) {
	m.held = false
	delete(m.attempts, id)
}

// atWork reports whether there may be an effect yet.
func (m *wanted) atWork() bool {
	for _, e := range m.executions {
		if e.p.file.stable == m.named && e.atWork() {
			return true
		}
	}
	return false
}

// mayAct is atWork without executions that are known to be fenced.
func (m *wanted) mayAct() bool {
	for _, e := range m.executions {
		if e.p.file.stable == m.named && !e.fenced && e.atWork() {
			return true
		}
	}
	return false
}

// as makes the life of a request that of its caller as guards know it.
func (m *wanted) as(named bool) *wanted {
	if m.lives == nil {
		m.lives = make(map[bool]*life)
	}
	if m.named = named; m.lives[named] == nil {
		m.life = new(life)
		m.lives[named] = m.life
		m.begins()
	}
	m.life = m.lives[named]
	return m
}

// byReference returns a request by its number.
func (w *keyWorld) byReference(n string) *wanted {
	for _, m := range w.wanted {
		if fmt.Sprint(m.n) == n {
			return m
		}
	}
	return nil
}

// write stores a record, and looks whether it may be what it becomes.
func (w *keyWorld) write(ctx context.Context, p *keyProcess, r key.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writeLocked(ctx, p, r)
}

// writeLocked is write with mu held.
func (w *keyWorld) writeLocked(ctx context.Context, p *keyProcess, r key.Record) error {
	was, err := w.store.Read(ctx, r.ID)
	if err != nil {
		return err
	}
	if err := w.store.Write(ctx, r); err != nil {
		return err
	}
	now := time.Now()
	if r.State == key.InProgress && r.Fence != was.Fence {
		w.callers[r.ID] = p.file.stable
	}
	m := w.wanted[r.Fingerprint].as(w.callers[r.ID])
	if r.State == key.InProgress && r.Fence != was.Fence {
		w.owners[r.Fence] = p
	}
	defer func() { w.written[r.ID] = now }()
	switch {
	case r.State == key.InProgress && r.Fence != was.Fence: // it is taken
		switch {
		case was.Rev > 0 && was.Fingerprint != r.Fingerprint && !key.Free(was, now):
			w.broken("key-reused", "process %d takes the key of %s for %s", p.n, w.wanted[was.Fingerprint], m)
		case key.Free(was, now), p.file.repeatable:
		case was.State == key.Unknown && p.file.crash == idempotency.AfterCrashRetry:
			if m.attempts[r.ID]++; m.attempts[r.ID] > 1 {
				w.broken("once", "process %d executes %s again, and that was done before", p.n, m)
			}
		default:
			w.broken("once", "process %d takes %s, which is %s", p.n, m, was.State)
		}
		if key.Free(was, now) && now.Before(m.promised.Add(-time.Second)) && !p.file.repeatable {
			w.broken("kept", "process %d takes the key of %s as a new one, and its answer is kept until %s, as a client was told", p.n, m, m.promised.Sub(w.began))
		}
		if !m.expires.IsZero() && !now.Before(m.expires) { // the record may be swept by now
			m.begins()
			w.saw("a key is over")
		}
		if was.Rev == 0 || was.Expired(now) {
			delete(m.attempts, r.ID)
		}
		m.id = r.ID
		if was.State == key.Unknown || was.State == key.InProgress {
			m.again++
		}
		m.doubtful = was.State == key.Unknown
	case w.personWrites(m, was, r):
	case m.doubtful && r.State == key.Unknown && (was.State != key.Unknown && r.Doubts == was.Doubts || was.State == key.Unknown && r.Doubts < was.Doubts): // its owner did nothing
		m.attempts[r.ID]--
		w.saw("an attempt did nothing, and the one before is in doubt")
	case m.doubtful && r.State == key.Released && r.ResolvedBy == "owner" && !r.Atomic:
		w.broken("doubt-is-not-failure", "%s is free, although nobody knows of an attempt before", m)
	case r.ResolvedBy == "owner" && w.owners[r.Fence] != p:
		w.broken("settled-stays", "process %d says what became of %s, which it does not own", p.n, m)
	case r.State == key.Done || r.State == key.DoneWithoutBody:
		m.expires = r.ExpiresAt
		if was.State != r.State && r.ExpiresAt.Before(now.Add(10*time.Minute-40*time.Second)) {
			w.broken("kept", "process %d keeps the answer of %s until %s", p.n, m, r.ExpiresAt.Sub(w.began))
		}
		if o := w.owners[was.Fence]; o != nil && was.State != r.State && r.ExpiresAt.Before(now.Add(o.file.ttl-40*time.Second)) {
			w.broken("kept", "process %d keeps the answer of %s until %s, and its owner, process %d, %s", p.n, m, r.ExpiresAt.Sub(w.began), o.n, o.file.ttl)
		}
	case w.kind == kindTx && r.State == key.Released && (r.ResolvedBy == "owner" || r.ResolvedBy == "lease"):
		w.undone(m, was, r)
	case r.State == key.Released && was.State == key.Unknown && r.ResolvedBy != "owner":
		m.resolved(r.ID)
		w.saw("released by a probe")
		if m.effects > 0 {
			w.broken("doubt-is-not-failure", "process %d releases %s, which happened", p.n, m)
		}
	case r.State == key.Unknown && was.State != key.Unknown:
		w.saw("a doubt")
		w.buries(p, was, now)
	}
	return nil
}

// buries looks whether a process takes another one for dead that renewed its lease not long ago: what is stored may be a third of a lease old. mu is held.
func (w *keyWorld) buries(p *keyProcess, was key.Record, now time.Time) {
	o, ago := w.owners[was.Fence], now.Sub(w.written[was.ID])
	if o != nil && o != p && !o.gone.Load() && ago < keyLease/2 {
		w.broken("one-at-a-time", "process %d takes process %d for dead, which wrote %s %s ago", p.n, o.n, was.Key, ago)
	}
}

// executes notes that the handler of a process begins. mu is held.
func (w *keyWorld) executes(p *keyProcess, r *http.Request, body []byte) *execution {
	m := w.byReference(r.Header.Get("X-Wanted")).as(p.file.stable)
	if m.body != string(body) {
		w.t.Errorf("the handler gets %q of %q", body, m.body)
	}
	w.runs++
	e := &execution{n: w.runs, p: p, of: m, try: r.Header.Get("X-Try"), how: w.way(p.file)}
	e.body = fmt.Sprintf("%s execution %d", m, e.n)
	again := idempotency.Repeated(r.Context())
	if w.kind == kindProxy {
		again = m.again > 0
	}
	m.again = 0
	switch {
	case w.kind != kindProxy && !idempotency.Guarded(r.Context()):
		w.saw("executed without a record")
		if here := slices.ContainsFunc(m.executions, func(e *execution) bool { return e.p == p && !e.over }); here && m.renewedAt == 0 || !p.file.failOpen {
			w.broken("recorded-before-sent", "process %d executes %s without a record, although it knows of it", p.n, m)
		}
		w.unrecorded(p, m)
		m.excused++
		m.bare++
		e.bare = true
	case m.shown != "" && m.bare == 0 && !p.file.repeatable:
		w.broken("kept", "process %d executes %s, which was answered %q", p.n, m, m.shown)
	case p.file.repeatable, again && p.file.crash == idempotency.AfterCrashRetry:
		m.excused++
	case m.another && len(m.executions) == 0 && m.renewedAt == 0 && w.usedBefore(m):
		w.broken("key-reused", "process %d executes %s", p.n, m)
	case m.held && m.excused == 0:
		w.broken("once", "process %d executes %s, and what became of it before is not known to be nothing", p.n, m)
	case m.mayAct() && m.excused == 0:
		w.broken("once", "process %d executes %s beside another execution", p.n, m)
	}
	if rec, err := w.store.Read(context.Background(), m.id); err == nil {
		e.fence = rec.Fence
	}
	m.held = true
	m.executions = append(m.executions, e)
	return e
}

// usedBefore reports whether the key of a request belongs to another one now. mu is held.
func (w *keyWorld) usedBefore(m *wanted) bool {
	for _, o := range w.wanted {
		if o != m && o.client == m.client && o.host == m.host && o.key == m.key && (o.as(m.named).held || time.Now().Before(o.expires)) {
			return true
		}
	}
	return false
}

// effect has an execution do what it was to do. mu is held.
func (w *keyWorld) effect(e *execution) {
	m := e.of.as(e.p.file.stable)
	e.effects++
	m.effects++
	w.note("effect of %s", e)
	if m.effects > 1+m.excused {
		w.broken("once", "%s is effect %d, of which %d are excused", e, m.effects, m.excused)
	}
}

// answered notes what a client was answered. It reports whether that is the last answer. mu is held.
func (w *keyWorld) answered(m *wanted, try string, a *keyAnswer) (last bool) {
	m.as(a.p.file.stable)
	if a.problem != "" {
		return w.problem(m, try, a)
	}
	w.note("%s is answered %d %q, replayed %t", m, a.status, a.body, a.replayed)
	w.saw(fmt.Sprintf("answer: %d, replayed %t", a.status, a.replayed))
	if until, err := http.ParseTime(a.header.Get(idempotency.ExpiresHeader)); err == nil && m.shown == "" {
		m.promised = until
	}
	var of *execution
	for _, e := range m.executions {
		if e.body == a.body {
			of = e
		}
	}
	switch {
	case w.byHand(m, a):
	case a.body == m.String()+" found" && a.status == 201:
		if m.effects == 0 {
			w.broken("truth", "%s is answered that it was found, and has no effect", m)
		}
	case of == nil, of.p.file.stable != a.p.file.stable:
		w.broken("permitted", "%s gets the answer %q", m, a.body)
		return true
	case !w.isWhole(of, a):
	case a.replayed == (of.try == try):
		w.broken("truth", "%s gets the answer of %s, replayed %t", m, of, a.replayed)
	case a.replayed && of.nothing():
		w.broken("kept", "%s gets the answer of %s again, which did nothing", m, of)
	}
	if of != nil && of.nothing() {
		if !a.replayed {
			w.saw("answer: of what did nothing")
		}
		return false
	}
	if of == nil && len(m.hands) > 0 && isByHand(m, a.body) && a.body != m.hands[len(m.hands)-1] {
		return true // it was forgotten meanwhile
	}
	text := fmt.Sprint(a.status, a.body)
	switch {
	case of != nil && of.passes() && !a.replayed: // it is not kept
		return true
	case m.bare == 0 && !w.file.repeatable && m.shown != "" && m.shown != text:
		w.broken("kept", "%s was answered %q, and is answered %q", m, m.shown, text)
	}
	if of == nil || of.n > m.from {
		m.shown = text
	}
	return true
}

// problem notes a refusal. mu is held.
func (w *keyWorld) problem(m *wanted, try string, a *keyAnswer) (last bool) {
	w.note("%s is refused: %d %s", m, a.status, a.problem)
	w.saw("problem: " + string(a.problem))
	var executed *execution
	for _, e := range m.executions {
		if e.try == try {
			executed = e
		}
	}
	switch a.problem {
	case idempotency.KindStoreUnavailable:
		if executed != nil && executed.staged && executed.fenced && executed.effects == 0 && strings.Contains(a.detail, "not executed") {
			executed.denied = true // and stays so
		} else if executed != nil && strings.Contains(a.detail, "not executed") {
			w.broken("truth", "%s is told that it was not executed, by %s", m, executed)
		}
	case idempotency.KindKeyReused, idempotency.KindCallerChanged, idempotency.KindBodyNotStored:
		fenced := executed != nil && executed.over && executed.effects == 0 && a.problem == idempotency.KindBodyNotStored // by another one, after it freed the key
		if executed != nil && !executed.passes() && !fenced && m.excused == 0 {                                           // else it may be said to an owner who is late, too
			w.broken("truth", "%s is refused with %s, after %s", m, a.problem, executed)
		}
	}
	switch a.problem {
	case idempotency.KindKeyReused:
		if !m.another {
			w.broken("truth", "%s is told that another request has its key", m)
		}
		return true
	case idempotency.KindCallerChanged:
		if m.renewedAt == 0 || a.p.file.stable {
			w.broken("truth", "%s is told that another caller made it", m)
		}
	case idempotency.KindBodyNotStored:
		for _, e := range m.executions {
			if e.passes() {
				return true
			}
		}
		if m.halved {
			return true
		}
		w.broken("truth", "%s is told that its answer is not stored", m)
	case idempotency.KindInProgress, idempotency.KindOutcomeUnknown, idempotency.KindStoreUnavailable:
	default:
		if w.kind == kindProxy && w.proxyProblem(m, try, a) {
			return false
		}
		w.broken("explained", "%s is refused with %s", m, a.problem)
	}
	return false
}

// asked notes what a client learns of a reference. mu is held.
func (w *keyWorld) asked(m *wanted, a *keyAnswer) {
	m.as(a.p.file.stable)
	var s idempotency.Status
	if a.status != 200 || json.Unmarshal([]byte(a.body), &s) != nil {
		w.saw(fmt.Sprintf("reference: %d", a.status))
		return
	}
	w.note("%s is told: %s", m, a.body)
	w.saw("reference: " + s.State)
	switch {
	case s.State == "released" && m.effects > 0 && m.excused == 0:
		w.broken("truth", "%s is told that it is released, and it has an effect", m)
	case s.State == "released" && m.held && m.excused == 0:
		w.broken("truth", "%s is told that it is released, and what became of it is not known to be nothing", m)
	case s.State == "done" && s.Answer != nil && s.Answer.Body != nil && !(w.kind == kindProxy && w.isTextOf(m, *s.Answer.Body)) && !w.isOf(m, *s.Answer.Body):
		w.broken("permitted", "%s is told the answer %q", m, *s.Answer.Body)
	}
}

// isOf reports whether an answer is of a request, or of another one of the client under its key. mu is held.
func (w *keyWorld) isOf(m *wanted, body string) bool {
	for _, o := range w.wanted {
		if o.client == m.client && o.host == m.host && o.key == m.key && strings.HasPrefix(body, o.String()+" ") {
			return true
		}
	}
	return false
}

// verify looks at the end.
func (w *keyWorld) verify() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.wanted {
		if m.end == "" {
			w.broken("nothing-lost", "%s has no answer", m)
		}
		for _, e := range m.executions {
			if e.denied && e.effects > 0 {
				w.broken("truth", "%s was told that it was not executed, and it has its effect", m)
			}
		}
	}
}

// keySights are what the seeds of a run have to contain.
func keySights() []string {
	return []string{
		"killed", "killed before a write", "killed after a write", "killed before a handler", "killed after a handler", "store away", "store: is lost", "store: is slow",
		"store: is made, and its answer lost", "edited", "a doubt", "a key is over", "released by a probe", "probe: true", "probe: false", "executed without a record",
		"person: resolves, happened true", "person: resolves, happened false", "person: forgets, happened true",
		"problem: in-progress", "problem: key-reused", "problem: caller-changed", "problem: body-not-stored", "problem: outcome-unknown", "problem: store-unavailable",
		"reference: done", "reference: released", "reference: running", "reference: unknown", "answer: 201, replayed true", "answer: 422, replayed true", "answer: 500, replayed true",
		"client: goes away", "client: twice", "client: comes back", "client: comes back late", "client: another request", "client: renews its credential", "client: asks", "client: asks late", "reference: 404",
	}
}
