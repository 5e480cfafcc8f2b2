// Package client takes the requests of a verb to the daemon that runs on the database,
// or answers them in this process if there is none. Both ways use package api.
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/cmd/keep/internal/buildinfo"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/idempotency"
)

// An Env is what a client gets from the command that it is for.
type Env struct {
	*terminal.Terminal
	Log *slog.Logger

	// By is who asks. If empty, the user.
	By string
}

// by returns who asks.
func (e Env) by() string { return cmp.Or(e.By, daemon.User()) }

// A client is the http.RoundTripper of one command. The daemon of the database
// answers its requests; if there is none, this process opens the database and answers
// them itself. Both do it with package api, so a command does not depend on which it
// was. One goroutine uses it.
type client struct {
	env  Env
	cfg  *config.Config
	open Opener

	daemon *runningDaemon    // nil: there is none
	direct http.RoundTripper // nil: the database is not open
	close  func() error      // of the open database
}

// An Opener opens a database and returns what acts on it, and what closes both.
type Opener func(ctx context.Context, cfg *config.Config) (database.DB, daemon.Actors, func() error, error)

// Call calls f with a client of the database of a configuration.
func (e Env) Call(ctx context.Context, cfg *config.Config, open Opener, f func(c *api.Client) error) (err error) {
	w := &client{env: e, cfg: cfg, open: open, close: func() error { return nil }}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.find(ctx); err != nil {
		return err
	}
	err = f(&api.Client{Transport: w})
	// A daemon of another version does not know the address, which nobody who types a command has seen.
	if p, ok := errors.AsType[*api.Problem](err); ok && (p.Kind == api.KindNoRoute || p.Kind == api.KindMethod) && w.daemon != nil {
		return fmt.Errorf("the running %s does not know this command, which is of %s; restart it with this version", w.daemon, buildinfo.Read().Version)
	}
	return err
}

// host returns the environment for an API in this process.
func (e Env) host() daemon.Env { return daemon.Env{Log: e.Log, Clock: e.Clock} }

// find looks for the daemon, and opens the database if there is none.
func (w *client) find(ctx context.Context) error {
	if w.daemon = w.env.findDaemon(ctx, w.cfg); w.daemon != nil {
		return nil
	}
	db, by, closeAll, err := w.open(ctx, w.cfg)
	if err != nil {
		return err
	}
	w.close = closeAll
	handler, err := w.env.host().NewAPI(w.cfg, db, by, w.env.host().Announced(db), feed.New(1))
	if err != nil {
		return err
	}
	w.direct = daemon.InProcess{Handler: access.Local(w.env.by(), handler)}
	return nil
}

// RoundTrip implements http.RoundTripper. A daemon that ends before it has
// answered is asked again, if it is back, or the database is. What is sent again
// carries the same Idempotency-Key: what it asks for is done once.
func (w *client) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	stream := r.Method == http.MethodGet && r.URL.Path == api.Prefix+api.ChangesPath
	if w.daemon == nil && stream {
		return nil, errNoDaemon // nobody says what changes
	}
	if w.daemon == nil {
		return w.direct.RoundTrip(r)
	}
	sent := r.Clone(ctx)
	sent.Header.Set(access.ByHeader, w.env.by())
	if stream {
		return w.daemon.http.RoundTrip(sent)
	}
	if r.Method == http.MethodPost {
		sent.Header.Set("Idempotency-Key", rand.Text())
	}
	res, err := w.daemon.ask(sent)
	if err == nil || ctx.Err() != nil {
		return res, err
	}
	w.env.Log.InfoContext(ctx, "the daemon ended while it was asked", "daemon", w.daemon.String(), "err", err)
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
var errUndecided = exit.Failedf("the daemon ended before it answered, and whether it had done this is not known; look first (keep status), then repeat it if it was not")

// isUndecided reports whether an answer says that the same request was begun
// before, and nobody knows how it ended.
//
// The body is read for that and put back, since a client reads it again.
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
