package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

// Errors returned by a database that cannot do what it is asked.
var (
	// ErrClosed is keep.ErrClosed.
	ErrClosed = keep.ErrClosed

	// ErrReadOnly is returned by Commit when Config.ReadOnly is set.
	ErrReadOnly = errors.New("the database was opened to read only")
)

// Config says how a database is opened. The zero Config opens it beside a host:
// to read, and to commit what a command decides.
type Config struct {
	// Host makes this process one that runs workflows on the database. There may
	// be others: leases say which has which. It learns at once what others
	// commit to its workflows.
	Host bool

	// ReadOnly refuses commits. The schema must exist and be up to date.
	ReadOnly bool

	// NoUpgrade refuses an older schema, which nobody can take back. A new one is made all the same.
	NoUpgrade bool

	// Conns is the most connections that are open at once, those that write
	// included. If zero, pool_max_conns of the URL, or else 10.
	Conns int

	// Writers is the most groups of commits that are under way at once. If zero,
	// 2. Another group begins beside one only when 64 commits wait: fewer and
	// larger groups cost both sides less.
	Writers int

	// StatementTimeout ends a statement that takes longer. If zero, 30 seconds.
	StatementTimeout time.Duration

	// IdleTimeout ends a transaction in which nothing happens for longer: its
	// process is frozen or cannot be reached, and holds locks without which
	// no other host can take over its workflows. If zero, 2 seconds.
	IdleTimeout time.Duration
}

// A DB is a database on a Postgres server. It is safe for concurrent use. Make one
// with New, then Open it.
type DB struct {
	url string
	cfg Config

	pool   *pgxpool.Pool
	alerts *alerts // of a host
	id     string  // what StoreID was at the start; it names the channel
	schema int     // the last migration that this program has
	was    int     // the last migration that the database had when Open found it; 0: there was nothing of ours
	is     int     // the last one that it has since
	walk   int     // rows that a search reads before it asks the index
	over   atomic.Bool
	record record
	commit combiner[keep.Commit]
	keys   *Keys
}

// New returns a database that is not open yet. It touches nothing. The URL is
// that of libpq, with its options for TLS (sslmode, sslrootcert, …), and with those
// of pgx: pool_max_conns, default_query_exec_mode, …
func New(url string, cfg Config) *DB {
	cfg.Writers = cmp.Or(cfg.Writers, 2)
	cfg.StatementTimeout = cmp.Or(cfg.StatementTimeout, 30*time.Second)
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, 2*time.Second)
	db := &DB{url: url, cfg: cfg, walk: firstWalk}
	db.commit = combiner[keep.Commit]{
		serve: db.serve, key: func(c keep.Commit) string { return string(c.Workflow) }, width: cfg.Writers, limit: 256,
		worth: 64, gathers: true,
	}
	return db
}

// Open connects, and brings the schema up to date unless Config.ReadOnly is set.
// Its errors are keep.ErrForeignDatabase, keep.ErrNewerDatabase, keep.ErrOlderDatabase, keep.ErrOlderHosts, and
// keep.ErrSealed unless Config.ReadOnly is set, and those of the connection; they name
// the server and what to do, and never a password. After an error the database is as it
// was. A newer schema is no error if its migrations say that this program may continue
// beside them.
func (db *DB) Open(ctx context.Context) (err error) {
	if db.pool != nil {
		return fmt.Errorf("open %s: already open", db.Name())
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("open %s: %w", db.Name(), err)
			_ = db.Close() // the first error says more
		}
	}()
	if db.pool, err = db.connect(ctx); err != nil {
		return err
	}
	if err := db.prepareSchema(ctx); err != nil {
		return err
	}
	db.keys = NewKeys(db.pool)
	if err := db.pool.QueryRow(ctx, `SELECT value FROM meta WHERE name = 'id'`).Scan(&db.id); err != nil {
		return err
	}
	if db.cfg.Host && !pooled(db.pool.Config().ConnConfig) {
		db.alerts = listen(db.pool.Config().ConnConfig, channel(db.id))
	}
	return nil
}

// Close waits for commits under way, and refuses new ones. Closing twice is fine.
func (db *DB) Close() error {
	if db.over.Swap(true) {
		return nil
	}
	db.commit.close()
	if db.alerts != nil {
		db.alerts.close()
	}
	if db.pool != nil {
		db.pool.Close()
	}
	return nil
}

// Schema returns the number of the last migration that the database had when Open found it, and that it has since. Was is 0
// if Open made its tables.
func (db *DB) Schema() (was, is int) { return db.was, db.is }

// Commit makes all changes of c durable, or none; see store.Committer. Commits of
// several workflows that arrive together share a transaction, and so its fsync and
// its round trips.
//
// A connection that is lost while the server commits leaves the fate unknown: the
// error then is none of package keep. It is keep.ErrReplaced once the server lacks what it
// said is committed; then every workflow is paused. It is keep.ErrNewerDatabase for a commit without a lease once a
// newer version has made a schema beside which this one must not work.
func (db *DB) Commit(ctx context.Context, c keep.Commit) error {
	err := ErrClosed
	switch {
	case db.cfg.ReadOnly:
		err = ErrReadOnly
	case db.pool != nil:
		if err = keep.Refused(c.Validate()); err == nil {
			err = db.commit.do(ctx, c)
		}
	}
	if err != nil {
		return fmt.Errorf("commit %s: %w", c.Workflow, err)
	}
	return nil
}

// MayHost returns nil: leases say which host has which workflow; see store.Hosting.
func (db *DB) MayHost() error { return nil }

// StoreID returns the random name that the database got when it was made. It asks the server each time: so a host
// finds out whether that answers.
func (db *DB) StoreID(ctx context.Context) (string, error) {
	return one(ctx, db, "meta", "id", pgx.RowTo[string], `SELECT value FROM meta WHERE name = 'id'`)
}

// LinkKey returns what links to questions are signed with; see store.Links.
func (db *DB) LinkKey(ctx context.Context) ([]byte, error) {
	_, err := db.exec(ctx, `INSERT INTO meta (name, value) VALUES ('`+stored.LinkKeyName+`', $1) ON CONFLICT DO NOTHING`, stored.NewLinkKey())
	if err != nil {
		return nil, err
	}
	var text string
	if err := db.pool.QueryRow(ctx, `SELECT value FROM meta WHERE name = '`+stored.LinkKeyName+`'`).Scan(&text); err != nil {
		return nil, err
	}
	return stored.LinkKey(text)
}

// Keys returns the database's idempotency keys. It needs an open database.
func (db *DB) Keys() *Keys { return db.keys }
