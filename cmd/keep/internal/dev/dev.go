// Package dev runs a project while somebody edits it: it watches the files, deploys those
// that are in order, and shows one page of status.
package dev

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/metrics"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// A Config says what keep dev runs and where it shows it.
type Config struct {
	Terminal *terminal.Terminal
	Log      *slog.Logger
	Flags    project.Flags

	Path   string
	Poll   bool   // look at the files each second
	Listen string // of the pages; empty: as keep.toml says

	// Open, if not nil, shows a page to the person who sits there: once, with a link that logs in.
	Open func(page string) error
}

// Run runs the project until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	return (&developer{Config: cfg, changed: make(chan struct{}, 1)}).run(ctx)
}

// env returns what the hosts get.
func (d *developer) env() daemon.Env {
	return daemon.Env{Log: d.Log, Clock: d.Terminal.Clock, Say: d.screen.say}
}

// A developer is one run of keep dev: a session that is replaced when the
// configuration or the set of workflows changes.
type developer struct {
	Config
	changed chan struct{} // files changed
	screen  screen

	// What the session was made of.
	session *daemon.Session
	hash    string        // of its configuration
	stop    func() error  // ends the session's host, and closes the session
	ended   chan struct{} // closed when the host ended by itself
}

func (d *developer) run(ctx context.Context) (err error) {
	d.screen = newScreen(d.Terminal)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	root, err := d.watched()
	if err != nil {
		return err
	}
	w := &Watcher{Root: root, Poll: d.Poll, Log: d.Log}
	wg.Go(func() { w.Run(ctx, d.changed) })
	wg.Go(func() { d.screen.run(ctx) })
	defer func() { err = errors.Join(err, d.end()) }()
	for {
		if err := d.reload(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-d.ended:
			return nil // end reports why
		case <-d.changed:
		}
	}
}

// watched returns the directory whose files matter.
func (d *developer) watched() (string, error) {
	p, err := d.Flags.OpenProject(d.Path)
	if p != nil {
		return p.Root, nil // what is wrong is shown by reload
	}
	return "", err
}

// reload brings what runs in line with the files. Problems of the files are
// shown, and are no error.
func (d *developer) reload(ctx context.Context) error {
	p, err := d.Flags.OpenProject(d.Path)
	if err != nil {
		err = project.WithConnectionErrors(p, err)
		return d.show(nil, err)
	}
	if d.session != nil {
		if err := d.session.Gone(p.Cfg); err != nil {
			return d.show(nil, exit.Misusef("%w", err))
		}
	}
	if d.session != nil && p.Cfg.Hash == d.hash {
		return d.redeploy(ctx, p)
	}
	return d.restart(ctx, p)
}

// redeploy loads the scripts again and deploys those that were edited and are in order.
func (d *developer) redeploy(ctx context.Context, p *project.Project) error {
	scripts, found, err := project.LoadToRun(ctx, d.session.Runtime, p)
	if err != nil {
		return d.show(nil, err)
	}
	if err := project.Continue(ctx, d.session.DB, p.Cfg, scripts); err != nil {
		return d.show(nil, err)
	}
	running := d.session.Names()
	for _, sc := range scripts {
		if !slices.Contains(running, sc.Name) {
			return d.restart(ctx, p) // the host must know all names
		}
	}
	if err := d.show(found, nil); err != nil {
		return err
	}
	for _, sc := range scripts {
		if sc.Broken {
			continue // the version before stays
		}
		if err := d.deploy(ctx, sc); err != nil {
			return err
		}
	}
	return nil
}

// deploy makes one script current if it was edited, and says so if it is a new version.
func (d *developer) deploy(ctx context.Context, sc project.Script) error {
	before, err := d.session.Versions(ctx)
	if err != nil {
		return err
	}
	v, err := d.session.Update(ctx, d.env(), sc)
	if doubt, ok := errors.AsType[*project.RenameError](err); ok {
		return d.show(nil, doubt)
	}
	if err != nil {
		return err
	}
	if !v.IsZero() && before[sc.Name] != v.String() {
		d.screen.say("deployed %s %s (%s)", sc.Name, v, sc.File)
	}
	return nil
}

// restart ends the session, if there is one, and begins another. A project that
// cannot be opened leaves the old one as it is.
//
// What can be refused is tried before the old session ends. That one must let the database go before the new
// one opens it, so an error after that ends keep dev.
func (d *developer) restart(ctx context.Context, p *project.Project) error {
	s, found, err := d.env().Prepare(ctx, p)
	if err != nil {
		return d.show(nil, err)
	}
	if err := d.show(found, nil); err != nil {
		return errors.Join(err, s.Close())
	}
	if !slices.ContainsFunc(s.Scripts, func(sc project.Script) bool { return !sc.Broken }) && d.session == nil {
		return s.Close() // nothing to run: wait for a change
	}
	if d.session != nil {
		if err := s.CheckNames(ctx, d.env(), d.session.DB); err != nil {
			return errors.Join(d.show(nil, err), s.Close())
		}
		if err := d.session.TakenBy(ctx, s); err != nil {
			return errors.Join(d.show(nil, exit.Misusef("%w", err)), s.Close())
		}
	}
	if d.session != nil { // what is broken now runs in the version before
		s.Only = slices.Compact(slices.Sorted(slices.Values(slices.Concat(s.Only, d.session.Only))))
	}
	if err := d.end(); err != nil {
		return errors.Join(err, s.Close())
	}
	seen := new(metrics.Collector)
	if err := s.Open(ctx, d.env(), daemon.Watch{Committed: d.screen.commit, Metrics: seen}); err != nil {
		return errors.Join(err, s.Close())
	}
	d.Flags.Anew = false // it is opened again when the configuration changes
	p.Cfg.Server.Listen = cmp.Or(d.Listen, p.Cfg.Server.Listen)
	srv, err := d.env().OpenServer(ctx, s, seen)
	if err == nil {
		err = srv.Announce(ctx, false, d.screen.say)
	}
	if err == nil && d.Open != nil {
		err = srv.Show(ctx, d.Open)
		d.Open = nil
	}
	if err != nil {
		return errors.Join(err, srv.Close(), s.Close())
	}
	d.session, d.hash = s, p.Cfg.Hash
	d.start(ctx, srv)
	d.screen.attach(s)
	return nil
}

// start runs the session's host and its server.
//
// The follower takes new secrets only: another configuration makes a session of its own.
func (d *developer) start(ctx context.Context, srv *daemon.Server) {
	s := d.session
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	follower := &daemon.Follower{Env: d.env(), Session: s, Server: srv, SecretsOnly: true, Load: func() (*config.Config, error) {
		p, err := d.Flags.OpenProject(d.Path)
		if err != nil {
			return nil, err
		}
		return p.Cfg, nil
	}}
	var runErr error
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(ended)
		runErr = daemon.RunBoth(ctx, s.Host, srv, follower)
	})
	d.ended = ended
	d.stop = func() error {
		cancel()
		wg.Wait()
		return errors.Join(runErr, s.Close())
	}
	for _, sc := range s.Scripts {
		if sc.Broken {
			continue
		}
		d.screen.say("running %s (%s)", sc.Name, terminal.Short(filepath.Join(s.Project.Root, sc.File)))
	}
}

// end stops the session's host and closes it.
func (d *developer) end() error {
	if d.stop == nil {
		return nil
	}
	stop := d.stop
	d.screen.attach(nil)
	d.session, d.stop, d.ended = nil, nil, nil
	return stop()
}

// show tells of problems with the files. An error that is not about them is
// returned.
func (d *developer) show(found []terminal.Problem, err error) error {
	if err != nil {
		cs := project.Problems("", err)
		if len(cs) == 0 && exit.Of(err) != exit.Misused && exit.Of(err) != exit.NotFound {
			return err
		}
		if len(cs) == 0 {
			cs = []terminal.Problem{{Severity: "error", Message: err.Error()}}
			if e, ok := errors.AsType[*project.PathError](err); ok {
				cs[0].Fix = e.Next
			}
		}
		found = append(found, cs...)
	}
	d.screen.problems(found)
	return nil
}

// A screen shows what happens: as one page, or as lines.
type screen interface {
	// run draws until ctx ends.
	run(ctx context.Context)

	// attach shows a session from now on; nil is none. When it returns, the
	// session before is not used any more. commit tells of what one did.
	attach(s *daemon.Session)
	commit(c keep.Commit)

	// say shows one line. problems shows what is wrong with the files now.
	say(format string, args ...any)
	problems(found []terminal.Problem)
}

// newScreen returns the page for a terminal, and lines for all else.
func newScreen(a *terminal.Terminal) screen {
	if a.TTY && !a.JSON {
		return newPage(a)
	}
	return &lines{a: a}
}

// lines is a screen for what is not a terminal.
type lines struct {
	a *terminal.Terminal

	mu   sync.Mutex // protects last
	last string     // problems that were shown last
}

func (l *lines) run(context.Context)    {}
func (l *lines) attach(*daemon.Session) {}

func (l *lines) say(format string, args ...any) {
	fmt.Fprintf(l.a.Err, "keep: %s\n", terminal.Clean(fmt.Sprintf(format, args...)))
}

// problems shows problems each time that the files are read, and once that they are gone.
func (l *lines) problems(found []terminal.Problem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := ""
	for _, c := range found {
		text += l.a.Ink.Problem(c)
	}
	switch {
	case text != "":
		fmt.Fprint(l.a.Err, text)
	case l.last != "":
		fmt.Fprintln(l.a.Err, "keep: all problems are fixed")
	}
	l.last = text
}

func (l *lines) commit(c keep.Commit) {
	for _, change := range c.Changes {
		switch v := change.(type) {
		case keep.AppendLogs:
			for _, line := range v.Lines {
				l.a.LogLine(c.Workflow, line)
			}
		case keep.PutRun:
			if v.Run.Status == keep.StatusCommitted {
				l.say("%s: run %s of %s committed", c.Workflow, v.Run.ID, v.Run.Handler)
			}
		case keep.OpenEscalation:
			l.say("%s: question %s: %s See: keep inbox", c.Workflow, v.Escalation.ID, v.Escalation.Question)
		}
	}
}
