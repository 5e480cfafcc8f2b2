package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/metrics"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// serveCmd is the daemon. Several verbs work beside it, on the same file.
func (a *app) serveCmd() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "serve [PATH]",
		Short: "The daemon: run every workflow of the database",
		Long: `Serve runs every workflow of the database until it is told to stop (SIGTERM or
Ctrl-C). Then it starts nothing new, and waits for calls that are out, up to
policy.shutdown; what is still out after that is recorded as such, and asked
about at the next start. A second signal ends it at once, which is safe too.

A change of keep.toml, of a pack or pairing that it names, or of a secret is taken between
calls, whole or not at all, and said in the log and by keep status --json. It is taken when two
looks, 0.4 s apart, find the same, and at once at SIGHUP: write another file and rename it. What is
gone stays in force. What is fixed at the start, such as db and [notify], needs a restart.

It offers pages and an HTTP API on --listen, and prints a link to log in at the
first start, unless its log is JSON, as it is where stderr is no terminal: keep login makes one. See
keep token, too. Only an address of this machine needs
no certificate (server.tls_cert and server.tls_key of keep.toml).

With PATH it first deploys the scripts of a file or a directory, as keep deploy does;
one that is broken ends it. Later versions come with keep deploy.

If OTEL_EXPORTER_OTLP_ENDPOINT names a collector, each run is a trace (OTLP over HTTP, JSON).`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.serve(cmd.Context(), args, listen) },
	}
	listenFlag(cmd, &listen)
	return a.anewFlag(cmd)
}

// listenFlag adds the flag for the address of the API and the pages.
func listenFlag(cmd *cobra.Command, listen *string) {
	cmd.Flags().StringVar(listen, "listen", "", "`address` of the pages and the API, or off (default "+daemon.DefaultListen+", or a free port)")
}

// serve runs every workflow of the database until ctx ends, and then waits for
// the calls that are out. The order of the start: the scripts are loaded before the database is
// opened, which a broken one must not change; the database comes before the addresses, since
// whoever has it is the one that serves; and nothing runs before all of these are there.
func (a *app) serve(ctx context.Context, paths []string, listen string) (err error) {
	s, err := a.assembleServe(ctx, paths)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	cfg := s.Project.Cfg
	// The session keeps keep.toml as it was read, so that the flag is not taken for a change of it.
	cfg.Server.Listen = cmp.Or(listen, cfg.Server.Listen)
	seen := new(metrics.Collector)
	if err := s.Open(ctx, a.env(), daemon.Watch{Metrics: seen}); err != nil {
		return err
	}
	// After the deploys of Open, which may be what does without it.
	if err := s.Lacking(ctx); err != nil {
		return err
	}
	all, err := s.DB.Workflows(ctx)
	if err != nil {
		return err
	}
	srv, err := a.env().OpenServer(ctx, s, seen)
	if err != nil {
		return err
	}
	if err := srv.Announce(ctx, a.logFormat == "json", func(format string, args ...any) { fmt.Fprintf(a.Err, format+"\n", args...) }); err != nil {
		return errors.Join(err, srv.Close())
	}
	var hangups <-chan os.Signal
	if a.hangups != nil { // before it says that it serves: a signal would end it
		var stop func()
		hangups, stop = a.hangups()
		defer stop()
	}
	a.sayServing(all, cfg.DB)
	if len(paths) > 0 && isDir(paths[0]) {
		if err := a.sayContinuing(all, project.NamesOf(s.Scripts), project.Entries(ctx, s.DB)); err != nil {
			return errors.Join(err, srv.Close())
		}
	}
	follower := &daemon.Follower{Env: a.env(), Session: s, Server: srv, Reload: hangups, Load: func() (*config.Config, error) { return a.reloaded(paths) }}
	if err := daemon.RunBoth(ctx, s.Host, srv, follower); err != nil {
		return err
	}
	// The last line of an orderly end; without it the process was ended in another way.
	fmt.Fprintln(a.Err, "Stopped.")
	return nil
}

// assembleServe assembles the project around the working directory, or the one at a
// path with its scripts. It serves all workflows of the database either way: those whose
// scripts are not on this disk run as they were deployed.
func (a *app) assembleServe(ctx context.Context, paths []string) (*daemon.Session, error) {
	if len(paths) == 0 {
		cfg, err := a.LoadConfig(".")
		p := &project.Project{Cfg: cfg}
		if err != nil {
			return nil, project.WithConnectionErrors(p, err)
		}
		s, err := a.env().Assemble(ctx, p)
		if err == nil {
			a.PrintProblems(project.ConfigProblems(cfg.Warnings, "warning"))
		}
		return s, err
	}
	p, err := a.OpenProject(paths[0])
	if err != nil {
		return nil, project.WithConnectionErrors(p, err)
	}
	s, found, err := a.env().Prepare(ctx, p)
	if err != nil {
		return nil, err
	}
	if a.PrintProblems(found); terminal.HasErrors(found) {
		return nil, errors.Join(exit.With(exit.Misused), s.Close())
	}
	// A path says what is deployed first, and not what runs; with keep run it is both.
	s.Only = nil
	return s, nil
}

// reloaded reads the configuration of serve again, from where it was read at the start. Scripts that
// changed are not taken with it: keep deploy does that.
func (a *app) reloaded(paths []string) (*config.Config, error) {
	if len(paths) > 0 {
		p, err := a.OpenProject(paths[0])
		if err != nil {
			return nil, err
		}
		return p.Cfg, nil
	}
	return a.LoadConfig(".")
}

// sayServing is the line that supervisors and tests wait for: from here on the
// process is the host of the database.
func (a *app) sayServing(all []keep.Workflow, db string) {
	fmt.Fprintf(a.Err, "Serving %s of %s. Stop with Ctrl-C.\n", terminal.Plural(len(all), "workflow"), database.ShortName(db))
	if len(all) == 0 {
		fmt.Fprintln(a.Err, "There is nothing to run yet. To deploy the scripts of this directory and serve them: keep serve .")
	}
}
