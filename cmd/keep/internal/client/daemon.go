package client

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
	"time"

	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/cmd/keep/internal/buildinfo"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// A runningDaemon is a keep serve or keep dev, asked by its socket.
type runningDaemon struct {
	socket string
	http   *http.Transport

	daemon.Identity
}

// String names the daemon for people.
func (d *runningDaemon) String() string {
	return fmt.Sprintf("keep %s (process %d)", terminal.Clean(d.Version), d.PID)
}

// silence is how long a daemon may take to say who it is.
const silence = 5 * time.Second

// newDaemon returns the daemon of a socket, not asked yet.
func newDaemon(socket string) *runningDaemon {
	return &runningDaemon{socket: socket, http: &http.Transport{
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
func (e Env) findDaemon(ctx context.Context, cfg *config.Config) *runningDaemon {
	socket := daemon.SocketOf(cfg)
	if socket == "" {
		return nil
	}
	if info, err := os.Lstat(socket); err != nil || info.Mode()&fs.ModeSocket == 0 {
		return nil
	}
	if err := ownersAlone(socket); err != nil {
		fmt.Fprintf(e.Err, "%s %s.\n", e.Ink.Yellow("keep:"), terminal.Clean(err.Error()))
		return nil
	}
	d := newDaemon(socket)
	switch err := d.meet(ctx); {
	case errors.Is(err, errSilent), errors.Is(err, errStrange):
		fmt.Fprintf(e.Err, "%s the daemon at %s %v; the database is asked without it.\n", e.Ink.Yellow("keep:"), terminal.Short(socket), err)
		return nil
	case err != nil:
		e.Log.InfoContext(ctx, "no daemon", "socket", socket, "err", err)
		return nil
	case d.Gateway: // it serves agents, and commands open the database themselves
		return nil
	case !d.runsOn(cfg.DB):
		e.Log.InfoContext(ctx, "the daemon is of another database", "socket", socket, "db", d.DB)
		return nil
	}
	if mine := buildinfo.Read().Version; d.Version != mine {
		fmt.Fprintf(e.Err, "%s the running daemon is %s, and this command is of %s. It does what its version does: restart it to have both the same.\n",
			e.Ink.Yellow("keep:"), d, terminal.Clean(mine))
	}
	return d
}

// ownersAlone returns why a socket that is there is not used: it is not as socket.Listen makes them, so that somebody else may have.
func ownersAlone(socket string) error {
	if info, err := os.Lstat(socket); err == nil && info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is not used: others can open it too (mode %#o, want 0600)", terminal.Short(socket), info.Mode().Perm())
	}
	return nil
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
func (d *runningDaemon) meet(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, silence, errSilent)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+daemon.IdentityPath, nil)
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
	if err := json.NewDecoder(res.Body).Decode(&d.Identity); err != nil || res.StatusCode != http.StatusOK {
		return errStrange
	}
	return nil
}

// runsOn reports whether the daemon works on a database.
//
// Files are compared by what they are: one may have several names.
func (d *runningDaemon) runsOn(db string) bool {
	if database.IsPostgres(db) {
		return d.DB == database.FullName(db)
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
func (d *runningDaemon) ask(r *http.Request) (*http.Response, error) {
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

// errNoDaemon is returned when nothing answers on the socket.
var errNoDaemon = errors.New("no keep serve or keep dev runs on this database")

// CallDaemon sends a request to the daemon of the database. Without one, or if the socket is that of
// another database, the error is errNoDaemon, with the status of what cannot be reached.
func CallDaemon(ctx context.Context, cfg *config.Config, method, path string, body []byte, key string) (*http.Response, error) {
	socket := daemon.SocketOf(cfg)
	if socket == "" {
		return nil, exit.NoDatabase(fmt.Errorf("%w: server.socket of keep.toml can name a socket for it", errNoDaemon))
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, bytes.NewReader(body))
	if err != nil {
		return nil, exit.Misusef("%w", err)
	}
	r.Header.Set(access.ByHeader, daemon.User())
	if len(body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	if err := ownersAlone(socket); err != nil { // it would be told what is sent, and answer as the host
		return nil, exit.NoDatabase(err)
	}
	d := newDaemon(socket)
	err = d.meet(ctx)
	switch {
	case errors.Is(err, errSilent), errors.Is(err, errStrange):
		return nil, exit.NoDatabase(fmt.Errorf("what listens at %s %w", terminal.Short(socket), err))
	case err == nil && !d.runsOn(cfg.DB): // a variable may name another database than the socket is of
		return nil, exit.NoDatabase(fmt.Errorf("%w: %s, at %s, runs on %s", errNoDaemon, d, terminal.Short(socket), terminal.Clean(database.ShortName(d.DB))))
	}
	if err == nil {
		res, err := d.http.RoundTrip(r)
		if err != nil && ctx.Err() != nil {
			return nil, unsure(r, "interrupted before the daemon answered", err)
		}
		return res, unsure(r, daemonEnded, err)
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, exit.NoDatabase(err)
	}
	if _, dial := errors.AsType[*net.OpError](err); dial {
		return nil, exit.NoDatabase(fmt.Errorf("%w: nothing answers at %s", errNoDaemon, terminal.Short(socket)))
	}
	return nil, err
}
