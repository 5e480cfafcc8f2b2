package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/keep-run/keep"
)

// A Message is a frame of the protocol: a request, a notification, or a response. Members that
// are not known are not kept; what passes through is in Params and Result, byte by byte.
type Message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"` // nil: a notification
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *RPCError       `json:"error,omitempty"`
}

// lacksResult reports whether m has no result. One beside an error, which the protocol does not have, shows that the request was executed.
func (m Message) lacksResult() bool { return len(m.Result) == 0 || string(m.Result) == "null" }

// An RPCError is an error of the protocol.
type RPCError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Error says what the other side said, on one line, in which nothing hides.
func (e *RPCError) Error() string { return keep.OneLine(e.Message) }

// A TooLargeError is returned for a frame over the limit. Its rest was read and discarded.
type TooLargeError struct {
	ID    json.RawMessage // of the frame; nil: it has none, or it was not found
	Asks  bool            // it has a method: it is no answer, whatever its id
	Limit int

	list bool // it is a list, in pages that are too large in all
}

// Error names the limit.
func (e *TooLargeError) Error() string {
	if e.list {
		return "the list is larger than " + bytesText(e.Limit)
	}
	return "a message is larger than " + bytesText(e.Limit)
}

// Unread returns the error of a frame over the limit of which the beginning was read: its id is found if that is there.
func Unread(beginning []byte, limit int) *TooLargeError {
	var ids idScanner
	ids.scan(beginning)
	return &TooLargeError{ID: ids.id(), Asks: ids.asks, Limit: limit}
}

// A Reader reads frames, one a line. It never keeps more than the limit of one.
type Reader struct {
	r     *bufio.Reader
	limit int
}

// NewReader returns a Reader of frames of at most limit bytes.
func NewReader(r io.Reader, limit int) *Reader { return &Reader{bufio.NewReaderSize(r, 64<<10), limit} }

// Next returns the next line that is not empty. A line without an end is none: who wrote it died.
// The error is a *TooLargeError if the next one may be read all the same.
func (r *Reader) Next() ([]byte, error) {
	var line []byte
	var ids *idScanner // of a line that is too long
	for {
		part, err := r.r.ReadSlice('\n')
		switch {
		case ids != nil:
			ids.scan(part)
		case len(line)+len(part) > r.limit:
			ids = new(idScanner)
			ids.scan(line)
			ids.scan(part)
			line = nil
		default:
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return nil, err
		case ids != nil:
			return nil, &TooLargeError{ID: ids.id(), Asks: ids.asks, Limit: r.limit}
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil
		}
	}
}

// An idScanner finds the id of a frame that is read in parts, and whether it has a method. It keeps nothing else.
type idScanner struct {
	depth          int
	inText, escape bool
	key            bool // the text under way is a key of the outermost object
	want           bool // the next value is the id
	value          bool // the colon was read
	asks           bool // there is a method
	text           []byte
	found          []byte
}

const maxID = 256

// scan reads the next part.
func (s *idScanner) scan(part []byte) {
	for _, c := range part {
		s.step(c)
	}
}

// step reads one byte.
func (s *idScanner) step(c byte) {
	if s.inText {
		s.text = appendBounded(s.text, c)
		switch {
		case s.escape:
			s.escape = false
		case c == '\\':
			s.escape = true
		case c == '"':
			s.endText()
		}
		return
	}
	switch c {
	case '"':
		s.inText, s.text = true, append(s.text[:0], c)
	case '{', '[':
		s.depth++
		s.want = false
	case '}', ']':
		s.endNumber()
		s.depth--
	case ':':
		s.value = s.depth == 1
	case ',':
		s.endNumber()
		s.value = s.value && s.depth != 1
	default:
		if s.want && (c == '-' || '0' <= c && c <= '9') {
			s.text = appendBounded(s.text, c)
		}
	}
}

// endText ends a text: a key, or a value.
func (s *idScanner) endText() {
	s.inText = false
	switch {
	case s.depth != 1:
	case s.want:
		s.found, s.want = bytes.Clone(s.text), false
	case !s.value:
		s.want = s.found == nil && string(s.text) == `"id"`
		s.asks = s.asks || string(s.text) == `"method"`
		s.text = s.text[:0]
	}
}

// endNumber ends a value that is no text.
func (s *idScanner) endNumber() {
	if s.want && s.depth == 1 {
		s.found, s.want = bytes.Clone(s.text), false
	}
}

func appendBounded(b []byte, c byte) []byte {
	if len(b) < maxID {
		b = append(b, c)
	}
	return b
}

// id returns what was found.
func (s *idScanner) id() json.RawMessage {
	if len(s.found) == 0 || len(s.found) >= maxID || !json.Valid(s.found) {
		return nil
	}
	return s.found
}

// Frame returns m as one line, without its end. What passes through is not escaped anew.
func Frame(m Message) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// ValidID reports whether raw is the id of a request: a text or a number.
func ValidID(raw json.RawMessage) bool {
	return len(raw) > 0 && len(raw) <= maxID && (raw[0] == '"' || raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9')
}

func bytesText(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return itoa(n>>20) + " MiB"
	case n >= 1<<10 && n%(1<<10) == 0:
		return itoa(n>>10) + " KiB"
	}
	return itoa(n) + " bytes"
}
