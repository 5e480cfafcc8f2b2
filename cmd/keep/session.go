package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/notify"
	"github.com/keep-run/keep/sandbox"
	"github.com/keep-run/keep/workflow"
)

// A session is an open project: its scripts are deployed and its host is ready.
type session struct {
	project *project
	scripts []script
	conns   []connector.Connection // until the host has them
	runtime *sandbox.Runtime
	db      database
	host    *host.Host
	closers []func() error // in the order of closing
}

// names returns the workflows of the session.
func (s *session) names() []keep.WorkflowName {
	out := make([]keep.WorkflowName, 0, len(s.scripts))
	for _, sc := range s.scripts {
		out = append(out, sc.Name)
	}
	return out
}

// close undoes openSession. The host must not run any more.
func (s *session) close() error {
	var errs []error
	for _, c := range slices.Backward(s.closers) {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// openSession loads the scripts of p, opens the database as its host and deploys
// them. after is told of each commit.
func (a *app) openSession(ctx context.Context, p *project, after func(keep.Commit)) (_ *session, err error) {
	s, found, err := a.prepare(ctx, p)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if a.complain(found); hasErrors(found) {
		return nil, said(exitMisused)
	}
	return s, s.open(ctx, a, after)
}

// prepare opens the connections and loads the scripts of p. What is wrong with
// scripts comes back as complaints, and the others are in the session.
func (a *app) prepare(ctx context.Context, p *project) (*session, []complaint, error) {
	s := &session{project: p}
	var err error
	if s.conns, err = p.cfg.Connect(); err != nil {
		return nil, nil, err
	}
	s.closers = append(s.closers, func() error { return closeAll(s.conns) })
	if s.runtime, err = a.openRuntime(ctx, p.cfg); err != nil {
		return nil, nil, errors.Join(err, s.close())
	}
	s.closers = append(s.closers, s.runtime.Close)
	scripts, found, err := a.loadToRun(ctx, s.runtime, p)
	if err != nil {
		return nil, nil, errors.Join(err, s.close())
	}
	s.scripts = scripts
	return s, append(ofConfig(p.cfg.Warnings, workflow.Warning), found...), nil
}

// open opens the database as its host, makes the host and deploys the scripts.
func (s *session) open(ctx context.Context, a *app, after func(keep.Commit)) (err error) {
	if s.db, err = openStore(ctx, s.project.cfg, toHost); err != nil {
		return err
	}
	s.closers = append(s.closers, s.db.Close)
	told, err := a.notifyConfig(s.project.cfg, s.db)
	if err != nil {
		return err
	}
	tracer, flush, err := a.openTraces(ctx)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, flush)
	s.host, err = host.Open(ctx, newTap(s.db, after), host.Config{
		Connections: s.conns, Policy: &s.project.cfg.Policy, Runtime: s.runtime, Only: s.names(), Logger: a.log,
		Leases: leasesOf(s.db), Name: hostName(), Version: thisVersion().Version,
		Notify: told, Tracer: tracer, Retention: s.project.cfg.Retention,
	})
	if err != nil {
		return err
	}
	s.conns = nil // the host closes them
	s.closers = append(s.closers, s.host.Close)
	for _, sc := range s.scripts {
		if _, err := s.deploy(ctx, a, sc); err != nil {
			return err
		}
	}
	return nil
}

// deploy makes a script current.
func (s *session) deploy(ctx context.Context, a *app, sc script) (keep.Version, error) {
	v, err := s.host.Deploy(ctx, sc.Workflow)
	if err != nil {
		return v, fmt.Errorf("deploy %s: %w", sc.file, err)
	}
	a.log.InfoContext(ctx, "deployed", "workflow", sc.Name, "version", v.String(), "file", sc.file)
	return v, nil
}

// untilIdle runs the host until it is idle, and stops it. What people were not
// told by then is tried once more; the rest is told after the next start. It
// reports whether it came to be idle before ctx ended.
func (s *session) untilIdle(ctx context.Context, watch *progress) (bool, error) {
	runCtx, stop := context.WithCancel(ctx)
	defer stop()
	idleCtx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	var wg sync.WaitGroup
	var runErr error
	wg.Go(func() {
		runErr = s.host.Run(runCtx)
		giveUp(errHostEnded)
	})
	stopWatch := watch.start()
	idleErr := s.host.WaitIdle(idleCtx)
	stopWatch()
	stop()
	wg.Wait()
	if runErr != nil {
		return false, fmt.Errorf("run: %w", runErr)
	}
	flushCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), notify.DefaultTimeout)
	defer cancel()
	s.host.FlushNotices(flushCtx)
	return idleErr == nil, nil
}

// errHostEnded is the cause of a wait that ended since nothing runs any more.
var errHostEnded = errors.New("the host ended")
