package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// events reads the messages of a stream of events. It never keeps more than the limit of one.
type events struct {
	lines *bufio.Reader
	cfg   ServerConfig
	limit int
	data  []byte
	ids   *idScanner // of an event that is too large; nil: it is not
}

func newEvents(r io.Reader, cfg ServerConfig) *events {
	return &events{lines: bufio.NewReaderSize(r, 4<<10), cfg: cfg, limit: cfg.MessageLimit}
}

// next returns the next message. What is none is passed over, and of what is too large there is what standIn makes of it.
func (e *events) next() (Message, error) {
	for {
		blank, err := e.line()
		switch {
		case err != nil:
			return Message{}, err
		case blank && e.ids != nil:
			m := e.cfg.standIn(&TooLargeError{ID: e.ids.id(), Asks: e.ids.asks, Limit: e.limit})
			e.ids = nil
			return m, nil
		case !blank || len(e.data) == 0:
			continue
		}
		m, err := e.cfg.message(e.data) // its parts are copies of data
		e.data = e.data[:0]
		if err == nil {
			return m, nil
		}
	}
}

// line reads a line, takes what data it has, and reports whether it is blank, which ends an event.
func (e *events) line() (blank bool, err error) {
	data := false
	for begins := true; ; begins = false {
		part, err := e.lines.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return false, err
		}
		ends := err == nil
		if ends {
			part = bytes.TrimRight(part, "\r\n")
		}
		if begins {
			blank = ends && len(part) == 0
			if part, data = bytes.CutPrefix(part, []byte("data:")); data {
				part = bytes.TrimPrefix(part, []byte(" "))
			}
		}
		if data {
			e.take(part)
		}
		if ends {
			return blank, nil
		}
	}
}

// take adds to the data of an event. Of one that is too large it looks for the id alone.
func (e *events) take(part []byte) {
	if e.ids == nil && len(e.data)+len(part) <= e.limit {
		e.data = append(e.data, part...)
		return
	}
	if e.ids == nil {
		e.ids = new(idScanner)
		e.ids.scan(e.data)
		e.data = e.data[:0]
	}
	e.ids.scan(part)
}
