package sqlite

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/keep-run/keep/transfer"
)

// Backup writes the database as it is at one moment, which begins at now, to a new
// file, which only its owner may read. A host may go on meanwhile. The file is there when it is
// complete and on disk, or not at all; one that exists is an error. It is marked
// transfer.Backup: whoever opens it to work is refused, until it was restored.
func (db *DB) Backup(ctx context.Context, to string, now time.Time) error {
	dir, err := os.MkdirTemp(filepath.Dir(to), ".keep-backup-")
	if err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	defer os.RemoveAll(dir)
	part := filepath.Join(dir, "part")
	if err := createFile(part); err != nil { // VACUUM INTO takes an empty file, and its mode
		return fmt.Errorf("back up: %w", err)
	}
	// The other connections that read are query_only, which refuses to write another
	// file as well.
	source := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(db.path), RawQuery: "mode=ro"}
	c, err := openConn(ctx, source.String())
	if err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	_, err = c.exec(`VACUUM INTO ?`, part)
	if closeErr := c.close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = db.markBackup(ctx, part, now)
	}
	if err == nil {
		err = syncFile(part)
	}
	if err == nil {
		// A link fails where a rename would replace what came meanwhile.
		err = os.Link(part, to)
	}
	if err == nil && runtime.GOOS != "windows" { // which has no such thing
		err = syncFile(filepath.Dir(to))
	}
	if err != nil {
		return fmt.Errorf("back up to %s: %w", to, err)
	}
	return nil
}

// markBackup says in a copy what it is. The copy is closed when it returns, and all
// in one file.
func (db *DB) markBackup(ctx context.Context, part string, now time.Time) (err error) {
	c, err := openConn(ctx, New(part, Config{}).dsn(false))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.script(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	was, err := readMark(c)
	if err == nil && !was.Fenced() { // one that is stays so
		err = setMark(c, transfer.Mark{State: transfer.Backup, Peer: db.path, At: now})
	}
	if err != nil {
		return err
	}
	return c.script(`COMMIT`)
}

// syncFile waits until a file, or the entries of a directory, are on disk.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
