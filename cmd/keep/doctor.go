package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/buildinfo"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/store/sqlite"
)

// doctorCmd is for a person who does not trust what they see. It asks no daemon: what is doubted may
// be its answers.
func (a *app) doctorCmd() *cobra.Command {
	compact, servers := false, false
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the configuration and the whole database",
		Long: `Doctor checks keep.toml with its secrets, and then every record of the database
against the laws of Keep. It changes nothing and may run beside a host. A broken
law is a bug of Keep or a damaged file: keep a copy of the file and report it. Of a
database that an older version made it says so, with what to do, and of a file whether
it is damaged; that is status 5.

With --compact it then writes an SQLite file anew without its free pages, if no
law is broken. It needs as much disk again meanwhile, and no host may be running.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.LoadConfig(".")
			if cfg == nil {
				return err
			}
			if err := a.doctor(cmd.Context(), cfg, err, servers); err != nil || !compact {
				return err
			}
			return compactFile(cmd.Context(), cfg)
		},
	}
	cmd.Flags().BoolVar(&servers, "servers", false, "start or connect to each MCP server, and compare what is declared of its tools with what it lists; no tool is called")
	cmd.Flags().BoolVar(&compact, "compact", false, "then write the database file anew, without its free pages")
	return cmd
}

// A diagnosis is what keep doctor --json prints.
type diagnosis struct {
	OK         bool               `json:"ok"`
	Version    string             `json:"version"`
	Config     *string            `json:"config"` // null: there is no keep.toml, or it was not looked at (keep db check)
	DB         string             `json:"db"`
	Cache      *string            `json:"cache"` // of the compiled sandbox; null: none can be used
	Problems   []terminal.Problem `json:"problems"`
	Violations []violation        `json:"violations"`

	older bool // the records were not checked
}

// A violation is a broken law, or a sign that the file cannot be read.
type violation struct {
	Law    *string `json:"law"`
	Record *string `json:"record"`
	Why    string  `json:"why"`
}

// compactFile compacts the database that was examined, whatever keep.toml names by now.
func compactFile(ctx context.Context, cfg *config.Config) (err error) {
	// To compact must not make a database where there is none.
	db, err := database.Open(ctx, cfg, database.ToRead)
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		return err
	}
	// In the role of a host, so that no other process has the file.
	if db, err = database.Open(ctx, cfg, database.ToHost); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	file, ok := db.(*sqlite.DB)
	if !ok {
		return exit.Misusef("--compact is for files of SQLite; Postgres has autovacuum")
	}
	return file.Compact(ctx)
}

// doctor continues after a mistake in the configuration, which err is: the database is the more
// important half. A broken law is status 1 and comes before mistakes in keep.toml, which are
// status 2: only the latter can be repaired by who reads it.
func (a *app) doctor(ctx context.Context, cfg *config.Config, err error, servers bool) error {
	d := diagnosis{Version: buildinfo.Read().Version, DB: database.FullName(cfg.DB), Problems: []terminal.Problem{}, Violations: []violation{}}
	if cfg.File != "" {
		d.Config = &cfg.File
	}
	if dir := project.CacheDir(); dir != "" {
		d.Cache = &dir
	}
	// Opened and closed again: secrets that are missing show only so. No call is made.
	conns, connErr := cfg.Connect()
	d.Problems = append(d.Problems, project.Problems("", errors.Join(err, connErr, project.CloseConnections(conns)))...)
	if servers {
		d.Problems = append(d.Problems, project.ConfigProblems(cfg.Misfits(ctx), "error")...)
	}
	// Warnings are printed, and do not count.
	bad := len(d.Problems)
	d.Problems = append(d.Problems, project.ConfigProblems(cfg.Warnings, "warning")...)
	if cfg.DB != "" {
		if err := a.examine(ctx, cfg, &d); err != nil {
			return err
		}
	}
	d.OK = bad == 0 && len(d.Violations) == 0 && !d.older
	if a.JSON {
		if err := a.PrintJSON(d); err != nil {
			return err
		}
	} else {
		a.printDiagnosis(d, true)
	}
	switch {
	case len(d.Violations) > 0:
		return exit.With(exit.Failed)
	case d.older:
		return exit.With(exit.Unreachable)
	case bad > 0:
		return exit.With(exit.Misused)
	}
	return nil
}

// examine checks the database. That there is none yet is fine, unless --db names it or it left
// traces: then it was there, and is gone.
func (a *app) examine(ctx context.Context, cfg *config.Config, d *diagnosis) error {
	if _, err := os.Stat(cfg.DB); !database.IsPostgres(cfg.DB) && errors.Is(err, os.ErrNotExist) && a.DB == "" {
		if err := sqlite.Gone(cfg.DB); err != nil && !errors.Is(err, os.ErrNotExist) {
			return exit.NoDatabase(err)
		}
		fmt.Fprintf(a.Err, "There is no database %s yet.\n", terminal.Short(cfg.DB))
		return nil
	}
	db, err := database.Open(ctx, cfg, database.ToExamine)
	if errors.Is(err, keep.ErrOlderDatabase) { // of Postgres
		d.isOlder(cfg, err)
		return nil
	}
	if err != nil {
		return err
	}
	d.isOlder(cfg, database.Older(db))
	d.Violations, err = violations(ctx, db)
	return errors.Join(err, db.Close())
}

// isOlder adds why the records of a database were not checked, and what to do; nil: they were.
func (d *diagnosis) isOlder(cfg *config.Config, why error) {
	if d.older = why != nil; d.older {
		d.Problems = append(d.Problems, terminal.Problem{Severity: "error", Code: "older-database", File: database.ShortName(cfg.DB), Message: why.Error()})
	}
}

// violations returns every broken law of a database.
func violations(ctx context.Context, db database.DB) ([]violation, error) {
	out := []violation{}
	for err := range db.Check(ctx) {
		// An interruption would look like a record that cannot be read.
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		v := violation{Why: err.Error()}
		if e, ok := errors.AsType[*keep.Violation](err); ok {
			v = violation{Law: &e.Law, Record: &e.Record, Why: e.Why}
		}
		out = append(out, v)
	}
	return out, nil
}

// printDiagnosis prints what is wrong first, and then where things are: all that was looked at, or the database alone.
func (a *app) printDiagnosis(d diagnosis, all bool) {
	for _, c := range d.Problems {
		fmt.Fprint(a.Out, a.OutInk.Problem(c))
	}
	for _, v := range d.Violations {
		if v.Law == nil {
			fmt.Fprintln(a.Out, a.OutInk.Red(terminal.Clean(v.Why)))
			continue
		}
		fmt.Fprintf(a.Out, "%s %s: %s\n", a.OutInk.Red("law "+*v.Law+" is broken:"), terminal.Clean(*v.Record), terminal.Clean(v.Why))
	}
	var s terminal.Sheet
	s.Add("version", "%s", d.Version)
	if all {
		s.Add("config", "%s", terminal.OrDash(d.Config))
	}
	s.Add("database", "%s", terminal.Clean(d.DB))
	if all {
		s.Add("cache", "%s", terminal.OrDash(d.Cache))
		s.Add("problems", "%d", len(d.Problems))
	}
	if d.older {
		s.Add("records", "not checked")
	} else {
		s.Add("broken laws", "%d", len(d.Violations))
	}
	// Stdout that cannot be written to shows in the status of nothing else here.
	_ = s.Print(a.Out, a.OutInk)
}

// checkStore is keep check --db: the database alone.
func (a *app) checkStore(ctx context.Context) error {
	return a.withStore(ctx, database.ToRead, func(_ *config.Config, db database.DB) error {
		found, err := violations(ctx, db)
		if err != nil {
			return err
		}
		d := diagnosis{OK: len(found) == 0, Version: buildinfo.Read().Version, DB: db.Name(),
			Problems: []terminal.Problem{}, Violations: found}
		if a.JSON {
			err = a.PrintJSON(d)
		} else {
			a.printDiagnosis(d, false)
		}
		if err == nil && len(found) > 0 {
			err = exit.With(exit.Failed)
		}
		return err
	})
}
