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
	"io/fs"
	"log/slog"
	"net/http"
	"os"
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

	daemon  *runningDaemon    // nil: there is none
	direct  http.RoundTripper // nil: the database is not open
	close   func() error      // of the open database
	changed bool              // a request that changes something was answered with a success
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
	if out, ok := errors.AsType[*fs.PathError](err); ok && w.changed && out.Op == "write" && out.Path == os.Stdout.Name() {
		return Done(err)
	}
	// A daemon of another version does not know the address, which nobody who types a command has seen.
	if p, ok := errors.AsType[*api.Problem](err); ok && (p.Kind == api.KindNoRoute || p.Kind == api.KindMethod) && w.daemon != nil {
		return fmt.Errorf("the running %s does not know this command, which is of %s; restart it with this version", w.daemon, buildinfo.Read().Version)
	}
	return err
}

// Done is the error of what was done, and of which the output is lost: it must not be repeated for that.
func Done(err error) error {
	return fmt.Errorf("what was asked for was done, and only what came of it cannot be written: %w", err)
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
	res, err := w.roundTrip(r)
	if err == nil && changes(r) && res.StatusCode < http.StatusMultipleChoices {
		w.changed = true
	}
	return res, err
}

// changes reports whether a request may change something.
func changes(r *http.Request) bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }

// roundTrip is RoundTrip.
func (w *client) roundTrip(r *http.Request) (*http.Response, error) {
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
		return res, unsure(r, "interrupted before the daemon answered", err)
	}
	w.env.Log.InfoContext(ctx, "the daemon ended while it was asked", "daemon", w.daemon.String(), "err", err)
	if lost := w.find(ctx); lost != nil {
		if err = unsure(r, daemonEnded, err); isUnsure(err) {
			return nil, errors.Join(err, lost)
		}
		return nil, lost
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
		err = errUndecided
	}
	if err != nil {
		return nil, unsure(r, daemonEnded, err)
	}
	return res, nil
}

// daemonEnded is why a change may or may not have been made.
const daemonEnded = "the daemon ended before it answered"

// errUndecided is the cause of an UnsureError where a daemon had begun a change when it ended.
var errUndecided = errors.New("it had begun")

// An UnsureError says that nobody knows whether a change was made: it may have been sent, and there is no answer.
type UnsureError struct {
	what  string
	cause error
}

// Error says what happened, and what to do.
func (e *UnsureError) Error() string {
	return e.what + ", and whether it had done this is not known; look first (keep status), then repeat it if it was not"
}

// Unwrap returns why there is no answer.
func (e *UnsureError) Unwrap() error { return e.cause }

// isUnsure reports whether nobody knows if a change was made.
func isUnsure(err error) bool { _, is := errors.AsType[*UnsureError](err); return is }

// unsure returns err of a request that changes something as an UnsureError. It may have been sent, whatever err says: of a
// request with a key the connection is dialed once more, and err is of that.
func unsure(r *http.Request, what string, err error) error {
	if err == nil || !changes(r) {
		return err
	}
	return exit.Failedf("%w", &UnsureError{what, err})
}

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
