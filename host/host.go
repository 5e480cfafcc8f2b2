// Package host assembles Keep for importers: a store, connections and scripts
// become a running host. It owns every goroutine, and nothing outside starts one
// on its behalf.
//
//	db := sqlite.New("keep.db", sqlite.Config{Host: true})
//	err := db.Open(ctx)
//	…
//	h, err := host.Open(ctx, db, host.Config{Connections: conns})
//	…
//	defer h.Close()
//	s, err := h.Load(ctx, "workflows", "invoices.js")
//	…
//	_, err = h.Deploy(ctx, s)
//	…
//	err = h.Run(ctx) // until ctx is done
//
// Workflows are scripts (Load) or written in Go (LoadGo, package handler), side by side. One that has another name
// than before says which it had (was; handler.Workflow.Was): it is continued under the first one (docs/renames.md).
//
// An importer pays only for the connectors and the store that it passes: there is
// no registry and no init.
//
// # Processes
//
// One process runs the workflows of a database; with leases each workflow has one
// that runs it (docs/design/0005-leases.md). Others may open the database beside
// them (sqlite.Config without Host), read, deploy, and record what a person decides; the host of the workflow looks for
// such changes once a second. Hosts tell one another what they change, so that
// whoever follows the feed of one host learns of all of them.
package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/engine/lease"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/host/notify"
	"github.com/keep-run/keep/host/presence"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store"
)

// A Store is what a host keeps everything in. It is wide because a host gives it to the engine,
// the operator and the rest, each of which takes its part.
type Store interface {
	engine.Store
	store.Identity
	store.Links
	store.Hosting
	store.Repairs
	store.Counting
	Records
	operator.Store
}

// pollForeign is how often a store.Watcher is asked.
const pollForeign = time.Second

// Config configures a Host. The zero value is usable: it has no connections.
type Config struct {
	// Connections are the configured accounts; their tools are what scripts
	// may call. The host closes them.
	Connections []connector.Connection

	// Policy holds the numbers that the host enforces. If nil, policy.Default().
	Policy *policy.Policy

	// Sandbox limits scripts. Zero fields have the sandbox's defaults. It is opened with the first script:
	// workflows that are written in Go need none.
	Sandbox sandbox.Config

	// Build names this build of the program, for workflows that are written in Go: another build is another
	// version of them. If empty, it is the hash of the program's executable.
	Build string

	// Runtime runs scripts; the caller closes it after the host. If nil, the
	// host opens one as Sandbox says, and closes it.
	Runtime *sandbox.Runtime

	// Load loads a script, for hosts of a moment that share what is loaded. If nil, the
	// runtime does.
	Load func(ctx context.Context, b *sandbox.Bundle) (*sandbox.Program, error)

	// Schemas are those of tools, for hosts of a moment that share what is compiled. If nil,
	// the host compiles its own.
	Schemas *engine.Schemas

	// Only names the workflows to work on, as the store does; others in the database stay at
	// rest. If nil, all of them.
	Only []keep.WorkflowName

	// Leases shares the workflows out, if several hosts work on the store. If
	// nil, the store itself does so if it can; else it belongs to this host.
	Leases store.Leaser

	// Name and Version say to people, where there are leases, which host this is.
	Name, Version string

	// Presence is a directory of this machine, where its hosts prove to each other that
	// they live, or have ended; see package presence. If it is empty, or proves nothing,
	// the leases of a host that was killed are waited for.
	Presence string

	// Clock is the clock of this machine; see engine.Config. If nil, time.Now.
	Clock func() time.Time

	// Reach is that of engine.Config.
	Reach func(t time.Time)

	// Notify tells people of questions. If Notify.Store is nil, the store of the
	// host must be one; Notify.Logger is Logger if it is nil. If Notify has no
	// targets, nobody is told.
	Notify notify.Config

	// Budgets bound what calls may spend, all together. One that names a tool that no connection has is refused.
	Budgets []budget.Rule

	// Elsewhere reports of a connection that is not among Connections that it is one, whose tools budgets may
	// name: another program's on the same store, or that of a gateway. If nil, none is.
	Elsewhere func(connection string) bool

	// Repairs says who repairs scripts that fail. If nil, nobody does; see Host.SetRepairs.
	Repairs *Repairs

	// Retention says for how long finished work is kept. If zero, forever.
	Retention policy.Retention

	// Logger receives what a person should hear of. If nil, slog.Default().
	Logger *slog.Logger

	// Tracer makes a span for each run, phase, call and lookup. If nil, none.
	Tracer trace.Tracer

	// Measured is notified of how long runs, calls, lookups and reads took, by several
	// goroutines at once, and holds their runs up. If nil, nobody is.
	Measured func(engine.Measure)

	// Committed is notified of each commit that is durable, by several goroutines at
	// once, and holds their workflows up. If nil, nobody is.
	Committed func(keep.Commit)

	// Trace is called between durable steps; tests die there. If nil, nothing
	// is called.
	Trace func(w keep.WorkflowName, p engine.Point)
}

// Errors of Host.Run and Host.RunUntilIdle, and ErrClosed of what deploys, which then did nothing.
var (
	ErrRunning = errors.New("the host runs already")
	ErrClosed  = errors.New("the host is closed")
)

// A Host runs workflows. Create one with Open, drive it with Run, end it with
// Close. All methods may be called at any time between Open and Close, and Run and RunUntilIdle
// again when the one before has returned.
type Host struct {
	*engine.Engine     // WaitIdle
	*operator.Operator // Decide, Pause, Trigger

	cfg     Config
	tools   *engine.Tools
	set     sync.Mutex // protects connections and retention of cfg, which Reconfigure replaces, running and closed
	log     *slog.Logger
	store   Store
	changes *feed.Feed
	peers   *peers // nil: the store belongs to this host
	runtime *runtimeOf
	scripts *scripts

	notifier *notify.Notifier // nil: nobody is told
	mender   *mender
	running  bool
	closed   bool
	worked   atomic.Uint64 // commits that were not a sweep's
	refusals refusals
}

// Open prepares a host over an open store. It starts no run, so the store may be open beside another host: it deploys and
// decides then, and Run refuses. The caller keeps the store, and closes it after the host.
func Open(ctx context.Context, db Store, cfg Config) (*Host, error) {
	if db == nil {
		return nil, errors.New("open a host: there is no store")
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.Schemas == nil {
		cfg.Schemas = new(engine.Schemas)
	}
	tools, err := toolsOf(cfg)
	if err == nil {
		cfg.Budgets, err = budgetsOf(cfg.Budgets, cfg.Connections, cfg.Elsewhere)
	}
	if err != nil {
		return nil, err
	}
	salt, secretKey, err := keysOf(ctx, db)
	if err != nil {
		return nil, err
	}
	if err := cfg.Sandbox.Limits.Validate(); err != nil {
		return nil, err
	}
	if err := cfg.Retention.Validate(); err != nil {
		return nil, err
	}
	var h *Host
	notifier, err := newNotifier(db, cfg, func() time.Time { return h.Engine.Now() })
	if err != nil {
		return nil, err
	}
	if l, ok := db.(store.Leaser); ok && cfg.Leases == nil {
		cfg.Leases = l
	}
	h = &Host{cfg: cfg, tools: tools, notifier: notifier, log: cfg.Logger, store: db, runtime: &runtimeOf{given: cfg.Runtime, cfg: cfg.Sandbox}, changes: feed.New(remembered)}
	if h.refusals.now = cfg.Clock; cfg.Clock == nil {
		h.refusals.now = time.Now
	}
	if cfg.Leases != nil {
		h.peers = newPeers(cfg.Leases, tools.Connections, h.InGo, h.changes, cfg.Logger)
		cfg.Leases = h.peers
	}
	h.scripts = newScripts(h.runtime.load)
	if cfg.Load != nil {
		h.scripts.loader = cfg.Load
	}
	h.mender = newMender(h, cfg)
	watched := observedStore{db, h.Announce, notifier, h.mender, cfg.Committed, &h.worked, &h.refusals}
	h.Engine, err = engine.New(watched, h.scripts, tools, engine.Config{
		Policy: cfg.Policy, Budgets: cfg.Budgets, Salt: salt, SecretKey: secretKey, Only: cfg.Only, Logger: cfg.Logger, Tracer: cfg.Tracer, Measured: cfg.Measured, Trace: cfg.Trace,
		Leases: cfg.Leases, Host: keep.Host{Name: cfg.Name, Version: cfg.Version}, Clock: cfg.Clock, Reach: cfg.Reach,
		Presence: cfg.presence(ctx), Repairs: h.mender.repairing,
	})
	if err == nil {
		err = h.Engine.Sync(ctx)
	}
	if err == nil {
		h.Operator, err = operator.New(watched, operator.Config{Policy: cfg.Policy, Now: h.Engine.Now, Executor: h.Engine, Results: engine.NewResults(tools, db, secretKey), Budgets: h.Engine.Budgets, Secrets: tools.Secrets, Logger: cfg.Logger})
	}
	if err != nil {
		return nil, err
	}
	return h, nil
}

// toolsOf returns the tools of the connections, which scripts and handlers can name.
func toolsOf(cfg Config) (*engine.Tools, error) {
	for _, c := range cfg.Connections {
		if err := connector.Check(c); err != nil {
			return nil, err
		}
	}
	return cfg.Schemas.Tools(cfg.Connections)
}

// keysOf returns what makes ids of the store's own, and marks of secrets.
func keysOf(ctx context.Context, db Store) (salt string, secretKey []byte, err error) {
	if salt, err = db.StoreID(ctx); err != nil {
		return "", nil, fmt.Errorf("read the store's id: %w", err)
	}
	if secretKey, err = db.LinkKey(ctx); err != nil {
		return "", nil, fmt.Errorf("read the store's key: %w", err)
	}
	return salt, secretKey, nil
}

// presence opens the directory of cfg, if there are leases and it proves anything.
func (cfg Config) presence(ctx context.Context) lease.Presence {
	if cfg.Leases == nil || cfg.Presence == "" {
		return nil
	}
	d, err := presence.Open(cfg.Presence)
	if err != nil {
		cfg.Logger.DebugContext(ctx, "a successor on this machine waits until the leases end", "err", err)
		return nil
	}
	return d
}

// Run works until ctx is done, and returns nil then; see engine.Engine.Run. It is ErrRunning beside another
// Run of the host, ErrClosed after Close, and an error on a store that was not opened as a host (store.Hosting).
func (h *Host) Run(ctx context.Context) error {
	if err := h.begin(); err != nil {
		return err
	}
	defer h.end()
	var wg sync.WaitGroup
	defer wg.Wait()
	// Both continue until the engine has ended: it may ask while it stops.
	beside, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	wg.Go(func() { h.notifier.Run(beside) })
	// A sweep ends with ctx, or when the engine ends by itself.
	sweeping, enough := context.WithCancel(ctx)
	defer enough()
	wg.Go(func() { h.sweep(sweeping) })
	wg.Go(func() { h.settleBudgets(sweeping) })
	wg.Go(func() { h.count(sweeping) })
	wg.Go(func() { h.mender.run(sweeping) })
	if h.peers != nil {
		wg.Go(func() { h.peers.broadcast(beside) })
		wg.Go(func() { h.peers.listen(beside) })
	} else if w, ok := h.store.(store.Watcher); ok {
		wg.Go(func() { h.watch(beside, w) })
	}
	return h.Engine.Run(ctx)
}

// RunUntilIdle works until nothing is left to do without a person, an event or a later time, or until ctx is
// done, and returns the cause of that then. It returns nil also where questions are open; the store's Escalations lists them.
func (h *Host) RunUntilIdle(ctx context.Context) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	var (
		done  sync.WaitGroup
		ended error
	)
	done.Go(func() {
		ended = h.Run(running)
		stop() // nothing is left to wait for
	})
	idle := h.WaitIdle(running)
	stop()
	done.Wait()
	if ended != nil {
		return ended // idle ended with it
	}
	return idle
}

// begin notes that the host runs.
func (h *Host) begin() error {
	h.set.Lock()
	defer h.set.Unlock()
	switch {
	case h.closed:
		return ErrClosed
	case h.running:
		return ErrRunning
	}
	if err := h.store.MayHost(); err != nil {
		return fmt.Errorf("run workflows: %w", err)
	}
	h.running = true
	return nil
}

func (h *Host) isClosed() bool {
	h.set.Lock()
	defer h.set.Unlock()
	return h.closed
}

func (h *Host) end() {
	h.set.Lock()
	defer h.set.Unlock()
	h.running = false
}

// watch wakes the engine when another process changed the store.
func (h *Host) watch(ctx context.Context, w store.Watcher) {
	tick := time.NewTicker(pollForeign)
	defer tick.Stop()
	var last uint64
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		n, err := w.ForeignChanges(ctx)
		if err != nil && ctx.Err() == nil {
			h.log.WarnContext(ctx, "look for foreign changes", "err", err)
			continue
		}
		if first || n != last {
			h.ReloadLimits(ctx)
			h.Reload()
		}
		last = n
	}
}

// Close releases the sandbox and the connections. Run must have returned. A read whose connector ignored the end of its time
// may be out still: nobody waits for it.
func (h *Host) Close() error {
	h.set.Lock()
	defer h.set.Unlock()
	h.closed = true
	return errors.Join(h.runtime.close(), closeConnections(h.cfg.Connections))
}

func closeConnections(conns []connector.Connection) error {
	var errs []error
	for _, c := range conns {
		if c.Close != nil {
			if err := c.Close(); err != nil {
				errs = append(errs, fmt.Errorf("close connection %s: %w", c.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Reconfigure replaces the connections, the retention, the budgets and the breaker of a host that may be running.
// Calls that are out end with the connections that they began with, which are closed
// after the last of them; the next call uses the new ones. An error changes nothing, and
// conns are then the caller's to close.
func (h *Host) Reconfigure(conns []connector.Connection, r policy.Retention, budgets []budget.Rule, breaker keep.Breaker) error {
	tools, err := engine.NewTools(conns)
	if err == nil {
		budgets, err = budgetsOf(budgets, conns, h.cfg.Elsewhere)
	}
	if err == nil {
		err = r.Validate()
	}
	if err != nil {
		return err
	}
	h.set.Lock()
	defer h.set.Unlock()
	old := h.cfg.Connections
	h.cfg.Connections, h.cfg.Retention = conns, r
	h.Engine.SetBudgets(budgets)
	h.SetBreaker(breaker)
	var once sync.Once
	h.tools.Replace(tools, func() {
		once.Do(func() {
			if err := closeConnections(old); err != nil {
				h.log.Warn("close the connections before", "err", err)
			}
		})
	})
	h.WarnOfShortLeases(context.Background())
	h.Engine.Reload()
	return nil
}

// retention returns for how long finished work is kept now.
func (h *Host) retention() policy.Retention {
	h.set.Lock()
	defer h.set.Unlock()
	return h.cfg.Retention
}
