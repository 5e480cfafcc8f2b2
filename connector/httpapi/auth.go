package httpapi

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/once"
	"github.com/keep-run/keep/internal/redact"
)

// An Auth gives each request the credentials that are good at that moment.
type Auth interface {
	// Authorize returns what a request carries. An error has a *keep.Failure; nothing is
	// sent then.
	Authorize(ctx context.Context) (Authorization, error)

	// Refused says that the service answered 401 to a request. It reports whether there
	// are other credentials now.
	Refused(ctx context.Context, a Authorization) bool

	// Accepted says that the service did what a request asked for.
	Accepted(ctx context.Context, a Authorization)
}

// An Authorization is what one request carries.
type Authorization struct {
	Header, Query map[string]string
	Secrets       []string // texts that must never show

	Credentials map[string]connector.Credential // by account
}

// used says what credential a request carried.
type used struct {
	account    string // whose; empty: of none, or of several
	generation int64
	renewed    bool // it was refused for a change, and there is another one now
}

// used returns whose credential an authorization is.
func (a Authorization) used() used {
	if len(a.Credentials) == 1 {
		for name, c := range a.Credentials {
			return used{account: name, generation: c.Generation}
		}
	}
	return used{}
}

// newHider hides the secrets of a configuration.
func newHider(cfg Config) *redact.Hider {
	h := new(redact.Hider)
	h.Add(secretsOf(cfg.Headers, cfg.Secrets)...)
	return h
}

// authorize puts credentials into a request: a bearer token into the header own, if that is not empty.
func (s *service) authorize(ctx context.Context, req *http.Request, own string) (Authorization, error) {
	if s.auth == nil {
		return Authorization{}, nil
	}
	a, err := s.auth.Authorize(ctx)
	if err != nil {
		return a, err
	}
	s.hide.Remember(a.Secrets...)
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		req.Header.Set(name, a.Header[name])
	}
	if token, bearer := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer "); own != "" && bearer {
		req.Header.Del("Authorization")
		req.Header.Set(own, token)
	}
	if len(a.Query) > 0 {
		q := req.URL.Query()
		for name, value := range a.Query {
			q.Set(name, value)
		}
		req.URL.RawQuery = q.Encode()
	}
	return a, nil
}

// exchange sends a request with the credentials that are good now. A read that is refused
// for them is sent again once, if there are others then. It returns what the last request
// carried. An error may be a *keep.Failure: nothing was sent.
func (s *service) exchange(ctx context.Context, t *once.Transport, req *http.Request) (*http.Response, used, error) {
	return s.exchangeWith(ctx, t, req, "")
}

// exchangeWith is exchange with a bearer token in a header of its own; empty: where it is usually.
func (s *service) exchangeWith(ctx context.Context, t *once.Transport, req *http.Request, own string) (resp *http.Response, u used, err error) {
	a, err := s.authorize(ctx, req, own)
	if err != nil {
		return nil, u, err
	}
	u = a.used()
	resp, err = s.roundTrip(ctx, t, req, a)
	if err != nil || s.auth == nil || resp.StatusCode != http.StatusUnauthorized || !s.auth.Refused(ctx, a) {
		return resp, u, err
	}
	if t == s.writes {
		u.renewed = true
		return resp, u, nil
	}
	if err := resp.Body.Close(); err != nil {
		return nil, u, err
	}
	if body, ok := req.Body.(rewindable); ok {
		if _, err := body.Seek(0, io.SeekStart); err != nil {
			return nil, u, err
		}
	}
	if a, err = s.authorize(ctx, req, own); err != nil {
		return nil, u, err
	}
	resp, err = s.roundTrip(ctx, t, req, a)
	return resp, a.used(), err
}

// roundTrip sends a request, and says of one that succeeded that its credentials were
// accepted.
func (s *service) roundTrip(ctx context.Context, t *once.Transport, req *http.Request, a Authorization) (*http.Response, error) {
	resp, err := roundTrip(ctx, t, req)
	if err == nil && s.auth != nil && resp.StatusCode < http.StatusMultipleChoices {
		s.auth.Accepted(context.WithoutCancel(ctx), a)
	}
	return resp, err
}

// unanswered is the failure of a request that brought no answer.
func (t *tool) unanswered(ctx context.Context, err error, what string) *keep.Failure {
	if f := t.ownFailure(err); f != nil {
		return f
	}
	return t.failf(keep.ClassTransient, "no-answer", "%sno answer: %s", what, t.service.hide.Text(why(ctx, err)))
}

// ownFailure returns the failure of a request that had no credentials; nil: it is another
// error.
func (t *tool) ownFailure(err error) *keep.Failure {
	f, ok := errors.AsType[*keep.Failure](err)
	if !ok {
		return nil
	}
	own := *f
	own.Tool = keep.ToolName(t.service.name + "." + t.spec.Name)
	own.Message = t.service.hide.Text(own.Message)
	return &own
}
