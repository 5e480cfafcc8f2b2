package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/api/hook"
	"github.com/keep-run/keep/cmd/keep/internal/buildinfo"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/metrics"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/internal/pause"
	"github.com/keep-run/keep/internal/regular"
	"github.com/keep-run/keep/internal/socket"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/web"
)

// DefaultListen is where the API and the pages are unless somebody says otherwise.
const DefaultListen = "127.0.0.1:7433"

// A Watch is notified of what a host does.
type Watch struct {
	Committed func(keep.Commit)  // of each commit; nil: nobody is
	Metrics   *metrics.Collector // counts it all; nil: nothing does
}

func (w Watch) committed(c keep.Commit) {
	w.Metrics.Observe(c)
	if w.Committed != nil {
		w.Committed(c)
	}
}

// A Server is the API and the pages of a host, on an address and on a socket
// beside the database.
type Server struct {
	env      Env
	store    store.Access
	api      *api.Server
	now      handler // what is offered now
	receiver *hook.Receiver
	connects *Connecting
	backups  *Backups
	plans    chan struct{} // places of plans that are made at once
	trials   chan struct{} // places of scripts that agents try at once
	metrics  http.Handler  // of the host
	check    *databaseCheck
	http     *http.Server
	hub      *hub // of agents whose gateways share the database; nil: it is of no gateway
	Socket   *http.Server
	scrape   *http.Server       // of monitors; nil: none
	streams  context.CancelFunc // ends what would continue forever

	listener, local, scraped net.Listener // nil: none
	base                     string       // URL of the pages
	hidden                   bool         // nobody serves the pages, as far as this process knows
	note                     string       // for the person who started it; empty: nothing
}

// OpenServer binds the addresses, so that what is wrong with them is said before
// anything runs. With server.listen "off" there is the socket alone.
func (e Env) OpenServer(ctx context.Context, s *Session, seen *metrics.Collector) (_ *Server, err error) {
	cfg := s.Project.Cfg
	srv := &Server{env: e, plans: make(chan struct{}, maxPlans), trials: make(chan struct{}, maxTrials)}
	defer func() {
		if err != nil {
			err = errors.Join(err, srv.Close())
		}
	}()
	if err := srv.listen(ctx, cfg.Server); err != nil {
		return nil, err
	}
	// Requests outlive ctx: when that ends, Close gives them a moment. Streams would never end by themselves,
	// so Close ends them first.
	base, end := context.WithCancel(context.WithoutCancel(ctx))
	srv.streams = end
	srv.check = checkOf(base, s)
	srv.store = credentials{s.DB, func(context.Context) { s.Host.Announce(credentialChange) }}
	srv.metrics = srv.metricsOf(s, seen)
	srv.receiver = hook.NewReceiver(hook.ReceiverConfig{Publisher: s.Host, Store: s.DB, Clock: e.now, Logger: e.Log})
	srv.connects = &Connecting{Accounts: s.Accounts, Config: s.config, Now: e.now}
	srv.backups = &Backups{DB: s.DB, Now: e.now}
	if srv.api, err = srv.offer(s); err != nil {
		return nil, err
	}
	if srv.listener != nil {
		guard, err := access.New(access.Config{
			Store: srv.store, Hosts: siteNames(cfg.Server), Secure: strings.HasPrefix(srv.base, "https:"), Links: s.links,
			Cookie: strconv.Itoa(srv.listener.Addr().(*net.TCPAddr).Port), Logger: e.Log,
		})
		if err != nil {
			return nil, err
		}
		srv.http = e.newHTTP(base, srv.withHooks(guard.Handler(&srv.now)))
	}
	srv.hub = e.serveGateways(ctx, s)
	srv.Socket = e.newHTTP(base, access.Local(User(), srv.withOwner(s.DB.Name(), &srv.now)))
	srv.openSocket(ctx, cfg)
	if err := srv.openScrape(ctx, base, cfg.Server.MetricsListen, s); err != nil {
		return nil, err
	}
	return srv, nil
}

// withHooks puts the hooks before what needs a login: a service has none, and says by its
// signature who it is.
func (s *Server) withHooks(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, hook.Prefix) {
			s.receiver.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// newHTTP returns a server with the limits that keep one client from holding up
// the others (law: bounded).
func (e Env) newHTTP(base context.Context, handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, BaseContext: func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: access.MaxHeader, ErrorLog: slog.NewLogLogger(e.Log.Handler(), slog.LevelDebug),
	}
}

// listen binds the address. The default one may be taken: then any other does.
//
// Only the default address may be replaced by another: who named one has told others of it.
func (s *Server) listen(ctx context.Context, cfg config.Server) error {
	if cfg.Listen == "off" {
		s.base, s.hidden = baseOf(cfg), cfg.URL == ""
		return nil
	}
	addr := cmp.Or(cfg.Listen, DefaultListen)
	if err := access.CheckListen(addr, cfg.TLSCert != ""); err != nil {
		return exit.Misusef("server.listen: %w", err)
	}
	encrypted := cfg.TLSCert != "" || cfg.TLSKey != ""
	var lc net.ListenConfig
	var err error
	if s.listener, err = lc.Listen(ctx, "tcp", addr); errors.Is(err, syscall.EADDRINUSE) && cfg.Listen == "" {
		s.note = addr + " is taken by another process; --listen chooses an address."
		s.listener, err = lc.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return fmt.Errorf("listen: %w; choose another address with --listen, or --listen off", err)
	}
	scheme := "http"
	if encrypted {
		cert, err := regular.KeyPair(cfg.TLSCert, cfg.TLSKey)
		if err != nil {
			return exit.Misusef("server.tls_cert, server.tls_key: %w", err)
		}
		s.listener = tls.NewListener(s.listener, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}})
		scheme = "https"
	}
	s.base = cmp.Or(strings.TrimSuffix(cfg.URL, "/"), scheme+"://"+s.listener.Addr().String())
	return nil
}

// siteNames returns the names by which browsers may come.
func siteNames(cfg config.Server) []string {
	hosts := cfg.Hosts
	if u, err := url.Parse(cfg.URL); err == nil && u.Hostname() != "" {
		hosts = append(hosts, u.Hostname())
	}
	return hosts
}

// A handler passes requests on to another, which may be replaced.
type handler struct{ to atomic.Pointer[http.ServeMux] }

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.to.Load().ServeHTTP(w, r) }

// offer builds all that the server offers of a session as it is configured now, and
// offers it from now on. Requests that are being answered are not affected.
//
// All of it is made before any of it is offered: an error leaves what there was.
func (s *Server) offer(v *Session) (*api.Server, error) {
	hooks, err := hooksOf(v.Project.Cfg)
	if err != nil {
		return nil, err
	}
	conns, limits := v.conns, &v.Project.Cfg.Policy // others take their place while requests are answered
	scripts := &ScriptDeployer{Host: v.Host, DB: v.DB, Runtime: v.Runtime, Conns: conns, Config: v.config, Refused: v.Refused}
	replays := &ScriptReplayer{DB: v.DB, Tools: func(context.Context) (*sandbox.Runtime, []connector.Connection, *policy.Policy, error) {
		return v.Runtime, conns, limits, nil
	}}
	plans := &ScriptPlanner{Deployer: scripts, DB: v.DB, Now: s.env.now, Places: s.plans, Time: planTime}
	accounts := ServedAccounts{v.Accounts, v.DB, v.config, s.env.now}
	answers, err := s.env.newAPI(v.DB, Actors{v.Host, scripts, accounts, replays, scripts.Ungrantable, v.Host.Now}, s.store, v.Host.Changes(), s.hooks, v.Host.Budgets, v.Settings, v.Refusal, v.Host.InGo)
	if err != nil {
		return nil, err
	}
	keys := decidedKeys{database.Keys(v.DB), func() { v.Host.Announce(feed.Change{Kinds: []feed.Kind{feed.Key}}) }}
	hosts, _ := v.DB.(store.Leaser)
	pages, err := web.New(web.Config{
		Hosts: hosts, Executors: executors(v.DB, v.Host.InGo),
		Store: v.DB, Actor: v.Host, Clock: v.Host.Now, Feed: v.Host.Changes(), Connections: v.conns, Keys: idempotency.NewKeys(keys),
		Hooks: s.hooks, Budgets: v.Host.Budgets, Accounts: accounts, Replayer: replays, Deployer: scripts, Planner: plans, Connector: s.connects, Secrets: ServedSecrets{v}, Backups: s.backups, URL: s.base, Policy: &v.Project.Cfg.Policy, Settings: v.Settings, Refusal: v.Refusal, Access: s.store, Version: buildinfo.Read().Version, Logger: s.env.Log,
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle(api.Prefix+"/", answers)
	s.watched(mux, v)
	mux.Handle(AgentPath, s.agents(v, answers, plans))
	mux.Handle("/", pages)
	s.now.to.Store(mux)
	s.receiver.Set(hooks)
	return answers, nil
}

// metricsOf returns the metrics of the host.
func (s *Server) metricsOf(v *Session, seen *metrics.Collector) http.Handler {
	cfg := metrics.Config{Store: v.DB, Logger: s.env.Log, Sandbox: func() (int, int) {
		u := v.Runtime.Usage()
		return u.Waiting, u.Idle
	}}
	if db, ok := v.DB.(interface{ Grouped() (uint64, uint64) }); ok {
		cfg.Grouped = db.Grouped
	}
	cfg.Refuses, cfg.Answers = func() bool { return v.Host.Refusal().Err != nil }, s.check.answers
	cfg.NoProgram = func(ctx context.Context) (int, error) {
		missing, err := executors(v.DB, v.Host.InGo).MissingOfAll(ctx, v.DB)
		return len(missing), err
	}
	if keys := database.Keys(v.DB); keys != nil {
		cfg.KeysUnknown = idempotency.NewKeys(keys).Unknown
	}
	m := metrics.New(cfg)
	seen.Use(m)
	return m
}

// LinkPath is where the socket, and nothing else, gives links to log in.
const LinkPath = "/login-link"

// ready answers whether the database can be read, and takes what the host writes.
func ready(w http.ResponseWriter, r *http.Request, v *Session, check *databaseCheck) {
	if err := check.answers(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if v.Host.Refusal().Err != nil {
		http.Error(w, "the database takes no commits: keep status", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// openSocket binds the socket of the database. It is for its owner alone, so it
// needs no login. Without it there is still the address, and commands open the
// database themselves.
func (s *Server) openSocket(ctx context.Context, cfg *config.Config) {
	path := SocketOf(cfg)
	if path == "" {
		return
	}
	var err error
	if s.local, err = socket.Listen(ctx, path); err != nil { // the process has the host's lock, so one that lies there is a dead one's
		s.env.Log.WarnContext(ctx, "there is no socket: commands open the database themselves; server.socket of keep.toml names another place",
			"path", path, "err", err)
	}
}

// Run serves until ctx is done. It returns what went wrong before that.
func (s *Server) Run(ctx context.Context) error {
	if s == nil {
		<-ctx.Done()
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	serve := func(h *http.Server, l net.Listener) {
		wg.Go(func() {
			if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				cancel(fmt.Errorf("serve %s: %w", l.Addr(), err))
			}
		})
	}
	if s.listener != nil {
		serve(s.http, s.listener)
	}
	if s.local != nil {
		serve(s.Socket, s.local)
	}
	if s.scraped != nil {
		serve(s.scrape, s.scraped)
	}
	wg.Go(func() { s.sweep(ctx) })
	beside, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	wg.Go(func() { s.receiver.Run(beside) })
	wg.Go(func() {
		if err := s.api.Run(ctx); err != nil && ctx.Err() == nil {
			cancel(fmt.Errorf("sweep idempotency keys: %w", err))
		}
	})
	<-ctx.Done()
	err := s.Close()
	stop() // no delivery is under way any more: the last counts are written
	wg.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return errors.Join(cause, err)
	}
	return err
}

// sweep deletes credentials that have expired.
func (s *Server) sweep(ctx context.Context) {
	for wait := time.Duration(0); pause.For(ctx, wait) == nil; wait = time.Hour {
		if _, err := s.store.SweepCredentials(ctx, time.Now()); err != nil && ctx.Err() == nil {
			s.env.Log.WarnContext(ctx, "sweep credentials", "err", err)
		}
	}
}

// Close ends streams at once and gives other requests a moment.
//
// It may be called more than once, and of a server that was opened only in part: what Run has closed is no
// error.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	if s.streams != nil {
		s.streams()
	}
	if s.check != nil {
		s.check.close()
	}
	errs := []error{s.hub.Close()}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, h := range []*http.Server{s.http, s.Socket, s.scrape} {
		if h == nil {
			continue
		}
		if err := h.Shutdown(ctx); err != nil {
			errs = append(errs, h.Close())
		}
	}
	for _, l := range []net.Listener{s.listener, s.local, s.scraped} {
		if l == nil {
			continue
		}
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Announce tells the person where the pages are, and at the first start how to come
// in. It tells by the function that is given, line by line.
//
// Once somebody has a token or a session there is no link: it logs in whoever sees it, and the output may
// be kept in a log.
//
// A link that logs in is given where a person reads it: a log is kept, and others read it.
func (s *Server) Announce(ctx context.Context, logged bool, tell func(format string, args ...any)) error {
	if s == nil {
		return nil
	}
	if s.note != "" {
		tell("%s", s.note)
	}
	if s.scraped != nil {
		tell("Metrics at http://%s/metrics", s.scraped.Addr())
	}
	if s.listener == nil {
		return nil
	}
	known, err := s.known(ctx)
	if err != nil {
		return err
	}
	if known || logged {
		tell("Look at %s (a link to log in: keep login)", s.base)
		return nil
	}
	link, err := access.LoginURL(ctx, s.store, s.base, User(), time.Now())
	if err != nil {
		return err
	}
	tell("Look at %s", s.base)
	tell("Log in, once and within %s: %s", terminal.Plural(int(access.LoginLife.Minutes()), "minute"), link)
	return nil
}

// Show opens the pages, logged in, if they are at an address of this machine alone.
func (s *Server) Show(ctx context.Context, open func(page string) error) error {
	if s == nil || s.listener == nil || access.CheckListen(s.listener.Addr().String(), false) != nil {
		return nil
	}
	link, err := access.LoginURL(ctx, s.store, s.base, User(), time.Now())
	if err != nil {
		return err
	}
	return open(access.OpenedURL(link))
}

// known reports whether somebody has a token or a session.
func (s *Server) known(ctx context.Context) (bool, error) {
	for _, kind := range []keep.CredentialKind{keep.CredentialToken, keep.CredentialSession} {
		all, err := s.store.Credentials(ctx, kind)
		if err != nil || len(all) > 0 {
			return len(all) > 0, err
		}
	}
	return false, nil
}

// RunBoth runs a host, its server and, if it is not nil, what follows the configuration,
// until ctx ends or one of them fails.
func RunBoth(ctx context.Context, h *host.Host, srv *Server, f *Follower) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	var serveErr error
	wg.Go(func() {
		defer stop()
		serveErr = srv.Run(ctx)
	})
	if f != nil {
		wg.Go(func() { f.Run(ctx) })
	}
	err := h.Run(ctx)
	stop()
	wg.Wait()
	if err != nil {
		err = fmt.Errorf("run: %w", err)
	}
	return errors.Join(err, serveErr)
}
