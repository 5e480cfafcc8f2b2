package idempotency

import (
	"errors"
	"net/http"
	"time"

	"github.com/keep-run/keep/law/key"
)

// errWithheld is what a handler's Write returns when its answer could not be
// recorded.
var errWithheld = errors.New("idempotency: the answer could not be recorded and is withheld")

// replay sends a kept answer, which is in memory until the client has read it. One that
// would not fit beside its request if nothing else was held is as one that is not kept.
func (c *exchange) replay(rec key.Record) {
	size := int64(len(rec.Answer.Header) + len(rec.Answer.Body))
	if c.held+size > c.g.cfg.Memory {
		c.refuse(c.bodyNotStored(rec))
		return
	}
	if !c.hold(size) {
		c.refuse(Problem{Kind: KindBusy, Status: http.StatusServiceUnavailable, RetryAfter: time.Second,
			Detail: "Too many requests are under way to send the kept answer. Ask again with the same key and the same request."})
		return
	}
	fields, err := key.DecodeFields(rec.Answer.Header)
	if err != nil {
		c.unavailable(err)
		return
	}
	c.observe(OutcomeReplayed, "", rec.Answer.Status)
	h := c.w.Header()
	h[ReplayedHeader] = []string{"true"}
	h[ExpiresHeader] = []string{expires(rec)}
	c.emit(rec.Answer.Status, fields, rec.Answer.Body)
}
