package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/transfer"
)

// Backup writes the database as it is at one moment, which begins at now, to a new
// file, which only its owner may read. A host may continue meanwhile. The file is there when it is
// complete and on disk, or not at all; one that exists is an error. It is marked
// transfer.Backup: whoever opens it to work is refused, until it was restored.
//
// The copy is made in a directory beside the file. What a process that was killed has left there goes with the next
// backup beside it.
func (db *DB) Backup(ctx context.Context, to string, now time.Time) error {
	sweepBackups(filepath.Dir(to))
	dir, err := newBackupDir(filepath.Dir(to))
	if err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	part := filepath.Join(dir.path, backupPart)
	err = db.copyTo(ctx, part)
	if err == nil {
		err = db.markBackup(ctx, part, now)
	}
	if err == nil {
		err = syncFile(part)
	}
	if ctx.Err() != nil { // SQLite says no more than that it was interrupted
		err = context.Cause(ctx)
	}
	if err == nil {
		err = place(part, to)
	}
	if err == nil && runtime.GOOS != "windows" { // which has no such thing
		err = syncFile(filepath.Dir(to))
	}
	if isFull(err) {
		err = fmt.Errorf("%w: a copy needs as much space as the database, where it is made (%w)", keep.ErrDiskFull, err)
	}
	dir.remove() // what cannot be removed now goes with the next backup
	if err != nil {
		return fmt.Errorf("back up to %s: %w", to, err)
	}
	return nil
}

// copyTo copies all that is in the database to a new file. It ends with ctx.
func (db *DB) copyTo(ctx context.Context, part string) error {
	if err := createFile(part); err != nil { // VACUUM INTO takes an empty file, and its mode
		return err
	}
	// The other connections that read are query_only, which refuses to write another
	// file as well.
	source := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(db.path), RawQuery: "mode=ro"}
	c, err := openConn(ctx, source.String())
	if err != nil {
		return err
	}
	_, err = c.raw.(driver.ExecerContext).ExecContext(ctx, `VACUUM INTO ?`, []driver.NamedValue{{Ordinal: 1, Value: part}})
	return errors.Join(err, c.close())
}

// link is os.Link but in tests.
var link = os.Link

// place gives a file the name to, where nothing is.
func place(part, to string) error {
	// A link fails where a rename would replace what came meanwhile.
	err := link(part, to)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	// A file system without links: the name is taken first, and what is renamed replaces that empty file.
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = f.Close()
	if err == nil {
		err = os.Rename(part, to)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(to))
	}
	return err
}

// A backupDir is a directory in which a copy is made. The lock in it ends with the process, and says until then that it is used.
type backupDir struct {
	path string
	lock *flock.Flock
}

// Names of the directory of a copy, and in it.
const (
	backupDirs = ".keep-backup-"
	backupPart = "part"
	backupLock = "lock"
)

// newBackupDir makes the directory of a copy. Where there are no locks nobody sweeps it.
func newBackupDir(beside string) (*backupDir, error) {
	path, err := os.MkdirTemp(beside, backupDirs)
	if err != nil {
		return nil, err
	}
	d := &backupDir{path, flock.New(filepath.Join(path, backupLock), flock.SetPermissions(0o600))}
	_, _ = d.lock.TryLock()
	return d, nil
}

// remove removes the directory.
func (d *backupDir) remove() {
	_ = d.lock.Close()
	_ = os.RemoveAll(d.path)
}

// sweepBackups removes the copies that processes which were killed have left in a directory. A copy has a lock before
// it has anything else, so what has no lock is of another version or program, and what has nothing else begins now. What
// cannot be looked at or removed is no reason to make no backup.
func sweepBackups(dir string) {
	list, _ := os.ReadDir(dir)
	for _, e := range list {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), backupDirs) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		_, err := os.Lstat(filepath.Join(path, backupPart))
		info, lockErr := os.Lstat(filepath.Join(path, backupLock))
		if err != nil || lockErr != nil || !info.Mode().IsRegular() {
			continue
		}
		left := &backupDir{path, flock.New(filepath.Join(path, backupLock))}
		if free, err := left.lock.TryLock(); err == nil && free {
			left.remove()
		}
	}
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
// new name of one, which nothing had. Empty: there is none. A database that is not there is left to who opens it.
func (p *Place) SetAsideLog(ctx context.Context) (aside string, err error) {
	path, err := realPath(p.path)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) { // a lock would stay
		return "", nil
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
		if aside, err = freeName(log + ".before"); err != nil {
			return "", err
		}
		if err := errors.Join(os.Rename(log, aside), removeFile(path+"-shm")); err != nil {
			return aside, err
		}
	}
}

// freeName returns a name that nothing has: that of an earlier restore may still be of use. Who has the lock of the database is alone.
func freeName(name string) (string, error) {
	free := name
	for n := 2; ; n++ {
		_, err := os.Lstat(free)
		if errors.Is(err, fs.ErrNotExist) {
			return free, nil
		}
		if err != nil {
			return "", err
		}
		free = name + "-" + strconv.Itoa(n)
	}
}
