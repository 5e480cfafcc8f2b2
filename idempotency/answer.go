package idempotency

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keep-run/keep/law/key"
)

// Headers that a guard adds to answers that come from a record.
const (
	// ReplayedHeader is "true" on an answer that was kept.
	ReplayedHeader = "Idempotent-Replayed"

	// ExpiresHeader is when the key is free again, as an HTTP date.
	ExpiresHeader = "Idempotency-Expires"
)

// A mode is where the bytes of an answer go.
type mode int

const (
	buffering mode = iota // into memory, to be recorded first
	streaming             // to the client: recorded without a body when it ends
	hijacked              // the handler has the connection: recorded likewise
	withheld              // nowhere: it could not be recorded
)

// A response is the ResponseWriter of a guarded handler. It holds everything back
// until it is recorded.
type response struct {
	c      *exchange
	w      http.ResponseWriter
	outer  http.Header // what was set outside the guard; nil if nothing
	header http.Header // the handler's
	sent   http.Header // as they were at WriteHeader
	length int64       // the Content-Length in it; -1: none
	status int         // 0: WriteHeader was not called
	buf    []byte
	mode   mode

	// Of a stream:
	passed int64     // bytes that were sent, or would have been
	left   time.Time // when the client was seen to be gone
}

func newAnswer(c *exchange) *response {
	a := &response{c: c, w: c.w, header: make(http.Header), length: -1}
	if h := c.w.Header(); len(h) > 0 {
		a.outer, a.header = h.Clone(), h.Clone()
	}
	return a
}

// Header returns the handler's headers.
func (a *response) Header() http.Header { return a.header }

// Unwrap gives http.ResponseController the writer below, for deadlines.
func (a *response) Unwrap() http.ResponseWriter { return a.w }

// SetWriteDeadline sets the handler's own deadline, which counts for an answer that is
// held back, too.
func (a *response) SetWriteDeadline(deadline time.Time) error {
	a.c.deadline = !deadline.IsZero()
	return http.NewResponseController(a.w).SetWriteDeadline(deadline)
}

// WriteHeader takes the status. Informational answers are passed on at once:
// they are not the answer.
func (a *response) WriteHeader(status int) {
	switch {
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %d", status)) // as net/http does
	case a.status != 0 || a.mode != buffering:
		return
	case status < 200 && status != http.StatusSwitchingProtocols:
		a.putHeaders(a.header)
		a.w.WriteHeader(status)
		return
	}
	a.status, a.sent = status, a.header.Clone()
	media, _, _ := mime.ParseMediaType(a.sent.Get("Content-Type"))
	if n, err := strconv.ParseInt(a.sent.Get("Content-Length"), 10, 64); err == nil {
		a.length = n
	}
	if media == "text/event-stream" || status == http.StatusSwitchingProtocols || a.length > a.c.rt.ResponseLimit || !a.c.hold(beyond(a.sent)) {
		a.stream()
	}
}

// Write takes a part of the body.
func (a *response) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	switch {
	case !bodyAllowed(a.status):
		return 0, http.ErrBodyNotAllowed
	case a.mode == buffering && (int64(len(a.buf)+len(p)) > a.c.rt.ResponseLimit || !a.grow(len(p))):
		a.stream()
	}
	switch a.mode {
	case buffering:
		a.buf = append(a.buf, p...)
		return len(p), nil
	case streaming:
		return a.pass(p)
	case hijacked:
		return 0, http.ErrHijacked
	}
	return 0, errWithheld
}

// grow makes room for n more bytes in memory, or reports that there is none.
func (a *response) grow(n int) bool {
	need := len(a.buf) + n
	if need <= cap(a.buf) {
		return true
	}
	size := max(need, 2*cap(a.buf))
	if !a.c.hold(int64(size - cap(a.buf))) {
		return false
	}
	a.buf = append(make([]byte, 0, size), a.buf...)
	return true
}

// FlushError flushes a stream. Other answers are held back until they are whole.
func (a *response) FlushError() error {
	if a.status == 0 && a.mode == buffering {
		a.WriteHeader(http.StatusOK)
	}
	if a.mode == streaming && a.left.IsZero() {
		err := a.timed(http.NewResponseController(a.w).Flush)
		if err == nil || errors.Is(err, http.ErrNotSupported) {
			return err
		}
		a.left = time.Now() // as in pass
	}
	return nil
}

// Flush is FlushError for those who do not ask.
func (a *response) Flush() { _ = a.FlushError() }

// Hijack gives the connection to the handler. What goes over it is not an answer
// that could be kept, so the request is recorded as done without a body.
func (a *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if a.mode != buffering || a.status != 0 {
		return nil, nil, http.ErrNotSupported
	}
	conn, rw, err := http.NewResponseController(a.w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	a.mode, a.status = hijacked, http.StatusSwitchingProtocols
	if err := a.c.settleStream(a.status); err != nil {
		a.c.logUnsettled(err)
		_ = conn.Close()
		return nil, nil, errWithheld
	}
	return conn, rw, nil
}

// end is called when the handler returned.
func (a *response) end() {
	if a.status == 0 && a.mode == buffering {
		a.WriteHeader(http.StatusOK)
	}
	if a.mode == streaming {
		for _, f := range a.trailers() {
			a.w.Header().Add(f.Name, f.Value)
		}
	}
}

// show sends a recorded answer.
func (a *response) show() {
	if v := a.header.Get(ExpiresHeader); v != "" {
		a.sent.Set(ExpiresHeader, v)
	}
	fields := append(fieldsOf(a.sent, nil), a.trailers()...)
	a.putHeaders(a.outer)
	a.c.emit(a.status, fields, a.buf)
}

// discard drops what the handler wrote, and withholds what it may still write.
func (a *response) discard() {
	a.drop()
	a.mode = withheld
	a.putHeaders(a.outer)
}

// drop gives the memory of what was written back.
func (a *response) drop() {
	a.c.release(int64(cap(a.buf)))
	a.buf = nil
}

// putHeaders makes h the headers of the real answer.
func (a *response) putHeaders(h http.Header) {
	clear(a.w.Header())
	maps.Copy(a.w.Header(), h)
}

// kept returns the fields that a record keeps: the handler's own, without those
// that belong to a connection or to a person, and without when the key of a guard behind this one is free again.
func (a *response) kept() []key.Field {
	fields := fieldsOf(a.sent, a.outer)
	connection := a.sent["Connection"]
	return slices.DeleteFunc(append(fields, a.trailers()...), func(f key.Field) bool {
		return f.Name == ExpiresHeader || !key.Kept(strings.TrimPrefix(f.Name, http.TrailerPrefix), connection)
	})
}

// trailers returns the fields that the handler set for after the body: those that
// it announced, and those with the prefix.
func (a *response) trailers() []key.Field {
	var fields []key.Field
	for _, line := range a.sent["Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			for _, v := range a.header[name] {
				fields = append(fields, key.Field{Name: name, Value: v, Trailer: true})
			}
		}
	}
	var prefixed []string
	for name := range a.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			prefixed = append(prefixed, name)
		}
	}
	slices.Sort(prefixed)
	for _, name := range prefixed {
		for _, v := range a.header[name] {
			fields = append(fields, key.Field{Name: name, Value: v, Trailer: true})
		}
	}
	return fields
}

// fieldsOf returns the lines of h that are not the same in outer, in the order in
// which net/http sends them. Trailers are not among them.
func fieldsOf(h, outer http.Header) []key.Field {
	fields := make([]key.Field, 0, len(h)+2)
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if strings.HasPrefix(name, http.TrailerPrefix) || outer != nil && slices.Equal(h[name], outer[name]) {
			continue
		}
		for _, v := range h[name] {
			fields = append(fields, key.Field{Name: name, Value: v})
		}
	}
	return fields
}

// emit sends a whole answer. The first showing and every replay go through it, so
// that they can't differ in how a length or a type is made up.
func (c *exchange) emit(status int, fields []key.Field, body []byte) {
	h := c.w.Header()
	var trailers []string
	for i, f := range fields {
		switch {
		case f.Trailer && !strings.HasPrefix(f.Name, http.TrailerPrefix):
			trailers = append(trailers, f.Name)
		case f.Trailer:
		case i == 0 || fields[i-1].Name != f.Name:
			h[f.Name] = []string{f.Value}
		default:
			h[f.Name] = append(h[f.Name], f.Value)
		}
	}
	hasTrailers := len(fields) > 0 && fields[len(fields)-1].Trailer
	delete(h, "Trailer")
	if len(trailers) > 0 {
		h["Trailer"] = slices.Compact(trailers)
	}
	switch {
	case !bodyAllowed(status), hasTrailers:
		delete(h, "Content-Length")
	default:
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	exposeHeaders(h)
	c.w.WriteHeader(status)
	if bodyAllowed(status) {
		c.send(body)
	}
	for _, f := range fields {
		if f.Trailer {
			h.Add(f.Name, f.Value)
		}
	}
}

// exposeHeaders allows scripts of other origins to read our headers, if the answer
// allows them to read anything.
func exposeHeaders(h http.Header) {
	if h.Get("Access-Control-Allow-Origin") == "" {
		return
	}
	exposed := strings.ToLower(strings.Join(h["Access-Control-Expose-Headers"], ","))
	for _, name := range []string{ReplayedHeader, ExpiresHeader, "Retry-After"} {
		if !strings.Contains(exposed, strings.ToLower(name)) {
			h.Add("Access-Control-Expose-Headers", name)
		}
	}
}

// bodyAllowed reports whether an answer of this status has a body.
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// expires returns when a record's key is free again, for ExpiresHeader.
func expires(r key.Record) string { return r.ExpiresAt.UTC().Format(http.TimeFormat) }
