package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

// Errors returned by a database that cannot do what it is asked.
var (
	// ErrClosed is keep.ErrClosed.
	ErrClosed = keep.ErrClosed

	// ErrReadOnly is returned by Commit when Config.ReadOnly is set.
	ErrReadOnly = errors.New("the database was opened to read only")

	// ErrNotHost is returned by MayHost when Config.Host is not set.
	ErrNotHost = errors.New("the file was not opened as a host: set sqlite.Config.Host, with which one process at a time runs its workflows")
)

// Config says how a database is opened. The zero Config opens it beside a host:
// to read, and to commit what a command decides.
type Config struct {
	// Host makes this process the one that runs workflows on the file. Open
	// fails with keep.ErrLocked while another process has that role.
	Host bool

	// ReadOnly refuses commits. The file must exist and be up to date.
	ReadOnly bool

	// Older opens a file with an older schema, too, if ReadOnly is set: Older says so then. Such a file can be copied
	// with Backup, Check looks for damage alone, and records cannot be read: their reads fail, or find too little.
	Older bool

	// NoUpgrade refuses a file with an older schema, which nobody can take back. A new file is made all the same.
	NoUpgrade bool

	// New begins anew where there was a database that is gone or empty; otherwise that is
	// keep.ErrGone. A database that is there is an error.
	New bool

	// Counts has what this process writes counted, as what a host writes is, so that an older copy of the file
	// is known although no host works on it (keep.ErrOlderCopy), and a file that is gone (keep.ErrGone). It is for who
	// serves, not for a command. Who takes idempotency keys counts from the first one on, whatever this says.
	Counts bool

	// BusyTimeout is how long a commit waits while another process writes. If
	// zero, 10 seconds.
	BusyTimeout time.Duration

	// Readers is the most connections that read at once. If zero, 4.
	Readers int
}

// A DB is a database in one file. It is safe for concurrent use. Make one with
// New, then Open it.
type DB struct {
	path  string
	cfg   Config
	moved bool // by a Place: a mark is no reason to refuse

	older       error // of a file with an older schema, if that was no reason to refuse; nil: it is up to date
	was, schema int   // numbers of the last migration, as Open found it and as it is since; 0: it was empty

	limits  searchLimits
	seconds <-chan time.Time // has a value each second, for the count of transactions; nil: Open makes it

	lock  *hostLock // of a host
	file  *os.File  // of who is none and writes; closed after the connections, since that drops their locks
	open  *openFile // from when its first connection was opened until the last one is closed
	read  *sql.DB
	stmts sync.Map // prepared statements of read: SQL text to *sql.Stmt
	over  atomic.Bool

	closing sync.Mutex // held by Close
	write   *writer    // nil if read-only
}

// New returns a database that is not open yet. It touches nothing.
func New(path string, cfg Config) *DB {
	cfg.BusyTimeout = cmp.Or(cfg.BusyTimeout, 10*time.Second)
	cfg.Readers = cmp.Or(cfg.Readers, 4)
	return &DB{path: path, cfg: cfg, limits: usualLimits}
}

// Open opens the file, makes it if it is missing, and brings its schema up to
// date. Its errors are keep.ErrLocked, keep.ErrForeignDatabase,
// keep.ErrNewerDatabase, keep.ErrOlderDatabase, keep.ErrGone, keep.ErrOlderCopy, keep.ErrSealed unless Config.ReadOnly is set, and
// those of the file system; they name the file and what to do. After an error the database is as it was.
func (db *DB) Open(ctx context.Context) (err error) {
	if db.read != nil {
		return fmt.Errorf("open %s: already open", db.path)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("open %s: %w", db.path, named(err, db.path))
			_ = db.Close() // the first error says more
		}
	}()
	if db.path, err = realPath(db.path); err != nil {
		return err
	}
	if db.seconds == nil {
		db.seconds = time.NewTicker(time.Second).C
	}
	if db.cfg.Host {
		if db.lock, err = lockHost(db.path); err != nil {
			return err
		}
	}
	if err := db.prepareFile(ctx); err != nil {
		return err
	}
	if !db.cfg.ReadOnly {
		file, err := db.openFile()
		if err != nil {
			return err
		}
		if db.write, err = openWriter(ctx, db.path, db.dsn(false), file, db.limits.unindexed); err != nil {
			return err
		}
		db.write.counts.host, db.write.counts.due = db.lock != nil, db.seconds // before its first request
	}
	if db.write != nil && (db.lock != nil || db.cfg.Counts) {
		if err := db.signed(ctx); err != nil {
			return err
		}
		db.write.counts.on.Store(true)
	}
	if err := db.openReaders(ctx); err != nil || db.cfg.ReadOnly {
		return err
	}
	return db.catchUp(ctx)
}

// openFile returns the file as it is on the disk: that of the lock, or one of its own, which stays open as long as there are
// connections.
func (db *DB) openFile() (*os.File, error) {
	if db.lock != nil && db.lock.file != nil {
		return db.lock.file, nil
	}
	file, err := os.Open(db.path)
	if err != nil {
		return nil, err
	}
	db.file = file
	return file, nil
}

// signed counts in the database, and then in the lock, that a host, or who counts as one does, begins or ends. A host may
// begin on a full disk: what is there can be looked at.
func (db *DB) signed(ctx context.Context) error {
	var s signature
	err := db.write.do(ctx, func(c *conn) (err error) {
		s, err = sign(c)
		return err
	})
	if errors.Is(err, keep.ErrDiskFull) {
		return nil
	}
	if err == nil {
		db.write.counts.say(s, db.path)
	}
	return err
}

// openReaders makes the pool. Query_only keeps a mistake in a read from
// becoming a write without a commit.
func (db *DB) openReaders(ctx context.Context) error {
	read, err := sql.Open("sqlite", db.dsn(true))
	if err != nil {
		return err
	}
	db.read = read
	read.SetMaxOpenConns(db.cfg.Readers)
	read.SetMaxIdleConns(db.cfg.Readers)
	return read.PingContext(ctx)
}

// Close waits for commits under way, refuses new ones, and gives up the lock.
// Closing twice is fine, also at the same time: whoever returns finds it closed.
func (db *DB) Close() error {
	db.over.Store(true)
	db.closing.Lock()
	defer db.closing.Unlock()
	if db.write != nil && db.write.counts.on.Swap(false) {
		_ = db.signed(context.Background()) // of a file that was replaced, or is full, it says nothing
	}
	var errs []error
	if db.write != nil {
		errs = append(errs, db.write.close())
	}
	if db.read != nil {
		db.stmts.Range(func(_, stmt any) bool {
			errs = append(errs, stmt.(*sql.Stmt).Close())
			return true
		})
		errs = append(errs, db.read.Close())
	}
	errs = append(errs, openFiles.done(db.open))
	db.open = nil
	if db.file != nil {
		errs = append(errs, openFiles.close(db.file))
		db.file = nil
	}
	if db.lock != nil {
		errs = append(errs, db.lock.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close %s: %w", db.path, err)
	}
	return nil
}

// Path returns where the file is.
func (db *DB) Path() string { return db.path }

// Name returns where the file is, for people.
func (db *DB) Name() string { return db.path }

// Schema returns the number of the last migration that the file had when Open found it, and that it has since. Was is 0 if
// Open made the database.
func (db *DB) Schema() (was, is int) { return db.was, db.schema }

// Older returns a keep.ErrOlderDatabase, which says what to do, of a file that was opened although its schema is older; see
// Config.Older.
func (db *DB) Older() error { return db.older }

// Commit makes all changes of c durable, or none; see store.Committer.
func (db *DB) Commit(ctx context.Context, c keep.Commit) error {
	err := ErrClosed
	switch {
	case db.cfg.ReadOnly:
		err = ErrReadOnly
	case db.write != nil:
		err = db.write.do(ctx, func(conn *conn) error {
			err := apply(conn, c)
			if !ofDatabase(err) {
				err = keep.Refused(err)
			}
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("commit %s: %w", c.Workflow, err)
	}
	return nil
}

// Grouped returns how many commits were written since the database was opened,
// and how many transactions they shared.
func (db *DB) Grouped() (commits, groups uint64) {
	if db.write == nil {
		return 0, 0
	}
	return db.write.served.Load(), db.write.groups.Load()
}

// StoreID returns the random name that the database got when it was made.
func (db *DB) StoreID(ctx context.Context) (string, error) {
	var id string
	err := db.row(ctx, `SELECT value FROM meta WHERE name = 'id'`, nil, &id)
	return id, err
}

// MayHost returns nil if Config.Host is set, and otherwise ErrNotHost; see store.Hosting.
func (db *DB) MayHost() error {
	if !db.cfg.Host {
		return fmt.Errorf("%s: %w", db.path, ErrNotHost)
	}
	return nil
}

// LinkKey returns what links to questions are signed with; see store.Links.
func (db *DB) LinkKey(ctx context.Context) (key []byte, err error) {
	err = db.change(ctx, func(c *conn) error {
		if _, err := c.exec(`INSERT INTO meta (name, value) VALUES ('`+stored.LinkKeyName+`', ?) ON CONFLICT DO NOTHING`, stored.NewLinkKey()); err != nil {
			return err
		}
		row, err := c.row(`SELECT value FROM meta WHERE name = '` + stored.LinkKeyName + `'`)
		if err == nil {
			key, err = stored.LinkKey(row[0].(string))
		}
		return err
	})
	return key, err
}

// ForeignChanges returns a number that changes when another process commits to
// the file, and never for a Commit of this one. Asking is cheap: it reads no page.
func (db *DB) ForeignChanges(ctx context.Context) (uint64, error) {
	if db.write == nil {
		return 0, ErrReadOnly
	}
	// The version that a connection sees moves for commits of all others. Only
	// the writer's own view leaves out what this process wrote.
	var version int64
	err := db.write.do(ctx, func(conn *conn) error {
		row, err := conn.row(`PRAGMA data_version`)
		if err == nil {
			version = row[0].(int64)
		}
		return err
	})
	return uint64(version), err
}
