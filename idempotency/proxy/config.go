package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// A Duration is a time.Duration in configuration: "30s", "168h", "7d".
type Duration time.Duration

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(text []byte) error {
	s := string(text)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			*d = Duration(time.Duration(n) * 24 * time.Hour)
			return nil
		}
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a duration such as \"30s\", \"5m\" or \"7d\"", s)
	}
	*d = Duration(v)
	return nil
}

// A Size is a number of bytes in configuration: "1MiB", "512B".
type Size int64

// UnmarshalText reads a size.
func (z *Size) UnmarshalText(text []byte) error {
	for _, u := range []struct {
		name string
		size int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}} {
		if number, ok := strings.CutSuffix(string(text), u.name); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
			if err != nil || n < 0 || n > math.MaxInt64/u.size {
				break
			}
			*z = Size(n * u.size)
			return nil
		}
	}
	return fmt.Errorf("%q is not a size such as \"1MiB\" or \"512B\"", text)
}

// Config is the [proxy] table of keep.toml. Only Upstream has no default.
type Config struct {
	// Upstream is the URL of the backend; a path in it comes before every
	// request's.
	Upstream string `toml:"upstream"`

	// Listen is the address for clients. If empty, 127.0.0.1:7435.
	Listen string `toml:"listen"`

	// TLSCert and TLSKey are files; with both, clients speak HTTPS and HTTP/2.
	TLSCert string `toml:"tls_cert"`
	TLSKey  string `toml:"tls_key"`

	// Host, if not empty, is the host of all requests; see idempotency.Config.
	Host string `toml:"host"`

	// Lease is how long an owner that does not renew it is believed to be alive.
	// If zero, 30 s.
	Lease Duration `toml:"lease"`

	// UpstreamTimeout is how long the backend may take for the next part of its
	// answer. The time in which a client sends or reads does not count. If zero,
	// 60 s.
	UpstreamTimeout Duration `toml:"upstream_timeout"`

	// TrustedProxies are networks and addresses of peers whose Forwarded and
	// X-Forwarded-… are passed on. If empty, those of nobody are.
	TrustedProxies []string `toml:"trusted_proxies"`

	// Memory is the most that requests and answers may take at once; see
	// idempotency.Config. If zero, 256 MiB.
	Memory Size `toml:"memory"`

	// Sweep is the time between two sweeps. If zero, 1 m.
	Sweep Duration `toml:"sweep"`

	// DrainTimeout is how long requests under way may take after Run was told
	// to stop. If zero, 30 s.
	DrainTimeout Duration `toml:"drain_timeout"`

	// AdminListen is the address of /metrics, /healthz, /readyz and the admin
	// API; loopback only. If empty, 127.0.0.1:7434; "off" for none.
	AdminListen string `toml:"admin_listen"`

	// AdminToken is what programs show that use the admin API at AdminListen. If
	// empty, nobody may use it there.
	AdminToken string `toml:"admin_token"`

	// AdminSocket is the file of a Unix socket with the same, for the user whose
	// proxy it is: nobody else can open it, and it needs no token. If empty, there
	// is none.
	AdminSocket string `toml:"admin_socket"`

	// Routes say what is done where: the first wins whose path and methods match.
	// If empty, one with all defaults.
	Routes []Route `toml:"routes"`

	// Logger receives what a person should know. If nil, slog.Default().
	Logger *slog.Logger `toml:"-"`

	// Dial connects to the upstream, as over a Unix socket. What it takes longer than 20 s for, a probe may ask about too early. A
	// probe, or an issuer's keys, whose URL has not the scheme, host and port of Upstream is reached by TCP. If nil, all is.
	Dial func(ctx context.Context, network, address string) (net.Conn, error) `toml:"-"`

	// Ready, if not nil, is called with the addresses once they are listened on;
	// admin is nil if there is none.
	Ready func(clients, admin net.Addr) `toml:"-"`
}

// A Route is one [[proxy.routes]] table; see idempotency.Rule for the fields.
type Route struct {
	Path          string   `toml:"path"`            // pattern such as "/orders/{id}/pay"; empty: every path
	Methods       []string `toml:"methods"`         // of the route; others are those of the next route. Empty: POST, PUT and PATCH
	Key           string   `toml:"key"`             // "header:NAME" or "body:$.PATH"; empty: Idempotency-Key
	Require       bool     `toml:"require"`         // a request without a key gets 400
	TTL           Duration `toml:"ttl"`             // how long an answer is kept; zero: 7 days
	AllowShortTTL bool     `toml:"allow_short_ttl"` // ttl may be less than 24 hours
	Policy        string   `toml:"policy"`          // "at-most-once" or "retry-5xx"
	NotExecuted   []int    `toml:"not_executed"`    // statuses after which nothing was done
	AfterCrash    string   `toml:"after_crash"`     // "unknown" or "retry"
	Wait          Duration `toml:"wait"`            // how long a duplicate waits for the first one's answer; zero: 409 at once
	FailOpen      bool     `toml:"fail_open"`       // requests pass without protection while the database is down; else they get 503
	CanonicalJSON bool     `toml:"canonical_json"`  // bodies that are the same JSON are the same
	IgnoreFields  []string `toml:"ignore_fields"`   // of the body, whose differences do not matter
	Caller        string   `toml:"caller"`          // "authorization", "header:NAME", "jwt:sub", "basic" or "none"
	JWKS          string   `toml:"jwks"`            // URL of the issuer's keys, for "jwt:sub"
	Probe         string   `toml:"probe"`           // URL with {key}, and {caller} unless caller is "none"
	ProbeCaller   string   `toml:"probe_caller"`    // what {caller} is: "hash" or "value"
	SettleAfter   Duration `toml:"settle_after"`    // from when on a probe's "it did not happen" is believed; zero: 5 s
	BodyLimit     Size     `toml:"body_limit"`      // of a request; zero: 1 MiB
	ResponseLimit Size     `toml:"response_limit"`  // of an answer that is kept; zero: 8 MiB
}

// rule returns the route as the guard takes it, and the headers that name its caller and its key.
func (r Route) rule(client *http.Client) (rule idempotency.Rule, identity []string, err error) {
	rule = idempotency.Rule{
		Path: r.Path, Methods: r.Methods, Require: r.Require, TTL: time.Duration(r.TTL), AllowShortTTL: r.AllowShortTTL,
		Policy: key.Policy(r.Policy), NotExecuted: r.NotExecuted, AfterCrash: idempotency.AfterCrash(r.AfterCrash), Wait: time.Duration(r.Wait),
		FailOpen: r.FailOpen, Form: key.Form{CanonicalJSON: r.CanonicalJSON, IgnoreFields: r.IgnoreFields},
		CallerVerified: r.Caller == "jwt:sub", SettleAfter: time.Duration(r.SettleAfter), BodyLimit: int64(r.BodyLimit), ResponseLimit: int64(r.ResponseLimit),
	}
	if rule.Caller, identity, err = r.caller(client); err != nil {
		return rule, nil, err
	}
	if rule.Key, err = r.key(); err != nil {
		return rule, nil, err
	}
	if rule.Key.Header != "" {
		identity = append(identity, rule.Key.Header)
	}
	for i, name := range identity {
		if identity[i] = http.CanonicalHeaderKey(name); slices.Contains(ownHeaders, identity[i]) {
			return rule, nil, fmt.Errorf("route %q: the backend does not get %s as it came: the proxy writes that header itself", r.Path, name)
		}
	}
	if r.Probe != "" {
		rule.Probe, err = r.probe(client)
	}
	return rule, identity, err
}

// ownHeaders are written anew for each connection or by the proxy itself: they name neither a caller nor a key.
var ownHeaders = []string{"Connection", "Content-Length", "Forwarded", "Host", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding",
	"Upgrade", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// key returns where the route's keys are.
func (r Route) key() (idempotency.KeySource, error) {
	if name, ok := strings.CutPrefix(r.Key, "header:"); ok && name != "" {
		return idempotency.KeySource{Header: name}, nil
	}
	if path, ok := strings.CutPrefix(r.Key, "body:"); ok && path != "" {
		return idempotency.KeySource{Field: path}, nil
	}
	if r.Key != "" {
		return idempotency.KeySource{}, fmt.Errorf("route %q: key %q: want \"header:NAME\" or \"body:$.PATH\"", r.Path, r.Key)
	}
	return idempotency.KeySource{}, nil
}

// probe returns what asks the route's URL. Two callers may use one key, so it is
// asked about one of them.
func (r Route) probe(client *http.Client) (idempotency.Probe, error) {
	u, err := url.Parse(strings.NewReplacer("{key}", "k", "{caller}", "c").Replace(r.Probe))
	switch {
	case err != nil || u.Host == "" || !strings.Contains(r.Probe, "{key}"):
		return nil, fmt.Errorf("route %q: probe %q: want a URL with {key}", r.Path, r.Probe)
	case r.Caller != "none" && !strings.Contains(r.Probe, "{caller}"):
		return nil, fmt.Errorf("route %q: probe %q has no {caller}: it would give one caller's answer to another with the same key; put {caller} into the URL, or say caller = \"none\"", r.Path, r.Probe)
	}
	var caller func(idempotency.Question) string
	switch name, byHeader := strings.CutPrefix(r.Caller, "header:"); {
	case r.ProbeCaller == "", r.ProbeCaller == "hash":
	case r.ProbeCaller == "value" && byHeader:
		caller = func(q idempotency.Question) string { return strings.Trim(q.Header.Get(name), " \t") } // as ByHeader takes it, and the backend got it
	case r.ProbeCaller == "value" && r.Caller == "basic":
		caller = func(q idempotency.Question) string {
			user, _, _ := (&http.Request{Header: q.Header}).BasicAuth()
			return user
		}
	case r.ProbeCaller == "value" && r.Caller == "jwt:sub":
		caller = func(q idempotency.Question) string { return idempotency.JWTSubject(q.Header) }
	default:
		return nil, fmt.Errorf("route %q: probe_caller %q: want \"hash\", or \"value\" with a caller that is header:NAME, jwt:sub or basic", r.Path, r.ProbeCaller)
	}
	return idempotency.ProbeURL(client, r.Probe, caller, cmp.Or(int64(r.ResponseLimit), idempotency.DefaultResponseLimit)), nil
}

// caller returns the function that names who sends a request, nil for the default, and the headers that it reads.
func (r Route) caller(client *http.Client) (name func(*http.Request) (string, error), reads []string, err error) {
	header, byHeader := strings.CutPrefix(r.Caller, "header:")
	if r.JWKS != "" && r.Caller != "jwt:sub" {
		return nil, nil, fmt.Errorf("route %q: jwks is for caller = \"jwt:sub\"", r.Path)
	}
	switch {
	case r.Caller == "", r.Caller == "authorization":
		return nil, []string{"Authorization", "X-Api-Key"}, nil
	case r.Caller == "none":
		return idempotency.Anyone, nil, nil
	case r.Caller == "basic":
		return idempotency.ByBasic, []string{"Authorization"}, nil
	case r.Caller == "jwt:sub":
		if u, err := url.Parse(r.JWKS); err != nil || u.Host == "" {
			return nil, nil, fmt.Errorf("route %q: jwks %q: want the URL of the issuer's keys", r.Path, r.JWKS)
		}
		return idempotency.ByJWTSubject(&idempotency.JWKS{URL: r.JWKS, Client: client}), []string{"Authorization"}, nil
	case byHeader && header != "":
		return idempotency.ByHeader(header), []string{header}, nil
	}
	return nil, nil, fmt.Errorf("route %q: caller %q: want \"authorization\", \"header:NAME\", \"jwt:sub\", \"basic\" or \"none\"", r.Path, r.Caller)
}

// withDefaults returns c with its zero values replaced, and the upstream, or says
// what is wrong.
func (c Config) withDefaults() (Config, *url.URL, error) {
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:7435")
	c.AdminListen = cmp.Or(c.AdminListen, "127.0.0.1:7434")
	c.UpstreamTimeout = cmp.Or(c.UpstreamTimeout, Duration(time.Minute))
	c.DrainTimeout = cmp.Or(c.DrainTimeout, Duration(30*time.Second))
	c.Logger = cmp.Or(c.Logger, slog.Default())
	upstream, err := url.Parse(c.Upstream)
	if err != nil || upstream.Host == "" || upstream.Scheme != "http" && upstream.Scheme != "https" {
		return c, nil, errors.New("proxy: upstream: want a URL such as \"http://127.0.0.1:8000\"") // what is there may hold a password
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return c, nil, errors.New("proxy: tls_cert and tls_key belong together")
	}
	if c.AdminListen != "off" && !isLoopback(c.AdminListen) {
		return c, nil, fmt.Errorf("proxy: admin_listen %q: the admin API only listens on the loopback", c.AdminListen)
	}
	return c, upstream, nil
}

// isLoopback reports whether only this machine reaches the address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
