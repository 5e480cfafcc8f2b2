package idempotency

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// errBusy is returned when the requests under way hold all the memory there is for
// them.
var errBusy = errors.New("idempotency: too much is under way")

// A budget bounds what the requests of a guard hold in memory.
type budget struct {
	limit int64
	used  atomic.Int64
}

// hold takes n bytes of the guard's budget, or reports that they are not there. They
// are given back at the end of the call.
func (c *exchange) hold(n int64) bool {
	m := &c.g.memory
	if m.used.Add(n) > m.limit {
		m.used.Add(-n)
		return false
	}
	c.held += n
	return true
}

func (c *exchange) letGoOfMemory() { c.g.memory.used.Add(-c.held) }

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
	deadline := time.Now().Add(b.silence)
	if deadline.After(b.end) {
		deadline = b.end
	}
	_ = b.conn.SetReadDeadline(deadline) // not on every connection
	n, err := b.r.Read(p)
	if b.hold != nil && n > 0 && !b.hold(2*int64(n)) { // the buffer doubles as it grows
		return n, errBusy
	}
	return n, err
}

// Close closes the body.
func (b *timedBody) Close() error { return b.r.Close() }
