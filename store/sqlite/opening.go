package sqlite

import (
	"crypto/rand"
	"database/sql/driver"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
)

// The lock beside a database says how often a host has opened, closed or written to it, and so does the
// database; of the transactions that change something a host counts one in a second, and each of a handler with idempotency.Tx. A file that says less than its
// lock is a copy from before: whoever worked on it would do again what was done since. The database counts first, in a transaction that is on
// disk, so a death or a power loss between the two leaves a file that says more, which is no copy. A copy looks like
// the file of a host that was killed if all that it wrote since was within a second of a transaction that it had counted.
// Who serves without being a host, as a proxy of idempotency keys, counts as well, and so does who takes such a key.
//
// A file that was filled with the records of another, or that a person says was restored, counts
// anew, by another name of its count: it may take the place of the other one. The name says when, so a copy of the other one may not
// come back.

// openingsName is the name of the count in meta.
const openingsName = "openings"

// A signature is what the lock beside a database says, and what the database says of itself.
type signature struct {
	pid      int    // of the host that has or had it; 0: not known
	store    string // id of the database
	count    string // name of its count; empty: it has none yet
	openings int64  // and ends, and transactions
}

// readSignature returns what the lock beside path says; of a lock without a text, and of one
// by an older version, as much as there is.
func readSignature(path string) (s signature) {
	text, err := os.ReadFile(path + ".lock")
	if err != nil || len(text) > 1<<10 {
		return s
	}
	first, second, _ := strings.Cut(string(text), "\n")
	if pid, err := strconv.Atoi(strings.TrimSpace(first)); err == nil && pid > 0 {
		s.pid = pid
	}
	store, count, _ := strings.Cut(strings.TrimSpace(second), " ")
	if s.store = store; !s.counted(count) {
		s.store = ""
	}
	return s
}

// counted reads the name of a count and the count, as they are written.
func (s *signature) counted(text string) bool {
	name, n, ok := strings.Cut(text, " ")
	openings, err := strconv.ParseInt(n, 10, 64)
	if !ok || err != nil || openings < 0 {
		return false
	}
	s.count, s.openings = name, openings
	return true
}

func (s signature) counting() string { return s.count + " " + strconv.FormatInt(s.openings, 10) }

// write puts s beside path. Nothing is empty in between, since a lock with a text is also what
// says that there was a database. A disk too full for it must not stop the host.
func (s signature) write(path string) {
	text := strconv.Itoa(s.pid) + "\n" + s.store + " " + s.counting() + "\n"
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	if _, err := f.WriteString(text); err == nil {
		_ = f.Truncate(int64(len(text)))
	}
	_ = f.Close()
}

// olderThan returns keep.ErrOlderCopy if a database that says s of itself is a copy from before
// what its lock says.
func (s signature) olderThan(lock signature) error {
	switch {
	case s.store != lock.store:
		return nil
	case s.count != "" && s.count != lock.count:
		if begunAnew(s.count) >= begunAnew(lock.count) {
			return nil
		}
		return fmt.Errorf("%w: it was made before the database that was here was restored, or copied here; "+
			"what was done since would be done again: put the newer file back, or see keep db restored --help", keep.ErrOlderCopy)
	case s.openings >= lock.openings:
		return nil
	}
	return fmt.Errorf("%w: hosts opened, closed or wrote to the database that was here after this copy of it was made (%d counts); "+
		"what was done since would be done again: put the newer file back, or see keep db restored --help", keep.ErrOlderCopy, lock.openings-s.openings)
}

// An execer executes statements in a transaction: a conn, or that of a handler.
type execer interface {
	exec(sql string, args ...any) (int64, error)
	row(sql string, args ...any) ([]driver.Value, error)
}

// sign counts an opening, the end of one, or a transaction. It is a part of the caller's.
func sign(c execer) (signature, error) {
	s, err := signatureOf(c)
	if err != nil {
		return s, err
	}
	if s.count == "" {
		s.count = rand.Text()
	}
	s.openings++
	_, err = c.exec(`INSERT INTO meta (name, value) VALUES ('`+openingsName+`', ?1) ON CONFLICT (name) DO UPDATE SET value = ?1`, s.counting())
	return s, err
}

// signatureOf returns what the database says of itself.
func signatureOf(c execer) (s signature, err error) {
	row, err := c.row(`SELECT (SELECT value FROM meta WHERE name = 'id'), (SELECT value FROM meta WHERE name = '` + openingsName + `')`)
	if err != nil {
		return s, fmt.Errorf("read how often it was opened: %w", err)
	}
	s.pid = os.Getpid()
	s.store, _ = row[0].(string)
	if text, ok := row[1].(string); ok && !s.counted(text) {
		return s, fmt.Errorf("how often it was opened cannot be read: %q", text)
	}
	return s, nil
}

// countAnew gives a database a count of its own, which begins at a time, and after the one that it had and the one of the lock beside
// path, where it is or will be. It is a part of the caller's transaction.
func countAnew(c *conn, path string, at time.Time) error {
	s, err := signatureOf(c)
	if err != nil {
		return err
	}
	begun := max(at.UnixMilli(), begunAnew(s.count)+1, begunAnew(readSignature(path).count)+1)
	anew := signature{count: anewAt + strconv.FormatInt(begun, 10) + "-" + rand.Text()}
	_, err = c.exec(`INSERT INTO meta (name, value) VALUES ('`+openingsName+`', ?1) ON CONFLICT (name) DO UPDATE SET value = ?1`, anew.counting())
	return err
}

// anewAt begins the name of a count that a database got when it was filled or restored. The milliseconds of that follow.
const anewAt = "at-"

// begunAnew returns when a count began; 0: with the database, or by a version that did not say it.
func begunAnew(count string) int64 {
	text, anew := strings.CutPrefix(count, anewAt)
	text, _, _ = strings.Cut(text, "-")
	ms, err := strconv.ParseInt(text, 10, 64)
	if !anew || err != nil {
		return 0
	}
	return ms
}

// counts says who counts transactions, and when.
type counts struct {
	on     atomic.Bool
	host   bool
	due    <-chan time.Time // has a value each second
	owed   bool             // one was taken, and no transaction was counted since
	before int64            // changes of the connection when the transaction began
}

// begin reads what the connection has changed so far, if the transaction that began is to be counted.
func (n *counts) begin(c *conn) (err error) {
	if !n.on.Load() {
		return nil
	}
	select {
	case <-n.due:
		n.owed = true
	default:
	}
	if n.owed {
		n.before, err = c.changes()
	}
	return err
}

// serve has this transaction counted, which changes something, and those after it as they come: it is of who serves.
func (n *counts) serve() {
	if n.on.CompareAndSwap(false, true) {
		n.owed, n.before = true, -1
	}
}

// count counts a transaction that changed something, as a part of it, if that is due, and returns what the lock is to say when
// it is on disk. A transaction that only read stays one: SQLite writes nothing to commit it.
func (n *counts) count(c *conn) (*signature, error) {
	if !n.owed {
		return nil, nil
	}
	if now, err := c.changes(); err != nil || now == n.before {
		return nil, err
	}
	s, err := sign(c)
	return &s, err
}

// say writes in the lock what was counted. It says who is the host, so who is none leaves that as it is. Several may do so at
// once: what they leave says too little, or nothing, which makes no copy of a file.
func (n *counts) say(s signature, path string) {
	if !n.host {
		s.pid = readSignature(path).pid
	}
	s.write(path)
}
