package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/keep-run/keep/idempotency/key"
)

// Defaults of Config and Rule.
const (
	DefaultLease         = 30 * time.Second
	DefaultTTL           = 7 * 24 * time.Hour
	DefaultSettleAfter   = 5 * time.Second
	DefaultProbeTimeout  = 10 * time.Second
	DefaultBodyLimit     = 1 << 20
	DefaultResponseLimit = 8 << 20

	// MinTTL is the shortest TTL unless Rule.AllowShortTTL is set: a client that
	// retries tomorrow must find its answer.
	MinTTL = 24 * time.Hour
)

// A Config says what a Guard does. The zero Config guards every POST, PUT and
// PATCH that carries a key.
type Config struct {
	// Rules say what is done where; the first whose Path matches wins. A request
	// that no rule matches is not touched. If empty, the zero Rule.
	Rules []Rule

	// Lease is how long an owner that is not heard of is believed to be alive.
	// It is renewed three times as often, so a handler may take longer. If zero,
	// 30 seconds.
	Lease time.Duration

	// StoreTimeout is how long a completed answer waits for the store before it
	// is withheld. If zero, 10 seconds.
	StoreTimeout time.Duration

	// SweepEvery is the time between two sweeps of Run. If zero, one minute.
	SweepEvery time.Duration

	// SweepBatch is the most records deleted at once. If zero, 100.
	SweepBatch int

	// Logger receives what a person should hear of. Keys, callers and bodies are
	// never logged; "key" is the reference of a record. If nil, slog.Default().
	Logger *slog.Logger

	// Observe is told about every request that a rule matched and that carried a
	// key or needed one. It must be fast and safe for concurrent use. If nil,
	// nobody is.
	Observe func(context.Context, Observation)
}

// A Rule says how requests of one route are guarded.
type Rule struct {
	// Path is a pattern of http.ServeMux, such as "/orders/{id}/pay" or
	// "api.example.com/". If empty, every path.
	Path string

	// Methods are guarded; others pass untouched. If empty, POST, PUT and PATCH.
	Methods []string

	// Require answers 400 to a guarded request without a key.
	Require bool

	// TTL is how long an answer is kept, from the first request on. If zero, 7
	// days.
	TTL time.Duration

	// AllowShortTTL permits a TTL under 24 hours.
	AllowShortTTL bool

	// Policy says what an answer of 500, 502 or 504 means. If empty,
	// key.AtMostOnce.
	Policy key.Policy

	// AfterCrash says what a retry does when nobody knows whether the first
	// request had its effect. If empty, AfterCrashUnknown.
	AfterCrash AfterCrash

	// Atomic promises that the handler's only effects are in the transaction
	// that [Tx] gives it. Then a crash leaves nothing behind, and the key is free
	// when the lease ends.
	Atomic bool

	// Wait is how long a duplicate waits for the first one's answer. If zero, it
	// gets 409 at once.
	Wait time.Duration

	// FailOpen executes requests without protection while the store is down. If
	// false, they get 503.
	FailOpen bool

	// Form says which differences between two bodies matter. If zero, every byte
	// does.
	Form key.Form

	// Caller names who sends a request. Two callers never see each other's
	// answers. If nil, ByAuthorization.
	Caller func(*http.Request) (string, error)

	// Probe asks whether a request whose outcome is unknown happened. If nil,
	// nobody can be asked.
	Probe Probe

	// SettleAfter is how long after the doubt began a probe's "it did not
	// happen" is believed: before that the request may still be on its way. If
	// zero, 5 seconds.
	SettleAfter time.Duration

	// BodyLimit is the most bytes of a request body; more is 413. If zero, 1 MiB.
	BodyLimit int64

	// ResponseLimit is the most bytes of an answer that are kept; a longer one is
	// passed through and recorded without a body. If zero, 8 MiB.
	ResponseLimit int64
}

// AfterCrash says what a retry does after a crash or a cut-off call.
type AfterCrash string

const (
	// AfterCrashUnknown answers 409 until a probe or a person knows. It is the
	// default.
	AfterCrashUnknown AfterCrash = "unknown"

	// AfterCrashRetry executes the request once more, once per key.
	AfterCrashRetry AfterCrash = "retry"
)

// withDefaults returns c with its zero values replaced, or says what is wrong.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Lease < 0, c.StoreTimeout < 0, c.SweepEvery < 0, c.SweepBatch < 0:
		return c, errors.New("idempotency: a duration or size is negative")
	case c.Lease > 0 && c.Lease < 10*time.Millisecond:
		return c, fmt.Errorf("idempotency: a lease of %s is too short to be renewed", c.Lease)
	}
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	c.StoreTimeout = cmp.Or(c.StoreTimeout, 10*time.Second)
	c.SweepEvery = cmp.Or(c.SweepEvery, time.Minute)
	c.SweepBatch = cmp.Or(c.SweepBatch, 100)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if len(c.Rules) == 0 {
		c.Rules = []Rule{{}}
	}
	return c, nil
}

// A route is a rule that is ready to be used.
type route struct {
	Rule
	name string
	mux  *http.ServeMux // has the one pattern; nil: every path
}

// compile checks a rule and fills in its defaults.
func compile(r Rule) (rt *route, err error) {
	rt = &route{Rule: r, name: cmp.Or(r.Path, "default")}
	defer func() {
		if err != nil {
			err = fmt.Errorf("idempotency: route %s: %w", rt.name, err)
		}
	}()
	rt.TTL = cmp.Or(r.TTL, DefaultTTL)
	rt.Policy = cmp.Or(r.Policy, key.AtMostOnce)
	rt.AfterCrash = cmp.Or(r.AfterCrash, AfterCrashUnknown)
	rt.SettleAfter = cmp.Or(r.SettleAfter, DefaultSettleAfter)
	rt.BodyLimit = cmp.Or(r.BodyLimit, DefaultBodyLimit)
	rt.ResponseLimit = cmp.Or(r.ResponseLimit, DefaultResponseLimit)
	if rt.Caller == nil {
		rt.Caller = ByAuthorization
	}
	if len(r.Methods) == 0 {
		rt.Methods = []string{http.MethodPost, http.MethodPut, http.MethodPatch}
	}
	switch {
	case rt.TTL < MinTTL && !r.AllowShortTTL:
		return rt, fmt.Errorf("ttl %s is under 24h: set AllowShortTTL if you mean it", rt.TTL)
	case rt.TTL < 0, rt.Wait < 0, rt.SettleAfter < 0, rt.BodyLimit < 0, rt.ResponseLimit < 0:
		return rt, errors.New("a duration or size is negative")
	case rt.Policy != key.AtMostOnce && rt.Policy != key.Retry5xx:
		return rt, fmt.Errorf("unknown policy %q", rt.Policy)
	case rt.AfterCrash != AfterCrashUnknown && rt.AfterCrash != AfterCrashRetry:
		return rt, fmt.Errorf("unknown after-crash %q", rt.AfterCrash)
	}
	return rt, rt.pattern()
}

// pattern makes the mux that matches the rule's path.
func (rt *route) pattern() (err error) {
	if rt.Path == "" {
		return nil
	}
	defer func() { // that is how a mux reports a pattern it can't read
		if p := recover(); p != nil {
			err = fmt.Errorf("path: %v", p)
		}
	}()
	rt.mux = http.NewServeMux()
	rt.mux.Handle(rt.Path, http.NotFoundHandler())
	return nil
}

// matches reports whether the rule is about the request's path.
func (rt *route) matches(r *http.Request) bool {
	if rt.mux == nil {
		return true
	}
	_, pattern := rt.mux.Handler(r)
	return pattern != ""
}

// guards reports whether the rule is about the request's method.
func (rt *route) guards(r *http.Request) bool { return slices.Contains(rt.Methods, r.Method) }
