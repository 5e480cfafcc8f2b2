package idempotency

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// errBusy is returned when the requests under way hold all the memory there is for
// them.
var errBusy = errors.New("idempotency: too much is under way")

// A budget bounds what the requests and answers of a guard hold in memory.
type budget struct {
	limit int64
	used  atomic.Int64
}

// hold takes n bytes of the guard's budget, or reports that they are not there. They
// are given back at the end of the call, or by release.
func (c *exchange) hold(n int64) bool {
	m := &c.g.memory
	if m.used.Add(n) > m.limit {
		m.used.Add(-n)
		return false
	}
	c.held += n
	return true
}

// release gives back n bytes.
func (c *exchange) release(n int64) {
	c.held -= n
	c.g.memory.used.Add(-n)
}

func (c *exchange) letGoOfMemory() { c.release(c.held) }

// busy is the refusal of a request that does not fit into memory.
func busy() *Problem {
	return &Problem{Kind: KindBusy, Status: http.StatusServiceUnavailable, RetryAfter: time.Second,
		Detail: "Too many requests are under way. This one was not executed; send it again with the same key."}
}

// A timedBody is the body of a guarded request. Each part has its own time, and the
// whole has one.
type timedBody struct {
	r       io.ReadCloser
	conn    *http.ResponseController
	silence time.Duration
	end     time.Time
	hold    func(int64) bool // takes memory for each part; nil: it is taken already
}

// Read reads the next part.
func (b *timedBody) Read(p []byte) (int, error) {
	_ = b.conn.SetReadDeadline(partEnd(b.silence, b.end)) // not on every connection
	n, err := b.r.Read(p)
	if b.hold != nil && n > 0 && !b.hold(2*int64(n)) { // the buffer doubles as it grows
		return n, errBusy
	}
	return n, err
}

// Close closes the body.
func (b *timedBody) Close() error { return b.r.Close() }

// partEnd returns when the next part of a body is too late, the whole of which has
// time until end.
func partEnd(silence time.Duration, end time.Time) time.Time {
	if next := time.Now().Add(silence); next.Before(end) {
		return next
	}
	return end
}

// sendPart is how many bytes of an answer a client may take one silence for.
const sendPart = 32 << 10

// send writes an answer that is in memory. Each part has its own time, and the whole has
// one, as those of a request: a client that does not read must not hold memory without
// end. Where the server or the handler has set a write deadline, that counts.
func (c *exchange) send(answer []byte) {
	conn, end := http.NewResponseController(c.w), time.Now().Add(c.g.cfg.BodyTimeout)
	for part := range slices.Chunk(answer, sendPart) {
		if !c.deadline {
			_ = conn.SetWriteDeadline(partEnd(c.g.cfg.BodySilence, end)) // not on every connection
		}
		if _, err := c.w.Write(part); err != nil {
			break // the client is gone or too slow; the record is there
		}
	}
	if !c.deadline && len(answer) > 0 {
		_ = conn.SetWriteDeadline(time.Time{})
	}
}

// hasWriteTimeout reports whether the server of a request bounds the time of its answer.
func hasWriteTimeout(r *http.Request) bool {
	s, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	return ok && s.WriteTimeout > 0
}
