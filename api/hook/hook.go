package hook

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
)

// The defaults of a hook.
const (
	DefaultTolerance = 5 * time.Minute
	DefaultBodyLimit = 1 << 20
)

// MaxBodyLimit is the most that a hook may take: what one event may hold.
const MaxBodyLimit = 1 << 20

// A Config describes a hook.
type Config struct {
	Name     string
	Workflow keep.WorkflowName
	Topic    keep.TopicName
	Verify   Scheme

	// Secrets prove that a delivery is the service's; each of them does.
	Secrets []string

	// ID says where a delivery has its id: "$.path" or "header:NAME", or "body" if its body is what it is
	// known by. If empty, where the scheme has it; Token has none.
	ID string

	// Header is where Token looks; if empty, Authorization: Bearer.
	Header string

	// Tolerance is how far the time of a signature may be from ours. If zero,
	// DefaultTolerance.
	Tolerance time.Duration

	// BodyLimit is the most bytes of a delivery. If zero, DefaultBodyLimit.
	BodyLimit int
}

// A Hook is a Config that was checked.
type Hook struct {
	Config
	verifier verifier
	id       idRule
}

// A FieldError says which field of a Config is wrong. It never shows a secret.
type FieldError struct {
	Field string // as keep.toml has it
	Err   error
}

// Error names the field and what is wrong with it.
func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *FieldError) Unwrap() error { return e.Err }

var hookName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`) })

// IsName reports whether a hook may have that name: it is part of a URL.
func IsName(name string) bool { return hookName().MatchString(name) }

// ids are where the schemes have the id of a delivery.
var ids = map[Scheme]string{
	StandardWebhooks: "header:webhook-id", GitHub: "header:X-GitHub-Delivery", Stripe: "$.id", Slack: "$.event_id",
}

// New checks a hook. The error is a *FieldError.
func New(c Config) (*Hook, error) {
	wrong := func(field, format string, args ...any) (*Hook, error) {
		return nil, &FieldError{field, fmt.Errorf(format, args...)}
	}
	c.Tolerance, c.BodyLimit = cmp.Or(c.Tolerance, DefaultTolerance), cmp.Or(c.BodyLimit, DefaultBodyLimit)
	switch {
	case !IsName(c.Name):
		return wrong("name", "%q is no name of a hook: want letters, digits, - and _, at most 64", c.Name)
	case c.Workflow == "":
		return wrong("workflow", "is missing; it is the workflow whose topic gets the events")
	case c.Topic == "":
		return wrong("topic", "is missing; it is the topic that gets the events")
	case !slices.Contains(Schemes(), c.Verify):
		return wrong("verify", "%q is none of %s", string(c.Verify), schemeNames())
	case len(c.Secrets) == 0:
		return wrong("secret", "is missing; without it anybody could deliver")
	case c.Header != "" && c.Verify != Token:
		return wrong("header", `is for verify = "token" only`)
	case c.Header != "" && !headerName().MatchString(c.Header):
		return wrong("header", "%q is no name of a header", c.Header)
	case c.Tolerance < 0 || c.Tolerance > 24*time.Hour:
		return wrong("tolerance", "must be more than zero, and at most a day")
	case c.BodyLimit < 0 || c.BodyLimit > MaxBodyLimit:
		return wrong("body_limit", "must be more than zero, and at most 1MiB: one event holds no more")
	}
	h := &Hook{Config: c, verifier: verifier{scheme: c.Verify, header: c.Header, tolerance: c.Tolerance}}
	for _, secret := range c.Secrets {
		key, err := keyOf(c.Verify, secret)
		if err != nil {
			return nil, &FieldError{"secret", err}
		}
		h.verifier.keys = append(h.verifier.keys, key)
	}
	id := cmp.Or(c.ID, ids[c.Verify])
	if id == "" {
		return nil, &FieldError{"id", errors.New(`is missing; say where a delivery has its id: "$.id", "header:NAME" or "body"`)}
	}
	var err error
	if h.id, err = parseID(id); err != nil {
		return nil, &FieldError{"id", err}
	}
	return h, nil
}

// Check returns why a delivery is not the service's; nil if it is.
func (h *Hook) Check(header http.Header, body []byte, now time.Time) error {
	return h.verifier.verify(header, body, now)
}

// Message returns the id and the payload of a delivery that was verified.
func (h *Hook) Message(header http.Header, body []byte) (keep.MessageID, json.RawMessage, error) {
	payload, err := payloadOf(header, body)
	if err != nil {
		return "", nil, err
	}
	id, err := h.id.of(header, body, payload)
	return id, payload, err
}

func schemeNames() string {
	var names []string
	for _, s := range Schemes() {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}
