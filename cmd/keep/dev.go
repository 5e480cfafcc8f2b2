package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/keep-run/keep"
	"github.com/spf13/cobra"
)

// devCmd is for the person who writes a script.
func (a *app) devCmd() *cobra.Command {
	var poll bool
	var listen string
	cmd := &cobra.Command{
		Use:   "dev [PATH]",
		Short: "Run and watch: reload on change, one page of status",
		Long: `Dev runs the workflows of a file or a directory and deploys them again whenever
a script or keep.toml changes. A script that is broken is shown with its line,
and the version before it goes on. On a terminal there is one page of status;
elsewhere there are plain lines.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "."
			if len(args) == 1 {
				path = args[0]
			}
			if _, err := os.Stat(path); err != nil {
				return err
			}
			d := &developer{a: a, path: path, poll: poll, listen: listen, changed: make(chan struct{}, 1)}
			return d.run(cmd.Context())
		},
	}
	listenFlag(cmd, &listen)
	cmd.Flags().BoolVar(&poll, "poll", false, "look at the files each second, where changes are not notified")
	return cmd
}

// A developer is one run of keep dev: a session that is replaced when the
// configuration or the set of workflows changes.
type developer struct {
	a       *app
	path    string
	poll    bool
	listen  string        // of the pages; empty: as keep.toml says
	changed chan struct{} // files changed
	screen  screen

	// What the session was made of.
	session  *session
	settings []byte        // text of keep.toml
	stop     func() error  // ends the session's host, and closes the session
	ended    chan struct{} // closed when the host ended by itself
}

func (d *developer) run(ctx context.Context) (err error) {
	d.screen = newScreen(d.a)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	root, err := d.watched()
	if err != nil {
		return err
	}
	w := &watcher{root: root, poll: d.poll, log: d.a.log}
	wg.Go(func() { w.run(ctx, d.changed) })
	wg.Go(func() { d.screen.run(ctx) })
	defer func() { err = errors.Join(err, d.end()) }()
	for {
		if err := d.reload(ctx); err != nil {
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
	p, err := d.a.openProject(d.path)
	if p != nil {
		return p.root, nil // what is wrong is shown by reload
	}
	return "", err
}

// reload brings what runs in line with the files. Problems of the files are
// shown, and are no error.
func (d *developer) reload(ctx context.Context) error {
	p, err := d.a.openProject(d.path)
	if err != nil {
		err = d.a.rejected(p, err)
		return d.show(nil, err)
	}
	settings, err := readSettings(p)
	if err != nil {
		return d.show(nil, err)
	}
	if d.session != nil && bytes.Equal(settings, d.settings) {
		return d.redeploy(ctx, p)
	}
	return d.restart(ctx, p, settings)
}

// readSettings returns the text of keep.toml, to notice when it changes.
func readSettings(p *project) ([]byte, error) {
	if p.cfg.File == "" {
		return nil, nil
	}
	return os.ReadFile(p.cfg.File)
}

// redeploy loads the scripts again and deploys those that are in order.
func (d *developer) redeploy(ctx context.Context, p *project) error {
	scripts, found, err := d.a.loadToRun(ctx, d.session.runtime, p)
	if err != nil {
		return d.show(nil, err)
	}
	running := d.session.names()
	for _, sc := range scripts {
		if !slices.Contains(running, sc.Name) {
			return d.restart(ctx, p, d.settings) // the host must know all names
		}
	}
	if err := d.show(found, nil); err != nil {
		return err
	}
	for _, sc := range scripts {
		if err := d.deploy(ctx, sc); err != nil {
			return err
		}
	}
	return nil
}

// deploy makes one script current, and says so if it is a new version.
func (d *developer) deploy(ctx context.Context, sc script) error {
	before, err := versionsOf(ctx, d.session.db)
	if err != nil {
		return err
	}
	v, err := d.session.deploy(ctx, d.a, sc)
	if err != nil {
		return err
	}
	if before[sc.Name] != v.String() {
		d.screen.say("deployed %s %s (%s)", sc.Name, v, sc.file)
	}
	return nil
}

// restart ends the session, if there is one, and begins another. A project that
// cannot be opened leaves the old one as it is.
func (d *developer) restart(ctx context.Context, p *project, settings []byte) error {
	s, found, err := d.a.prepare(ctx, p)
	if err != nil {
		return d.show(nil, err)
	}
	if err := d.show(found, nil); err != nil {
		return errors.Join(err, s.close())
	}
	if len(s.scripts) == 0 {
		return s.close()
	}
	if err := d.end(); err != nil {
		return errors.Join(err, s.close())
	}
	conns := s.conns // the host takes them over
	seen := new(doubts)
	after := func(c keep.Commit) {
		seen.observe(c)
		d.screen.commit(c)
	}
	if err := s.open(ctx, d.a, after); err != nil {
		return errors.Join(err, s.close())
	}
	p.cfg.Server.Listen = cmp.Or(d.listen, p.cfg.Server.Listen)
	srv, err := d.a.openServer(ctx, served{cfg: p.cfg, db: s.db, host: s.host, runtime: s.runtime, conns: conns, doubts: seen})
	if err == nil {
		err = srv.say(ctx, d.screen.say)
	}
	if err != nil {
		return errors.Join(err, srv.close(), s.close())
	}
	d.session, d.settings = s, settings
	d.start(ctx, srv)
	d.screen.attach(s)
	return nil
}

// start runs the session's host and its server.
func (d *developer) start(ctx context.Context, srv *server) {
	s := d.session
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	var runErr error
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(ended)
		runErr = runBoth(ctx, s.host, srv)
	})
	d.ended = ended
	d.stop = func() error {
		cancel()
		wg.Wait()
		return errors.Join(runErr, s.close())
	}
	for _, sc := range s.scripts {
		d.screen.say("running %s (%s)", sc.Name, short(filepath.Join(s.project.root, sc.file)))
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
func (d *developer) show(found []complaint, err error) error {
	if err != nil {
		cs := d.a.complaints("", err)
		if len(cs) == 0 && statusOf(err) != exitMisused && statusOf(err) != exitNotFound {
			return err
		}
		if len(cs) == 0 {
			cs = []complaint{{Severity: "error", Message: err.Error()}}
		}
		found = append(found, cs...)
	}
	d.screen.problems(found)
	return nil
}

// A screen shows what goes on: as one page, or as lines.
type screen interface {
	// run draws until ctx ends.
	run(ctx context.Context)

	// attach shows a session from now on; nil is none. When it returns, the
	// session before is not used any more. commit tells of what one did.
	attach(s *session)
	commit(c keep.Commit)

	// say shows one line. problems shows what is wrong with the files now.
	say(format string, args ...any)
	problems(found []complaint)
}

// newScreen returns the page for a terminal, and lines for all else.
func newScreen(a *app) screen {
	if a.tty && !a.json {
		return newPage(a)
	}
	return &lines{a: a}
}

// lines is a screen for what is not a terminal.
type lines struct {
	a *app

	mu   sync.Mutex // protects last
	last string     // problems that were shown last
}

func (l *lines) run(context.Context) {}
func (l *lines) attach(*session)     {}

func (l *lines) say(format string, args ...any) {
	fmt.Fprintf(l.a.err, "keep: %s\n", clean(fmt.Sprintf(format, args...)))
}

func (l *lines) problems(found []complaint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := ""
	for _, c := range found {
		text += l.a.ink.complaint(c)
	}
	switch {
	case text != "":
		fmt.Fprint(l.a.err, text)
	case l.last != "":
		fmt.Fprintln(l.a.err, "keep: all problems are mended")
	}
	l.last = text
}

func (l *lines) commit(c keep.Commit) {
	for _, change := range c.Changes {
		switch v := change.(type) {
		case keep.AppendLogs:
			for _, line := range v.Lines {
				l.a.logLine(c.Workflow, line)
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
