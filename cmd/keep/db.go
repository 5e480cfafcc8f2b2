package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/store/sqlite"
)

// dbCmd is for the database as a whole. Its verbs open it themselves, whether a daemon runs or not;
// the database says to those that need it alone who has it.
func (a *app) dbCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "db",
		Short: "The database: bring it up to date, check it, back it up, move it",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.copyCmd(), a.unsealCmd(), a.restoredCmd(), a.anewFlag(&cobra.Command{
		Use:   "migrate",
		Short: "Make the database, or bring its schema up to date",
		Long: `Migrate makes the database if there is none, and else brings its schema up to
date, and says which it was and which it is. keep run, dev, serve, gateway and proxy do
so by themselves when they start; this is for those who want it at a time of their own.
All else refuses an older schema. A file must have no host while it is changed.
Hosts on Postgres continue meanwhile. If a migration is one that an older host at work
could not live with, it is refused, and says which hosts to stop first.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Opening it in this role has migrated it.
			return a.withStore(cmd.Context(), database.ToMigrate, func(_ *config.Config, db database.DB) error {
				return a.printMigrated(db)
			})
		},
	}), &cobra.Command{
		Use:   "check",
		Short: "Check every record of the database against the laws of Keep",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.checkStore(cmd.Context()) },
	}, &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy an SQLite database to a new file while a host works on it",
		Long: `Backup writes a copy of the database as it is at one moment, without its free
pages, and checks the copy. A host may continue meanwhile, also one of an older version,
as before an upgrade: of an older schema the copy has just that, and only damage is looked
for. That version can restore it as well.

A backup does not know what was done after it, and a host that works on it does that
again. So nobody can work on the copy at first. To restore it: stop the hosts, put the
copy in the place of the file, and run keep db restored, which checks it, pauses all
workflows and says what to look at. If keep.db-wal, keep.db-journal or keep.db-shm of the file
before are still there, as after a crash, they don't belong to the copy: restored renames the
first two and removes the last, and nothing opens the copy beside them before. Looking at the
copy needs none of this.

A database of Postgres is backed up by pg_dump, which also copies one moment. The same
danger holds, and nothing keeps a host from it: run keep db restored first.

  pg_dump --format=custom --file=keep.dump postgres://…
  pg_restore --dbname=postgres://… keep.dump
  keep db restored --db postgres://…`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.backup(cmd.Context(), args[0]) },
	}, a.sweepCmd())
	againIfStopped(cmd)
	return cmd
}

// A migrated is what keep db migrate --json prints.
type migrated struct {
	DB         string `json:"db"`
	From       *int   `json:"from"` // the schema that was there; null: there was no database
	To         int    `json:"to"`
	Migrations int    `json:"migrations"` // how many were made; 0 for a new database, too
}

// printMigrated says what opening a database has done to its schema.
func (a *app) printMigrated(db database.DB) error {
	was, is := db.Schema()
	m, name := migrated{DB: db.Name(), To: is}, database.ShortName(db.Name())
	if was > 0 {
		m.From, m.Migrations = &was, is-was
	}
	switch {
	case a.JSON:
		return a.PrintJSON(m)
	case was == 0:
		fmt.Fprintf(a.Err, "%s was made, with schema %d.\n", name, is)
	case was < is:
		fmt.Fprintf(a.Err, "%s has schema %d now, and had %d: %s.\n", name, is, was, terminal.Plural(is-was, "migration"))
	default:
		fmt.Fprintf(a.Err, "%s is up to date, with schema %d.\n", name, is)
	}
	return nil
}

// againIfStopped has each verb of cmd say what to do when it was interrupted.
func againIfStopped(cmd *cobra.Command) {
	for _, verb := range cmd.Commands() {
		run := verb.RunE
		verb.RunE = func(cmd *cobra.Command, args []string) error {
			err := run(cmd, args)
			if errors.Is(err, context.Canceled) {
				return &stoppedError{err}
			}
			return err
		}
	}
}

// A stoppedError is that of a command that nothing continues, and that may be given again.
type stoppedError struct{ error }

// Unwrap returns that it was interrupted.
func (e *stoppedError) Unwrap() error { return e.error }

// backup copies a file and checks the copy. It never writes over a file: the one that is there may
// be the last good backup. The copy is marked as one, so that no host works on it before keep
// db restored.
func (a *app) backup(ctx context.Context, to string) error {
	to, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	// A path that cannot be looked at is refused as well.
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return exit.Misusef("%s exists; name a new file", terminal.Short(to))
	}
	what := "is a copy, and breaks no law"
	err = a.withStore(ctx, database.ToExamine, func(_ *config.Config, db database.DB) error {
		file, ok := db.(*sqlite.DB)
		if !ok {
			return exit.Misusef("%s is backed up by pg_dump; see keep db backup --help", db.Name())
		}
		if file.Older() != nil {
			schema, _ := file.Schema()
			what = fmt.Sprintf("is a copy, with the schema %d of an older version, and SQLite finds no damage in it", schema)
		}
		return database.Backup(ctx, file, to, a.Now())
	})
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(map[string]string{"file": to})
	}
	fmt.Fprintf(a.Err, "%s %s. To work on it: keep db restored --db %s\n", terminal.Short(to), what, terminal.Short(to))
	return nil
}
