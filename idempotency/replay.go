package idempotency

import (
	"errors"
	"net/http"

	"github.com/keep-run/keep/law/key"
)

// errWithheld is what a handler's Write returns when its answer could not be
// recorded.
var errWithheld = errors.New("idempotency: the answer could not be recorded and is withheld")

// replay sends a kept answer.
func (c *exchange) replay(rec key.Record) {
	fields, err := key.DecodeFields(rec.Answer.Header)
	if err != nil {
		c.unavailable(err)
		return
	}
	c.observe(OutcomeReplayed, "", rec.Answer.Status)
	h := c.w.Header()
	h[ReplayedHeader] = []string{"true"}
	h[ExpiresHeader] = []string{expires(rec)}
	emit(c.w, rec.Answer.Status, fields, rec.Answer.Body)
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
