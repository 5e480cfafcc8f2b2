package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep/cmd/keep/internal/buildinfo"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/internal/socket"
)

// One process works on a file. A gateway that comes second hands the messages of its agent to the first, by
// the socket of the database, as a link (gateway.Front).

// GatewayPath is where the socket, and nothing else, makes a connection a link.
const GatewayPath = "/gateway"

// YieldPath is where the socket of a gateway is asked to let another process have the database.
const YieldPath = "/gateway/yield"

const (
	linkProtocol = "keep-gateway/1"
	headerAgent  = "Keep-Agent"
	headerConfig = "Keep-Config" // which keep.toml the servers are of
	headerHash   = "Keep-Config-Hash"
)

// configFile names the keep.toml of a configuration, however it was given.
//
// Two processes may name one file by different paths; what differs after links are followed is another
// file, with other servers.
func configFile(cfg *config.Config) string {
	file := cfg.File
	if file == "" {
		return cfg.Dir
	}
	if abs, err := filepath.Abs(file); err == nil {
		file = abs
	}
	if real, err := filepath.EvalSymlinks(file); err == nil {
		return real
	}
	return file
}

// A hub serves the agents of other processes.
type hub struct {
	cfg  *config.Config // of the gateway, of which the file counts: it may be a link to another one later
	gate *gate
}

// Close ends the links, after what was sent had a moment, and the gateway.
func (h *hub) Close() error {
	if h == nil {
		return nil
	}
	return h.gate.end()
}

// serveGateways returns what serves the agents whose gateways come to the socket of a daemon. Its own gateway is opened
// when the first one comes, with the configuration as it is then, or at once if one that died left calls: people are
// asked about these, also where there is no server any more. It ends with the hub.
func (e Env) serveGateways(ctx context.Context, s *Session) *hub {
	cfg := s.config()
	if database.IsPostgres(cfg.DB) {
		return nil
	}
	h := &hub{cfg, newGate(e.Log, func() (*gateway.Gateway, string, error) {
		now := s.config()
		g, err := e.OpenGateway(context.WithoutCancel(ctx), now, s.DB)
		return g, now.Hash, err
	})}
	if left, err := gateway.Left(ctx, s.DB); left || err != nil {
		h.gate.beginSoon()
	}
	return h
}

// renew has agents use a gateway of the configuration in force.
func (h *hub) renew() {
	if h != nil {
		h.gate.renew()
	}
}

// ServeHTTP makes a connection a link.
func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	agent, err := url.QueryUnescape(r.Header.Get(headerAgent))
	file := configFile(h.cfg)
	switch {
	case r.Header.Get("Upgrade") != linkProtocol:
		http.Error(w, "the link of a gateway is "+linkProtocol, http.StatusUpgradeRequired)
		return
	// Its agent would be given the servers of another project.
	case r.Header.Get(headerConfig) != url.QueryEscape(file):
		http.Error(w, fmt.Sprintf("process %d has this database with another keep.toml, %s; end it, or give this project a database of its own", os.Getpid(), file), http.StatusConflict)
		return
	case err != nil || gateway.CheckAgent(agent) != nil:
		http.Error(w, "an agent has a name", http.StatusBadRequest)
		return
	}
	g, err := h.gate.join()
	if errors.Is(err, errStopping) {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("process %d has this database, and its gateway does not open: %v", os.Getpid(), err), http.StatusInternalServerError)
		return
	}
	defer g.links.Done()
	// Its agent would be held to rules that are not those of keep.toml any more. It asks again: the next gateway follows.
	if hash := r.Header.Get(headerHash); hash != "" && hash != g.hash {
		http.Error(w, errOtherText.Error(), http.StatusTooEarly)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	// The deadlines of the server are for requests: a link lasts as long as its agent.
	_ = conn.SetDeadline(time.Time{})
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+linkProtocol+"\r\n\r\n"); err != nil {
		return
	}
	_ = g.ServeLink(g.ctx, agent, false, connLink{conn, buffered.Reader}) // its front went without a word, and is none of ours
}

// A connLink is a link to another process.
type connLink struct {
	net.Conn
	in *bufio.Reader
}

// Read implements io.Reader.
func (c connLink) Read(p []byte) (int, error) { return c.in.Read(p) }

// CloseWrite implements gateway.Link.
func (c connLink) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Close()
}

// errNoLink is returned where nothing offers links now.
var errNoLink = errors.New("no process offers its gateway at the socket of the database")

// errOtherText is returned where the process that has the database works by another text of keep.toml.
var errOtherText = errors.New("the process that has this database has not taken keep.toml as it is now; see what it says, or restart it")

// A refusedLink says why a process that has the database offers no link; waiting does not help.
type refusedLink struct{ why string }

// Error is what the process said.
func (e *refusedLink) Error() string { return e.why }

// greetTime is how long the process at a socket may take to answer.
const greetTime = 10 * time.Second

// askSocket makes a request on a connection of its own, and returns both.
//
// Its deadline stays on the connection until the caller lifts it.
func askSocket(ctx context.Context, socket, method, path string, header http.Header) (net.Conn, *bufio.Reader, *http.Response, error) {
	d := net.Dialer{Timeout: greetTime}
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, nil, nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(greetTime))
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, nil)
	if err != nil {
		return nil, nil, nil, errors.Join(err, conn.Close())
	}
	r.Header = header
	in := bufio.NewReader(conn)
	if err := r.Write(conn); err != nil {
		return nil, nil, nil, errors.Join(err, conn.Close())
	}
	resp, err := http.ReadResponse(in, r)
	if err != nil {
		return nil, nil, nil, errors.Join(err, conn.Close())
	}
	return conn, in, resp, nil
}

// joinLink returns a link to the gateway of the process that has the database.
func joinLink(ctx context.Context, socket, agent, file, hash string) (gateway.Link, error) {
	if info, err := os.Lstat(socket); err != nil || info.Mode().Perm()&0o077 != 0 {
		return nil, errNoLink // there is none, or others can open it, too
	}
	conn, in, resp, err := askSocket(ctx, socket, http.MethodGet, GatewayPath,
		http.Header{"Connection": {"Upgrade"}, "Upgrade": {linkProtocol}, headerAgent: {url.QueryEscape(agent)}, headerConfig: {url.QueryEscape(file)}, headerHash: {hash}})
	if err != nil {
		return nil, errNoLink // it died, or begins just now
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		_ = conn.SetDeadline(time.Time{})
		return connLink{conn, in}, nil
	}
	defer conn.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	switch resp.StatusCode {
	case http.StatusTooEarly:
		return nil, errOtherText
	case http.StatusConflict, http.StatusBadRequest, http.StatusInternalServerError:
		return nil, &refusedLink{strings.TrimSpace(string(text))}
	case http.StatusNotFound, http.StatusUpgradeRequired:
		return nil, &refusedLink{"the process that has this database is of another version of Keep, or offers no gateway: restart it"}
	}
	return nil, errNoLink
}

// errKept is returned where the process that has a database keeps it.
var errKept = errors.New("the process that has the database keeps it")

// askToYield asks the gateway that has a database to let this process have it. The error is nil if it will, errNoLink
// if nobody answered, and errKept if there is nobody who would.
func askToYield(ctx context.Context, socket string) error {
	if socket == "" {
		return errKept
	}
	conn, _, resp, err := askSocket(ctx, socket, http.MethodPost, YieldPath, http.Header{})
	if err != nil {
		return errNoLink
	}
	_, _ = resp.Body.Close(), conn.Close() // the status is the answer
	if resp.StatusCode != http.StatusAccepted {
		return errKept
	}
	return nil
}

// serveSocket serves at the socket of a database what a gateway that is no daemon offers: who it is, links, and
// with yield that it lets others have the database. It returns what ends that.
func (e Env) serveSocket(ctx context.Context, cfg *config.Config, h *hub, yield func()) (end func()) {
	path := SocketOf(cfg)
	if path == "" || database.IsPostgres(cfg.DB) {
		return func() {}
	}
	l, err := socket.Listen(ctx, path)
	if err != nil {
		e.Log.WarnContext(ctx, "there is no socket: no other gateway can share the database; server.socket of keep.toml names another place", "path", path, "err", err)
		return func() {}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+IdentityPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(Identity{Version: buildinfo.Read().Version, DB: cfg.DB, PID: os.Getpid(), Gateway: true}) // the client is gone
	})
	mux.Handle("GET "+GatewayPath, h)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, fmt.Sprintf("no keep serve or keep dev runs on this database: process %d is keep gateway", os.Getpid()), http.StatusServiceUnavailable)
	})
	if yield != nil {
		mux.HandleFunc("POST "+YieldPath, func(w http.ResponseWriter, _ *http.Request) {
			// It is answered first: who yields closes the socket, with what was not written yet.
			w.Header().Set("Content-Length", "0")
			w.WriteHeader(http.StatusAccepted)
			_ = http.NewResponseController(w).Flush() // who does not get the answer asks again
			yield()
		})
	}
	srv := e.newHTTP(context.WithoutCancel(ctx), mux)
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(l) }) // it ends with srv
	return func() {
		_ = srv.Close()
		_ = l.Close()
		serving.Wait()
	}
}
