package main

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
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/access"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/config"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/feed"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/metrics"
	"github.com/keep-run/keep/sandbox"
	"github.com/keep-run/keep/web"
)

// defaultListen is where the API and the pages are unless somebody says otherwise.
const defaultListen = "127.0.0.1:7433"

// A served is what a server shows: a host, its database and its connections.
type served struct {
	cfg     *config.Config
	db      database
	host    *host.Host
	runtime *sandbox.Runtime
	conns   []connector.Connection
	doubts  *doubts // what the host's commits are told to
}

// A doubts keeps the commits of a host for the metrics, which are made after it.
type doubts struct{ metrics atomic.Pointer[metrics.Host] }

// observe is told of each commit.
func (d *doubts) observe(c keep.Commit) {
	if m := d.metrics.Load(); m != nil {
		m.Observe(c)
	}
}

// A server is the API and the pages of a host, on an address and on a socket
// beside the database.
type server struct {
	a       *app
	store   access.Store
	api     *api.Server
	http    *http.Server
	socket  *http.Server
	streams context.CancelFunc // ends what would go on for ever

	listener, local net.Listener // nil: none
	base            string       // URL of the pages
	note            string       // for the person who started it; empty: nothing
}

// openServer binds the addresses, so that what is wrong with them is said before
// anything runs. It returns nil if there is nothing to serve.
func (a *app) openServer(ctx context.Context, s served) (_ *server, err error) {
	if s.cfg.Server.Listen == "off" {
		return nil, nil
	}
	if err := access.CheckListen(cmp.Or(s.cfg.Server.Listen, defaultListen), s.cfg.Server.TLSCert != ""); err != nil {
		return nil, misusef("server.listen: %w", err)
	}
	srv := &server{a: a}
	defer func() {
		if err != nil {
			err = errors.Join(err, srv.close())
		}
	}()
	if err := srv.listen(ctx, s.cfg.Server); err != nil {
		return nil, err
	}
	srv.store = credentials{s.db, func(context.Context) { s.host.Announce(credentialChange) }}
	handler, err := srv.handler(s)
	if err != nil {
		return nil, err
	}
	guard, err := access.New(access.Config{
		Store: srv.store, Hosts: siteNames(s.cfg.Server), Secure: strings.HasPrefix(srv.base, "https:"),
		Cookie: strconv.Itoa(srv.listener.Addr().(*net.TCPAddr).Port), Logger: a.log,
	})
	if err != nil {
		return nil, err
	}
	base, end := context.WithCancel(context.WithoutCancel(ctx))
	srv.streams = end
	srv.http = a.newHTTP(base, guard.Handler(handler))
	srv.socket = a.newHTTP(base, access.Local(who(), srv.withOwner(s.db.Name(), handler)))
	srv.openSocket(ctx, s.cfg)
	return srv, nil
}

// newHTTP returns a server with the limits that keep one client from holding up
// the others (law: bounded).
func (a *app) newHTTP(base context.Context, handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, BaseContext: func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: access.MaxHeader, ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
}

// listen binds the address. The default one may be taken: then any other does.
func (s *server) listen(ctx context.Context, cfg config.Server) error {
	addr := cmp.Or(cfg.Listen, defaultListen)
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
		cert, err := tls.LoadX509KeyPair(cfg.TLSCert, cfg.TLSKey)
		if err != nil {
			return misusef("server.tls_cert, server.tls_key: %w", err)
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

// handler is all that the server offers.
func (s *server) handler(v served) (http.Handler, error) {
	var err error
	scripts := &scriptDeployer{a: s.a, host: v.host, runtime: v.runtime, conns: v.conns}
	if s.api, err = s.a.newAPI(v.db, actors{v.host, scripts}, s.store, v.host.Changes()); err != nil {
		return nil, err
	}
	keys := decidedKeys{keysOf(v.db), func() { v.host.Announce(feed.Change{Kinds: []feed.Kind{feed.Key}}) }}
	pages, err := web.New(web.Config{
		Store: v.db, Actor: v.host, Feed: v.host.Changes(), Connections: v.conns, Keys: idempotency.NewKeys(keys),
		Policy: &v.cfg.Policy, Access: s.store, Version: thisVersion().Version, Logger: s.a.log,
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle(api.Prefix+"/", s.api)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { ready(w, r, v.db) })
	mux.Handle("GET /metrics", s.metrics(v))
	mux.Handle("/", pages)
	return mux, nil
}

// metrics returns the metrics of the host.
func (s *server) metrics(v served) http.Handler {
	cfg := metrics.Config{Store: v.db, Logger: s.a.log, Sandbox: func() (int, int) {
		u := v.runtime.Usage()
		return u.Waiting, u.Idle
	}}
	if db, ok := v.db.(interface{ Grouped() (uint64, uint64) }); ok {
		cfg.Grouped = db.Grouped
	}
	m := metrics.New(cfg)
	v.doubts.metrics.Store(m)
	return m
}

// linkPath is where the socket, and nothing else, gives links to log in.
const linkPath = "/login-link"

// ready answers whether the database can be read.
func ready(w http.ResponseWriter, r *http.Request, db database) {
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	if _, err := db.StoreID(ctx); err != nil {
		http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// openSocket binds the socket of the database. It is for its owner alone, so it
// needs no login. Without it there is still the address, and commands open the
// database themselves.
func (s *server) openSocket(ctx context.Context, cfg *config.Config) {
	path := socketOf(cfg)
	if path == "" {
		return
	}
	var err error
	if s.local, err = listenSocket(ctx, path); err != nil {
		s.a.log.WarnContext(ctx, "there is no socket: commands open the database themselves; server.socket of keep.toml names another place",
			"path", path, "err", err)
	}
}

// listenSocket binds a socket that nobody else can open, also not while it is
// made. The process has the host's lock, so one that lies there is a dead one's.
func listenSocket(ctx context.Context, path string) (net.Listener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".keep-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, "s")
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", made)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(made, 0o600), os.Rename(made, path)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &socket{l, path}, nil
}

// A socket takes its file away when it is closed.
type socket struct {
	net.Listener
	path string
}

// Close closes the socket and removes its file.
func (s *socket) Close() error { return errors.Join(s.Listener.Close(), os.Remove(s.path)) }

// run serves until ctx is done. It returns what went wrong before that.
func (s *server) run(ctx context.Context) error {
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
	serve(s.http, s.listener)
	if s.local != nil {
		serve(s.socket, s.local)
	}
	wg.Go(func() { s.sweep(ctx) })
	wg.Go(func() {
		if err := s.api.Run(ctx); err != nil && ctx.Err() == nil {
			cancel(fmt.Errorf("sweep idempotency keys: %w", err))
		}
	})
	<-ctx.Done()
	err := s.close()
	wg.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return errors.Join(cause, err)
	}
	return err
}

// sweep deletes credentials that have expired.
func (s *server) sweep(ctx context.Context) {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		if _, err := s.store.SweepCredentials(ctx, time.Now()); err != nil && ctx.Err() == nil {
			s.a.log.WarnContext(ctx, "sweep credentials", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// close ends streams at once and gives other requests a moment.
func (s *server) close() error {
	if s == nil {
		return nil
	}
	if s.streams != nil {
		s.streams()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var errs []error
	for _, h := range []*http.Server{s.http, s.socket} {
		if h == nil {
			continue
		}
		if err := h.Shutdown(ctx); err != nil {
			errs = append(errs, h.Close())
		}
	}
	for _, l := range []net.Listener{s.listener, s.local} {
		if l == nil {
			continue
		}
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// say tells the person where the pages are, and at the first start how to come
// in. It tells by the function that is given, line by line.
func (s *server) say(ctx context.Context, tell func(format string, args ...any)) error {
	if s == nil {
		return nil
	}
	if s.note != "" {
		tell("%s", s.note)
	}
	known, err := s.known(ctx)
	if err != nil {
		return err
	}
	if known {
		tell("Look at %s (a link to log in: keep login)", s.base)
		return nil
	}
	link, err := access.LoginURL(ctx, s.store, s.base, who(), time.Now())
	if err != nil {
		return err
	}
	tell("Look at %s", s.base)
	tell("Log in, once and within %s: %s", plural(int(access.LoginLife.Minutes()), "minute"), link)
	return nil
}

// known reports whether somebody has a token or a session.
func (s *server) known(ctx context.Context) (bool, error) {
	for _, kind := range []keep.CredentialKind{keep.CredentialToken, keep.CredentialSession} {
		all, err := s.store.Credentials(ctx, kind)
		if err != nil || len(all) > 0 {
			return len(all) > 0, err
		}
	}
	return false, nil
}
