package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/keep-run/keep/config"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/postgres"
	"github.com/keep-run/keep/sqlite"
	"github.com/pelletier/go-toml/v2"
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
	f.StringVar(&flags.Listen, "listen", "", "`address` for clients (default 127.0.0.1:7433)")
	f.StringVar(&flags.AdminListen, "admin-listen", "", "`address` of /metrics, /healthz, /readyz and the admin API, or off (default 127.0.0.1:7434)")
	f.StringVar(&flags.TLSCert, "tls-cert", "", "certificate `file`: clients speak HTTPS")
	f.StringVar(&flags.TLSKey, "tls-key", "", "key `file` of the certificate")
	return cmd
}

func (a *app) proxy(ctx context.Context, flags proxy.Config) (err error) {
	file := cmp.Or(a.config, os.Getenv("KEEP_CONFIG"), config.Find("."))
	cfg, path, err := readProxyConfig(file)
	if err != nil {
		return misusef("%w", err)
	}
	path = cmp.Or(a.db, path, "keep.db")
	cfg.Upstream = cmp.Or(flags.Upstream, os.Getenv("KEEP_PROXY_UPSTREAM"), cfg.Upstream)
	cfg.Listen = cmp.Or(flags.Listen, os.Getenv("KEEP_PROXY_LISTEN"), cfg.Listen)
	cfg.AdminListen = cmp.Or(flags.AdminListen, os.Getenv("KEEP_PROXY_ADMIN_LISTEN"), cfg.AdminListen)
	cfg.TLSCert, cfg.TLSKey = cmp.Or(flags.TLSCert, cfg.TLSCert), cmp.Or(flags.TLSKey, cfg.TLSKey)
	cfg.Logger = a.log
	cfg.Ready = func(clients, admin net.Addr) {
		fmt.Fprintf(a.err, "keep proxy: %s in front of %s\n", clients, cfg.Upstream)
		if admin != nil {
			fmt.Fprintf(a.err, "keep proxy: admin on http://%s\n", admin)
		}
	}
	store, closeStore, err := openKeys(ctx, path)
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
	if !strings.HasPrefix(db, "postgres://") && !strings.HasPrefix(db, "postgresql://") {
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

// readProxyConfig reads the [proxy] table and the database of a keep.toml; no
// file is an empty one. Other tables are for other commands to check.
func readProxyConfig(file string) (cfg proxy.Config, db string, err error) {
	if file == "" {
		return cfg, "", nil
	}
	text, err := os.Open(file)
	if err != nil {
		return cfg, "", err
	}
	defer text.Close()
	var all struct {
		DB          string       `toml:"db"`
		Proxy       proxy.Config `toml:"proxy"`
		Workflows   any          `toml:"workflows"`
		Policy      any          `toml:"policy"`
		Connections any          `toml:"connections"`
		Sandbox     any          `toml:"sandbox"`
	}
	err = toml.NewDecoder(text).DisallowUnknownFields().Decode(&all)
	var unknown *toml.StrictMissingError
	var bad *toml.DecodeError
	switch {
	case errors.As(err, &unknown) && len(unknown.Errors) > 0:
		line, column := unknown.Errors[0].Position()
		return cfg, "", fmt.Errorf("%s:%d:%d: %s: unknown key", file, line, column, strings.Join(unknown.Errors[0].Key(), "."))
	case errors.As(err, &bad):
		line, column := bad.Position()
		return cfg, "", fmt.Errorf("%s:%d:%d: %w", file, line, column, err)
	case err != nil:
		return cfg, "", fmt.Errorf("%s: %w", file, err)
	}
	if all.DB != "" && !filepath.IsAbs(all.DB) && !strings.Contains(all.DB, "://") {
		all.DB = filepath.Join(filepath.Dir(file), all.DB)
	}
	return all.Proxy, all.DB, nil
}
