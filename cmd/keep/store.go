package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/config"
	"github.com/keep-run/keep/sqlite"
)

// A role is what a command does with the database.
type role int

const (
	toLook   role = iota // reads; the file must exist
	toDecide             // records what a person decides; the file must exist
	toDeploy             // as toDecide, but makes the file if there is none
	toHost               // runs workflows; one process at a time
)

// openStore opens the database of the configuration. Every error means that it
// cannot be reached, and says what to do.
func openStore(ctx context.Context, cfg *config.Config, r role) (*sqlite.DB, error) {
	if scheme, _, isURL := strings.Cut(cfg.DB, "://"); isURL {
		return nil, unreachable(fmt.Errorf("%s databases are not supported by this version; name a file", clean(scheme)))
	}
	if _, err := os.Stat(cfg.DB); errors.Is(err, fs.ErrNotExist) && (r == toLook || r == toDecide) {
		return nil, unreachable(fmt.Errorf("there is no database %s yet; start one with keep run, keep dev or keep serve, or name another with --db", short(cfg.DB)))
	}
	db := sqlite.New(cfg.DB, sqlite.Config{Host: r == toHost, ReadOnly: r == toLook})
	switch err := db.Open(ctx); {
	case err == nil:
		return db, nil
	case ctx.Err() != nil:
		// The command was stopped, or its time is over: no fault of the database.
		return nil, fmt.Errorf("open the database: %w", context.Cause(ctx))
	default:
		return nil, unreachable(err)
	}
}

// unreachable gives err the status of a database that cannot be reached.
func unreachable(err error) error { return &statusError{exitUnreachable, err} }

// look opens the database of the project around the working directory to read
// from it, and calls f with it. A mistake in another part of the configuration
// is no reason not to look.
func (a *app) look(ctx context.Context, f func(db *sqlite.DB) error) error {
	return a.withStore(ctx, toLook, func(_ *config.Config, db *sqlite.DB) error { return f(db) })
}

// withStore opens the database of the project around the working directory in a
// role, and closes it after f.
func (a *app) withStore(ctx context.Context, r role, f func(cfg *config.Config, db *sqlite.DB) error) (err error) {
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

// A tap is a store that tells of each commit once it is durable.
type tap struct {
	*sqlite.DB
	after func(c keep.Commit) // called by several goroutines at once
}

// Commit makes c durable and then tells of it.
func (t *tap) Commit(ctx context.Context, c keep.Commit) error {
	err := t.DB.Commit(ctx, c)
	if err == nil {
		t.after(c)
	}
	return err
}
