// Package database opens the SQLite file or the Postgres database of a command, in a role
// that says what the command may do with it.
package database

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/store/sqlite"
)

// A DB is a file of SQLite or a database of Postgres: what hosts work on,
// and what the API and the pages show. It is wide because the command hands it to all of
// these; each takes the part that it needs.
type DB interface {
	store.Store

	// Name returns where it is, without a password.
	Name() string

	// Schema returns the number of its last migration as Open found it, 0 if Open made the database, and as it is since.
	Schema() (was, is int)

	Close() error
}

// A Role is what a command does with the database.
type Role int

const (
	ToExamine Role = iota // as ToRead, and opens a file with an older schema, too: to copy it, or to say what it is
	ToRead                // reads; the database must exist
	ToDecide              // records what a person decides; the database must exist
	ToDeploy              // as ToDecide, but makes the database if there is none
	ToMigrate             // as ToDeploy, and brings the schema up to date, as ToHost does and nothing else
	ToHost                // runs workflows; of a file, one process at a time

	anew Role = 1 << 4 // with ToDeploy, ToMigrate and ToHost: begin anew where a database was and is gone
)

// Open opens the database of the configuration. Every error means that it
// cannot be reached, and says what to do.
func Open(ctx context.Context, cfg *config.Config, r Role) (DB, error) {
	if cfg.Anew && r >= ToDeploy {
		r |= anew
	}
	db, err := OpenName(ctx, cfg.DB, r)
	switch {
	case err == nil:
		return db, nil
	case ctx.Err() != nil:
		// The command was stopped, or its time is over: no fault of the database.
		return nil, fmt.Errorf("open the database: %w", context.Cause(ctx))
	default:
		return nil, exit.NoDatabase(err)
	}
}

// OpenName opens a file or a URL in a role.
func OpenName(ctx context.Context, name string, r Role) (DB, error) {
	as := r &^ anew
	if IsPostgres(name) {
		db := postgres.New(name, postgres.Config{Host: as == ToHost, ReadOnly: as <= ToRead, NoUpgrade: as < ToMigrate})
		return db, db.Open(ctx)
	}
	if err := NotURL(name); err != nil {
		return nil, err
	}
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) && as < ToDeploy {
		// A database that was there and is gone is another error than one that was never made.
		if err := sqlite.Gone(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, &MissingError{Name: terminal.Short(name), With: "keep run, keep dev or keep serve"}
	}
	db := sqlite.New(name, sqlite.Config{Host: as == ToHost, ReadOnly: as <= ToRead, Older: as == ToExamine, NoUpgrade: as < ToMigrate, New: r&anew != 0})
	return db, db.Open(ctx)
}

// Older returns why the records of a database that was opened ToExamine cannot be read, and what to do: its schema is older. Nil:
// they can.
func Older(db DB) error {
	if file, ok := db.(*sqlite.DB); ok {
		return file.Older()
	}
	return nil // Postgres refuses it in each role that does not migrate it
}

// Backup copies a file to a new one while a host works on it, and checks the copy: that of an older schema for damage alone. If it
// breaks laws, it stays and the error is a *BrokenCopyError. If ctx ends before it is checked there is no copy.
func Backup(ctx context.Context, db *sqlite.DB, to string, now time.Time) error {
	if err := db.Backup(ctx, to, now); err != nil {
		return err
	}
	broken, err := brokenLaws(ctx, to)
	switch {
	case ctx.Err() != nil: // it would be in the way of the same command
		return errors.Join(fmt.Errorf("check the copy: %w", context.Cause(ctx)), os.Remove(to))
	case err != nil:
		return fmt.Errorf("check the copy, which is kept: %w", err)
	case broken > 0:
		return &BrokenCopyError{to, broken}
	}
	return nil
}

// brokenLaws counts the laws that a database breaks.
func brokenLaws(ctx context.Context, name string) (broken int, err error) {
	db, err := OpenName(ctx, name, ToExamine)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for found := range db.Check(ctx) {
		if _, ok := errors.AsType[*keep.Violation](found); !ok {
			return broken, found
		}
		broken++
	}
	return broken, nil
}

// A BrokenCopyError is returned for a copy that breaks laws, as its database does.
type BrokenCopyError struct {
	File string
	Laws int
}

// Error says which command shows them.
func (e *BrokenCopyError) Error() string {
	return fmt.Sprintf("%s breaks %s; the copy is kept: see keep doctor --db %[1]s", terminal.Short(e.File), terminal.Plural(e.Laws, "law"))
}

// A MissingError is returned when there is no file of that name.
type MissingError struct {
	Name string
	With string // the commands that make one
}

// Error says how to make the database.
func (e *MissingError) Error() string {
	return fmt.Sprintf("there is no database %s yet; start one with %s, or name another with --db", e.Name, e.With)
}

// Is reports that nothing was made yet.
func (e *MissingError) Is(target error) bool { return target == keep.ErrNoDatabase }

// StartedWith returns err, which says that a database is started with those commands if there is none.
func StartedWith(commands string, err error) error {
	if missing, ok := errors.AsType[*MissingError](err); ok {
		return exit.NoDatabase(&MissingError{missing.Name, commands})
	}
	return err
}

// IsPostgres reports whether a database is named by a URL of Postgres.
func IsPostgres(name string) bool {
	return strings.HasPrefix(name, "postgres://") || strings.HasPrefix(name, "postgresql://")
}

// NotURL refuses a URL where a file is meant.
func NotURL(name string) error {
	if scheme, _, isURL := strings.Cut(name, "://"); isURL {
		return fmt.Errorf("there are no %s databases; name a file, or postgres://user@host/database", terminal.Clean(scheme))
	}
	return nil
}

// ShortName returns how people are notified of a database: a short name.
func ShortName(db string) string {
	if IsPostgres(db) {
		return FullName(db)
	}
	return terminal.Short(db)
}

// FullName returns where a database is: the path of a file, or a URL without its
// password.
func FullName(db string) string {
	if IsPostgres(db) {
		return postgres.Redact(db)
	}
	return db
}

// Keys returns the idempotency keys of a database.
func Keys(db DB) idempotency.Store {
	switch db := db.(type) {
	case *sqlite.DB:
		return db.Keys()
	case *postgres.DB:
		return db.Keys()
	}
	panic(fmt.Sprintf("no keys in a %T", db)) // OpenName makes no other
}
