package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/notify"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/internal/regular"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/store/sqlite"

	"github.com/keep-run/keep/cmd/keep/internal/exit"

	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
)

// proxyCmd serves until it is stopped. Flags are for what differs between two proxies of one
// keep.toml; routes are only there.
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
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.proxy(cmd.Context(), flags) },
	}
	f := cmd.Flags()
	f.StringVar(&flags.Upstream, "upstream", "", "`URL` of the backend")
	f.StringVar(&flags.Listen, "listen", "", "`address` for clients (default 127.0.0.1:7435)")
	f.StringVar(&flags.AdminListen, "admin-listen", "", "`address` of /metrics, /healthz, /readyz and the admin API, or off (default 127.0.0.1:7434)")
	f.StringVar(&flags.TLSCert, "tls-cert", "", "certificate `file`: clients speak HTTPS")
	f.StringVar(&flags.TLSKey, "tls-key", "", "key `file` of the certificate")
	return a.anewFlag(cmd)
}

// proxy serves until ctx ends. Flags win over keep.toml. People are notified of unknown keys beside
// it, and that ends before the records are closed.
func (a *app) proxy(ctx context.Context, flags proxy.Config) (err error) {
	project, err := a.LoadConfig(".")
	if err != nil {
		return err
	}
	cfg := project.Proxy
	cfg.Upstream = cmp.Or(flags.Upstream, cfg.Upstream)
	cfg.Listen = cmp.Or(flags.Listen, cfg.Listen)
	cfg.AdminListen = cmp.Or(flags.AdminListen, cfg.AdminListen)
	cfg.TLSCert, cfg.TLSKey = cmp.Or(flags.TLSCert, cfg.TLSCert), cmp.Or(flags.TLSKey, cfg.TLSKey)
	if cfg.TLSCert != "" && cfg.TLSKey != "" { // the proxy opens them later, and would wait for a pipe
		if _, err := regular.KeyPair(cfg.TLSCert, cfg.TLSKey); err != nil {
			return exit.Misusef("proxy.tls_cert, proxy.tls_key: %w", err)
		}
	}
	cfg.Logger = a.log
	cfg.Ready = func(clients, admin net.Addr) {
		fmt.Fprintf(a.Err, "keep proxy: %s in front of %s\n", clients, redacted(cfg.Upstream))
		if admin != nil {
			fmt.Fprintf(a.Err, "keep proxy: admin on http://%s\n", admin)
		}
	}
	targets, err := project.Notify.Targets(a.log)
	if err := errors.Join(cfg.Validate(), err); err != nil { // before a database is made
		return exit.Misusef("%w", err)
	}
	defer a.outliveHangups()()
	store, closeStore, err := openKeys(ctx, project.DB, a.Anew)
	if err != nil {
		return exit.NoDatabase(err)
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	p, err := proxy.New(store, cfg)
	if err != nil {
		return exit.Misusef("%w", err)
	}
	told, stop := context.WithCancel(ctx)
	var telling sync.WaitGroup
	defer telling.Wait()
	defer stop()
	telling.Go(func() {
		notify.NewForKeys(notify.Config{Targets: targets, Unknown: daemon.UnknownKeys(store), Retry: project.Notify.Retry,
			Timeout: project.Notify.Timeout, Logger: a.log}).Run(told)
	})
	return p.Run(ctx)
}

// redacted returns a URL without a password that it may hold.
func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "its upstream"
	}
	return u.Redacted()
}

// outliveHangups has SIGHUP logged until the function that it returns is called: it would end the process at once, and
// leave the requests under way in doubt. keep serve, too, outlives its terminal.
func (a *app) outliveHangups() (stop func()) {
	if a.hangups == nil {
		return func() {}
	}
	hangups, release := a.hangups()
	over := make(chan struct{})
	var logging sync.WaitGroup
	say := func() { a.log.Warn("SIGHUP: keep proxy reads keep.toml at its start alone: restart it for a change") }
	logging.Go(func() {
		for {
			select {
			case <-hangups:
				say()
			case <-over:
				if len(hangups) > 0 {
					say()
				}
				return
			}
		}
	})
	return func() {
		release()
		close(over)
		logging.Wait()
	}
}

// openKeys opens the records of a file, or of a Postgres database, which several
// proxies may share, and brings the tables of Postgres up to date. The function that it returns
// closes both. Anew begins a file that is gone anew, and continues on a server that lost keys. It is for who takes keys, or adds them.
func openKeys(ctx context.Context, db string, anew bool) (idempotency.Store, func() error, error) {
	if !database.IsPostgres(db) {
		file, err := openKeyFile(ctx, db, anew)
		if err != nil {
			return nil, nil, err
		}
		return file.Keys(), file.Close, nil
	}
	return openKeyTable(ctx, db, func(keys *postgres.Keys, ctx context.Context) error {
		err := keys.Migrate(ctx)
		switch {
		case err != nil:
			return err
		case anew:
			return keys.AcceptLoss(ctx)
		}
		return keys.Lost(ctx)
	})
}

// openKeyTable opens the records of a Postgres database, once prepare found them, or made them.
func openKeyTable(ctx context.Context, db string, prepare func(*postgres.Keys, context.Context) error) (idempotency.Store, func() error, error) {
	pool, err := pgxpool.New(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	keys := postgres.NewKeys(pool)
	if err := prepare(keys, ctx); err != nil {
		pool.Close()
		name := postgres.Redact(db)
		if _, down := errors.AsType[*pgconn.ConnectError](err); down {
			err = fmt.Errorf("%s cannot be reached; start its server, or name another database with --db: %w", name, err)
		} else if errors.Is(err, keep.ErrNoDatabase) {
			err = &noKeysError{name}
		}
		return nil, nil, err
	}
	return keys, func() error { pool.Close(); return nil }, nil
}

// A noKeysError is returned where keys are looked for in a database that has none.
type noKeysError struct{ name string }

// Error says how to make them.
func (e *noKeysError) Error() string {
	return fmt.Sprintf("there are no idempotency keys in %s yet; start keep proxy on it, or name another database with --db", e.name)
}

// Is reports that nothing was made yet.
func (e *noKeysError) Is(target error) bool { return target == keep.ErrNoDatabase }

// Several proxies may start at once on one file: one of them makes it, or brings it up
// to date, and the others wait for that.
const (
	schemaPatience = 15 * time.Second
	schemaPause    = 50 * time.Millisecond
)

// openKeyFile opens a file of records, once another process has made it ready.
func openKeyFile(ctx context.Context, path string, anew bool) (*sqlite.DB, error) {
	for deadline := time.Now().Add(schemaPatience); ; {
		file := sqlite.New(path, sqlite.Config{Counts: true, New: anew})
		err := file.Open(ctx)
		switch {
		case err == nil:
			return file, nil
		// Anything else does not go away by waiting.
		case !errors.Is(err, keep.ErrLocked) && !justMade(path, err), time.Now().After(deadline):
			return nil, err
		}
		select {
		case <-time.After(schemaPause):
		// Why the file is not open says more than that the command was interrupted.
		case <-ctx.Done():
			return nil, err
		}
	}
}

// justMade reports whether a file that is not Keep's may become one: it was made a
// moment ago, and whoever makes it has not written its mark yet.
func justMade(path string, err error) bool {
	info, statErr := os.Stat(path)
	return errors.Is(err, keep.ErrForeignDatabase) && statErr == nil && time.Since(info.ModTime()) < 2*time.Second
}
