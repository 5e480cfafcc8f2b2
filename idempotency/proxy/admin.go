package proxy

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// Admin returns the handler of the admin address:
//
//	GET  /healthz                          the process lives
//	GET  /readyz                           the store takes writes and nothing drains
//	GET  /metrics                          Prometheus text
//	GET  /api/v1/keys                      ?state= &key= &caller= &limit= &cursor=
//	GET  /api/v1/keys/{reference}
//	POST /api/v1/keys/{reference}/resolve  {"happened", "status", "header", "body", "by", "seen"}
//	POST /api/v1/keys/{reference}/forget   {"by", "seen"}
//
// A list is an array; Link says where the next page is. What is below /api/ needs
// Authorization: Bearer with Config.AdminToken, and is refused if there is none.
// Requests of other sites' pages in a browser are refused.
func (p *Proxy) Admin() http.Handler {
	return localOnly(http.NewCrossOriginProtection().Handler(p.withToken(p.OwnerAdmin())))
}

// withToken refuses requests below /api/ without the admin token. Any user of the
// machine can reach an address of the loopback.
func (p *Proxy) withToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		want := p.cfg.AdminToken
		if strings.HasPrefix(r.URL.Path, "/api/") && (want == "" || subtle.ConstantTimeCompare([]byte(given), []byte(want)) != 1) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			fail(w, http.StatusUnauthorized, errors.New("the admin API needs the token proxy.admin_token of keep.toml, or the socket proxy.admin_socket"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// OwnerAdmin is Admin without a token, for a socket that nobody but the owner of the
// database can open.
func (p *Proxy) OwnerAdmin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", p.ready)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		p.metrics.serve(w, r)
		p.serveUnknown(w, r)
	})
	a := &admin{idempotency.NewKeys(p.store)}
	mux.HandleFunc("GET /api/v1/keys", a.list)
	mux.HandleFunc("GET /api/v1/keys/{reference}", a.show)
	mux.HandleFunc("POST /api/v1/keys/{reference}/resolve", a.resolve)
	mux.HandleFunc("POST /api/v1/keys/{reference}/forget", a.forget)
	return mux
}

// localOnly refuses requests for other names than this machine's: a page of
// another site can make a browser ask here under its own name (DNS rebinding).
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if host != "localhost" && net.ParseIP(strings.Trim(host, "[]")) == nil {
			http.Error(w, "ask for localhost or an IP address", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (p *Proxy) ready(w http.ResponseWriter, r *http.Request) {
	if p.draining.Load() {
		http.Error(w, "draining", http.StatusServiceUnavailable)
		return
	}
	if err := p.takesWrites(context.WithoutCancel(r.Context())); err != nil {
		http.Error(w, "the store takes no writes", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// takesWrites returns nil if the store takes records: one that only reads is of no use to a new key. That costs two durable
// writes, and anybody may ask, as any page in a browser of this machine: so the answer holds for a second, and for all.
func (p *Proxy) takesWrites(ctx context.Context) error {
	p.readiness.Lock()
	defer p.readiness.Unlock()
	if p.readyAt.IsZero() || time.Since(p.readyAt) >= time.Second {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		p.notReady = p.guard.Ready(ctx)
		p.readyAt = time.Now()
	}
	return p.notReady
}

// serveUnknown writes how many keys wait for somebody who knows, of all proxies on
// the database.
func (p *Proxy) serveUnknown(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second) // who scrapes waits no longer than some seconds for all
	defer cancel()
	n, err := idempotency.NewKeys(p.store).Unknown(ctx)
	if err != nil {
		return // a gauge that is missing says more than a wrong one
	}
	fmt.Fprintf(w, "# HELP keep_keys_unknown Keys whose outcome nobody knows, up to %d.\n# TYPE keep_keys_unknown gauge\nkeep_keys_unknown %d\n", idempotency.MaxUnknown, n)
}

// admin serves the records.
type admin struct{ keys *idempotency.Keys }

func (a *admin) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil && q.Get("limit") != "" {
		fail(w, http.StatusBadRequest, err)
		return
	}
	views, next, err := a.keys.List(r.Context(), key.Filter{State: key.State(q.Get("state")), Key: q.Get("key"), Caller: q.Get("caller")},
		keep.Page{Limit: limit, After: q.Get("cursor")})
	if err != nil {
		fail(w, statusOfError(err), err)
		return
	}
	if next != "" {
		q.Set("cursor", next)
		w.Header().Set("Link", "<"+(&url.URL{Path: r.URL.Path, RawQuery: q.Encode()}).String()+`>; rel="next"`)
	}
	reply(w, views)
}

func (a *admin) show(w http.ResponseWriter, r *http.Request) {
	v, err := a.keys.Show(r.Context(), r.PathValue("reference"))
	answer(w, v, err)
}

func (a *admin) resolve(w http.ResponseWriter, r *http.Request) {
	var in struct {
		idempotency.Resolution
		Happened *bool `json:"happened"`
	}
	if !read(w, r, &in) {
		return
	}
	if in.Happened == nil { // to leave it out is not to say that the request may be executed again
		fail(w, http.StatusBadRequest, errors.New("resolve: happened is required: true or false"))
		return
	}
	in.Resolution.Happened = *in.Happened
	v, err := a.keys.Resolve(r.Context(), r.PathValue("reference"), in.Resolution, time.Now())
	answer(w, v, err)
}

func (a *admin) forget(w http.ResponseWriter, r *http.Request) {
	var who struct {
		By   string `json:"by"`
		Seen string `json:"seen"`
	}
	if !read(w, r, &who) {
		return
	}
	v, err := a.keys.ForgetSeen(r.Context(), r.PathValue("reference"), who.By, who.Seen, time.Now())
	answer(w, v, err)
}

// read decodes a request, or answers that it can't.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 16<<20))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		fail(w, http.StatusBadRequest, fmt.Errorf("read request: %w", err))
		return false
	}
	return true
}

func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		fail(w, statusOfError(err), err)
		return
	}
	reply(w, v)
}

func statusOfError(err error) int {
	switch {
	case errors.Is(err, keep.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, idempotency.ErrNotUnknown), errors.Is(err, keep.ErrStale):
		return http.StatusConflict
	case errors.Is(err, idempotency.ErrInvalid), errors.Is(err, keep.ErrBadCursor):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

func fail(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": err.Error(),
	})
}

// metrics counts observations. The zero metrics is ready.
type metrics struct {
	// mu protects the field below.
	mu     sync.Mutex
	counts map[label]count
}

type label struct {
	route   string
	outcome idempotency.Outcome
	kind    idempotency.Kind
}

type count struct {
	n              int64
	elapsed, store time.Duration
}

func (m *metrics) observe(_ context.Context, o idempotency.Observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts == nil {
		m.counts = make(map[label]count)
	}
	l := label{o.Route, o.Outcome, o.Kind}
	c := m.counts[l]
	c.n, c.elapsed, c.store = c.n+1, c.elapsed+o.Elapsed, c.store+o.Store
	m.counts[l] = c
}

// serve writes the counts in Prometheus text format.
func (m *metrics) serve(w http.ResponseWriter, _ *http.Request) {
	m.mu.Lock()
	counts := maps.Clone(m.counts)
	m.mu.Unlock()
	labels := slices.SortedFunc(maps.Keys(counts), func(a, b label) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	for _, metric := range []struct {
		name, help string
		value      func(count) any
	}{
		{"keep_idempotency_requests_total", "Guarded requests.", func(c count) any { return c.n }},
		{"keep_idempotency_seconds_total", "Time that guarded requests took.", func(c count) any { return c.elapsed.Seconds() }},
		{"keep_idempotency_store_seconds_total", "The part of it that waited for the store.", func(c count) any { return c.store.Seconds() }},
	} {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s counter\n", metric.name, metric.help, metric.name)
		for _, l := range labels {
			fmt.Fprintf(w, "%s{route=%q,outcome=%q,kind=%q} %v\n", metric.name, l.route, l.outcome, l.kind, metric.value(counts[l]))
		}
	}
}
