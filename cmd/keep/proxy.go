package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/postgres"
	"github.com/keep-run/keep/sqlite"
	"github.com/spf13/cobra"
)

func (a *app) proxyCmd() *cobra.Command {
	var flags proxy.Config
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Put idempotency keys in front of any HTTP backend",
		Long: `Proxy passes requests on to the backend, and executes those that carry an
Idempotency-Key (or X-Idempotency-Key) once: a retry gets the first answer. It
keeps its records in the database, and survives a crash: what nobody can know is
answered with outcome-unknown and a reference. See keep keys.

Routes and their rules are in the [proxy] table of keep.toml.`,
		Example: `  keep proxy --upstream http://127.0.0.1:8000 --db keys.db`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.proxy(cmd.Context(), flags) },
	}
	f := cmd.Flags()
	f.StringVar(&flags.Upstream, "upstream", "", "`URL` of the backend")
	f.StringVar(&flags.Listen, "listen", "", "`address` for clients (default 127.0.0.1:7435)")
	f.StringVar(&flags.AdminListen, "admin-listen", "", "`address` of /metrics, /healthz, /readyz and the admin API, or off (default 127.0.0.1:7434)")
	f.StringVar(&flags.TLSCert, "tls-cert", "", "certificate `file`: clients speak HTTPS")
	f.StringVar(&flags.TLSKey, "tls-key", "", "key `file` of the certificate")
	return cmd
}

func (a *app) proxy(ctx context.Context, flags proxy.Config) (err error) {
	project, err := a.loadConfig(".")
	if err != nil {
		return err
	}
	cfg := project.Proxy
	cfg.Upstream = cmp.Or(flags.Upstream, cfg.Upstream)
	cfg.Listen = cmp.Or(flags.Listen, cfg.Listen)
	cfg.AdminListen = cmp.Or(flags.AdminListen, cfg.AdminListen)
	cfg.TLSCert, cfg.TLSKey = cmp.Or(flags.TLSCert, cfg.TLSCert), cmp.Or(flags.TLSKey, cfg.TLSKey)
	cfg.Logger = a.log
	cfg.Ready = func(clients, admin net.Addr) {
		fmt.Fprintf(a.err, "keep proxy: %s in front of %s\n", clients, cfg.Upstream)
		if admin != nil {
			fmt.Fprintf(a.err, "keep proxy: admin on http://%s\n", admin)
		}
	}
	store, closeStore, err := openKeys(ctx, project.DB)
	if err != nil {
		return unreachable(err)
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	p, err := proxy.New(store, cfg)
	if err != nil {
		return misusef("%w", err)
	}
	return p.Run(ctx)
}

// openKeys opens the records of a file, or of a Postgres database, which several
// proxies may share.
func openKeys(ctx context.Context, db string) (idempotency.Store, func() error, error) {
	if !isPostgres(db) {
		file := sqlite.New(db, sqlite.Config{})
		if err := file.Open(ctx); err != nil {
			return nil, nil, err
		}
		return file.Keys(), file.Close, nil
	}
	pool, err := pgxpool.New(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	keys := postgres.NewKeys(pool)
	if err := keys.Migrate(ctx); err != nil {
		pool.Close()
		return nil, nil, err
	}
	return keys, func() error { pool.Close(); return nil }, nil
}
