package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/keep-run/keep/access"
	"github.com/keep-run/keep/config"
)

// daemonPath is where the socket, and nothing else, tells whose it is.
const daemonPath = "/daemon"

// A daemon is a running keep serve or keep dev, asked by its socket.
type daemon struct {
	socket string
	http   *http.Transport

	identity
}

// An identity is what a daemon tells of itself.
type identity struct {
	Version string `json:"version"`
	DB      string `json:"db"` // its path, or its URL without a password
	PID     int    `json:"pid"`
}

// String names the daemon for people.
func (d *daemon) String() string { return fmt.Sprintf("keep %s (process %d)", clean(d.Version), d.PID) }

// silence is how long a daemon may take to say who it is.
const silence = 5 * time.Second

// newDaemon returns the daemon of a socket, not asked yet.
func newDaemon(socket string) *daemon {
	return &daemon{socket: socket, http: &http.Transport{
		DisableCompression: true, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			d := net.Dialer{Timeout: silence}
			return d.DialContext(ctx, "unix", socket)
		},
	}}
}

// findDaemon returns the daemon that runs on the database, or nil. That there is
// none is not worth a word, also if one died and left its socket; one that does not
// answer is, and one of another version.
func (a *app) findDaemon(ctx context.Context, cfg *config.Config) *daemon {
	socket := socketOf(cfg)
	if socket == "" {
		return nil
	}
	info, err := os.Lstat(socket)
	switch {
	case err != nil || info.Mode()&fs.ModeSocket == 0:
		return nil
	case info.Mode().Perm()&0o077 != 0: // not as listenSocket makes them
		fmt.Fprintf(a.err, "%s %s is not used: others can open it too (mode %#o, want 0600).\n", a.ink.yellow("keep:"), short(socket), info.Mode().Perm())
		return nil
	}
	d := newDaemon(socket)
	switch err := d.meet(ctx); {
	case errors.Is(err, errSilent), errors.Is(err, errStrange):
		fmt.Fprintf(a.err, "%s the daemon at %s %v; the database is asked without it.\n", a.ink.yellow("keep:"), short(socket), err)
		return nil
	case err != nil:
		a.log.InfoContext(ctx, "no daemon", "socket", socket, "err", err)
		return nil
	case !d.runsOn(cfg.DB):
		a.log.InfoContext(ctx, "the daemon is of another database", "socket", socket, "db", d.DB)
		return nil
	}
	if mine := thisVersion().Version; d.Version != mine {
		fmt.Fprintf(a.err, "%s the running daemon is %s, and this command is of %s. It does what its version does: restart it to have both the same.\n",
			a.ink.yellow("keep:"), d, clean(mine))
	}
	return d
}

// Errors of meet, said after the name of a socket.
var (
	// errSilent is returned for a daemon that takes a request and does not answer.
	errSilent = errors.New("does not answer")

	// errStrange is returned for what does not know the question: a Keep from
	// before commands went through its socket.
	errStrange = errors.New("is of an older version, or no Keep")
)

// meet asks the daemon who it is.
func (d *daemon) meet(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, silence, errSilent)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+daemonPath, nil)
	if err != nil {
		return err
	}
	res, err := d.ask(r)
	if err != nil {
		if context.Cause(ctx) == errSilent {
			return errSilent
		}
		return err
	}
	if err := json.NewDecoder(res.Body).Decode(&d.identity); err != nil || res.StatusCode != http.StatusOK {
		return errStrange
	}
	return nil
}

// runsOn reports whether the daemon works on a database.
func (d *daemon) runsOn(db string) bool {
	if isPostgres(db) {
		return d.DB == fullName(db)
	}
	theirs, err := os.Stat(d.DB)
	if err != nil {
		return false
	}
	ours, err := os.Stat(db)
	return err == nil && os.SameFile(theirs, ours)
}

// maxAnswer bounds an answer (law: bounded); pages are smaller.
const maxAnswer = 1 << 30

// ask sends a request and returns its whole answer. An error means that the daemon
// ended, and what it did is not known.
func (d *daemon) ask(r *http.Request) (*http.Response, error) {
	res, err := d.http.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res, nil
}

// socketOf returns the socket of a database: that of the configuration, else one
// beside the file; empty: it can have none.
func socketOf(cfg *config.Config) string {
	switch {
	case runtime.GOOS == "windows":
		return ""
	case cfg.Server.Socket != "":
		return cfg.Server.Socket
	case cfg.DB == "" || isPostgres(cfg.DB):
		return ""
	}
	file := cfg.DB
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real // whatever name it is known by
	}
	return file + ".sock"
}

// withOwner adds to what the socket offers what only the owner of the database is
// told: whose socket it is, and links to log in, since only this process knows on
// which address it is.
func (s *server) withOwner(db string, next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+daemonPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(identity{Version: thisVersion().Version, DB: db, PID: os.Getpid()}) // the client is gone
	})
	mux.HandleFunc("POST "+linkPath, func(w http.ResponseWriter, r *http.Request) {
		link, err := access.LoginURL(r.Context(), s.store, s.base, who(), time.Now())
		if err != nil {
			s.a.log.ErrorContext(r.Context(), "make a link to log in", "err", err)
			http.Error(w, "the database cannot be used now", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, link)
	})
	mux.Handle("/", next)
	return mux
}
