package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/keep-run/keep/store/transfer"
)

// Receive makes the file; see transfer.Place. Rows are written to another file beside
// it, which takes its place when it is complete and on disk.
func (p *Place) Receive(ctx context.Context, m transfer.Mark, fill func(transfer.Sink) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("copy to %s: %w", p.path, named(err, p.path))
		}
	}()
	db := New(p.path, Config{})
	db.moved = true
	if db.path, err = realPath(p.path); err != nil {
		return err
	}
	if db.lock, err = lockHost(db.path); err != nil {
		return err
	}
	defer db.lock.Close()
	if err := db.replaceable(ctx, m); err != nil {
		return err
	}
	// From here on whoever opens the file learns that it is not complete.
	if err := db.replace(ctx, m, func(transfer.Sink) error { return nil }); err != nil {
		return err
	}
	return db.replace(ctx, m, fill)
}

// replaceable refuses to write over anything but the rest of a copy of the same
// database.
func (db *DB) replaceable(ctx context.Context, m transfer.Mark) error {
	fresh, err := inspectFile(db.path)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && fresh:
		return nil
	case err != nil:
		return err
	}
	_, mark, _, err := db.version(ctx)
	if err == nil && (mark.State != transfer.Incoming || mark.Store != m.Store) {
		err = errors.New("there is a database already; name a new file")
	}
	if err != nil {
		return err
	}
	c, err := openConn(ctx, db.dsn(true))
	if err != nil {
		return err
	}
	defer c.close()
	if others, err := otherTables(c); err != nil || len(others) > 0 {
		return cmp.Or(err, fmt.Errorf("it has tables that are not Keep's: %s; name a new file", strings.Join(others, ", ")))
	}
	return nil
}

// replace makes a database beside the file and puts it in its place.
func (db *DB) replace(ctx context.Context, m transfer.Mark, fill func(transfer.Sink) error) (err error) {
	part := New(db.path+".copying", Config{})
	part.lock = db.lock
	if err := removeDatabase(part.path); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeDatabase(part.path)) }()
	if err := part.load(ctx, m, fill); err != nil {
		return err
	}
	if err := syncFile(part.path); err != nil {
		return err
	}
	// A log that an earlier file left would be taken for that of the new one.
	if err := removeLogs(db.path); err != nil {
		return err
	}
	if err := os.Rename(part.path, db.path); err != nil {
		return err
	}
	if runtime.GOOS == "windows" { // which has no such thing
		return nil
	}
	return syncFile(filepath.Dir(db.path))
}

// load fills a new file. Nobody else knows of it, so it needs neither a journal nor
// to be on disk before it is complete.
func (db *DB) load(ctx context.Context, m transfer.Mark, fill func(transfer.Sink) error) (err error) {
	if err := createFile(db.path); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, openFiles.done(db.open)) }()
	if err := db.prepareFile(ctx); err != nil {
		return err
	}
	c, err := openConn(ctx, db.dsn(false))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for _, pragma := range []string{`PRAGMA journal_mode = OFF`, `PRAGMA synchronous = OFF`} {
		if _, err := c.row(pragma); err != nil {
			return fmt.Errorf("%s: %w", pragma, err)
		}
	}
	if err := c.script(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	if _, err := c.exec(`UPDATE meta SET value = ? WHERE name = 'id'`, m.Store); err != nil {
		return err
	}
	if err := fill(sink{c}); err != nil {
		return err
	}
	if _, err := c.exec(`UPDATE topic AS t SET unread = NOT ` + isRead + ` WHERE EXISTS (SELECT 1 FROM workflow w WHERE w.name = t.workflow)`); err != nil {
		return err
	}
	for more := true; more; {
		if more, err = c.index(indexChunk); err != nil {
			return err
		}
	}
	if err := setMark(c, m); err != nil {
		return err
	}
	if err := countAnew(c, db.lock.path, m.At); err != nil {
		return err
	}
	if err := c.script(`COMMIT`); err != nil {
		return err
	}
	return toWAL(c)
}

// removeDatabase removes a file, and what SQLite keeps beside it.
func removeDatabase(path string) error {
	return cmp.Or(removeFile(path), removeLogs(path))
}

// removeLogs removes what SQLite keeps beside a file.
func removeLogs(path string) (err error) {
	for _, beside := range []string{"-journal", "-wal", "-shm"} {
		err = cmp.Or(err, removeFile(path+beside))
	}
	return err
}

// removeFile removes a file if it is there.
func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
