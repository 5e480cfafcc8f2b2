package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/keep-run/keep/law/key"
)

// Defaults of Config and Rule.
const (
	DefaultLease         = 30 * time.Second
	DefaultTTL           = 7 * 24 * time.Hour
	DefaultSettleAfter   = 5 * time.Second
	DefaultProbeTimeout  = 10 * time.Second
	DefaultBodyLimit     = 1 << 20
	DefaultResponseLimit = 8 << 20
	DefaultMemory        = 256 << 20
	DefaultBodySilence   = 30 * time.Second
	DefaultBodyTimeout   = 10 * time.Minute

	// MinTTL is the shortest TTL unless Rule.AllowShortTTL is set: a client that
	// retries tomorrow must find its answer.
	MinTTL = 24 * time.Hour
)

// A Config says what a Guard does. The zero Config guards every POST, PUT and
// PATCH that carries a key.
type Config struct {
	// Rules say what is done where: the first wins whose Path and Methods match. A request
	// that no rule matches is not touched; one with a key is counted, and logged. A rule to which
	// no request comes past those before it is an error. If empty, the zero Rule.
	Rules []Rule

	// Host, if not empty, is the host of all requests, whatever they ask for. Set it
	// where one service is reached by several names or ports: the host is part of a
	// key, so a client that retries by another name is executed again.
	Host string

	// Instance and a reference are where a caller asks what became of its request, as problems
	// say. If empty, InstancePath, which the guard answers itself.
	Instance string

	// Lease is how long an owner that does not renew it is believed to be alive.
	// It is renewed three times as often, so a handler may take longer. If zero,
	// 30 seconds.
	Lease time.Duration

	// StoreTimeout is how long a request waits for the store each time that it needs it, before it is refused
	// (KindStoreUnavailable), and a completed answer before it is withheld. If zero, 10 seconds.
	StoreTimeout time.Duration

	// SweepEvery is the time between two sweeps of Run. If zero, one minute.
	SweepEvery time.Duration

	// SweepBatch is the most records deleted at once. If zero, 100.
	SweepBatch int

	// Memory is the most bytes of requests and answers, with their headers, that are held at once. It is
	// taken as a request arrives, whatever length that announces. What does not fit
	// displaces requests that have not arrived whole: first of the address that has
	// the most of them, first the one that took memory longest ago, which is not always
	// the one that got nothing for longest: a body takes as much again whenever what
	// it has is full. They are refused
	// with KindBusy, and so is a request that does not fit all the same, and one whose
	// kept answer does not; a new answer that does not is passed through and recorded
	// without a body. If zero, 256 MiB.
	Memory int64

	// BodySilence is how long a client may take to send the next part of a guarded
	// request, and BodyTimeout for the whole; the same to read an answer that is held,
	// unless the server has a WriteTimeout or the handler set a write deadline. If
	// zero, 30 seconds and 10 minutes.
	BodySilence, BodyTimeout time.Duration

	// Logger receives what a person should know. Keys, callers and bodies are
	// never logged; "key" is the reference of a record. If nil, slog.Default().
	Logger *slog.Logger

	// Observe is called for every request that a rule matched and that carried a
	// key or needed one. It must be fast and safe for concurrent use. If nil,
	// nobody is.
	Observe func(context.Context, Observation)
}

// A Rule says how requests of one route are guarded.
type Rule struct {
	// Path is a pattern of http.ServeMux, such as "/orders/{id}/pay" or
	// "api.example.com/". If empty, every path.
	Path string

	// Methods are those of the rule: a request with another one is the next rule's, or passes
	// untouched. If empty, POST, PUT and PATCH.
	Methods []string

	// Key says where the key is. If zero, in Idempotency-Key or X-Idempotency-Key.
	Key KeySource

	// Require answers 400 to a guarded request without a key.
	Require bool

	// TTL is how long an answer is kept, from the time on at which it is known. If
	// zero, 7 days.
	TTL time.Duration

	// AllowShortTTL permits a TTL under 24 hours.
	AllowShortTTL bool

	// Policy says what an answer of 500, 502, 503 or 504 means. If empty,
	// key.AtMostOnce.
	Policy key.Policy

	// NotExecuted are statuses of answers after which nothing was done: they free
	// the key. Name 503 here only if nothing between the guard and the handler
	// sends one after it passed the request on.
	NotExecuted []int

	// AfterCrash says what a retry does when nobody knows whether the first
	// request had its effect. If empty, AfterCrashUnknown.
	AfterCrash AfterCrash

	// Repeatable reports whether a request with a body may be executed again whenever there is no
	// answer to it, and beside an execution in another process: twice does what once does, since the
	// request names what it makes or ends, and the second answer says what there is. Then no outcome stays unknown: a
	// retry is executed, unless this process is executing the request, and a 5xx frees the key. If nil,
	// no request may.
	Repeatable func(r *http.Request, body []byte) bool

	// Atomic promises that the handler's only effects are in the transaction
	// that [Tx] gives it, and that it leaves the end of that to the guard. Then a crash leaves nothing behind, and the key is free
	// when the lease ends, unless an attempt before is in doubt. A handler that commits itself breaks the promise: if it, or the
	// store, dies before that is recorded, a retry does it again.
	Atomic bool

	// Wait is how long a duplicate waits for the first one's answer. If zero, it
	// gets 409 at once.
	Wait time.Duration

	// FailOpen executes requests without protection while the store is down. If
	// false, they get 503, as they do anyway once the database was removed or replaced, and
	// where the guard saw that the request was begun before.
	FailOpen bool

	// Form says which differences between two bodies matter. If zero, every byte
	// does.
	Form key.Form

	// Caller names who sends a request. Two callers never see each other's
	// answers. If nil, the credential in Authorization, else in X-API-Key, else
	// nobody. A client that renews its credential looks like another caller then:
	// a retry of the same request under the same key is refused with
	// KindCallerChanged. Schemes that sign each request, and headers that may hold
	// another credential, are refused with KindCallerUnknown. With a function
	// that returns the same for all requests of a caller neither happens; one that
	// names a credential goes with Holder.
	Caller func(*http.Request) (string, error)

	// Holder names who has the credential that Caller names, where that may be renewed: the same request
	// of one holder under the same key with another credential is refused with KindCallerChanged. If nil,
	// or if it returns nothing, Caller stays the same.
	Holder func(*http.Request) string

	// CallerVerified promises that Caller names nobody who has not shown a secret, also
	// in a request for InstancePath, which the guard itself answers: ByJWTSubject
	// verifies a token. Then the caller sees the kept answer there; otherwise only the
	// state of the request, and a retry gets the answer. The credential that a nil
	// Caller takes is such a secret.
	CallerVerified bool

	// Probe asks whether a request whose outcome is unknown happened. If nil,
	// nobody can be asked.
	Probe Probe

	// EffectTimeout is how long what the handler began elsewhere may continue without it, from
	// when the handler began: for one that asks a service, how long that service may take. The
	// handler may die at once and the service work on, so until then a probe's "it did not happen"
	// is not believed. If zero, all that a handler does ends with it.
	EffectTimeout time.Duration

	// SettleAfter is how long after the doubt began, and after EffectTimeout, a probe's
	// "it did not happen" is believed: before that the request may still be on its way. If
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
	case c.Lease < 0, c.StoreTimeout < 0, c.SweepEvery < 0, c.SweepBatch < 0, c.Memory < 0, c.BodySilence < 0, c.BodyTimeout < 0:
		return c, errors.New("idempotency: a duration or size is negative")
	case c.Lease > 0 && c.Lease < 10*time.Millisecond:
		return c, fmt.Errorf("idempotency: a lease of %s is too short to be renewed", c.Lease)
	}
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	c.StoreTimeout = cmp.Or(c.StoreTimeout, 10*time.Second)
	c.SweepEvery = cmp.Or(c.SweepEvery, time.Minute)
	c.SweepBatch = cmp.Or(c.SweepBatch, 100)
	c.Memory = cmp.Or(c.Memory, DefaultMemory)
	c.BodySilence = cmp.Or(c.BodySilence, DefaultBodySilence)
	c.BodyTimeout = cmp.Or(c.BodyTimeout, DefaultBodyTimeout)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if len(c.Rules) == 0 {
		c.Rules = []Rule{{}}
	}
	return c, nil
}
