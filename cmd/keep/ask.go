package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/client"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/cmd/keep/internal/trust"
	"github.com/keep-run/keep/engine/lease"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store"
)

// env returns what hosts of this command get from it.
func (a *app) env() daemon.Env { return daemon.Env{Log: a.log, Clock: a.Clock, Say: a.say} }

// say tells the person at the terminal something.
func (a *app) say(format string, args ...any) {
	fmt.Fprintln(a.Err, terminal.Clean(fmt.Sprintf(format, args...)))
}

// client returns what clients of this command get from it.
func (a *app) client() client.Env { return client.Env{Terminal: a.Terminal, Log: a.log} }

// look calls f with a client of the database of the project around the working
// directory, to read. A mistake in another part of the configuration is no reason
// not to look.
func (a *app) look(ctx context.Context, f func(c *api.Client) error) error {
	return a.ask(ctx, database.ToRead, f)
}

// decide is look for who changes something, too.
func (a *app) decide(ctx context.Context, f func(c *api.Client) error) error {
	return a.ask(ctx, database.ToDecide, f)
}

// ask continues after a mistake in keep.toml if that still says where the database is: who looks
// for what is wrong must not first repair a connection.
func (a *app) ask(ctx context.Context, r database.Role, f func(c *api.Client) error) error {
	cfg, err := a.configOfDB()
	if err != nil {
		// What the host runs with is of before, and a pause cannot wait for a comma. Another owner's file is refused all the same.
		if _, untrusted := errors.AsType[*trust.Error](err); !untrusted && !a.JSON {
			fmt.Fprintln(a.Err, "With --db FILE this command reaches the database, and the host that runs, whatever keep.toml says.")
		}
		return err
	}
	return a.client().Call(ctx, cfg, a.opening(r), f)
}

// configOfDB returns keep.toml for who opens its database: mistakes are passed over if it still says where that is. Its name may
// have a secret that is missing here.
func (a *app) configOfDB() (*config.Config, error) {
	cfg, err := a.LoadConfig(".")
	switch {
	case cfg != nil && cfg.DB != "":
		return cfg, nil
	case err == nil:
		err = &config.Error{Problems: slices.DeleteFunc(slices.Clone(cfg.Missing), func(p config.Problem) bool { return p.Path != "db" })}
	}
	return cfg, err
}

// opening opens the database in a role, to look at it and to record what a person
// decides. It is called only if no daemon answers (package client). What it returns runs no
// workflow; connections are opened for the few decisions that need one.
func (a *app) opening(r database.Role) client.Opener {
	return func(ctx context.Context, cfg *config.Config) (database.DB, daemon.Actors, func() error, error) {
		db, err := database.Open(ctx, cfg, r)
		if err != nil {
			return nil, daemon.Actors{}, nil, err
		}
		// Opened only by a decision that needs them; see there.
		results := &configured{cfg: cfg, db: db}
		o, clock, err := a.operatorOf(ctx, cfg, db, results)
		if err != nil {
			return nil, daemon.Actors{}, nil, errors.Join(err, db.Close())
		}
		return db, daemon.Actors{Actor: o, Clock: clock, Replayer: results.replays(db, a.log)}, func() error { return errors.Join(results.close(), db.Close()) }, nil
	}
}

// operatorOf returns what records decisions in a database, and the clock that dates them. On one that hosts share,
// they count by its clock, as does what is late and the period of a list: that of this machine may be wrong.
func (a *app) operatorOf(ctx context.Context, cfg *config.Config, db database.DB, results operator.Results) (*operator.Operator, func() time.Time, error) {
	clock := lease.NewClock(a.Now)
	if hosts, ok := db.(store.Leaser); ok {
		if err := clock.Read(ctx, hosts, ""); err != nil {
			return nil, nil, err
		}
	}
	o, err := operator.New(db, operator.Config{Now: clock.Now, Results: results, Budgets: cfg.BudgetRules, Logger: a.log})
	return o, clock.Now, err
}

// withStore opens the database of the project around the working directory in a
// role, whether a daemon runs on it or not, and closes it after f. It is for what
// concerns the database as a whole: it must not depend on a daemon, or there is
// nothing to ask one for.
func (a *app) withStore(ctx context.Context, r database.Role, f func(cfg *config.Config, db database.DB) error) (err error) {
	cfg, err := a.configOfDB()
	if err != nil {
		return err
	}
	db, err := database.Open(ctx, cfg, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return f(cfg, db)
}
