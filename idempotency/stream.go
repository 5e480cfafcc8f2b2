package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"time"

	"github.com/keep-run/keep/law/key"
)

// afterLeft is how long a handler is not told that the client of its stream left. The
// context of a handler does not end with its client, so that the work is done and recorded;
// a write that fails would end it all the same. One that streams, or waits, forever is told then.
const afterLeft = time.Minute

// errLeft is why the context of a handler ends whose client left long ago, and what Write
// returns to it. It may have stopped in the middle.
var errLeft = errors.New("idempotency: the client has left")

// stream passes on what there is of the answer, and all that follows. What came of the
// request is recorded when the handler returns: until then a retry is told that it is
// being processed, and if the process dies in between, the outcome is unknown. What the
// handler wrote in a transaction, and a connection that changes its protocol, is recorded
// before the first byte.
func (a *response) stream() {
	if !a.c.show(a.status) {
		if err := a.c.settleStream(a.status); err != nil {
			a.c.withhold(a, err)
			return
		}
	}
	a.mode = streaming
	a.c.endAfterClient()
	if rec := a.c.current(); rec.State == key.DoneWithoutBody {
		a.sent.Set(ExpiresHeader, expires(rec))
	}
	a.putHeaders(a.sent)
	exposeHeaders(a.w.Header())
	a.w.WriteHeader(a.status)
	a.passed = int64(len(a.buf))
	a.c.send(a.buf) // the next write reports its error
	a.drop()
}

// endAfterClient ends the handler of a stream afterLeft after its client: one that writes nothing
// would hold the key and its memory for as long as it waits.
func (c *exchange) endAfterClient() {
	stop := context.AfterFunc(c.r.Context(), func() {
		if rest(c.ctx, afterLeft) {
			c.cancel(errLeft)
		}
	})
	context.AfterFunc(c.ctx, func() { stop() })
}

// show notes that the answer begins, and reports whether it does so unrecorded.
func (c *exchange) show(status int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown = c.tx == nil && status != http.StatusSwitchingProtocols
	return c.shown
}

// isShown reports whether the answer has begun and is not recorded.
func (c *exchange) isShown() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shown
}

// pass sends a part of a stream.
func (a *response) pass(p []byte) (int, error) {
	if a.left.IsZero() {
		n := 0
		err := a.timed(func() (err error) {
			n, err = a.w.Write(p)
			return err
		})
		if err == nil || errors.Is(err, http.ErrContentLength) {
			a.passed += int64(n)
			return n, err
		}
		a.left = time.Now()
	}
	if time.Since(a.left) > afterLeft {
		a.c.cancel(errLeft)
		return 0, errLeft
	}
	a.passed += int64(len(p))
	return len(p), nil
}

// timed writes to the client, which has as long for each part as for one of another answer: one
// that does not read would hold the key for as long as the process lives.
func (a *response) timed(write func() error) error {
	if a.c.deadline {
		return write()
	}
	conn := http.NewResponseController(a.w)
	_ = conn.SetWriteDeadline(time.Now().Add(a.c.g.cfg.BodySilence)) // not on every connection
	defer func() { _ = conn.SetWriteDeadline(time.Time{}) }()
	return write()
}

// isShort reports whether the handler announced a longer answer than it wrote: one that
// passes another's answer on, which was cut off.
func (a *response) isShort() bool {
	return bodyAllowed(a.status) && a.length > max(a.passed, int64(len(a.buf)))
}

// endStream records what came of a request whose answer was shown meanwhile.
func (c *exchange) endStream(a *response) {
	e, _ := c.meaning(a.status)
	c.mu.Lock()
	endless := c.endless
	c.mu.Unlock()
	switch {
	case e != key.Answered:
	case context.Cause(c.ctx) == errLeft, a.isShort(), endless:
		e = c.unsure()
	default:
		e = key.Streamed
	}
	if err := c.settle(key.Fact{Evidence: e, By: "owner", Answer: key.Answer{Status: a.status}}); err != nil {
		c.logUnsettled(err) // the end of the lease says that it is unknown
	}
	if e == key.Unsure {
		c.observe(OutcomeDoubt, "", a.status)
		return
	}
	c.observeShown(a)
}

// settleStream records that the answer's first byte is about to be shown and
// that the rest is not kept.
func (c *exchange) settleStream(status int) error {
	e := key.Fact{Evidence: key.Streamed, By: "owner", Answer: key.Answer{Status: status}}
	if status != http.StatusSwitchingProtocols {
		if evidence, _ := c.meaning(status); evidence != key.Answered {
			e = key.Fact{Evidence: evidence, By: "owner"}
		}
	}
	return c.settle(e)
}

// observeShown tells what became of an answer that was passed through.
func (c *exchange) observeShown(a *response) {
	if a.mode == hijacked {
		c.observe(OutcomeStreamed, "", http.StatusSwitchingProtocols)
		return
	}
	c.observe(OutcomeStreamed, "", a.status)
}

// ownProblem returns the kind of an answer that another guard gave, which the handler
// stands before; empty: it is no problem of a guard.
func ownProblem(a *response) Kind {
	media, _, _ := mime.ParseMediaType(a.sent.Get("Content-Type"))
	var p struct{ Type string }
	if a.status < 400 || media != "application/problem+json" || json.Unmarshal(a.buf, &p) != nil {
		return ""
	}
	for _, k := range []Kind{KindInProgress, KindOutcomeUnknown} {
		if p.Type == ProblemBase+string(k) {
			return k
		}
	}
	return ""
}
