package daemon

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/buildinfo"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/gateway"
)

// OpenGateway opens the gateway of a configuration over a database that this process has for itself, or over
// Postgres.
func (e Env) OpenGateway(ctx context.Context, cfg *config.Config, db database.DB) (*gateway.Gateway, error) {
	return gateway.New(ctx, db, gateway.Config{
		Servers: cfg.Gateway.Servers, Was: cfg.Gateway.Was, Rules: cfg.Gateway.Rules, Grants: cfg.Gateway.Grants, Repeat: cfg.Gateway.Repeat, Policy: &cfg.Policy, Budgets: cfg.BudgetRules(),
		Alone: !database.IsPostgres(cfg.DB), MessageLimit: cfg.Gateway.MessageLimit, ResultLimit: cfg.Gateway.ResultLimit,
		Version: buildinfo.Read().Version, Logger: e.Log,
	})
}

// A Gateway is one with its database.
type Gateway struct {
	*gateway.Gateway
	DB      database.DB
	closers []func() error // in the order of closing, backwards
}

// HostGateway opens the database as its one process, and the gateway of a configuration over it. Other processes share
// it by the socket. Yield is called when one that does not share wants the database; nil: this one does not yield it, and
// has one that would yield it do so.
func (e Env) HostGateway(ctx context.Context, cfg *config.Config, yield func()) (_ *Gateway, err error) {
	g := new(Gateway)
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	if yield == nil {
		g.DB, err = e.openHost(ctx, cfg)
	} else {
		g.DB, err = database.Open(ctx, cfg, database.ToHost)
	}
	if err != nil {
		return nil, err
	}
	// They are undone in reverse: the socket with its links, the gateway, what renews accounts, and last the
	// database, which all of them use.
	g.closers = append(g.closers, g.DB.Close, e.serveAccounts(ctx, cfg, g.DB))
	if g.Gateway, err = e.OpenGateway(ctx, cfg, g.DB); err != nil {
		return nil, err
	}
	h := &hub{cfg, newGate(e.Log, nil)}
	h.gate.now = newServed(g.Gateway, cfg.Hash)
	end := e.serveSocket(ctx, cfg, h, yield)
	g.closers = append(g.closers, h.Close, func() error { end(); return nil })
	return g, nil
}

// Close ends what is out after a moment, and gives the database up.
func (g *Gateway) Close() error {
	if g == nil {
		return nil
	}
	var errs []error
	for _, c := range slices.Backward(g.closers) {
		errs = append(errs, c())
	}
	g.closers = nil
	return errors.Join(errs...)
}

// serveAccounts gives the servers of a gateway the accounts of the database, and renews them until the function
// that it returns is called.
func (e Env) serveAccounts(ctx context.Context, cfg *config.Config, db database.DB) (end func() error) {
	if !cfg.Gateway.UsesAccounts() {
		return func() error { return nil }
	}
	accounts := e.NewAccounts(func() *config.Config { return cfg }, db, nil)
	cfg.UseAccounts(accounts)
	ctx, stop := context.WithCancel(ctx)
	var loops sync.WaitGroup
	loops.Go(func() { accounts.Run(ctx) })
	return func() error {
		stop()
		loops.Wait()
		return nil
	}
}

// A Seat gives the front of one agent a gateway: that of the process that has the database, or its own.
type Seat struct {
	Env   Env
	Cfg   *config.Config
	Agent string

	// Load reads the configuration anew. Nil: it stays as it is.
	Load func() (*config.Config, error)

	met    bool           // there was a gateway before
	own    *Gateway       // nil: that of another process is used
	links  sync.WaitGroup // to the own one
	yields bool           // the database was asked for; read when links are over
	next   *config.Config // that the own one ended for; nil: none; read when links are over
}

// How long a seat looks for a gateway: at the start, where nothing is waited for, and when the one that it had
// ended. Who was asked for the database leaves it to the other for a while.
const (
	firstWait = 10 * time.Second
	nextWait  = time.Minute
	yieldWait = 10 * time.Second
	CallWait  = 30 * time.Second // for calls that are out when another process wants the database
	seatEvery = 25 * time.Millisecond

	// silentWait is how long a process that has the database may be without a socket: a gateway that begins has
	// none until it is open, and one that ends has none any more.
	silentWait = 3 * time.Second
)

// Connect implements the Connect of a gateway.Front.
func (s *Seat) Connect(ctx context.Context) (gateway.Link, error) {
	now := time.Now()
	until, leave := now.Add(firstWait), now
	if s.met {
		until = now.Add(nextWait)
	}
	// Who gave the database up for another process does not take it back before that one had time to open it.
	if s.links.Wait(); s.yields {
		leave = now.Add(yieldWait)
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	before := s.Cfg
	if s.next != nil {
		s.Cfg, s.next = s.next, nil
	}
	if s.met {
		s.reload(ctx)
	}
	for {
		link, err := s.connect(ctx, time.Now().After(leave))
		refused, isRefused := errors.AsType[*refusedLink](err)
		switch {
		case err == nil:
			if s.own != nil && !s.Cfg.Same(before) {
				s.Env.Log.WarnContext(ctx, "configuration taken", "file", s.Cfg.File)
			}
			s.met = true
			return link, nil
		case isRefused:
			return nil, exit.NoDatabase(refused)
		case errors.Is(err, errOtherText) && time.Now().Before(now.Add(nextWait)):
			s.reload(ctx) // it may be this side's that is old
		// A locked database without a link is that of a process which begins or ends: it is asked again.
		case !errors.Is(err, keep.ErrLocked) && !errors.Is(err, errNoLink), time.Now().After(until):
			return nil, err
		}
		select {
		case <-time.After(seatEvery):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// stillTime is how long a changed keep.toml may take until it stays as it is. After that the gateway begins with the one
// before, and ends when the other one is taken.
const stillTime = 5 * lookEvery

// reload takes keep.toml as it is now, if a gateway can be made of it.
func (s *Seat) reload(ctx context.Context) {
	if s.Load == nil {
		return
	}
	if next, err := loadGateway(s.Cfg, s.Load); err != nil || next.Same(s.Cfg) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stillTime)
	defer cancel()
	if next := s.Env.NextGateway(ctx, s.Cfg, s.Load); next != nil {
		s.Cfg = next
	}
}

// connect joins the process that has the database, or takes it if nobody has it.
func (s *Seat) connect(ctx context.Context, takes bool) (gateway.Link, error) {
	link, err := joinLink(ctx, SocketOf(s.Cfg), s.Agent, configFile(s.Cfg), s.Cfg.Hash)
	if err == nil || !errors.Is(err, errNoLink) || !takes {
		return link, err
	}
	asked := make(chan struct{}, 1)
	if s.own, err = s.Env.HostGateway(ctx, s.Cfg, func() {
		select {
		case asked <- struct{}{}:
		default:
		}
	}); err != nil {
		return nil, err
	}
	s.yields = false
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	front, back := gateway.NewLink()
	s.links.Go(func() {
		defer stop()
		_ = s.own.ServeLink(work, s.Agent, true, back) // the front went, or is to go to another gateway
	})
	changed := make(chan struct{})
	s.links.Go(func() {
		if s.Load == nil {
			return
		}
		if s.next = s.Env.NextGateway(work, s.Cfg, s.Load); s.next != nil {
			close(changed)
		}
	})
	s.links.Go(func() {
		defer stop()
		select {
		case <-asked:
			s.yields = true
		case <-changed:
		case <-work.Done():
			return
		}
		calls, cancel := context.WithTimeout(work, CallWait)
		defer cancel()
		s.own.Settle(calls)
	})
	return front, nil
}

// Close ends the own gateway, if there is one, and gives the database up.
func (s *Seat) Close() error {
	s.links.Wait()
	err := s.own.Close()
	s.own = nil
	return err
}

// openHost opens the database of a process that runs workflows. A gateway that has it lets it go, and its agent continues
// with this process.
//
// Who does not answer may begin or end just now, and is asked again for a moment; who answers that it keeps the database
// is believed.
func (e Env) openHost(ctx context.Context, cfg *config.Config) (database.DB, error) {
	start, wait := time.Now(), silentWait
	yields, silent := false, false
	for {
		db, err := database.Open(ctx, cfg, database.ToHost)
		if !errors.Is(err, keep.ErrLocked) {
			return db, err
		}
		asked := askToYield(ctx, SocketOf(cfg))
		switch {
		case asked == nil && !yields:
			yields, wait = true, CallWait+yieldWait/2
			e.say("keep gateway has this database, and lets it go when its calls are over.")
		case asked != nil && !errors.Is(asked, errNoLink):
			return nil, err
		case asked != nil && !yields && !silent:
			silent = true
			e.say("Another process has this database, and does not answer: trying again for %s.", wait)
		}
		// One gateway lets it go, and another one may have taken it first.
		if time.Since(start) > wait {
			return nil, err
		}
		select {
		case <-time.After(seatEvery):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
