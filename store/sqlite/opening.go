package sqlite

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/keep-run/keep"
)

// The lock beside a database says how often a host has opened and closed it, and so does the
// database. A file that says less than its lock is a copy from before: whoever worked on it
// would do again what was done since. The database counts first, so a death between the two
// leaves a file that says more, which is no copy. A host that is killed does not count its
// end: a copy made while it worked looks like the file that it left.

// openingsName is the name of the count in meta.
const openingsName = "openings"

// A signature is what the lock beside a database says.
type signature struct {
	pid      int    // of the host that has or had it; 0: not known
	store    string // id of the database
	openings int64
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
	store, count, ok := strings.Cut(strings.TrimSpace(second), " ")
	if n, err := strconv.ParseInt(count, 10, 64); ok && err == nil && n > 0 {
		s.store, s.openings = store, n
	}
	return s
}

// write puts s beside path. Nothing is empty in between, since a lock with a text is also what
// says that there was a database. A disk too full for it must not stop the host.
func (s signature) write(path string) {
	text := strconv.Itoa(s.pid) + "\n" + s.store + " " + strconv.FormatInt(s.openings, 10) + "\n"
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	if _, err := f.WriteString(text); err == nil {
		_ = f.Truncate(int64(len(text)))
	}
	_ = f.Close()
}

// sign counts an opening or the end of one, and says so in the lock. It refuses an older copy.
func (db *DB) sign(c *conn) (signature, error) {
	now, err := openingsOf(c)
	if err != nil {
		return now, err
	}
	if was := db.lock.signed; was.store == now.store && was.openings > now.openings {
		return now, fmt.Errorf("%w: hosts opened and closed the database that was here %d times, this one %d times; "+
			"what was done since would be done again: put the newer file back, or see keep db restored --help", keep.ErrOlderCopy, was.openings, now.openings)
	}
	now.openings++
	return now, setOpenings(c, now.openings)
}

// openingsOf returns the id of the database and how often it was opened and closed.
func openingsOf(c *conn) (s signature, err error) {
	row, err := c.row(`SELECT (SELECT value FROM meta WHERE name = 'id'), (SELECT value FROM meta WHERE name = '` + openingsName + `')`)
	if err != nil {
		return s, fmt.Errorf("read how often it was opened: %w", err)
	}
	s.pid = os.Getpid()
	s.store, _ = row[0].(string)
	if text, ok := row[1].(string); ok {
		s.openings, err = strconv.ParseInt(text, 10, 64)
	}
	return s, err
}

// setOpenings is a part of the caller's transaction.
func setOpenings(c *conn, n int64) error {
	_, err := c.exec(`INSERT INTO meta (name, value) VALUES ('`+openingsName+`', ?1) ON CONFLICT (name) DO UPDATE SET value = ?1`,
		strconv.FormatInt(n, 10))
	return err
}

// accept makes of an older copy the database that hosts work on. It is a part of the caller's
// transaction.
func (l *hostLock) accept(c *conn) error {
	now, err := openingsOf(c)
	if err != nil || l.signed.store != now.store || l.signed.openings <= now.openings {
		return err
	}
	return setOpenings(c, l.signed.openings)
}
