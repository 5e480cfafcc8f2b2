package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host"
	"github.com/spf13/cobra"
)

// serveCmd is the daemon. Several verbs work beside it, on the same file.
func (a *app) serveCmd() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "The daemon: run every workflow of the database",
		Long: `Serve runs every workflow of the database until it is told to stop (SIGTERM or
Ctrl-C). Then it starts nothing new, and waits for calls that are out, up to
policy.shutdown; what is still out after that is recorded as such, and asked
about at the next start. A second signal ends it at once, which is safe too.

It offers pages and an HTTP API on --listen, and prints a link to log in at the
first start; see keep login and keep token. Only an address of this machine needs
no certificate (server.tls_cert and server.tls_key of keep.toml).

New versions come with keep deploy. If OTEL_EXPORTER_OTLP_ENDPOINT names a
collector, each run is a trace (OTLP over HTTP, JSON).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), listen) },
	}
	listenFlag(cmd, &listen)
	return cmd
}

// listenFlag adds the flag for the address of the API and the pages.
func listenFlag(cmd *cobra.Command, listen *string) {
	cmd.Flags().StringVar(listen, "listen", "", "`address` of the pages and the API, or off (default "+defaultListen+", or a free port)")
}

// serve runs every workflow of the database until ctx ends, and then waits for
// the calls that are out.
func (a *app) serve(ctx context.Context, listen string) (err error) {
	cfg, err := a.loadConfig(".")
	if err != nil {
		return a.rejected(&project{cfg: cfg}, err)
	}
	cfg.Server.Listen = cmp.Or(listen, cfg.Server.Listen)
	conns, err := cfg.Connect()
	if err != nil {
		return err
	}
	a.complain(ofConfig(cfg.Warnings, "warning"))
	db, err := openStore(ctx, cfg, toHost)
	if err != nil {
		return errors.Join(err, closeAll(conns))
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rt, err := a.openRuntime(ctx, cfg)
	if err != nil {
		return errors.Join(err, closeAll(conns))
	}
	defer func() { err = errors.Join(err, rt.Close()) }()
	told, err := a.notifyConfig(cfg, db)
	if err != nil {
		return errors.Join(err, closeAll(conns))
	}
	tracer, flush, err := a.openTraces(ctx)
	if err != nil {
		return errors.Join(err, closeAll(conns))
	}
	defer func() { err = errors.Join(err, flush()) }()
	seen := new(doubts)
	h, err := host.Open(ctx, db, host.Config{
		Connections: conns, Policy: &cfg.Policy, Runtime: rt, Logger: a.log, Name: hostName(), Version: thisVersion().Version, Clock: a.clock,
		Notify: told, Tracer: tracer, Committed: seen.observe,
	})
	if err != nil {
		return errors.Join(err, closeAll(conns))
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	all, err := db.Workflows(ctx)
	if err != nil {
		return err
	}
	srv, err := a.openServer(ctx, served{cfg: cfg, db: db, host: h, runtime: rt, conns: conns, doubts: seen})
	if err != nil {
		return err
	}
	if err := srv.say(ctx, func(format string, args ...any) { fmt.Fprintf(a.err, format+"\n", args...) }); err != nil {
		return errors.Join(err, srv.close())
	}
	a.sayServing(all, cfg.DB)
	if err := runBoth(ctx, h, srv); err != nil {
		return err
	}
	fmt.Fprintln(a.err, "Stopped.")
	return nil
}

// runBoth runs a host and its server until ctx ends or one of them fails.
func runBoth(ctx context.Context, h *host.Host, srv *server) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	var serveErr error
	wg.Go(func() {
		defer stop()
		serveErr = srv.run(ctx)
	})
	err := h.Run(ctx)
	stop()
	wg.Wait()
	if err != nil {
		err = fmt.Errorf("run: %w", err)
	}
	return errors.Join(err, serveErr)
}

// sayServing is the line that supervisors and tests wait for: from here on the
// process is the host of the database.
func (a *app) sayServing(all []keep.Workflow, db string) {
	fmt.Fprintf(a.err, "Serving %s of %s. Stop with Ctrl-C.\n", plural(len(all), "workflow"), nameOf(db))
	if len(all) == 0 {
		fmt.Fprintln(a.err, "There is nothing to run yet: keep deploy PATH")
	}
}

// hostName says to people which process of which machine this is.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	return name + ":" + strconv.Itoa(os.Getpid())
}
