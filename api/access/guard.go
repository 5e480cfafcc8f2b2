package access

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/link"
	"github.com/keep-run/keep/store"
)

// MaxBody is the most bytes of a request (law: bounded).
const MaxBody = 8 << 20

// MaxHeader is the most bytes of a request's header (law: bounded).
const MaxHeader = 64 << 10

// Config configures a Guard.
type Config struct {
	// Store keeps credentials. Required.
	Store store.Access

	// Hosts are the names by which this server may be called, besides those of
	// the own machine: a page of another site that made its name point here
	// (DNS rebinding) is refused.
	Hosts []string

	// Secure says that browsers come by HTTPS. The cookie is then a __Host-
	// cookie.
	Secure bool

	// Cookie is the end of the cookie's name where Secure is not set: several
	// servers of one machine share its cookies, whatever their ports. If empty,
	// "local".
	Cookie string

	// Links checks the codes of links to questions. If nil, there are none.
	Links *link.Links

	// Logger receives what a person should hear of. Secrets are never logged.
	// If nil, slog.Default().
	Logger *slog.Logger
}

// A Guard authenticates every request to a server, API and pages alike. Only its own
// login, health and static files need no credential, and a link to a question has its own. It is safe for concurrent use.
type Guard struct {
	cfg   Config
	log   *slog.Logger
	cross *http.CrossOriginProtection
	tries limiter

	rights rights // of those whose requests are under way

	refused atomic.Pointer[time.Time] // when the store did not note last that a credential is used
}

// New returns a guard.
func New(cfg Config) (*Guard, error) {
	if cfg.Store == nil {
		return nil, errors.New("access: a Store is required")
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	cfg.Cookie = cmp.Or(cfg.Cookie, "local")
	g := &Guard{cfg: cfg, log: cfg.Logger, cross: http.NewCrossOriginProtection()}
	g.rights.store = cfg.Store
	return g, nil
}

// open are the paths that need nobody. One that ends in a slash is a directory.
var open = []string{"/healthz", "/readyz", "/static/"}

// isOpen reports whether a path needs nobody. Paths that are not clean are never
// open: a mux may make another path of them.
func isOpen(path string) bool {
	if strings.Contains(path, "//") || strings.Contains(path, "/.") {
		return false
	}
	return slices.ContainsFunc(open, func(p string) bool {
		return path == p || strings.HasSuffix(p, "/") && strings.HasPrefix(path, p)
	})
}

// Handler puts the guard before next, whose requests carry an Identity.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !g.knows(r.Host):
			refuse(w, http.StatusMisdirectedRequest, "this server is not called "+strip(r.Host)+"; add the name to server.hosts in keep.toml")
			return
		case g.cross.Check(r) != nil:
			refuse(w, http.StatusForbidden, "the request comes from a page of another site")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
		switch r.URL.Path {
		case "/login":
			g.login(w, r)
			return
		case "/logout":
			g.logout(w, r)
			return
		}
		if strings.HasPrefix(r.URL.Path, link.Prefix) {
			g.byLink(w, r, next)
			return
		}
		if isOpen(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		g.enter(w, r, next)
	})
}

// enter authenticates the request. A wrong token counts against its address; a request
// that shows none does not, nor is it limited: behind a reverse proxy all browsers have
// one address, and one client with a wrong token must not lock them out.
func (g *Guard) enter(w http.ResponseWriter, r *http.Request, next http.Handler) {
	now := time.Now()
	c, via, err := g.who(r, now)
	switch {
	case err == nil: // also when others at this address guess
	case errors.Is(err, ErrDenied) && via == "":
		g.turnAway(w, r)
		return
	case errors.Is(err, ErrDenied):
		if !g.tries.allows(r.RemoteAddr, now) {
			tooMany(w)
			return
		}
		g.tries.failed(r.RemoteAddr, now)
		g.turnAway(w, r)
		return
	default:
		g.log.ErrorContext(r.Context(), "look up a credential", "err", err)
		refuse(w, http.StatusServiceUnavailable, "the database cannot be read now")
		return
	}
	if Role(c.Role) == Agent {
		refuse(w, http.StatusForbidden, "this token is an agent's: it opens keep gateway, and nothing else")
		return
	}
	ctx := With(r.Context(), Identity{Name: c.Name, Role: Role(c.Role), Via: via, ID: c.ID})
	still, end := g.rights.of(c.ID)
	defer end()
	ctx = context.WithValue(ctx, stillKey{}, still)
	if !c.ExpiresAt.IsZero() { // a stream ends with the right to see it
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, c.ExpiresAt)
		defer cancel()
	}
	r = r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &body{r.Body, ctx}
	}
	next.ServeHTTP(w, r)
}

// A body of a request ends with ErrDenied if whoever sends it would not be let in any more: it may take as long to come as a
// request may, and what it asks for is done when it has come.
type body struct {
	io.ReadCloser
	ctx context.Context
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		if denied := Still(b.ctx); denied != nil {
			err = denied
		}
	}
	return n, err
}

// who returns the credential of a request, and how it was shown; that is empty if
// none was.
func (g *Guard) who(r *http.Request, now time.Time) (keep.Credential, Via, error) {
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, secret, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "bearer") {
			return keep.Credential{}, ViaToken, ErrDenied
		}
		c, err := verify(r.Context(), g.cfg.Store, keep.CredentialToken, strings.TrimSpace(secret), now)
		if err == nil {
			g.used(r.Context(), c, now)
		}
		return c, ViaToken, err
	}
	cookie, err := r.Cookie(g.cookie())
	if err != nil {
		return keep.Credential{}, "", ErrDenied
	}
	c, err := verify(r.Context(), g.cfg.Store, keep.CredentialSession, cookie.Value, now)
	if errors.Is(err, ErrDenied) {
		return c, "", err // a session ends; nobody guesses
	}
	if err == nil {
		g.used(r.Context(), c, now)
	}
	return c, ViaSession, err
}

// used notes that a credential is in use, once a minute. A store that takes nothing can be read all the same, and who comes may want to
// see why it does not: nobody is refused for it, and for a minute nobody waits for it again.
func (g *Guard) used(ctx context.Context, c keep.Credential, now time.Time) {
	if last := g.refused.Load(); now.Sub(c.UsedAt) < time.Minute || last != nil && now.Sub(*last) < time.Minute {
		return
	}
	if err := noteUse(ctx, g.cfg.Store, c.ID, now); err != nil && ctx.Err() == nil {
		g.refused.Store(&now)
		g.log.WarnContext(ctx, "the store does not note that a credential is used", "credential", c.ID, "err", err)
	}
}

// turnAway sends people to the login, and tells programs what they need. A form that was sent after the session
// ended did nothing, and leads back to its page. A stream has no page to show.
func (g *Guard) turnAway(w http.ResponseWriter, r *http.Request) {
	accept := r.Header.Get("Accept")
	if html := strings.Contains(accept, "text/html") && !strings.Contains(accept, "text/event-stream"); html && r.Method == http.MethodGet {
		http.Redirect(w, r, "/login?"+url.Values{"next": {r.URL.RequestURI()}}.Encode(), http.StatusSeeOther)
		return
	} else if html && r.Method == http.MethodPost {
		g.ended(w, r)
		return
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	refuse(w, http.StatusUnauthorized, "a token is needed in Authorization: Bearer …; keep token add makes one")
}

// knows reports whether the server is called by that name.
func (g *Guard) knows(hostport string) bool {
	host := strings.ToLower(strip(hostport))
	if host == "localhost" || slices.ContainsFunc(g.cfg.Hosts, func(h string) bool { return strings.EqualFold(h, host) }) {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// strip returns a host without its port and brackets.
func strip(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

// problemBase is idempotency.ProblemBase, which is not imported for a name.
const problemBase = "https://keep-run.github.io/keep/problems/"

// refuse answers with a problem of RFC 9457.
func refuse(w http.ResponseWriter, status int, detail string) {
	kind := "about:blank"
	switch status {
	case http.StatusUnauthorized:
		kind = problemBase + "unauthorized"
	case http.StatusForbidden:
		kind = problemBase + "forbidden"
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{ // the client is gone
		"type": kind, "title": http.StatusText(status), "status": status, "detail": detail,
	})
}

// tooMany answers those who try too often.
func tooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "6")
	refuse(w, http.StatusTooManyRequests, "too many wrong secrets from this address; wait a little")
}

// ByHeader names who sends a request by a socket. A process that can open the
// socket can write the database, so there is nothing to prove.
const ByHeader = "Keep-By"

// Local admits every request as an admin's: for a socket that only its owner can
// open. Requests are those of the name in ByHeader, or of name if there is none.
func Local(name string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
		by := cmp.Or(r.Header.Get(ByHeader), name)
		if len(by) > MaxName {
			refuse(w, http.StatusBadRequest, fmt.Sprintf("%s has %d bytes, want at most %d", ByHeader, len(by), MaxName))
			return
		}
		next.ServeHTTP(w, r.WithContext(With(r.Context(), Identity{Name: by, Role: Admin, Via: ViaSocket})))
	})
}

// CheckListen refuses an address that others can reach unless what is sent there
// is encrypted. There is always a login.
func CheckListen(addr string, tls bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	ip := net.ParseIP(host)
	if tls || host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return errors.New("the address " + addr + " can be reached by others: give server.tls_cert and server.tls_key, " +
		"or listen on 127.0.0.1 behind a proxy that speaks HTTPS")
}
