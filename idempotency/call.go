package idempotency

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/dbclock"
	"github.com/keep-run/keep/internal/room"
	"github.com/keep-run/keep/law/key"
)

// An exchange is one guarded request on its way.
type exchange struct {
	g        *Guard
	rt       *route
	w        http.ResponseWriter
	r        *http.Request
	next     http.Handler
	body     []byte
	bodyRead bool
	claim    key.Claim
	own      key.Claim // what claim was before it stood on a record of version 1
	started  time.Time
	store    time.Duration // spent waiting for the store, outside the handler
	memory   *room.Place   // what it has of the guard's: lent until its body is there, then kept
	held     int64         // bytes of it
	seen     bool          // the observer was called
	repeated bool          // the key was taken over from an execution without an answer
	refused  bool          // the store did not take the key: somebody has it, perhaps under another name
	begun    bool          // by another request: this one is never executed without a record
	deadline bool          // the server or the handler bounds the time in which an answer is read

	ctx    context.Context // of the handler: execute makes it
	cancel context.CancelCauseFunc

	beginning sync.Mutex // held while the handler's transaction is begun; taken before mu

	// mu protects the fields below: the lease is renewed beside the handler.
	mu       sync.Mutex
	rec      key.Record // as this owner wrote it last
	settled  bool       // the outcome is recorded; nothing is left to renew
	declared declaration
	endless  bool   // nothing but the end of the connection ends the answer
	tx       key.Tx // the handler's transaction; nil if it has none
	shown    bool   // the answer has begun, and is not recorded
}

// newExchange returns the exchange of a request that a route is about.
func (g *Guard) newExchange(w http.ResponseWriter, r *http.Request, rt *route) *exchange {
	return &exchange{g: g, rt: rt, w: w, r: r, started: time.Now(), deadline: hasWriteTimeout(r), memory: g.memory.PlaceOf("", w, r)}
}

// maxRounds is how often a call looks again because another caller was first. It
// is far more than ever happens; it keeps a broken store from spinning.
const maxRounds = 1000

// serve takes the key if it is free, or else looks at its record and does what the
// law says, until that is done.
func (c *exchange) serve() {
	rec, over := c.first()
	for range maxRounds {
		if over || c.follow(rec) {
			return
		}
		var err error
		if rec, err = c.find(c.r.Context()); err != nil {
			c.storeDown(err)
			return
		}
	}
	c.unavailable(errors.New("the record does not come to rest"))
}

// first returns the record of the key. If there is none and the store can tell so by
// taking the key, it executes the request as well, and the call is over.
func (c *exchange) first() (rec key.Record, over bool) {
	err := context.Cause(c.r.Context()) // a client that left already needs nothing
	if err == nil {
		err = c.g.follow(c.r.Context())
	}
	if taker, ok := c.g.store.(Taker); ok && err == nil {
		return c.begin(key.Record{}, key.Begun, taker.Take)
	}
	if err == nil {
		ctx, done := c.g.inTime(c.r.Context(), "read idempotency key")
		defer done()
		rec, err = c.read(ctx)
	}
	if err != nil {
		c.storeDown(err)
	}
	return rec, err != nil
}

// inTime returns a context that ends with ctx, or when the store took too long for what a request wants of it.
func (g *Guard) inTime(ctx context.Context, what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, g.cfg.StoreTimeout, &keep.TimeoutError{Op: what, After: g.cfg.StoreTimeout})
}

// find returns the record that stands for the request: the one of its key, else a
// live one that this caller made under its former name, else a live one of the same
// request of another caller. The last two are looked for when the store refused to
// take a key that seemed free.
func (c *exchange) find(ctx context.Context) (key.Record, error) {
	ctx, done := c.g.inTime(ctx, "read idempotency key")
	defer done()
	if err := c.g.follow(ctx); err != nil {
		return key.Record{}, err
	}
	rec, err := c.read(ctx)
	now := c.g.clock.now()
	if err != nil || !c.refused || !key.Free(rec, now) {
		return rec, err
	}
	defer c.timed(time.Now())
	if c.claim.Former != c.claim.ID {
		former, err := c.g.store.Read(ctx, c.claim.Former)
		if err != nil {
			return rec, err
		}
		if !key.Free(former, now) {
			c.own = c.claim
			c.claim.ID, c.claim.Alias = c.claim.Former, key.ID{} // it stays what it is
			return former, nil
		}
	}
	if c.claim.Alias == (key.ID{}) {
		return rec, nil
	}
	other, err := c.g.store.ReadAlias(ctx, c.claim.Alias, now)
	if err != nil || key.Free(other, now) {
		return rec, err
	}
	return other, nil
}

// claimAt returns the claim with the fingerprint that rec can be compared with: its route may have had another Form when
// it was made, and a retry of then is no other request for that.
func (c *exchange) claimAt(rec key.Record) key.Claim {
	claim := c.claim
	for _, form := range []key.Form{{}, {CanonicalJSON: true}} {
		if rec.Fingerprint == claim.Fingerprint || rec.Fingerprint == key.Any || key.Free(rec, c.g.clock.now()) {
			break
		}
		if f := fingerprint(c.r, c.body, form); f == rec.Fingerprint {
			claim.Fingerprint = f
		}
	}
	return claim
}

// follow does what the law says about rec. It reports whether the call is over; if
// not, the record is to be looked at again.
func (c *exchange) follow(rec key.Record) (over bool) {
	now := c.g.clock.now()
	c.begun = c.begun || !key.Free(rec, now)
	_, here := c.g.executing.Load(rec.Fence)
	switch key.Classify(rec, c.claimAt(rec), now) {
	case key.Run:
		if c.claim.ID == c.claim.Former { // which is over now: others take the name of their own
			c.claim = c.own
			return false
		}
		return c.takeOver(rec, key.Begun)
	case key.LateLease:
		if here { // the clock was set forward, or the store does not take a renewal
			return c.waited()
		}
		return c.learned(c.learn(rec, key.Fact{Evidence: key.LeaseEnded, By: "lease"}))
	case key.Repeat:
		if !here {
			return c.takeOver(rec, key.NewAttempt)
		}
		return c.waited()
	case key.Busy:
		return c.waited()
	case key.InDoubt:
		if here { // others saw no renewal of it, as while the store was away, or their clock is ahead
			return c.waited()
		}
		return c.doubtful(rec)
	case key.Replay:
		c.replay(rec)
	case key.NoBody:
		c.refuse(c.bodyNotStored(rec))
	case key.CallerChanged:
		c.refuse(c.callerChanged(rec))
	default:
		c.refuse(Problem{Kind: KindKeyReused, Status: http.StatusUnprocessableEntity,
			Detail: "The key was used for a request with another method, path, query or body. The first answer is kept; use a new key for a new request."})
	}
	return true
}

// waited waits for an owner. It reports whether the call is over: there is no time left to wait.
func (c *exchange) waited() (over bool) {
	if c.wait() {
		return false
	}
	c.refuse(c.inProgress())
	return true
}

// doubtful deals with a record whose outcome is unknown: asks the probe, or runs
// once more if the route allows it. It reports whether the call is over; if not,
// the record is to be looked at again.
func (c *exchange) doubtful(rec key.Record) (over bool) {
	if c.rt.AfterCrash == AfterCrashRetry && rec.Doubts <= key.MaxDoubts && c.rt.Probe == nil {
		return c.takeOver(rec, key.NewAttempt)
	}
	if c.rt.Probe != nil {
		switch answer, err := c.probe(rec); answer {
		case found:
			return c.learned(err)
		case cannotTell:
			if c.rt.AfterCrash == AfterCrashRetry && rec.Doubts <= key.MaxDoubts {
				return c.takeOver(rec, key.NewAttempt)
			}
		}
	}
	c.refuse(c.outcomeUnknown(rec.ID, http.StatusConflict))
	return true
}

// takeOver takes a key that has a record and executes the request. It reports false
// if another caller was first.
func (c *exchange) takeOver(rec key.Record, how key.Evidence) bool {
	_, over := c.begin(rec, how, func(ctx context.Context, next key.Record) (key.Record, error) {
		return key.Record{}, c.g.store.Write(ctx, next)
	})
	return over
}

// begin takes the key and executes the request. If another caller was first, the call
// is not over; then it may return what is there.
func (c *exchange) begin(rec key.Record, how key.Evidence, take func(context.Context, key.Record) (key.Record, error)) (there key.Record, over bool) {
	if err := c.g.lost(); err != nil {
		c.storeDown(err)
		return rec, true
	}
	if known, _ := c.g.executing.Load(c.claim.ID); known == bare {
		c.refuse(Problem{Kind: KindInProgress, Status: http.StatusConflict, RetryAfter: time.Second,
			Detail: "Request is being processed, without a record, since there was no store. Ask again with the same key and the same request."})
		return rec, true
	}
	since := time.Now() // before the time of the record: how late that is stored counts from here
	next, err := key.Apply(rec, key.Fact{Evidence: how, Fence: newFence(), Claim: c.claim, Lease: c.g.cfg.Lease}, c.g.clock.now())
	if err != nil {
		return rec, false // the time moved on between two looks
	}
	c.repeated = how == key.NewAttempt || c.claim.Repeatable && rec.State == key.Released // as by the end of its lease
	c.g.executing.Store(next.Fence, nil)
	defer c.g.executing.Delete(next.Fence)
	// A client that leaves now must not leave doubt whether the key is taken.
	ctx, cancel := c.g.inTime(context.WithoutCancel(c.r.Context()), "take idempotency key")
	defer cancel()
	there, err = take(ctx, next)
	c.timed(since)
	c.g.notice(ctx, err)
	if errors.Is(err, keep.ErrStale) || there.Rev > 0 {
		c.refused, c.begun = true, c.begun || err != nil
		return there, false
	}
	if err != nil {
		now, took := c.whoHas(ctx, next)
		if !took && how == key.Begun && now.Rev > 0 {
			return now, false
		}
		if !took {
			c.storeDown(err)
			return now, true
		}
	}
	c.owns(next, since, err)
	return there, true
}

// owns executes the request with a key that was taken, unless that was stored where nobody will look, or too long ago since when.
func (c *exchange) owns(next key.Record, since time.Time, err error) {
	next.Rev++
	next.Former = key.ID{} // from now on it is this record that stands for the request
	c.rec = next
	switch {
	case errors.Is(err, keep.ErrReplaced):
	case dbclock.Passed(since, time.Now()) >= min(c.g.cfg.StoreTimeout, c.g.cfg.Lease):
		err = errTakenLate
	default:
		c.execute()
		return
	}
	_ = c.settle(key.Fact{Evidence: key.Nothing, By: "owner"}) // if it is lost, the end of the lease makes it unknown
	c.unavailable(err)
}

// whoHas returns whether a key that could not be taken is taken all the same: then it must not be left behind. In a
// database that was replaced it is stored where nobody will look, unless it is put back. If not, it returns the live record that there is: a store
// that takes no writes may know what became of the request.
func (c *exchange) whoHas(ctx context.Context, next key.Record) (now key.Record, took bool) {
	c.refused = true
	now, err := c.find(context.WithoutCancel(ctx))
	if err != nil || key.Free(now, c.g.clock.now()) {
		return key.Record{}, false
	}
	return now, now.Fence == next.Fence
}

// errTakenLate says that a process, or its store, stood still between taking a key and executing the
// request: others may have found meanwhile that it did not happen.
var errTakenLate = errors.New("the key was taken too long ago for the request to be executed")

// learn records what was found out about rec by others than its owner. It is no error that rec says so no more.
func (c *exchange) learn(rec key.Record, e key.Fact) error {
	next, err := key.Apply(rec, e, c.g.clock.now())
	if err != nil {
		return nil
	}
	ctx, done := c.g.inTime(c.r.Context(), "move idempotency key")
	defer done()
	if err := c.write(ctx, next); errors.Is(err, keep.ErrStale) {
		return nil
	} else if err != nil {
		return err
	}
	if next.State == key.Unknown {
		c.g.cfg.Logger.WarnContext(c.r.Context(), "idempotency key: outcome unknown",
			"key", rec.ID.String(), "route", c.rt.name, "why", string(e.Evidence))
	}
	c.g.waiting.wake(rec.ID)
	return nil
}

// learned deals with what came of learn: the record is looked at again, or the store takes nothing now, and the call is over.
func (c *exchange) learned(err error) (over bool) {
	if err != nil {
		c.unavailable(err)
	}
	return err != nil
}

// read and write are the store's, timed.
func (c *exchange) read(ctx context.Context) (key.Record, error) {
	defer c.timed(time.Now())
	return c.g.store.Read(ctx, c.claim.ID)
}

func (c *exchange) write(ctx context.Context, r key.Record) error {
	defer c.timed(time.Now())
	err := c.g.store.Write(ctx, r)
	c.g.notice(ctx, err)
	return err
}

func (c *exchange) timed(since time.Time) { c.store += time.Since(since) }

// storeDown deals with a request that could not be recorded: executes it without
// a record if the route prefers that and nobody is known to have begun it, else refuses it. A database that was replaced is not
// down: its records are lost.
func (c *exchange) storeDown(err error) {
	open, here := c.rt.FailOpen && !c.begun && c.r.Context().Err() == nil && c.g.lost() == nil, false
	if open {
		_, here = c.g.executing.LoadOrStore(c.claim.ID, bare)
	} else {
		_, here = c.g.executing.Load(c.claim.ID)
	}
	if c.begun = c.begun || here; !open || here {
		c.unavailable(err)
		return
	}
	defer c.g.executing.CompareAndDelete(c.claim.ID, bare)
	c.g.cfg.Logger.ErrorContext(c.r.Context(), "idempotency store: not available, executing without a record",
		"key", c.claim.ID.String(), "route", c.rt.name, "err", err)
	c.observe(OutcomeUnprotected, "", 0)
	c.next.ServeHTTP(c.w, c.request(c.r.Context()))
}

// unavailable refuses a request that the store could not help with.
func (c *exchange) unavailable(err error) {
	if c.r.Context().Err() == nil { // else the client left, which is no news
		c.g.cfg.Logger.ErrorContext(c.r.Context(), "idempotency store: not available",
			"key", c.claim.ID.String(), "route", c.rt.name, "err", err)
	}
	p := Problem{Kind: KindStoreUnavailable, Status: http.StatusServiceUnavailable, RetryAfter: time.Second,
		Detail: "The request could not be recorded, so it was not executed. Send it again with the same key."}
	if c.begun {
		p.Reference = c.claim.ID.String()
		p.Detail = "The request was begun before, and what became of it cannot be read or recorded now. It was not executed again. Send it again with the same key."
	}
	c.refuse(p)
}

// refuse answers with a problem.
func (c *exchange) refuse(p Problem) {
	c.observe(OutcomeRefused, p.Kind, p.Status)
	c.rt.origins.allow(c.r.Header.Get("Origin"), c.w.Header())
	p.ServeHTTP(c.w, c.r)
}

// observe tells the observer, once.
func (c *exchange) observe(o Outcome, k Kind, status int) {
	if c.g.cfg.Observe == nil || c.seen {
		return
	}
	c.seen = true
	c.g.cfg.Observe(c.r.Context(), Observation{Route: c.rt.name, Outcome: o, Kind: k, Status: status,
		Elapsed: time.Since(c.started), Store: c.store})
}

func (c *exchange) inProgress() Problem {
	return c.about(c.claim.ID, Problem{Kind: KindInProgress, Status: http.StatusConflict, RetryAfter: time.Second,
		Detail: "Request is being processed. Ask again with the same key and the same request."})
}

func (c *exchange) outcomeUnknown(id key.ID, status int) Problem {
	p := Problem{Kind: KindOutcomeUnknown, Status: status,
		Detail: "The request was begun and nobody knows whether it was done. It will not be executed again until that is known. Do not repeat it under another key; ask with the reference."}
	if c.claim.Repeatable {
		p.RetryAfter = time.Second
		p.Detail = "The request was begun and nobody knows whether it was done. Send it again with the same key: it may be executed again, and its effect is there once."
	}
	return c.about(id, p)
}

func (c *exchange) callerChanged(rec key.Record) Problem {
	p := Problem{Kind: KindCallerChanged, Status: http.StatusConflict,
		Detail: "The same request was made under this key with other credentials. It was not executed again, and its answer is not shown. If your credentials were renewed, retry with those of the first request; whoever runs this service can give the route a caller that stays."}
	if c.rt.Holder == nil {
		return p
	}
	p.Detail = "The same request was made under this key with another credential of this name. It was not executed again, and its answer is not shown. If the credential was renewed, look at what became of the first request; if this is another request, give it a key of its own."
	return c.about(rec.ID, p)
}

func (c *exchange) bodyNotStored(rec key.Record) Problem {
	return c.about(rec.ID, Problem{Kind: KindBodyNotStored, Status: http.StatusConflict, OriginalStatus: rec.Answer.Status,
		Detail: "The request was executed, and its answer is not kept: it was too long, a stream, or had no end but the end of its connection. It was not executed again."})
}

// about adds to a problem which request it is about, and where its caller asks.
func (c *exchange) about(id key.ID, p Problem) Problem {
	p.Reference = id.String()
	if c.g.cfg.Instance != "" {
		p.Instance = c.g.cfg.Instance + p.Reference
	}
	return p
}
