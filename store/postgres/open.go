package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keep-run/keep"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the advisory lock under which the schema is changed: "KEEP".
const migrationLock = 0x4b454550

// Name returns where the database is, for people: the URL without its password.
func (db *DB) Name() string { return Redact(db.url) }

// Redact returns a URL without its password and options.
func Redact(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" && u.Path == "" {
		return "postgres"
	}
	name := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.User != nil {
		name.User = url.User(u.User.Username())
	}
	return name.String()
}

// connect makes the pool and tries it.
func (db *DB) connect(ctx context.Context) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(db.url)
	if err != nil {
		// The error of a URL quotes it, with the password.
		return nil, errors.New("the URL cannot be read: want postgres://user:password@host:port/database?sslmode=verify-full, " +
			"with a user and a password that are percent-encoded (/ is %2F, @ is %40), also where ${secret:NAME} stands for one: its value is put in as it is")
	}
	if u, err := url.Parse(db.url); db.cfg.Conns > 0 {
		cfg.MaxConns = int32(db.cfg.Conns)
	} else if err == nil && !u.Query().Has("pool_max_conns") {
		cfg.MaxConns = 10
	}
	cfg.MaxConns = max(cfg.MaxConns, int32(db.cfg.Writers)+1)
	cfg.ConnConfig.ConnectTimeout = cmp.Or(cfg.ConnConfig.ConnectTimeout, 10*time.Second)
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" && !pooled(cfg.ConnConfig) {
		cfg.ConnConfig.RuntimeParams["application_name"] = "keep"
	}
	// An idle host looks each second. It need not ask before whether the connection
	// is still there: looks are tried again.
	cfg.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > 3*time.Second }
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if !pooled(conn.Config()) {
			if _, err := conn.Exec(ctx, sessionSettings(db.cfg.StatementTimeout, db.cfg.IdleTimeout), pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
		}
		return db.recall(ctx, conn)
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	err = pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		return supported(conn.Conn().PgConn().ParameterStatus("server_version"))
	})
	if err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// oldestServer is the oldest major version that the tests run on; docs/POSTGRES.md
// says which others they do.
const oldestServer = 14

// supported refuses a server that is too old, by the version as it says it: "13.23",
// "15.18 (Debian 15.18-0+deb12u1)", "18rc1". One that says it otherwise is taken.
func supported(version string) error {
	end := strings.IndexFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(version)
	}
	major, err := strconv.Atoi(version[:end])
	if err == nil && major < oldestServer {
		return fmt.Errorf("the server is PostgreSQL %s, and Keep needs %d or newer: upgrade the server", version, oldestServer)
	}
	return nil
}

// pooled reports whether a pooler such as PgBouncer in transaction mode stands
// before the server: then a session is not ours, and nothing of it may be kept,
// set or listened to. The URL says so by a default_query_exec_mode without prepared statements.
func pooled(cfg *pgx.ConnConfig) bool {
	return cfg.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement
}

// sessionSettings are for every connection of ours.
//
// Every statement has an index for what it looks for, but is planned once for all
// sizes that its tables will have. A plan made while they are small would read them
// whole, and stay. What counts is the number of rows that a plan looks at: by the cost of pages
// many that lie together would be preferred to the few that are looked for.
func sessionSettings(timeout, idle time.Duration) string {
	return `SET statement_timeout = ` + strconv.FormatInt(timeout.Milliseconds(), 10) + `;
		SET idle_in_transaction_session_timeout = ` + strconv.FormatInt(idle.Milliseconds(), 10) + `;
		SET plan_cache_mode = force_generic_plan;
		SET seq_page_cost = 0; SET random_page_cost = 0;
		SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off`
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

// prepareSchema makes sure that this version of Keep can work on the schema, and sets what Schema returns.
func (db *DB) prepareSchema(ctx context.Context) error {
	files, err := migrationFiles()
	if err != nil {
		return err
	}
	known, pool, cfg := len(files), db.pool, db.cfg
	db.schema = known
	version, err := schemaVersion(ctx, pool)
	if err != nil {
		return err
	}
	db.was, db.is = version, version
	if !cfg.ReadOnly {
		if err := writable(ctx, pool); err != nil {
			return err
		}
	}
	if version > 0 && !cfg.ReadOnly {
		mark, err := readMark(ctx, pool)
		if err == nil {
			err = mark.Refuse()
		}
		if err != nil {
			return err
		}
	}
	switch {
	case version > known:
		return besideNewer(ctx, pool, known)
	case version == known:
		return nil
	case cfg.ReadOnly && version == 0:
		return keep.ErrNoDatabase
	case cfg.ReadOnly, cfg.NoUpgrade && version > 0:
		return fmt.Errorf("%w (its schema is %d, this one needs %d): make a backup of it, and then start a host, or give keep db migrate", keep.ErrOlderDatabase, version, known)
	}
	if db.was, err = migrate(ctx, pool, files); err != nil {
		return err
	}
	db.is = max(db.was, known)
	return besideNewer(ctx, pool, known) // while this one waited, a newer one may have brought it further
}

// writable refuses a server that takes no changes.
func writable(ctx context.Context, q querier) error {
	var readOnly bool
	err := q.QueryRow(ctx, `SELECT current_setting('transaction_read_only')::boolean`).Scan(&readOnly)
	if err == nil && readOnly {
		err = errors.New("the database is read-only (a standby?): name the server that takes changes, or several and target_session_attrs=read-write")
	}
	return err
}

// A querier runs one query: the pool, a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// asOfNow is the rest of a query that asks by name for a table that another process may have
// made while this one waited for [migrationLock]. A connection that asked before remembers
// that there was none; only reading a table makes it hear what has been committed since.
const asOfNow = `FROM pg_class WHERE oid = 'pg_class'::regclass`

// schemaVersion returns the number of the last migration, and 0 for a schema that
// has nothing of ours. A table of somebody else by one of our names is refused.
func schemaVersion(ctx context.Context, q querier) (int, error) {
	var version *string
	var meta, texts, run bool
	err := q.QueryRow(ctx, `SELECT to_regclass('meta') IS NOT NULL, to_regclass('run') IS NOT NULL, (SELECT count(*) FROM pg_attribute
		WHERE attrelid = to_regclass('meta') AND attname IN ('name', 'value') AND atttypid = 'text'::regtype) = 2 `+asOfNow).Scan(&meta, &run, &texts)
	if err != nil {
		return 0, err
	}
	if meta && texts {
		err = q.QueryRow(ctx, `SELECT max(value) FROM meta WHERE name = 'keep_schema'`).Scan(&version)
		if err != nil {
			return 0, err
		}
	}
	switch {
	case version != nil:
		return strconv.Atoi(*version)
	case meta:
		return 0, foreign("meta")
	case run:
		return 0, foreign("run")
	}
	return 0, nil
}

// foreign says whose a schema is.
func foreign(table string) error {
	return fmt.Errorf("%w: its table %s is of another program; choose another database, or another schema with ?search_path=", keep.ErrForeignDatabase, table)
}

// migrate brings the schema up to date, in one transaction, and returns the version that it found. Several processes may
// do so at once; one waits for the other.
func migrate(ctx context.Context, pool *pgxpool.Pool, files []string) (was int, err error) {
	err = pgx.BeginTxFunc(ctx, pool, readCommitted, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrationLock)); err != nil {
			return err
		}
		var err error
		if was, err = schemaVersion(ctx, tx); err != nil || was >= len(files) {
			return err
		}
		if err := beginMigration(ctx, tx, was); err != nil {
			return fmt.Errorf("migrate: %w", late(err))
		}
		for i := was; i < len(files); i++ {
			if err := migrateOne(ctx, tx, files[i], i+1); err != nil {
				return fmt.Errorf("migrate %s: %w", filepath.Base(files[i]), late(err))
			}
		}
		return nil
	})
	return was, err
}

const (
	// idempotencyNumber is that of the migration that Keys makes alone, where there
	// is no other table of ours.
	idempotencyNumber = 2

	// searchNumber is that of the migration after which records have words.
	searchNumber = 9

	// versionsNumber is that of the migration after which hosts say what they know.
	versionsNumber = 7
)

// migrateOne applies one file and its number.
func migrateOne(ctx context.Context, tx pgx.Tx, file string, number int) error {
	script, err := migrations.ReadFile(file)
	if err != nil {
		return err
	}
	oldest, err := oldestFor(file, number)
	if err != nil {
		return err
	}
	if err := leaveBehind(ctx, tx, oldest, number); err != nil {
		return err
	}
	var there bool
	if number == idempotencyNumber {
		if err := tx.QueryRow(ctx, `SELECT to_regclass('idempotency_key') IS NOT NULL `+asOfNow).Scan(&there); err != nil {
			return err
		}
	}
	if !there {
		if _, err := tx.Conn().PgConn().Exec(ctx, string(script)).ReadAll(); err != nil {
			return err
		}
	}
	if number == 1 {
		if _, err := tx.Exec(ctx, `INSERT INTO meta (name, value) VALUES ('id', $1)`, rand.Text()); err != nil {
			return err
		}
	}
	if number == searchNumber {
		if err := addWords(ctx, tx); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, `INSERT INTO meta (name, value) VALUES ('keep_schema', $1)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`, strconv.Itoa(number))
	if err != nil {
		return err
	}
	return noteOldest(ctx, tx, oldest)
}
