package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/keep-run/keep/access"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/config"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/feed"
	"github.com/keep-run/keep/idempotency"
)

// A way takes the requests of one command to who answers for its database: the
// daemon that runs on it, or, if there is none, this process, which then opens the
// database. Both answer by package api, so a command is the same both ways. It is
// used by one goroutine.
type way struct {
	a    *app
	cfg  *config.Config
	open opener

	daemon *daemon           // nil: there is none
	direct http.RoundTripper // nil: the database is not open
	close  func() error      // of the open database
}

// An opener opens a database and returns what acts on it, and what closes both.
type opener func(ctx context.Context, cfg *config.Config) (database, actors, func() error, error)

// actors are what changes a database. A nil deployer takes no scripts.
type actors struct {
	api.Actor
	api.Deployer
}

// look calls f with a client of the database of the project around the working
// directory, to read. A mistake in another part of the configuration is no reason
// not to look.
func (a *app) look(ctx context.Context, f func(c *api.Client) error) error {
	return a.ask(ctx, toLook, f)
}

// decide is look for who changes something, too.
func (a *app) decide(ctx context.Context, f func(c *api.Client) error) error {
	return a.ask(ctx, toDecide, f)
}

func (a *app) ask(ctx context.Context, r role, f func(c *api.Client) error) error {
	cfg, err := a.loadConfig(".")
	if err != nil && (cfg == nil || cfg.DB == "") {
		return err
	}
	return a.askOf(ctx, cfg, a.opening(r), f)
}

// askOf calls f with a client of the database of a configuration.
func (a *app) askOf(ctx context.Context, cfg *config.Config, open opener, f func(c *api.Client) error) (err error) {
	w := &way{a: a, cfg: cfg, open: open, close: func() error { return nil }}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.find(ctx); err != nil {
		return err
	}
	err = f(&api.Client{Transport: w})
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Kind == api.KindNoRoute && w.daemon != nil {
		return fmt.Errorf("the running %s does not know this command, which is of %s; restart it with this version", w.daemon, thisVersion().Version)
	}
	return err
}

// opening opens the database in a role, to look at it and to record what a person
// decides.
func (a *app) opening(r role) opener {
	return func(ctx context.Context, cfg *config.Config) (database, actors, func() error, error) {
		db, err := openStore(ctx, cfg, r)
		if err != nil {
			return nil, actors{}, nil, err
		}
		e, err := engine.New(db, nil, nil, engine.Config{Logger: a.log, Leases: leasesOf(db), Clock: a.clock})
		if err == nil && r != toLook {
			err = e.Sync(ctx)
		}
		if err != nil {
			return nil, actors{}, nil, errors.Join(err, db.Close())
		}
		return db, actors{Actor: e}, db.Close, nil
	}
}

// find looks for the daemon, and opens the database if there is none.
func (w *way) find(ctx context.Context) error {
	if w.daemon = w.a.findDaemon(ctx, w.cfg); w.daemon != nil {
		return nil
	}
	db, by, closeAll, err := w.open(ctx, w.cfg)
	if err != nil {
		return err
	}
	w.close = closeAll
	handler, err := w.a.newAPI(db, by, w.a.announced(db), feed.New(1))
	if err != nil {
		return err
	}
	w.direct = inProcess{access.Local(who(), handler)}
	return nil
}

// newAPI returns the API of a database.
func (a *app) newAPI(db database, by actors, tokens access.Store, changes *feed.Feed) (*api.Server, error) {
	hosts, _ := db.(api.Hosts)
	return api.New(api.Config{
		Store: db, Actor: by.Actor, Deployer: by.Deployer, Changes: changes, Keys: keysOf(db), Access: tokens, Hosts: hosts,
		Clock: a.now, Version: thisVersion().Version, Logger: a.log,
	})
}

// RoundTrip implements http.RoundTripper. A daemon that ends before it has
// answered is asked again, if it is back, or the database is. What is sent again
// carries the same Idempotency-Key: what it asks for is done once.
func (w *way) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	if w.daemon == nil {
		return w.direct.RoundTrip(r)
	}
	sent := r.Clone(ctx)
	sent.Header.Set(access.ByHeader, who())
	if r.Method == http.MethodPost {
		sent.Header.Set("Idempotency-Key", rand.Text())
	}
	res, err := w.daemon.ask(sent)
	if err == nil || ctx.Err() != nil {
		return res, err
	}
	w.a.log.InfoContext(ctx, "the daemon ended while it was asked", "daemon", w.daemon.String(), "err", err)
	if err := w.find(ctx); err != nil {
		return nil, err
	}
	again := sent.Clone(ctx)
	if r.GetBody != nil {
		if again.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
	if w.daemon != nil {
		res, err = w.daemon.ask(again)
	} else {
		res, err = w.direct.RoundTrip(again)
	}
	if err == nil && isUndecided(res) {
		return nil, errUndecided
	}
	return res, err
}

// errUndecided is returned for a change that a daemon had begun when it ended.
var errUndecided = failedf("the daemon ended before it answered, and whether it had done this is not known; look first (keep status), then repeat it if it was not")

// isUndecided reports whether an answer says that the same request was begun
// before, and nobody knows how it ended.
func isUndecided(res *http.Response) bool {
	if res.StatusCode != http.StatusConflict {
		return false
	}
	text, err := io.ReadAll(res.Body)
	res.Body = io.NopCloser(bytes.NewReader(text))
	for _, kind := range []idempotency.Kind{idempotency.KindInProgress, idempotency.KindOutcomeUnknown} {
		if err == nil && strings.Contains(string(text), idempotency.ProblemBase+string(kind)+`"`) {
			return true
		}
	}
	return false
}

// An inProcess has requests answered by a handler of this process.
type inProcess struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	in := r.Clone(r.Context())
	in.RequestURI = r.URL.RequestURI()
	in.Host = r.URL.Host
	if in.Body == nil {
		in.Body = http.NoBody
	}
	rec := &recorder{header: make(http.Header)}
	p.handler.ServeHTTP(rec, in)
	rec.WriteHeader(http.StatusOK) // if nobody did
	return &http.Response{
		StatusCode: rec.status, Status: http.StatusText(rec.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: rec.header, Body: io.NopCloser(&rec.body), ContentLength: int64(rec.body.Len()), Request: r,
	}, nil
}

// A recorder keeps an answer.
type recorder struct {
	header http.Header
	status int // 0: not said yet
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter: the first status counts.
func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
}

// Write implements http.ResponseWriter.
func (w *recorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}
