package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// A Proxy is a guard in front of a backend. Make one with New.
type Proxy struct {
	cfg       Config
	store     idempotency.Store
	guard     *idempotency.Guard
	upstream  *http.Transport
	elsewhere *http.Transport // to probes and issuers that are not the upstream
	handler   http.Handler
	metrics   metrics
	trusted   []netip.Prefix     // peers whose X-Forwarded-… are believed
	streams   context.Context    // of event streams, which have no end of their own
	end       context.CancelFunc // ends streams
	guarded   context.Context    // of those whose request has a key: it is under way, and without their end in doubt
	cut       context.CancelFunc // ends guarded
	draining  atomic.Bool

	// readiness protects the next 2 fields, and is held while they are found out.
	readiness sync.Mutex
	readyAt   time.Time // when that was
	notReady  error
}

// New returns a proxy that keeps its records in store. It starts nothing; its
// error says what is wrong with cfg.
func New(store idempotency.Store, cfg Config) (*Proxy, error) {
	cfg, upstream, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Proxy{cfg: cfg, store: store, upstream: transport(cfg.Dial), elsewhere: transport(nil)}
	p.streams, p.end = context.WithCancel(context.Background())
	p.guarded, p.cut = context.WithCancel(context.Background())
	if p.trusted, err = prefixes(cfg.TrustedProxies); err != nil {
		return nil, err
	}
	var rules []idempotency.Rule
	var mistakes []error
	identity := []string{key.Header, key.LegacyHeader, "Authorization", "X-Api-Key", "Content-Type"} // that of the zero Route, and the fingerprint's
	for _, r := range cfg.Routes {
		rule, reads, err := r.rule(&http.Client{Transport: asked{p, upstream}, CheckRedirect: noRedirect})
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("proxy: %w", err))
		}
		rule.EffectTimeout = connectTimeout + time.Duration(cfg.UpstreamTimeout)
		rules, identity = append(rules, rule), append(identity, reads...)
	}
	p.guard, err = idempotency.New(store, idempotency.Config{
		Rules: rules, Host: cfg.Host, Memory: int64(cfg.Memory), Lease: time.Duration(cfg.Lease), SweepEvery: time.Duration(cfg.Sweep),
		Logger: cfg.Logger, Observe: p.metrics.observe,
	})
	if err != nil {
		mistakes = append(mistakes, fmt.Errorf("proxy: %w", err))
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	guarded := p.guard.Handler(p.forward(upstream, identity))
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { guarded.ServeHTTP(plainWriter{w}, r) })
	return p, nil
}

// Validate returns all that is wrong with c. It touches nothing.
func (c Config) Validate() error {
	p, err := New(struct{ idempotency.Store }{}, c)
	if err == nil {
		p.end()
		p.cut()
	}
	return err
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Handler returns what clients talk to.
func (p *Proxy) Handler() http.Handler { return p.handler }

// forward returns the handler that passes requests on. The backend gets the headers of a request's identity as the
// guard read them: what was done for one caller must not be kept as the answer to another, or to nobody.
func (p *Proxy) forward(upstream *url.URL, identity []string) http.Handler {
	reverse := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(upstream)
			p.forwarded(r)
			for _, name := range identity { // a client may name them in Connection, and so have them dropped
				if lines, ok := r.In.Header[name]; ok {
					r.Out.Header[name] = lines
				}
			}
			r.Out.Host = r.In.Host
			r.Out.URL.RawQuery = r.In.URL.RawQuery // as it came, even if it can't be parsed
			sendOnce(r.Out.Header)
			if callOf(r.In).guarded { // its body is here: the client got its leave, or needed none
				r.Out.Header.Del("Expect")
			}
		},
		Transport:      p.upstream,
		FlushInterval:  -1, // what the backend sent, the client gets
		ModifyResponse: func(resp *http.Response) error { return callOf(resp.Request).begin(resp) },
		ErrorHandler:   p.failed,
		ErrorLog:       slog.NewLogLogger(p.cfg.Logger.Handler(), slog.LevelWarn),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		c := &upstreamCall{timeout: time.Duration(p.cfg.UpstreamTimeout), cancel: cancel, p: p, over: func() bool { return false }, guarded: idempotency.Guarded(ctx)}
		defer func() { c.over() }()
		c.timer = time.AfterFunc(c.timeout, c.late)
		defer c.timer.Stop()
		r = r.WithContext(c.trace(ctx))
		if r.Body != nil && r.Body != http.NoBody {
			r.Body = &uploaded{r.Body, c}
		}
		reverse.ServeHTTP(w, r)
	})
}

// forwarded says on whose behalf a request is sent. What the client itself says
// about that counts if it is a trusted proxy.
func (p *Proxy) forwarded(r *httputil.ProxyRequest) {
	peer, err := netip.ParseAddrPort(r.In.RemoteAddr)
	trusted := err == nil && slices.ContainsFunc(p.trusted, func(n netip.Prefix) bool { return n.Contains(peer.Addr().Unmap()) })
	if trusted {
		for _, name := range []string{"Forwarded", "X-Forwarded-For"} {
			if lines, ok := r.In.Header[name]; ok {
				r.Out.Header[name] = slices.Clone(lines)
			}
		}
	}
	r.SetXForwarded()
	if trusted {
		for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
			if lines, ok := r.In.Header[name]; ok {
				r.Out.Header[name] = slices.Clone(lines)
			}
		}
	}
}

// prefixes reads networks, "10.0.0.0/8", and addresses.
func prefixes(texts []string) (list []netip.Prefix, err error) {
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			addr, addrErr := netip.ParseAddr(text)
			if addrErr != nil {
				return nil, fmt.Errorf("proxy: trusted_proxies: %q is neither a network nor an address", text)
			}
			p = netip.PrefixFrom(addr, addr.BitLen())
		}
		list = append(list, p.Masked())
	}
	return list, nil
}

// sendOnce writes the key's headers in lower case. That means the same to every
// server, and hides them from Go's transport, which takes them as leave to send
// the request again.
func sendOnce(h http.Header) {
	for canonical, lower := range map[string]string{key.Header: "idempotency-key", key.LegacyHeader: "x-idempotency-key"} {
		if lines, ok := h[canonical]; ok {
			delete(h, canonical)
			h[lower] = lines
		}
	}
}

// Connecting to the backend takes no longer than connectTimeout.
const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	connectTimeout   = dialTimeout + handshakeTimeout
)

// maxHeader is how many bytes the header of an answer may have. It is in memory whole before anybody can say that there is none for it.
const maxHeader = 1 << 20

// transport returns how the backend is talked to.
func transport(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	t := &http.Transport{
		DialContext:         dial,
		TLSHandshakeTimeout: handshakeTimeout,
		DisableCompression:  true, // the client's bytes, not ours
		MaxIdleConnsPerHost: 256,

		MaxResponseHeaderBytes: maxHeader,
		// Most servers close idle connections after 5 s or more. One that breaks
		// under a request leaves a doubt, so ours are closed before.
		IdleConnTimeout: 2 * time.Second,
		Protocols:       new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// asked sends what the proxy asks itself, of probes and issuers: to the upstream the way that leads there, and nowhere else.
type asked struct {
	p        *Proxy
	upstream *url.URL
}

// RoundTrip sends a request.
func (a asked) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == a.upstream.Scheme && strings.EqualFold(r.URL.Host, a.upstream.Host) {
		return a.p.upstream.RoundTrip(r)
	}
	return a.p.elsewhere.RoundTrip(r)
}

// Run listens and serves until ctx is done, or the database was removed or replaced under it
// (keep.ErrReplaced), then drains. It returns nil after a clean end, and what went wrong otherwise.
func (p *Proxy) Run(ctx context.Context) error {
	clients, err := net.Listen("tcp", p.cfg.Listen)
	if err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	var admin net.Listener
	if p.cfg.AdminListen != "off" {
		if admin, err = net.Listen("tcp", p.cfg.AdminListen); err != nil {
			return errors.Join(fmt.Errorf("proxy: admin: %w", err), clients.Close())
		}
	}
	owner := p.listenSocket(ctx)
	front := &http.Server{Handler: p.handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	back := &http.Server{Handler: p.Admin(), ReadHeaderTimeout: 10 * time.Second}
	local := &http.Server{Handler: p.OwnerAdmin(), ReadHeaderTimeout: 10 * time.Second}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var work sync.WaitGroup
	work.Go(func() { stop(p.guard.Run(ctx)) })
	work.Go(func() { stop(p.serve(front, clients)) })
	if admin != nil {
		work.Go(func() { stop(back.Serve(admin)) })
	}
	if owner != nil {
		work.Go(func() { stop(local.Serve(owner)) })
	}
	if p.cfg.Ready != nil {
		p.cfg.Ready(clients.Addr(), addrOf(admin))
	}
	<-ctx.Done()
	p.draining.Store(true)
	p.end()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(p.cfg.DrainTimeout))
	defer cancel()
	defer time.AfterFunc(time.Duration(p.cfg.DrainTimeout)/10*9, p.cut).Stop() // so that there is time to record it
	err = front.Shutdown(drain)
	if err != nil {
		err = errors.Join(fmt.Errorf("proxy: requests under way after %s: %w", time.Duration(p.cfg.DrainTimeout), err), front.Close())
	}
	err = errors.Join(err, back.Close(), local.Close())
	work.Wait()
	p.upstream.CloseIdleConnections()
	p.elsewhere.CloseIdleConnections()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, http.ErrServerClosed) {
		err = errors.Join(cause, err)
	}
	return err
}

func (p *Proxy) serve(s *http.Server, l net.Listener) error {
	if p.cfg.TLSCert != "" {
		return s.ServeTLS(l, p.cfg.TLSCert, p.cfg.TLSKey)
	}
	return s.Serve(l)
}

func addrOf(l net.Listener) net.Addr {
	if l == nil {
		return nil
	}
	return l.Addr()
}
