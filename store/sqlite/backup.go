package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/transfer"
)

// Backup writes the database as it is at one moment, which begins at now, to a new
// file, which only its owner may read. A host may continue meanwhile. The file is there when it is
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
	if isFull(err) {
		err = fmt.Errorf("%w: a copy needs as much space as the database, where it is made (%w)", keep.ErrDiskFull, err)
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
	if err := c.script(`PRAGMA secure_delete = ON; BEGIN IMMEDIATE`); err != nil { // of the key of links no byte stays
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

// foreignLog returns the log, or the journal, of another file that stands beside a backup; empty: there is none. A
// backup has none before its restore begins, and if it is copied over a file whose host died it finds that of the file before. SQLite would
// play it back over the backup.
func foreignLog(ctx context.Context, path string) (string, error) {
	var log string
	for _, suffix := range []string{"-journal", "-wal"} {
		info, err := os.Stat(path + suffix)
		switch {
		case err == nil && info.Size() > 0:
			log = path + suffix
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
	}
	if log == "" {
		return "", nil
	}
	// Immutable: the log is not read. A file that a host writes to at this moment may look
	// broken so, and is no backup.
	source := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(path), RawQuery: "mode=ro&immutable=1"}
	c, err := openConn(ctx, source.String())
	if err != nil {
		return "", nil
	}
	defer c.close()
	if mark, err := readMark(c); err != nil || mark.State != transfer.Backup || mark.Restoring {
		return "", nil
	}
	return log, nil
}

// SetAsideLog renames the log and the journal of another file that stand beside a backup, and returns the
// new name of one. Empty: there is none.
func (p *Place) SetAsideLog(ctx context.Context) (aside string, err error) {
	path, err := realPath(p.path)
	if err != nil {
		return "", err
	}
	lock, err := lockHost(path)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	for {
		log, err := foreignLog(ctx, path)
		if err != nil || log == "" {
			return aside, err
		}
		aside = log + ".before"
		if err := errors.Join(os.Rename(log, aside), removeFile(path+"-shm")); err != nil {
			return aside, err
		}
	}
}
