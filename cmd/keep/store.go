package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/access"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/config"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/notify"
	"github.com/keep-run/keep/postgres"
	"github.com/keep-run/keep/sqlite"
	"github.com/keep-run/keep/web"
)

// A database is a file of SQLite or a database of Postgres: what hosts work on,
// and what the API and the pages show.
type database interface {
	host.Store
	notify.Store
	access.Store
	api.Store
	web.Store

	Check(ctx context.Context) iter.Seq[error]

	// Name returns where it is, without a password.
	Name() string

	Close() error
}

// A role is what a command does with the database.
type role int

const (
	toLook   role = iota // reads; the database must exist
	toDecide             // records what a person decides; the database must exist
	toDeploy             // as toDecide, but makes the database if there is none
	toHost               // runs workflows; of a file, one process at a time
)

// openStore opens the database of the configuration. Every error means that it
// cannot be reached, and says what to do.
func openStore(ctx context.Context, cfg *config.Config, r role) (database, error) {
	db, err := openDatabase(ctx, cfg.DB, r)
	switch {
	case err == nil:
		return db, nil
	case ctx.Err() != nil:
		// The command was stopped, or its time is over: no fault of the database.
		return nil, fmt.Errorf("open the database: %w", context.Cause(ctx))
	default:
		return nil, unreachable(err)
	}
}

// openDatabase opens a file or a URL in a role.
func openDatabase(ctx context.Context, name string, r role) (database, error) {
	if isPostgres(name) {
		db := postgres.New(name, postgres.Config{Host: r == toHost, ReadOnly: r == toLook})
		return db, db.Open(ctx)
	}
	if err := notURL(name); err != nil {
		return nil, err
	}
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) && (r == toLook || r == toDecide) {
		return nil, fmt.Errorf("there is no database %s yet; start one with keep run, keep dev or keep serve, or name another with --db", short(name))
	}
	db := sqlite.New(name, sqlite.Config{Host: r == toHost, ReadOnly: r == toLook})
	return db, db.Open(ctx)
}

// isPostgres reports whether a database is named by a URL of Postgres.
func isPostgres(name string) bool {
	return strings.HasPrefix(name, "postgres://") || strings.HasPrefix(name, "postgresql://")
}

// notURL refuses a URL where a file is meant.
func notURL(name string) error {
	if scheme, _, isURL := strings.Cut(name, "://"); isURL {
		return fmt.Errorf("there are no %s databases; name a file, or postgres://user@host/database", clean(scheme))
	}
	return nil
}

// nameOf returns how people are told of a database: a short name.
func nameOf(db string) string {
	if isPostgres(db) {
		return fullName(db)
	}
	return short(db)
}

// fullName returns where a database is: the path of a file, or a URL without its
// password.
func fullName(db string) string {
	if isPostgres(db) {
		return postgres.Redact(db)
	}
	return db
}

// keysOf returns the idempotency keys of a database.
func keysOf(db database) idempotency.Store {
	switch db := db.(type) {
	case *sqlite.DB:
		return db.Keys()
	case *postgres.DB:
		return db.Keys()
	}
	panic(fmt.Sprintf("no keys in a %T", db)) // openDatabase makes no other
}

// unreachable gives err the status of a database that cannot be reached.
func unreachable(err error) error { return &statusError{exitUnreachable, err} }

// withStore opens the database of the project around the working directory in a
// role, whether a daemon runs on it or not, and closes it after f. It is for what
// concerns the database as a whole: it must not depend on a daemon, or there is
// nothing to ask one for.
func (a *app) withStore(ctx context.Context, r role, f func(cfg *config.Config, db database) error) (err error) {
	cfg, err := a.loadConfig(".")
	if err != nil && (cfg == nil || cfg.DB == "") {
		return err
	}
	db, err := openStore(ctx, cfg, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return f(cfg, db)
}

// leasesOf returns the leases of a database that several hosts share, or nil.
func leasesOf(db database) engine.Leaser {
	l, _ := db.(engine.Leaser)
	return l
}

// newTap returns a tap of a database. It is a host.Watcher if the database is.
func newTap(db database, after func(keep.Commit)) host.Store {
	t := &tap{db, after}
	if w, ok := db.(host.Watcher); ok {
		return watchedTap{t, w}
	}
	return t
}

// A watchedTap is a tap of a database that other processes may change.
type watchedTap struct {
	*tap
	host.Watcher
}

// A tap is a store that tells of each commit once it is durable.
type tap struct {
	database
	after func(c keep.Commit) // called by several goroutines at once
}

// Commit makes c durable and then tells of it.
func (t *tap) Commit(ctx context.Context, c keep.Commit) error {
	err := t.database.Commit(ctx, c)
	if err == nil {
		t.after(c)
	}
	return err
}
