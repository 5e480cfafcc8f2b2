package mail

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync/atomic"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
)

// Bounds of what a server says: it sends as much as it likes, whatever it was asked for.
const (
	maxAnswer  = 4 << 20             // bytes of an answer beside the sections of mails; of all answers of an SMTP session
	maxNumbers = 1 << 20             // mails that a search finds
	maxRaw     = maxMail + maxMail/4 // bytes of a mail of maxMail: some servers estimate the sizes of mails
	maxFrames  = 2000                // functions that are being called while an answer is read
)

// An answerError says that the answer of a server cannot be used: it is over a bound, or
// makes no sense. The session ends with it, and nothing is concluded from the answer.
type answerError struct{ addr, what string }

// Error says where, what is wrong, and what to do.
func (e *answerError) Error() string {
	return fmt.Sprintf("the answer of %s cannot be used: %s; if it stays so, check the address, and ask who runs the server", e.addr, e.what)
}

// A bounded is a connection that is ended if the server says more than it may.
type bounded struct {
	net.Conn
	addr string
	left atomic.Int64                // bytes that the server may still send
	why  atomic.Pointer[answerError] // why the connection was ended; nil: it was not, or not here
}

// bound returns conn with the bound of one answer.
func bound(conn net.Conn, addr string) *bounded {
	c := &bounded{Conn: conn, addr: addr}
	c.expect()
	return c
}

// expect allows the server one more answer.
func (c *bounded) expect() { c.left.Store(maxAnswer) }

// allow allows a section of n bytes. After STARTTLS its encryption is counted, too.
func (c *bounded) allow(n int64) { c.left.Add(n + n/8) }

// bad ends the connection because of an answer. The first reason counts.
func (c *bounded) bad(format string, args ...any) error {
	c.why.CompareAndSwap(nil, &answerError{c.addr, fmt.Sprintf(format, args...)})
	c.Close() // it is of no more use, whatever the error
	return c.why.Load()
}

// Read reads what the server may say.
func (c *bounded) Read(p []byte) (int, error) {
	if why := c.why.Load(); why != nil {
		return 0, why
	}
	n, err := c.Conn.Read(p)
	if c.left.Add(-int64(n)) < 0 {
		return 0, c.bad("it has more than %d MiB beside mails, which only a search needs that finds half a million (narrow it with since, before or cursor)", maxAnswer>>20)
	}
	return n, err
}

// A shallow ends a connection whose answers are nested too deeply. The IMAP client calls itself for
// a part within a part without a limit, and a stack that becomes too large ends the process. So
// the stack is measured whenever the client reads more.
type shallow struct{ *bounded }

// Write is called with what the client has read, or written, in the goroutine that does so.
func (s shallow) Write(p []byte) (int, error) {
	var deepest [1]uintptr
	if runtime.Callers(maxFrames, deepest[:]) > 0 {
		return 0, s.bad("its parts are nested too deeply")
	}
	return len(p), nil
}

// cause returns why the session was ended if that was done here, and else err.
func (b *box) cause(err error) error {
	if why := b.conn.why.Load(); err != nil && why != nil {
		return why
	}
	return err
}

// find searches a folder. It returns the first n mails after a number, in order.
func (b *box) find(folder string, criteria *imap.SearchCriteria, after imap.UID, n int) ([]imap.UID, error) {
	b.conn.expect()
	found, err := b.UIDSearch(criteria, nil).Wait()
	if err != nil {
		return nil, fmt.Errorf("search %q: %w", folder, b.cause(err))
	}
	uids, err := numbers(found, after, n)
	if err != nil {
		return nil, fmt.Errorf("search %q: %w", folder, b.conn.bad("%v", err))
	}
	return uids, nil
}

// numbers returns the first n numbers after one that a server found, in order. Servers write
// ranges, so a short answer can name all numbers that there are.
func numbers(found *imap.SearchData, after imap.UID, n int) (out []imap.UID, err error) {
	set, ok := found.All.(imap.UIDSet)
	if !ok && (found.All != nil || found.Min != 0 || found.Max != 0 || found.Count != 0) {
		return nil, errors.New("it says that mails were found, and does not name them by their UIDs")
	}
	total := uint64(0)
	for _, r := range set {
		if r.Start == 0 || r.Stop < r.Start {
			return nil, errors.New("it names a mail 0 or *, which there cannot be")
		}
		total += uint64(r.Stop-r.Start) + 1
	}
	if total > maxNumbers {
		return nil, fmt.Errorf("it finds %d mails, more than %d (narrow the search with since, before or cursor)", total, maxNumbers)
	}
	for _, r := range set {
		for uid := max(uint64(r.Start), uint64(after)+1); uid <= uint64(r.Stop) && len(out) < n; uid++ {
			out = append(out, imap.UID(uid))
		}
	}
	return out, nil
}

// told is what a server says of one mail.
type told struct {
	uid     imap.UID
	flags   []imap.Flag // nil: it says nothing of flags
	size    int64
	section bool   // it says something of the section that was asked for
	raw     []byte // the section; nil: there is none
}

// fetch asks for mails with at most one section each, and calls each for every mail of set
// that the server tells. A section may have most bytes.
func (b *box) fetch(set imap.UIDSet, options *imap.FetchOptions, most int64, each func(told)) error {
	options.UID = true
	b.conn.expect()
	cmd := b.Fetch(set, options)
	for msg := cmd.Next(); msg != nil; msg = cmd.Next() {
		m, err := b.told(msg, options.BodySection, most)
		if err != nil {
			_ = cmd.Close() // takes what the client has read already: it waits until somebody does
			return err
		}
		if set.Contains(m.uid) { // servers tell of other mails at any time
			each(m)
		}
	}
	return b.cause(cmd.Close())
}

// told reads what a server says of one mail. After an error the connection has ended.
func (b *box) told(msg *imapclient.FetchMessageData, asked []*imap.FetchItemBodySection, most int64) (m told, err error) {
	for item := msg.Next(); item != nil; item = msg.Next() {
		switch item := item.(type) {
		case imapclient.FetchItemDataUID:
			m.uid = item.UID
		case imapclient.FetchItemDataFlags:
			m.flags = append([]imap.Flag{}, item.Flags...)
		case imapclient.FetchItemDataRFC822Size:
			m.size = item.Size
		case imapclient.FetchItemDataBodySection:
			if m.section || len(asked) == 0 || !item.MatchCommand(asked[0]) {
				continue // it is skipped, and counted as part of the answer
			}
			m.section = true
			if item.Literal == nil {
				continue
			}
			if m.raw, err = b.literal(item.Literal, most); err != nil {
				return m, err
			}
		}
	}
	return m, nil
}

// literal reads a section. After an error the connection has ended.
func (b *box) literal(lit imap.LiteralReader, most int64) ([]byte, error) {
	if n := lit.Size(); n > most {
		return nil, b.conn.bad("it sends %d bytes of a mail where at most %d were asked for", n, most)
	}
	b.conn.allow(lit.Size())
	raw := make([]byte, lit.Size())
	if _, err := io.ReadFull(lit, raw); err != nil {
		return nil, b.cause(err)
	}
	return raw, nil
}
