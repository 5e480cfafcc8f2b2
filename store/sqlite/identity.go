package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/keep-run/keep"
)

// An identity says which file a database is. What is committed to a file that has no name
// any more, or to the log of one, is lost when the process ends; and who starts on the file
// that took its place does everything again. So each transaction is followed by a look at
// whether the path still names what was opened, before anything is done outside because of
// it. The look is two calls of stat, and a query when the file was written to meanwhile.
type identity struct {
	path string
	id   string // of the database, when it was opened

	file, log os.FileInfo // log: nil until there is one
	size      int64       // of file, when the id was last read
	written   time.Time

	raw io.ReaderAt // the file, of a host; nil: the id is read by a query each time
	at  int64       // where the id stands in it; 0: not known
}

// identify returns the identity of the database that c has open.
func identify(c *conn, path string) (*identity, error) {
	row, err := c.row(`SELECT value FROM meta WHERE name = 'id'`)
	if err != nil || row == nil {
		return nil, fmt.Errorf("read its id: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return &identity{path: path, id: row[0].(string), file: info, size: info.Size(), written: info.ModTime()}, nil
}

// check returns keep.ErrReplaced if the path names another file than was opened, or if
// another database was written over it.
func (i *identity) check() error {
	info, err := os.Stat(i.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return i.replaced("it was removed")
	case err != nil:
		return i.replaced(err.Error())
	case !os.SameFile(info, i.file):
		return i.replaced("another file has its name")
	}
	log, err := os.Stat(i.path + "-wal")
	switch {
	case err == nil && i.log == nil:
		i.log = log
	case i.log != nil && (err != nil || !os.SameFile(log, i.log)):
		return i.replaced("its log, " + i.path + "-wal, was removed or replaced")
	}
	if info.Size() == i.size && info.ModTime().Equal(i.written) {
		return nil
	}
	if !i.idInPlace() {
		if err := i.checkID(); err != nil {
			return i.replaced(err.Error())
		}
	}
	i.size, i.written = info.Size(), info.ModTime()
	return nil
}

// idInPlace reports whether the id stands where it stood. Each checkpoint writes to the file,
// and a query by a new connection each time would cost a tenth of a commit.
func (i *identity) idInPlace() bool {
	if i.at == 0 {
		return false
	}
	found := make([]byte, len(i.id))
	_, err := i.raw.ReadAt(found, i.at)
	return err == nil && string(found) == i.id
}

// findID looks where the id stands: in one of the first pages, once it was written there.
func (i *identity) findID() {
	pages := make([]byte, 1<<18)
	n, _ := i.raw.ReadAt(pages, 0) // of a shorter file all
	i.at = int64(max(bytes.Index(pages[:n], []byte(i.id)), 0))
}

// checkID looks for the id again: in the file itself, if it was ever seen there, since a log that
// has its page would hide another file under it. Else by a connection that remembers nothing.
func (i *identity) checkID() error {
	was := i.at
	if i.raw != nil {
		i.findID()
	}
	switch {
	case i.at != 0:
		return nil
	case was != 0:
		return errors.New("another file was written over it")
	}
	if empty, err := inspectFile(i.path); err != nil || empty {
		return errors.Join(err, errors.New("another file was written over it"))
	}
	c, err := openConn(context.Background(), New(i.path, Config{ReadOnly: true}).dsn(true))
	if err != nil {
		return err
	}
	row, err := c.row(`SELECT value FROM meta WHERE name = 'id'`)
	if err = errors.Join(err, c.close()); err == nil && (row == nil || row[0] != i.id) {
		err = errors.New("another database was written over it")
	}
	return err
}

func (i *identity) replaced(why string) error {
	return fmt.Errorf("%w: %s; what was recorded last may be lost: stop this host, put the file back, and see keep db restored --help", keep.ErrReplaced, why)
}
