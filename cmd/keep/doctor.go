package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/config"
	"github.com/keep-run/keep/sqlite"
	"github.com/spf13/cobra"
)

// doctorCmd is for a person who does not trust what they see.
func (a *app) doctorCmd() *cobra.Command {
	compact := false
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the configuration and the whole database",
		Long: `Doctor checks keep.toml with its secrets, and then every record of the database
against the laws of Keep. It changes nothing and may run beside a host. A broken
law is a bug of Keep or a damaged file: keep a copy of the file and report it.

With --compact it then writes an SQLite file anew without its free pages, if no
law is broken. It needs as much disk again meanwhile, and no host may be running.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.doctor(cmd.Context()); err != nil || !compact {
				return err
			}
			return a.withStore(cmd.Context(), toHost, func(_ *config.Config, db database) error {
				file, ok := db.(*sqlite.DB)
				if !ok {
					return misusef("--compact is for files of SQLite; Postgres has autovacuum")
				}
				return file.Compact(cmd.Context())
			})
		},
	}
	cmd.Flags().BoolVar(&compact, "compact", false, "then write the database file anew, without its free pages")
	return cmd
}

// A diagnosis is what keep doctor --json prints.
type diagnosis struct {
	OK         bool        `json:"ok"`
	Version    string      `json:"version"`
	Config     *string     `json:"config"` // null: there is no keep.toml
	DB         string      `json:"db"`
	Cache      *string     `json:"cache"` // of the compiled sandbox; null: none can be used
	Problems   []complaint `json:"problems"`
	Violations []violation `json:"violations"`
}

// A violation is a broken law, or a sign that the file cannot be read.
type violation struct {
	Law    *string `json:"law"`
	Record *string `json:"record"`
	Why    string  `json:"why"`
}

// doctor goes on after a mistake in the configuration: the database is the more
// important half.
func (a *app) doctor(ctx context.Context) error {
	cfg, err := a.loadConfig(".")
	if cfg == nil {
		return err
	}
	d := diagnosis{Version: thisVersion().Version, DB: fullName(cfg.DB), Problems: []complaint{}, Violations: []violation{}}
	if cfg.File != "" {
		d.Config = &cfg.File
	}
	if dir := cacheDir(); dir != "" {
		d.Cache = &dir
	}
	conns, connErr := cfg.Connect()
	d.Problems = append(d.Problems, a.complaints("", errors.Join(err, connErr, closeAll(conns)))...)
	bad := len(d.Problems)
	d.Problems = append(d.Problems, ofConfig(cfg.Warnings, "warning")...)
	if cfg.DB != "" {
		if err := a.examine(ctx, cfg, &d); err != nil {
			return err
		}
	}
	d.OK = bad == 0 && len(d.Violations) == 0
	if a.json {
		if err := a.printJSON(d); err != nil {
			return err
		}
	} else {
		a.printDiagnosis(d)
	}
	switch {
	case len(d.Violations) > 0:
		return said(exitFailed)
	case bad > 0:
		return said(exitMisused)
	}
	return nil
}

// examine checks the database. That there is none yet is fine.
func (a *app) examine(ctx context.Context, cfg *config.Config, d *diagnosis) error {
	if _, err := os.Stat(cfg.DB); !isPostgres(cfg.DB) && errors.Is(err, os.ErrNotExist) && a.db == "" {
		fmt.Fprintf(a.err, "There is no database %s yet.\n", short(cfg.DB))
		return nil
	}
	db, err := openStore(ctx, cfg, toLook)
	if err != nil {
		return err
	}
	d.Violations, err = violations(ctx, db)
	return errors.Join(err, db.Close())
}

// violations returns every broken law of a database.
func violations(ctx context.Context, db database) ([]violation, error) {
	out := []violation{}
	for err := range db.Check(ctx) {
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

// printDiagnosis prints what is wrong first, and then where things are.
func (a *app) printDiagnosis(d diagnosis) {
	for _, c := range d.Problems {
		fmt.Fprint(a.out, a.outInk.complaint(c))
	}
	for _, v := range d.Violations {
		if v.Law == nil {
			fmt.Fprintln(a.out, a.outInk.red(clean(v.Why)))
			continue
		}
		fmt.Fprintf(a.out, "%s %s: %s\n", a.outInk.red("law "+*v.Law+" is broken:"), clean(*v.Record), clean(v.Why))
	}
	var s sheet
	s.add("version", "%s", d.Version)
	s.add("config", "%s", orDash(d.Config))
	s.add("database", "%s", clean(d.DB))
	s.add("cache", "%s", orDash(d.Cache))
	s.add("problems", "%d", len(d.Problems))
	s.add("broken laws", "%d", len(d.Violations))
	// Stdout that cannot be written to shows in the status of nothing else here.
	_ = s.print(a.out, a.outInk)
}

// checkStore is keep check --db: the database alone.
func (a *app) checkStore(ctx context.Context) error {
	return a.withStore(ctx, toLook, func(_ *config.Config, db database) error {
		found, err := violations(ctx, db)
		if err != nil {
			return err
		}
		d := diagnosis{OK: len(found) == 0, Version: thisVersion().Version, DB: db.Name(),
			Problems: []complaint{}, Violations: found}
		if a.json {
			err = a.printJSON(d)
		} else {
			a.printDiagnosis(d)
		}
		if err == nil && len(found) > 0 {
			err = said(exitFailed)
		}
		return err
	})
}
