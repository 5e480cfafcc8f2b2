package mcp

import (
	"bufio"
	"errors"
	"io"
	"strings"
)

// events reads the messages of a stream of events.
type events struct {
	lines *bufio.Reader
	cfg   ServerConfig
	limit int
	data  []byte
}

func newEvents(r io.Reader, cfg ServerConfig) *events {
	return &events{lines: bufio.NewReaderSize(r, 4<<10), cfg: cfg, limit: cfg.MessageLimit}
}

// next returns the next message. What is none is passed over.
func (e *events) next() (Message, error) {
	for {
		line, err := readLine(e.lines, e.limit)
		if err != nil {
			return Message{}, err
		}
		if rest, ok := strings.CutPrefix(line, "data:"); ok {
			if e.data = append(e.data, strings.TrimPrefix(rest, " ")...); len(e.data) > e.limit {
				return Message{}, &TooLargeError{Limit: e.limit}
			}
			continue
		}
		if line != "" || len(e.data) == 0 {
			continue
		}
		m, err := e.cfg.message(e.data) // its parts are copies of data
		e.data = e.data[:0]
		if err == nil {
			return m, nil
		}
	}
}

// readLine returns a line without its end.
func readLine(r *bufio.Reader, limit int) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if line = append(line, part...); len(line) > limit+16 {
			return "", &TooLargeError{Limit: limit}
		}
		if err == nil {
			return strings.TrimRight(string(line), "\r\n"), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return "", err
		}
	}
}
