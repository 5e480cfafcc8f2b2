package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/keep-run/keep"
)

// An identity says which file a database is. What is committed to a file that has no name
// any more, or to the log of one, is lost when the process ends; and who starts on the file
// that took its place does everything again. So each transaction is followed by a look at
// whether the path still names what was opened, before anything is done outside because of
// it. The look is two calls of stat, and a read of the file when it was written to meanwhile.
//
// A look that fails says nothing about the file: whoever takes that for a loss ends a process over a
// flood of connections that took all descriptors. The next transaction looks again, and what was
// replaced by another file, or written over, is found as soon as stat or a read works.
type identity struct {
	path string
	id   string // of the database, when it was opened

	mu        sync.Mutex  // protects the rest
	file, log os.FileInfo // log: nil until there is one
	size      int64       // of file, when the id was last read
	written   time.Time

	raw io.ReaderAt // the file, which stays open: to open and close it would give up SQLite's locks of it
	at  int64       // where the id stands in it; 0: not known
}

// identify returns the identity of the database that c has open, which was opened after file.
func identify(c *conn, path string, file *os.File) (*identity, error) {
	row, err := c.row(`SELECT value FROM meta WHERE name = 'id'`)
	if err != nil || row == nil {
		return nil, fmt.Errorf("read its id: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	i := &identity{path: path, id: row[0].(string), file: info, size: info.Size(), written: info.ModTime(), raw: file}
	i.at, err = i.findID()
	return i, err
}

// check returns keep.ErrReplaced if the path names another file than was opened, or if
// another database was written over it.
func (i *identity) check() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	info, err := os.Stat(i.path)
	switch {
	case isAbsent(err):
		return i.replaced("it was removed")
	case err != nil:
		return nil
	case !os.SameFile(info, i.file):
		return i.replaced("another file has its name")
	}
	log, err := os.Stat(i.path + "-wal")
	switch {
	case err == nil && i.log == nil:
		i.log = log
	case i.log != nil && (isAbsent(err) || err == nil && !os.SameFile(log, i.log)):
		return i.replaced("its log, " + i.path + "-wal, was removed or replaced")
	}
	if info.Size() == i.size && info.ModTime().Equal(i.written) {
		return nil
	}
	same, err := i.hasID()
	switch {
	case err != nil:
		return nil
	case !same:
		return i.replaced("another file was written over it")
	}
	i.size, i.written = info.Size(), info.ModTime()
	return nil
}

// isAbsent reports whether err says that there is no such file.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// hasID reports whether the file has the id; an error says that it could not be read. It looks in the
// file itself, if the id was ever seen there, since a log that has its page would hide another file
// under it. Each checkpoint writes to the file, and a query by a connection that remembers nothing
// would cost a tenth of a commit each time: it is made only until the id is there.
func (i *identity) hasID() (bool, error) {
	if i.at != 0 {
		found := make([]byte, len(i.id))
		if _, err := i.raw.ReadAt(found, i.at); err == nil && string(found) == i.id {
			return true, nil
		}
	}
	at, err := i.findID()
	if at != 0 {
		i.at = at
		return true, nil
	}
	if err != nil || i.at != 0 {
		return false, err
	}
	empty, err := inspectHeader(io.NewSectionReader(i.raw, 0, headerSize))
	if empty || errors.Is(err, keep.ErrForeignDatabase) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c, err := openConn(context.Background(), New(i.path, Config{ReadOnly: true}).dsn(true))
	if err != nil {
		return false, err
	}
	row, err := c.row(`SELECT value FROM meta WHERE name = 'id'`)
	err = errors.Join(err, c.close())
	return row != nil && row[0] == i.id, err
}

// findID looks where the id stands: in one of the first pages, once it was written there. 0: in none.
func (i *identity) findID() (at int64, err error) {
	pages := make([]byte, 1<<18)
	n, err := i.raw.ReadAt(pages, 0)
	if errors.Is(err, io.EOF) { // a shorter file
		err = nil
	}
	return int64(max(bytes.Index(pages[:n], []byte(i.id)), 0)), err
}

func (i *identity) replaced(why string) error {
	return fmt.Errorf("%w: %s; what was recorded last may be lost: stop this host, put the file back, and see keep db restored --help", keep.ErrReplaced, why)
}
