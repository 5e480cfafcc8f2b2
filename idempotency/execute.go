package idempotency

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/key"
)

// execute runs the handler as the owner of the key, records what came of it, and
// then shows it. What is true if the process dies here is in the design page.
func (c *exchange) execute() {
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(c.r.Context()))
	defer c.cancel(nil)
	stop := c.keepLease(c.cancel)
	defer stop()
	defer c.g.waiting.wake(c.claim.ID)
	c.g.executing.Store(c.claim.ID, executes)
	defer c.g.executing.CompareAndDelete(c.claim.ID, executes)
	a := newAnswer(c)
	returned := false
	defer func() {
		if returned {
			return
		}
		p := recover()
		if !c.aborted(a, p) && p != nil {
			panic(p)
		}
	}()
	c.next.ServeHTTP(a, c.request(context.WithValue(c.ctx, callKey{}, c)))
	returned = true
	c.finish(a)
}

// callKey is the key of a call in its handler's context.
type callKey struct{}

// A declaration is what the handler itself says about its outcome.
type declaration struct {
	evidence key.Evidence // key.Nothing or key.Unsure; empty: it said nothing
	status   int          // of the problem that replaces the answer; 0: none does
}

// Release declares, by a handler, that nothing was done which must not be repeated:
// its answer is sent but not kept, and the key is free again, or in doubt as it was before with
// AfterCrashRetry. Outside a guarded request it does nothing.
func Release(ctx context.Context) { declare(ctx, declaration{evidence: key.Nothing}) }

// Doubt declares, by a handler, that it can't tell whether its effect happened. Its
// answer is replaced by an outcome-unknown problem of that status, such as 502
// or 504 (502 if it is not that of an error), and the key waits for a probe or a person. Outside a guarded request it
// does nothing.
func Doubt(ctx context.Context, status int) {
	if status < 400 || status > 599 {
		status = http.StatusBadGateway
	}
	declare(ctx, declaration{evidence: key.Unsure, status: status})
}

// EndsWithConnection declares, by a handler that passes an answer on, that nothing but the
// end of a connection told it that the answer ends: it may have been cut off. It is
// shown, and kept only if it is complete JSON of a type that has one value. Outside a guarded request it does
// nothing.
func EndsWithConnection(ctx context.Context) {
	if c, ok := ctx.Value(callKey{}).(*exchange); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.endless = true
	}
}

// mayBeCut reports whether an answer may be the beginning of a longer one.
func (c *exchange) mayBeCut(a *response) bool {
	c.mu.Lock()
	endless := c.endless
	c.mu.Unlock()
	return endless && mayBeHalf(a.sent.Get("Content-Type"), a.buf)
}

// mayBeHalf reports whether a text does not show where it ends. A number may be half of
// one, so JSON is complete if it has an end of its own, and is of a type that has no more after it: one line
// of several is complete, too.
func mayBeHalf(contentType string, text []byte) bool {
	media, _, _ := mime.ParseMediaType(contentType)
	switch {
	case media == "", media == "application/json":
	case !strings.HasSuffix(media, "+json"), strings.HasSuffix(media, "stream+json"):
		return true
	}
	text = bytes.TrimSpace(text)
	return len(text) == 0 || !bytes.Contains([]byte(`{["`), text[:1]) || !json.Valid(text)
}

// Guarded reports whether ctx is of a handler that is executed as the owner of a
// key. Release and Doubt only have an effect there.
func Guarded(ctx context.Context) bool {
	_, ok := ctx.Value(callKey{}).(*exchange)
	return ok
}

// Repeated reports whether ctx is of a repeatable request, or one of a route that retries, that was begun before and has no answer.
func Repeated(ctx context.Context) bool {
	c, ok := ctx.Value(callKey{}).(*exchange)
	return ok && c.repeated
}

func declare(ctx context.Context, d declaration) {
	if c, ok := ctx.Value(callKey{}).(*exchange); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.declared = d
	}
}

func (c *exchange) declaration() declaration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.declared
}

// finish records the outcome of a handler that returned, and shows its answer.
func (c *exchange) finish(a *response) {
	a.end()
	switch {
	case a.mode == streaming && c.isShown():
		c.endStream(a)
		return
	case a.mode != buffering:
		c.observeShown(a)
		return
	}
	switch evidence, status := c.meaningOf(a); evidence {
	case key.Unsure:
		c.giveUp(a, status)
	case key.Nothing:
		c.letGo(a)
	default:
		c.keepAnswer(a)
	}
}

// meaning returns what an answer says about the request, and the status of the
// problem that replaces it if that is doubt. What the handler itself declared
// counts more than a status.
func (c *exchange) meaning(status int) (key.Evidence, int) {
	if said := c.declaration(); said.evidence != "" {
		return said.evidence, said.status
	}
	evidence := key.Meaning(status, c.policy(), c.rt.NotExecuted)
	if evidence == key.Unsure {
		evidence = c.unsure()
	}
	return evidence, status
}

// policy returns that of the route, or of a request that may be executed again.
func (c *exchange) policy() key.Policy {
	if c.claim.Repeatable {
		return key.Retry5xx
	}
	return c.rt.Policy
}

// meaningOf is meaning for a whole answer, of which more is known than its status.
func (c *exchange) meaningOf(a *response) (key.Evidence, int) {
	evidence, status := c.meaning(a.status)
	switch kind := ownProblem(a); {
	case c.declaration().evidence != "":
	case evidence == key.Answered && a.isShort():
		return c.unsure(), http.StatusBadGateway
	case kind == KindInProgress: // of another guard, which knows more later
		return key.Nothing, status
	case kind == KindOutcomeUnknown:
		return c.unsure(), status
	}
	return evidence, status
}

// unsure returns what it means that nobody knows how far a handler came. All that one of
// an atomic route does is in its transaction, which is not committed then.
func (c *exchange) unsure() key.Evidence {
	if c.rt.Atomic {
		return key.Nothing
	}
	return key.Unsure
}

// keepAnswer records a whole answer, then shows it.
func (c *exchange) keepAnswer(a *response) {
	f := key.Fact{Evidence: key.Answered, By: "owner",
		Answer: key.Answer{Status: a.status, Header: key.EncodeFields(a.kept()), Body: a.buf}}
	if c.mayBeCut(a) {
		f = key.Fact{Evidence: key.Streamed, By: "owner", Answer: key.Answer{Status: a.status}}
	}
	err := c.settle(f)
	if errors.Is(err, errUnkept) { // whoever starts next will not know of it: its client must
		c.logUnsettled(err)
		a.show()
		c.observe(OutcomeUnprotected, "", a.status)
		return
	}
	if err != nil {
		c.withhold(a, err)
		return
	}
	a.header.Set(ExpiresHeader, expires(c.rec))
	a.show()
	c.observe(OutcomeExecuted, "", a.status)
}

// letGo frees the key, then shows the answer.
func (c *exchange) letGo(a *response) {
	err := c.settle(key.Fact{Evidence: key.Nothing, By: "owner"})
	if errors.Is(err, key.ErrFenced) {
		c.withhold(a, err)
		return
	}
	if err != nil {
		// The answer says "not now", which stays true: the key is held until the
		// lease ends, and then in doubt.
		c.logUnsettled(err)
	}
	a.show()
	if c.current().State == key.Unknown { // as an attempt before left it
		c.observe(OutcomeDoubt, "", a.status)
		return
	}
	c.observe(OutcomeReleased, "", a.status)
}

// giveUp records a doubt, then says so instead of what the handler wrote.
func (c *exchange) giveUp(a *response, status int) {
	err := c.settle(key.Fact{Evidence: key.Unsure, By: "owner"})
	if errors.Is(err, key.ErrFenced) {
		c.withhold(a, err)
		return
	}
	a.discard()
	if err != nil {
		c.logUnsettled(err) // the end of the lease says the same, later
	}
	c.rt.origins.allow(c.r.Header.Get("Origin"), c.w.Header())
	c.outcomeUnknown(c.claim.ID, status).ServeHTTP(c.w, c.r)
	c.observe(OutcomeDoubt, KindOutcomeUnknown, status)
}

// aborted records the outcome of a handler that panicked with p, or ended its
// goroutine. It reports whether the request is answered: a handler that declared
// a doubt before it gave up has an answer, any other panic is passed on.
func (c *exchange) aborted(a *response, p any) (answered bool) {
	said := c.declaration()
	shown := c.isShown()
	if a.mode != buffering && !shown {
		c.observeShown(a)
		return false
	}
	if said.evidence == key.Unsure && p == http.ErrAbortHandler && !shown {
		c.giveUp(a, said.status)
		return true
	}
	e := key.Fact{Evidence: key.Unsure, By: "owner"}
	switch {
	case said.evidence == key.Nothing:
		e.Evidence = key.Nothing
	case shown && (said.evidence == key.Unsure || key.Meaning(a.status, c.policy(), c.rt.NotExecuted) == key.Answered):
		e.Evidence = c.unsure() // its client saw that it worked
	case c.policy() == key.Retry5xx || c.rt.Atomic:
		e.Evidence = key.Nothing
	}
	if err := c.settle(e); err != nil {
		c.logUnsettled(err)
	}
	c.observe(OutcomeDoubt, "", 0)
	return false
}

// settle records how the request ended. It returns nil when that is durable, an
// error that is key.ErrFenced when another owner has the key, errUndone when the
// handler's transaction was lost, errUnkept when the database was replaced, and any other
// when the store does not take it.
func (c *exchange) settle(e key.Fact) error {
	ctx, cancel := c.g.inTime(context.WithoutCancel(c.r.Context()), "complete idempotency key")
	defer cancel()
	c.mu.Lock()
	tx := c.tx
	c.tx, c.settled = nil, true
	c.mu.Unlock()
	worked := e.Evidence == key.Answered || e.Evidence == key.Streamed
	var err error
	if tx != nil && worked && e.Answer.Status < 500 {
		err = c.settleTx(ctx, tx, e)
	} else {
		err = c.settleWithout(ctx, tx, e)
	}
	harmless := e.Evidence == key.Nothing && (c.claim.Repeatable || c.current().Doubts == 0) // an attempt before may have done it
	if err != nil && !harmless && !errors.Is(err, key.ErrFenced) && !errors.Is(err, errUndone) {
		c.g.executing.Store(c.claim.ID, unsettled)
	}
	return err
}

// settleWithout records the outcome without what the handler did in its transaction, if it had one.
func (c *exchange) settleWithout(ctx context.Context, tx key.Tx, e key.Fact) error {
	if tx != nil {
		if err := tx.Rollback(); err != nil {
			c.logUnsettled(err) // the store ends it with the connection
		}
	}
	err := c.settlePlain(ctx, e)
	if errors.Is(err, keep.ErrReplaced) {
		err = errors.Join(errUnkept, err)
	}
	return err
}

// settlePlain writes the record until it is stored or refused.
func (c *exchange) settlePlain(ctx context.Context, e key.Fact) error {
	rec := c.current()
	e.Fence = rec.Fence
	for pause := 20 * time.Millisecond; ; pause *= 2 {
		next, err := key.Apply(rec, e, c.g.clock.now())
		if err != nil {
			return err
		}
		if err = c.write(ctx, next); err == nil {
			next.Rev++
			c.setCurrent(next)
			return nil
		}
		if errors.Is(err, keep.ErrReplaced) {
			return err // what is read now is what nobody else will read
		}
		// Whatever the error was, the record says what is true: it may be stored,
		// it may have been renewed beside us, it may be somebody else's.
		now, readErr := c.read(ctx)
		if readErr == nil && same(now, next) {
			c.setCurrent(now)
			return nil
		}
		if readErr == nil {
			rec = now
		}
		if (readErr != nil || !errors.Is(err, keep.ErrStale)) && !rest(ctx, pause) {
			return err
		}
	}
}

// same reports whether now is next after it was stored.
func same(now, next key.Record) bool {
	return now.Fence == next.Fence && now.Rev == next.Rev+1 && now.State == next.State
}

func (c *exchange) current() key.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rec
}

func (c *exchange) setCurrent(r key.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rec = r
}

// rest waits for d, or reports false if ctx ends first.
func rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// withhold answers an owner whose answer is not recorded: what it would show
// could not be replayed.
func (c *exchange) withhold(a *response, err error) {
	a.discard()
	if errors.Is(err, errUndone) {
		c.unavailable(err)
		return
	}
	if !errors.Is(err, key.ErrFenced) {
		c.logUnsettled(err)
		c.observe(OutcomeWithheld, KindOutcomeUnknown, http.StatusServiceUnavailable)
		c.outcomeUnknown(c.claim.ID, http.StatusServiceUnavailable).ServeHTTP(c.w, c.r)
		return
	}
	c.g.cfg.Logger.WarnContext(c.r.Context(), "idempotency key: late answer fenced", "key", c.claim.ID.String(), "route", c.rt.name)
	c.observe(OutcomeFenced, "", 0)
	// The other owner's answer is the one that counts.
	ctx, done := c.g.inTime(context.WithoutCancel(c.r.Context()), "read idempotency key")
	defer done()
	rec, err := c.read(ctx)
	if err != nil {
		c.outcomeUnknown(c.claim.ID, http.StatusServiceUnavailable).ServeHTTP(c.w, c.r)
		return
	}
	switch key.Classify(rec, c.claimAt(rec), c.g.clock.now()) {
	case key.Replay:
		c.replay(rec)
	case key.NoBody:
		c.bodyNotStored(rec).ServeHTTP(c.w, c.r)
	case key.Busy, key.LateLease, key.Repeat:
		c.inProgress().ServeHTTP(c.w, c.r)
	default:
		c.outcomeUnknown(c.claim.ID, http.StatusConflict).ServeHTTP(c.w, c.r)
	}
}

func (c *exchange) logUnsettled(err error) {
	c.g.cfg.Logger.ErrorContext(c.r.Context(), "idempotency key: outcome not recorded",
		"key", c.claim.ID.String(), "route", c.rt.name, "err", err)
}

// keepLease renews the lease until the function that it returns is called, which
// ends a renewal under way, and waits for that. The timer costs nothing until it fires.
func (c *exchange) keepLease(cancel context.CancelCauseFunc) (stop func()) {
	var renewing sync.WaitGroup
	every := c.g.cfg.Lease / 3
	var timer *time.Timer
	var mu sync.Mutex // protects stopped, and end and the start of a renewal
	stopped, end := false, func() {}
	mu.Lock()
	timer = time.AfterFunc(every, func() {
		mu.Lock()
		if stopped {
			mu.Unlock()
			return
		}
		renewing.Add(1)
		ctx, done := context.WithTimeout(context.WithoutCancel(c.r.Context()), c.g.cfg.Lease/3)
		end = done
		mu.Unlock()
		defer renewing.Done()
		defer done()
		switch again, err := c.renew(ctx, cancel); {
		case again && err != nil:
			timer.Reset(c.g.cfg.Lease / 10) // it has to be stored before the lease ends
		case again:
			timer.Reset(every)
		}
	})
	mu.Unlock()
	return func() {
		mu.Lock()
		stopped = true
		end()
		mu.Unlock()
		timer.Stop()
		renewing.Wait()
	}
}

// renew says that the owner is alive, and reports whether to say so again, at once if that is not stored.
//
// It does not hold c.mu while it writes: the handler's transaction may hold the
// store, and only settle ends that.
func (c *exchange) renew(ctx context.Context, cancel context.CancelCauseFunc) (again bool, err error) {
	c.mu.Lock()
	rec, settled := c.rec, c.settled
	c.mu.Unlock()
	if settled {
		return false, nil
	}
	if err := c.g.follow(ctx); err != nil {
		return true, err
	}
	next, err := key.Apply(rec, key.Fact{Evidence: key.Renewed, Fence: rec.Fence, Lease: c.g.cfg.Lease}, c.g.clock.now())
	if err == nil {
		err = c.g.store.Write(ctx, next)
		c.g.notice(ctx, err)
		// Where the database was replaced, another process may have it open still, or find it put back.
		if err == nil || errors.Is(err, keep.ErrReplaced) {
			next.Rev++
			rec = next
		} else if now, readErr := c.g.store.Read(ctx, rec.ID); readErr == nil {
			rec = now
			_, err = key.Apply(rec, key.Fact{Evidence: key.Renewed, Fence: next.Fence}, c.g.clock.now())
		}
	}
	if errors.Is(err, key.ErrFenced) {
		cancel(key.ErrFenced)
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settled {
		return false, nil
	}
	c.rec = rec
	return true, err
}
