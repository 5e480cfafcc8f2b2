package idempotency

import (
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/keep-run/keep/internal/room"
)

// errBusy is returned when the requests under way hold all the memory there is for
// them.
var errBusy = errors.New("idempotency: too much is under way")

// hold takes n bytes of the guard's memory, or reports that they are not there. They
// are given back at the end of the call, or by release.
func (c *exchange) hold(n int64) bool {
	if !c.memory.Grow(n) {
		return false
	}
	c.held += n
	return true
}

// release gives back n bytes.
func (c *exchange) release(n int64) {
	c.held -= n
	c.memory.Shrink(n)
}

// busy is the refusal of a request that does not fit into memory.
func (c *exchange) busy() *Problem {
	c.endReading()
	return &Problem{Kind: KindBusy, Status: http.StatusServiceUnavailable, RetryAfter: time.Second,
		Detail: "Too many requests are under way. This one was not executed; send it again with the same key."}
}

// endReading ends the connection after the answer. What follows of the request is not read, by the server neither, which would
// wait for a bit of the rest.
func (c *exchange) endReading() {
	c.w.Header().Set("Connection", "close")
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Unix(1, 0)) // it has passed; not on every connection
}

// perRequest is how many bytes a request counts for beside its body. It bounds how many requests have what another one needs.
const perRequest = 1 << 10

// perField is how many bytes a line of a header counts for beside its text: of many short ones that is most.
const perField = 64

// beyond returns how many bytes a header takes more than perRequest, which every request counts for.
func beyond(h http.Header) int64 {
	n := 0
	for name, lines := range h {
		for _, line := range lines {
			n += len(name) + len(line) + perField
		}
	}
	return max(0, int64(n)-perRequest)
}

// firstPart is how many bytes are taken for a body of which nothing has come, at most.
const firstPart = 4 << 10

// readAll reads a body of which size bytes are announced; -1: it is not known how many.
// It takes memory as the bytes arrive, not more than twice of them.
func (c *exchange) readAll(r io.Reader, size int64) ([]byte, error) {
	if !c.hold(perRequest) {
		return nil, errBusy
	}
	var buf []byte
	for {
		if len(buf) == cap(buf) {
			next := int64(max(firstPart, 2*cap(buf)))
			if size >= 0 {
				next = min(next, max(size, int64(cap(buf)))+1) // one more shows the end
			}
			if !c.hold(next - int64(cap(buf))) {
				return nil, errBusy
			}
			buf = append(make([]byte, 0, next), buf...)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case errors.Is(err, io.EOF):
			return buf, nil
		case err != nil:
			return nil, err
		}
	}
}

// A timedBody is the body of a guarded request. Each part has its own time, and the
// whole has one.
type timedBody struct {
	r       io.ReadCloser
	conn    *http.ResponseController
	silence time.Duration
	end     time.Time
	memory  *room.Place
}

// Read reads the next part.
func (b *timedBody) Read(p []byte) (int, error) {
	_ = b.conn.SetReadDeadline(partEnd(b.silence, b.end)) // not on every connection
	if b.memory.Displaced() {                             // it may have been before the deadline was set
		return 0, errBusy
	}
	n, err := b.r.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) && b.memory.Displaced() {
		err = errBusy
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
