package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/idempotency/key"
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

	// Lease is how long an owner that is not heard of is believed to be alive.
	// If zero, 30 s.
	Lease Duration `toml:"lease"`

	// UpstreamTimeout is how long the backend may send nothing. If zero, 60 s.
	UpstreamTimeout Duration `toml:"upstream_timeout"`

	// Sweep is the time between two sweeps. If zero, 1 m.
	Sweep Duration `toml:"sweep"`

	// DrainTimeout is how long requests under way may take after Run was told
	// to stop. If zero, 30 s.
	DrainTimeout Duration `toml:"drain_timeout"`

	// AdminListen is the address of /metrics, /healthz, /readyz and the admin
	// API; loopback only. If empty, 127.0.0.1:7434; "off" for none.
	AdminListen string `toml:"admin_listen"`

	// Routes say what is done where; the first match wins. If empty, one with
	// all defaults.
	Routes []Route `toml:"routes"`

	// Logger receives what a person should hear of. If nil, slog.Default().
	Logger *slog.Logger `toml:"-"`

	// Ready, if not nil, is called with the addresses once they are listened on;
	// admin is nil if there is none.
	Ready func(clients, admin net.Addr) `toml:"-"`
}

// A Route is one [[proxy.routes]] table; see idempotency.Rule for the fields.
type Route struct {
	Path          string   `toml:"path"`
	Methods       []string `toml:"methods"`
	Require       bool     `toml:"require"`
	TTL           Duration `toml:"ttl"`
	AllowShortTTL bool     `toml:"allow_short_ttl"`
	Policy        string   `toml:"policy"`      // "at-most-once" or "retry-5xx"
	AfterCrash    string   `toml:"after_crash"` // "unknown" or "retry"
	Wait          Duration `toml:"wait"`
	FailOpen      bool     `toml:"fail_open"`
	CanonicalJSON bool     `toml:"canonical_json"`
	IgnoreFields  []string `toml:"ignore_fields"`
	Caller        string   `toml:"caller"` // "authorization", "header:NAME" or "none"
	Probe         string   `toml:"probe"`  // URL with {key}
	SettleAfter   Duration `toml:"settle_after"`
	BodyLimit     Size     `toml:"body_limit"`
	ResponseLimit Size     `toml:"response_limit"`
}

// rule returns the route as the guard takes it.
func (r Route) rule(client *http.Client) (idempotency.Rule, error) {
	rule := idempotency.Rule{
		Path: r.Path, Methods: r.Methods, Require: r.Require, TTL: time.Duration(r.TTL), AllowShortTTL: r.AllowShortTTL,
		Policy: key.Policy(r.Policy), AfterCrash: idempotency.AfterCrash(r.AfterCrash), Wait: time.Duration(r.Wait),
		FailOpen: r.FailOpen, Form: key.Form{CanonicalJSON: r.CanonicalJSON, IgnoreFields: r.IgnoreFields},
		SettleAfter: time.Duration(r.SettleAfter), BodyLimit: int64(r.BodyLimit), ResponseLimit: int64(r.ResponseLimit),
	}
	name, byHeader := strings.CutPrefix(r.Caller, "header:")
	switch {
	case r.Caller == "", r.Caller == "authorization":
	case r.Caller == "none":
		rule.Caller = idempotency.Anyone
	case byHeader && name != "":
		rule.Caller = idempotency.ByHeader(name)
	default:
		return rule, fmt.Errorf("route %q: caller %q: want \"authorization\", \"header:NAME\" or \"none\"", r.Path, r.Caller)
	}
	if r.Probe != "" {
		if u, err := url.Parse(strings.ReplaceAll(r.Probe, "{key}", "k")); err != nil || u.Host == "" || !strings.Contains(r.Probe, "{key}") {
			return rule, fmt.Errorf("route %q: probe %q: want a URL with {key}", r.Path, r.Probe)
		}
		rule.Probe = idempotency.ProbeURL(client, r.Probe, cmp.Or(int64(r.ResponseLimit), idempotency.DefaultResponseLimit))
	}
	return rule, nil
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
		return c, nil, fmt.Errorf("proxy: upstream %q: want a URL such as \"http://127.0.0.1:8000\"", c.Upstream)
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return c, nil, errors.New("proxy: tls_cert and tls_key belong together")
	}
	if c.AdminListen != "off" && !isLoopback(c.AdminListen) {
		return c, nil, fmt.Errorf("proxy: admin_listen %q: the admin API has no login, so it only listens on the loopback", c.AdminListen)
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
