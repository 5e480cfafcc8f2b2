package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keep-run/keep"
)

// Hosts of two versions work side by side while one takes the place of the other
// (docs/POSTGRES.md, Rolling upgrade). Each migration says which may:
//
//	-- oldest: 5
//
// is its first line if programs whose last migration is 5, or a later one, continue as
// if it were not there. Without that line only programs continue that have it. The
// database keeps the highest such number in its table meta.
var oldestLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^-- oldest: ([0-9]+)\n`) })

// oldestFor returns the number of the migration that a program must have to work
// beside the one in file, which has that number.
func oldestFor(file string, number int) (int, error) {
	script, err := migrations.ReadFile(file)
	if err != nil {
		return 0, err
	}
	line := oldestLine().FindSubmatch(script)
	if line == nil {
		if bytes.Contains(script, []byte("-- oldest")) {
			return 0, fmt.Errorf("%s: want -- oldest: N as its first line", filepath.Base(file))
		}
		return number, nil
	}
	oldest, err := strconv.Atoi(string(line[1]))
	if err == nil && oldest > number {
		err = fmt.Errorf("%s: oldest is %d", filepath.Base(file), oldest)
	}
	return oldest, err
}

// oldestOf returns what the database asks of a program, in SQL: the last migration
// that it must have.
const oldestOf = `coalesce((SELECT value::bigint FROM meta WHERE name = 'keep_oldest'),
	(SELECT value::bigint FROM meta WHERE name = 'keep_schema'))`

// beside refuses a database that a program with that many migrations cannot work on.
func beside(known, oldest int) error {
	if known < oldest {
		return fmt.Errorf("%w (it asks for schema %d, this one knows %d); install that version", keep.ErrNewerDatabase, oldest, known)
	}
	return nil
}

// besideNewer is asked about a schema that has more than what is known here.
func besideNewer(ctx context.Context, q querier, known int) error {
	var oldest int
	if err := q.QueryRow(ctx, `SELECT `+oldestOf).Scan(&oldest); err != nil {
		return err
	}
	return beside(known, oldest)
}

// lockTimeout is how long a migration waits for what others are at. Meanwhile hosts
// wait for it, and less than their leases allow.
const lockTimeout = "5s"

// beginMigration takes the time that a migration needs, and locks out commits: they
// begin with leases, and those of a migration with anything. So neither waits for
// the other half-way. Hosts are locked before leases, as everywhere.
func beginMigration(ctx context.Context, tx pgx.Tx, version int) error {
	_, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', '0', TRUE), set_config('idle_in_transaction_session_timeout', '60s', TRUE),
		set_config('lock_timeout', '`+lockTimeout+`', TRUE)`)
	if err != nil || version == 0 {
		return err
	}
	_, err = tx.Exec(ctx, `LOCK TABLE host, lease IN EXCLUSIVE MODE`)
	return err
}

// leaveBehind makes sure that no host is at work which could not live with a
// migration that asks for that number. Those that are gone lose what they had, so
// that one which wakes up is fenced.
func leaveBehind(ctx context.Context, tx pgx.Tx, oldest, number int) error {
	if number <= versionsNumber {
		return nil // no host says yet what it knows
	}
	rows, err := tx.Query(ctx, `SELECT name || ' (' || version || ')' FROM host WHERE schema < $1 AND until > `+now+` ORDER BY started_at, id`, oldest)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("%w, and cannot continue after it: %s; stop them, and try again", keep.ErrOlderHosts, plain(strings.Join(names, ", ")))
	}
	if _, err := tx.Exec(ctx, `UPDATE lease SET host = '', since = `+now+`, touched = FALSE
		WHERE host IN (SELECT id FROM host WHERE schema < $1) AND host <> ''`, oldest); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `DELETE FROM host WHERE schema < $1`, oldest)
	return err
}

// noteOldest keeps what the database asks for from now on.
func noteOldest(ctx context.Context, tx pgx.Tx, oldest int) error {
	_, err := tx.Exec(ctx, `INSERT INTO meta AS m (name, value) VALUES ('keep_oldest', $1::bigint::text)
		ON CONFLICT (name) DO UPDATE SET value = greatest(m.value::bigint, excluded.value::bigint)::text`, oldest)
	return err
}

// late says what a migration waited for in vain.
func late(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "55P03" { // lock_not_available
		return fmt.Errorf("a long transaction, such as pg_dump, was in the way for %s: try again after it: %w", lockTimeout, err)
	}
	return err
}
