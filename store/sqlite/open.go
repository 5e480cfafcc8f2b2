package sqlite

import (
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/transfer"
)

// applicationID marks a file as Keep's: "KEEP" in ASCII, at byte 68.
const applicationID = 0x4b454550

// migrations bring an older file up to date. Of what they make of an empty one, schema.sql is
// the text (TestSchema), so that a new file need not go through all that there ever was.
var (
	//go:embed migrations/*.sql
	migrations embed.FS

	//go:embed schema.sql
	schema string
)

// realPath returns where path really is, so that two names of a file share one
// lock. What is there must be a regular file, or nothing.
func realPath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path, err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if errors.Is(err, fs.ErrNotExist) {
		return path, fmt.Errorf("make the directory %s first: %w", filepath.Dir(abs), fs.ErrNotExist)
	}
	if err != nil {
		return path, err
	}
	abs = filepath.Join(dir, filepath.Base(abs))
	if file, err := filepath.EvalSymlinks(abs); err == nil {
		abs = file
	}
	return abs, regular(abs)
}

// dsn returns the name by which the driver opens the file.
//
// Autocheckpoint is four times the default: at 64 busy workflows a group writes
// several hundred pages, and each checkpoint costs two more fsyncs.
func (db *DB) dsn(readOnly bool) string {
	q := url.Values{"_pragma": {
		"busy_timeout(" + strconv.FormatInt(db.cfg.BusyTimeout.Milliseconds(), 10) + ")",
	}}
	add := func(pragma string) { q.Add("_pragma", pragma) }
	switch {
	case db.cfg.ReadOnly:
		q.Set("mode", "ro")
		add("query_only(1)")
	case readOnly:
		q.Set("mode", "rw")
		add("query_only(1)")
	default:
		q.Set("mode", "rw")
		add("synchronous(FULL)") // commit returns after fsync
		add("foreign_keys(1)")
		add("wal_autocheckpoint(4000)")
		add("journal_size_limit(67108864)") // give the disk back after a burst
		add("cache_size(-16384)")
		add("temp_store(MEMORY)")
	}
	name := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(db.path), RawQuery: q.Encode()}
	return name.String()
}

// prepareFile makes sure that the file is a database of this version of Keep.
func (db *DB) prepareFile(ctx context.Context) error {
	fresh, err := db.inspectOrMake()
	if err != nil {
		return err
	}
	if db.open, err = openFiles.use(db.path); err != nil {
		return err
	}
	if foreign, err := foreignLog(ctx, db.path); err != nil || foreign != "" {
		return cmp.Or(err, fmt.Errorf("%w: it is a backup, and %s beside it is of the file that was there before; see keep db restored --help", keep.ErrSealed, foreign))
	}
	if db.lock != nil {
		err = db.lock.bind(db.path)
	} else {
		err = checkName(db.path)
	}
	if err != nil {
		return err
	}
	files, err := migrationFiles()
	if err != nil {
		return err
	}
	version, mark, said := 0, transfer.Mark{}, signature{}
	lock := readSignature(db.path) // first: a host counts in the database before it says so there
	if !fresh {
		if version, mark, said, err = db.version(ctx); err != nil {
			return err
		}
	}
	db.was, db.schema = version, version
	older := error(nil)
	if !db.cfg.ReadOnly && !db.moved { // looking does no harm, and a person may say that it was restored
		older = said.olderThan(lock)
	}
	switch {
	case version > len(files):
		return fmt.Errorf("%w (its schema is %d, this one knows %d); install that version", keep.ErrNewerDatabase, version, len(files))
	case mark.Fenced() && db.moved:
		return nil // its schema stays as it is
	case mark.Fenced() && !db.cfg.ReadOnly:
		return mark.Refuse()
	case older != nil:
		return older
	case version == len(files):
		return nil
	case db.cfg.ReadOnly && version == 0: // who made the file died before it was a database
		return keep.ErrNoDatabase
	case db.cfg.ReadOnly, db.cfg.NoUpgrade && version > 0:
		if db.older = olderSchema(version, len(files)); db.cfg.ReadOnly && db.cfg.Older {
			return nil
		}
		return db.older
	}
	err = db.migrate(ctx, version, files)
	if err == nil {
		db.schema = len(files)
	}
	return err
}

// olderSchema says of a file what it lacks, and what to do.
func olderSchema(has, needs int) error {
	return fmt.Errorf("%w (its schema is %d, this one needs %d): make a backup of it with keep db backup, and then start a host, or give keep db migrate", keep.ErrOlderDatabase, has, needs)
}

// inspectOrMake makes an empty file if there is none, and reports whether it is empty. A
// database that is gone is not begun anew unless Config.New says so: all that it knew would
// be done again.
func (db *DB) inspectOrMake() (fresh bool, err error) {
	fresh, err = inspectFile(db.path)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case db.cfg.ReadOnly, err != nil && !missing:
		return fresh, err
	case !fresh && !missing && db.cfg.New:
		return false, fmt.Errorf("there is a database already: to begin anew, move it away first: %w", fs.ErrExist)
	case !fresh && !missing:
		return false, nil
	case db.cfg.New:
		err = removeLogs(db.path) // those of a database that is gone; the lock stays, it is held
	default:
		err = Gone(db.path)
	}
	if err == nil && missing {
		err = createFile(db.path)
	}
	return true, err
}

// inspectFile reads the header without opening the database, so that a file of
// another program is left exactly as it is. It reports whether the file is empty.
func inspectFile(path string) (empty bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	empty, err = inspectHeader(f)
	return empty, cmp.Or(err, openFiles.close(f))
}

// headerSize is how much of a file inspectHeader reads.
const headerSize = 72

// inspectHeader is inspectFile for a file that is open.
func inspectHeader(r io.Reader) (empty bool, err error) {
	var header [headerSize]byte
	n, err := io.ReadFull(r, header[:])
	switch {
	case errors.Is(err, io.EOF):
		return true, nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		return false, fmt.Errorf("%w: it has %d bytes; choose another file", keep.ErrForeignDatabase, n)
	case err != nil:
		return false, err
	case string(header[:16]) != "SQLite format 3\x00":
		return false, fmt.Errorf("%w: it is no SQLite file; choose another file", keep.ErrForeignDatabase)
	}
	if id := binary.BigEndian.Uint32(header[68:]); id != applicationID {
		return false, fmt.Errorf("%w: its application id is %#x; choose another file", keep.ErrForeignDatabase, id)
	}
	return false, nil
}

// createFile makes an empty file that only its owner may read: payloads are
// private. SQLite gives its other files the same mode.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was faster
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// version returns the number of the last migration that the file has, and what it
// says of its moves and of itself.
func (db *DB) version(ctx context.Context) (version int, mark transfer.Mark, said signature, err error) {
	c, err := openConn(ctx, db.dsn(true))
	if err != nil {
		return 0, mark, said, err
	}
	defer c.close()
	row, err := c.row(`PRAGMA user_version`)
	if isUnfinished(err) {
		if err := db.unfinished(ctx); err != nil || db.cfg.ReadOnly {
			return 0, mark, said, err
		}
		return db.version(ctx)
	}
	if err != nil {
		return 0, mark, said, fmt.Errorf("read version: %w", err)
	}
	if version = int(row[0].(int64)); version > 0 {
		if mark, err = readMark(c); err == nil {
			said, err = signatureOf(c)
		}
	}
	return version, mark, said, err
}

// maxUnmade is how long a file can be whose first pages are not all written, in bytes.
const maxUnmade = 64 << 10

// unfinished undoes what somebody began to write before there was a log and did not live to end:
// mostly the first pages of the file. Who only reads cannot, and finds nothing yet.
func (db *DB) unfinished(ctx context.Context) error {
	if db.cfg.ReadOnly {
		if info, err := os.Stat(db.path); err != nil || info.Size() > maxUnmade {
			return cmp.Or(err, errors.New("its first write was cut off: start a host once"))
		}
		return nil // of version 0
	}
	c, err := openConn(ctx, db.dsn(false))
	if err != nil {
		return err
	}
	defer c.close()
	if _, err := c.row(`PRAGMA user_version`); err != nil {
		return fmt.Errorf("undo what was begun: %w", err)
	}
	return nil
}

// migrationFiles returns the names of the migrations; the first has number 1.
func migrationFiles() ([]string, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		if !strings.HasPrefix(filepath.Base(name), fmt.Sprintf("%04d_", i+1)) {
			return nil, fmt.Errorf("migration %s: want number %04d", name, i+1)
		}
	}
	return names, nil
}

// migrate brings the schema up to date. Only the process with the host's role
// may: a running host does not know the new schema.
func (db *DB) migrate(ctx context.Context, version int, files []string) error {
	if db.lock == nil {
		lock, err := lockHost(db.path)
		switch {
		case errors.Is(err, keep.ErrLocked) && version > 0:
			return fmt.Errorf("its schema is %d, this version needs %d, and only a host changes it: start the host anew with this version, or use the version of that host: %w", version, len(files), err)
		case err != nil:
			return fmt.Errorf("update schema: %w", err)
		}
		defer lock.Close()
		if err := lock.bind(db.path); err != nil {
			return fmt.Errorf("update schema: %w", err)
		}
	}
	c, err := openConn(ctx, db.dsn(false))
	if err != nil {
		return err
	}
	defer c.close()
	// The mark is written before the switch to WAL: so it is in the file itself,
	// where inspectFile looks, from the first byte on. Whether free pages can be
	// given back is chosen before the first byte; in an older file it says nothing. Both are
	// one transaction, since who dies between them would leave the file of no program.
	for _, pragma := range []string{
		`BEGIN`,
		`PRAGMA auto_vacuum = INCREMENTAL`,
		`PRAGMA application_id = ` + strconv.Itoa(applicationID),
		`COMMIT`,
	} {
		if _, err := c.row(pragma); err != nil {
			return fmt.Errorf("%s: %w", pragma, err)
		}
	}
	if err := toWAL(c); err != nil {
		return err
	}
	row, err := c.row(`PRAGMA user_version`)
	if err != nil {
		return fmt.Errorf("read version: %w", err)
	}
	version = int(row[0].(int64)) // somebody may have changed it since
	if db.was = version; version == 0 {
		return changeSchema(c, schema, 0, len(files))
	}
	for i := version; i < len(files); i++ {
		script, err := migrations.ReadFile(files[i])
		if err == nil {
			err = changeSchema(c, string(script), i, i+1)
		}
		if err != nil {
			return fmt.Errorf("migrate %s: %w", filepath.Base(files[i]), err)
		}
	}
	return nil
}

// toWAL has SQLite keep a log of writes beside the file, from now on. Without it a commit that was
// acknowledged can be undone by a power loss, readers and a host wait for one another, and who dies in a commit
// leaves a file that cannot be read before it is written to. Backups are files without, as VACUUM makes them, and so
// are those that were restored before this was looked at.
func toWAL(c *conn) error {
	row, err := c.row(`PRAGMA journal_mode = WAL`)
	if err != nil {
		return fmt.Errorf("keep a log of writes: %w", err)
	}
	if mode, _ := row[0].(string); mode != "wal" {
		return fmt.Errorf("SQLite cannot keep a log of writes beside the file (its journal mode stays %q): move it to a disk of this machine", mode)
	}
	return nil
}

// changeSchema executes a script that leads from one version of the schema to another, and
// writes down the other, in one transaction. A file that is new gets its id.
func changeSchema(c *conn, script string, from, to int) error {
	if err := c.script(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	err := c.script(script + `; PRAGMA user_version = ` + strconv.Itoa(to))
	if err == nil && from == 0 {
		_, err = c.exec(`INSERT INTO meta (name, value) VALUES ('id', ?)`, rand.Text())
	}
	if err == nil {
		err = c.script(`COMMIT`)
	}
	if err != nil {
		_ = c.script(`ROLLBACK`) // after a full disk SQLite may have done so itself
	}
	return err
}
