// Package oauth asks services for tokens on behalf of a person: the authorization code
// flow with PKCE on a loopback address (RFC 8252, RFC 7636), the device flow (RFC 8628),
// client credentials, refreshing (RFC 6749 §6) and revoking (RFC 7009).
//
// It keeps nothing. What a person allowed is returned, and whoever calls keeps it. The
// requests are those of golang.org/x/oauth2; what an answer or the lack of one means is
// decided here, because a refresh whose answer is lost may have used up the refresh token:
//
//   - An error with a code of RFC 6749 §5.2 is a [RefusedError]: the server answered, and
//     issued nothing. So is temporarily_unavailable with a status of 5xx.
//   - No answer, any other 5xx, a page of a gateway, an answer without an access token are
//     a [LostError]: nobody knows whether new tokens were issued.
//   - A request that did not leave, as the client's transport says, is [ErrNotSent].
//
// Errors hold no token, code, verifier or secret: what a server says in its description is
// searched for them. Redirects of the token endpoint are not followed, since they would
// send the secrets to another place.
package oauth

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/keep-run/keep/internal/redact"
)

// How a client proves who it is at the token endpoint (RFC 6749 §2.3.1).
const (
	AuthPost  = "post"  // id and secret in the body
	AuthBasic = "basic" // id and secret in the Authorization header
	AuthNone  = "none"  // the id alone: a public client
)

// requestLimit is how long one request to a server may take.
const requestLimit = 30 * time.Second

// A Client is known to a service, and asks it for tokens. It may be used by several
// goroutines at once.
type Client struct {
	AuthorizeURL, TokenURL, DeviceURL, RevokeURL string // empty: the service has none

	ID, Secret     string
	Auth           string // "": post with a secret, none without
	PKCE           bool   // send a challenge; a public client always does
	Scopes         []string
	ScopeSeparator string            // "": a space
	Params         map[string]string // more of the authorization request, as access_type of Google

	Resource    string // that tokens are asked for (RFC 8707); empty: it is not said
	Issuer      string // that an answer of the authorization may name, and no other (RFC 9207); empty: any
	NamesIssuer bool   // an answer that names none is not the issuer's

	HTTP *http.Client // nil: http.DefaultClient
}

// Tokens are what a service issued.
type Tokens struct {
	Access, Refresh string // Refresh is empty if there is none
	Type            string // as "Bearer"

	// Expires is when Access ends, by the clock of this process; zero: the service does not say.
	Expires time.Time

	// Lifetime is how long Access is valid from when it was issued; 0: the service does not say.
	Lifetime time.Duration

	Scopes  []string // those granted; nil: the service does not say, so those asked for
	Subject string   // whose account it is, by the id token; empty: there is none

	// Identity is issuer and subject of the id token, which are of one user forever (OpenID
	// Connect Core §5.7); empty: there is none.
	Identity string

	TokenURL, RevokeURL string // of the Client that got them
}

// A RefusedError says that the server answered and issued nothing.
type RefusedError struct {
	Code        string // of RFC 6749 §5.2, as "invalid_grant"
	Description string // the server's words, without secrets; may be empty
	Status      int    // of HTTP; 0: the browser brought the answer
}

// Error implements error.
func (e *RefusedError) Error() string {
	text := fmt.Sprintf("refused with %q", e.Code)
	if e.Status != 0 {
		text += fmt.Sprintf(" (HTTP %d)", e.Status)
	}
	if e.Description != "" {
		text += ": " + e.Description
	}
	return text
}

// Temporary reports whether the same request may be answered otherwise later.
func (e *RefusedError) Temporary() bool {
	return e.Status == http.StatusTooManyRequests || e.Code == "slow_down" || e.Code == notNow || e.Code == "server_error"
}

// notNow is the code of a server that says itself that it does not handle a request at the moment
// (RFC 6749 §4.1.2.1), whatever the status.
const notNow = "temporarily_unavailable"

// A LostError says that it is unknown whether the server did what it was asked for: issued tokens, or revoked one.
type LostError struct {
	Err error

	revoking bool
}

// Error implements error.
func (e *LostError) Error() string {
	what := "tokens were issued"
	if e.revoking {
		what = "the token was revoked"
	}
	return "no usable answer, so it is unknown whether " + what + ": " + e.Err.Error()
}

// ErrNotSent is in the error of a transport if no byte of the request left this host, and then
// in that of a Client: nothing happened at the service.
var ErrNotSent = errors.New("nothing was sent")

// Unwrap returns why there is no answer.
func (e *LostError) Unwrap() error { return e.Err }

// Refresh exchanges a refresh token. If the service does not rotate them, Refresh of the
// result is the one that was sent. Errors are a *RefusedError, a *LostError or [ErrNotSent],
// as that of a ctx that had ended before.
func (c *Client) Refresh(ctx context.Context, refresh string) (Tokens, error) {
	if refresh == "" {
		return Tokens{}, errors.New("there is no refresh token")
	}
	if err := ctx.Err(); err != nil {
		return Tokens{}, notSent{err}
	}
	ctx, cancel := c.request(ctx)
	defer cancel()
	if c.Resource == "" {
		t, err := c.config().TokenSource(ctx, &oauth2.Token{RefreshToken: refresh}).Token()
		return c.tokens(t, err, refresh)
	}
	conf := clientcredentials.Config{ClientID: c.ID, ClientSecret: c.Secret, TokenURL: c.TokenURL, AuthStyle: c.style(), // which takes other grants, too
		EndpointParams: url.Values{"grant_type": {"refresh_token"}, "refresh_token": {refresh}, "resource": {c.Resource}}}
	t, err := conf.Token(ctx)
	if err == nil && t.RefreshToken == "" {
		t.RefreshToken = refresh
	}
	return c.tokens(t, err, refresh)
}

// ClientCredentials gets tokens for the client itself (RFC 6749 §4.4). Errors are as of
// Refresh; asking again does no harm.
func (c *Client) ClientCredentials(ctx context.Context) (Tokens, error) {
	ctx, cancel := c.request(ctx)
	defer cancel()
	conf := clientcredentials.Config{ClientID: c.ID, ClientSecret: c.Secret, TokenURL: c.TokenURL, AuthStyle: c.style()}
	if len(c.Scopes) > 0 {
		conf.EndpointParams = map[string][]string{"scope": {c.scope()}}
	}
	t, err := conf.Token(ctx)
	return c.tokens(t, err)
}

// exchange gets tokens for the code that an authorization ended with.
func (c *Client) exchange(ctx context.Context, redirect, code, verifier string) (Tokens, error) {
	ctx, cancel := c.request(ctx)
	defer cancel()
	conf := c.config()
	conf.RedirectURL = redirect
	var opts []oauth2.AuthCodeOption
	if verifier != "" {
		opts = append(opts, oauth2.VerifierOption(verifier))
	}
	if c.Resource != "" {
		opts = append(opts, oauth2.SetAuthURLParam("resource", c.Resource))
	}
	t, err := conf.Exchange(ctx, code, opts...)
	return c.tokens(t, err, code, verifier)
}

func (c *Client) config() *oauth2.Config {
	return &oauth2.Config{
		ClientID:     c.ID,
		ClientSecret: c.Secret,
		Endpoint:     oauth2.Endpoint{AuthURL: c.AuthorizeURL, TokenURL: c.TokenURL, DeviceAuthURL: c.DeviceURL, AuthStyle: c.style()},
	}
}

func (c *Client) style() oauth2.AuthStyle {
	if c.Auth == AuthBasic {
		return oauth2.AuthStyleInHeader
	}
	return oauth2.AuthStyleInParams
}

func (c *Client) scope() string { return strings.Join(c.Scopes, cmp.Or(c.ScopeSeparator, " ")) }

// pkce reports whether a challenge is sent. A client without a secret has nothing else
// that keeps a stolen code from being used.
func (c *Client) pkce() bool { return c.PKCE || c.Secret == "" || c.Auth == AuthNone }

// request returns a context for one request, with the client that makes it: one that
// does not follow redirects.
func (c *Client) request(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	return context.WithValue(ctx, oauth2.HTTPClient, c.http()), cancel
}

func (c *Client) http() *http.Client {
	h := *cmp.Or(c.HTTP, http.DefaultClient)
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &h
}

// tokens translates what x/oauth2 made of an answer. secrets are what was sent beside
// those of the client.
func (c *Client) tokens(t *oauth2.Token, err error, secrets ...string) (Tokens, error) {
	if err != nil {
		return Tokens{}, c.failure(err, secrets...)
	}
	if err := usable(t); err != nil {
		return Tokens{}, &LostError{Err: err}
	}
	out := Tokens{
		Access: t.AccessToken, Refresh: t.RefreshToken, Type: t.Type(), Expires: t.Expiry,
		Lifetime: time.Duration(t.ExpiresIn) * time.Second, Scopes: c.granted(t), TokenURL: c.TokenURL, RevokeURL: c.RevokeURL,
	}
	out.Subject, out.Identity = subject(t)
	// People see these, and a server may say anything there.
	secrets = append(secrets, out.Access, out.Refresh)
	out.Subject = c.clean(out.Subject, secrets...)
	for i, scope := range out.Scopes {
		out.Scopes[i] = c.clean(scope, secrets...)
	}
	if out.Lifetime == 0 && !t.Expiry.IsZero() {
		out.Lifetime = time.Until(t.Expiry).Round(time.Second)
	}
	return out, nil
}

// usable refuses a token that cannot be sent as a bearer token (RFC 6750): one with characters that no header may have, or
// of a type that needs a proof of possession. Other types are words that services have for bearer tokens, as "bot".
func usable(t *oauth2.Token) error {
	if strings.ContainsFunc(t.AccessToken, func(r rune) bool { return r < ' ' || r > '~' }) {
		return errors.New("the access token has characters that no header may have")
	}
	switch kind := strings.ToLower(t.TokenType); kind {
	case "mac", "dpop", "pop", "n_a":
		return fmt.Errorf("the access token is of the type %s, and not a bearer token", kind)
	}
	return nil
}

// granted returns the scopes that an answer names; nil if it names none. Services
// separate them by spaces, as the standard says, or as in the request.
func (c *Client) granted(t *oauth2.Token) []string {
	said, _ := t.Extra("scope").(string)
	split := func(r rune) bool {
		return r == ' ' || c.ScopeSeparator != "" && strings.ContainsRune(c.ScopeSeparator, r)
	}
	scopes := strings.FieldsFunc(said, split)
	if len(scopes) == 0 {
		return nil
	}
	slices.Sort(scopes)
	return slices.Compact(scopes)
}

// subject returns who the id token names, as people read it and as it is compared. Its signature
// isn't checked: it came from the token endpoint itself (OpenID Connect Core §3.1.3.7).
func subject(t *oauth2.Token) (shown, identity string) {
	id, _ := t.Extra("id_token").(string)
	parts := strings.Split(id, ".")
	if len(parts) != 3 {
		return "", ""
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", ""
	}
	var claims struct{ Email, Sub, Iss string }
	if json.Unmarshal(raw, &claims) != nil {
		return "", ""
	}
	if claims.Iss != "" && claims.Sub != "" {
		identity = claims.Iss + " " + claims.Sub
	}
	return clip(cmp.Or(claims.Email, claims.Sub)), identity
}

// failure translates an error of x/oauth2, whose text may hold the whole answer.
func (c *Client) failure(err error, secrets ...string) error {
	r, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return c.unanswered(err, secrets...)
	}
	status := r.Response.StatusCode
	if status >= 500 && r.ErrorCode != notNow || r.ErrorCode == "" && status != http.StatusTooManyRequests {
		return &LostError{Err: fmt.Errorf("the token endpoint answered HTTP %d without an error of OAuth", status)}
	}
	return &RefusedError{
		Code:        c.clean(cmp.Or(r.ErrorCode, "too_many_requests"), secrets...),
		Description: c.clean(r.ErrorDescription, secrets...),
		Status:      status,
	}
}

// unanswered translates the error of a request that has no answer.
func (c *Client) unanswered(err error, secrets ...string) error {
	said := errors.New(c.clean(err.Error(), secrets...))
	if errors.Is(err, ErrNotSent) {
		return notSent{said}
	}
	return &LostError{Err: said}
}

// A notSent is why a request was not sent, in words that hold no secret.
type notSent struct{ error }

// Is makes it an ErrNotSent, which the words alone are not.
func (notSent) Is(target error) bool { return target == ErrNotSent }

// Unwrap returns the error as it was.
func (e notSent) Unwrap() error { return e.error }

// clean returns a server's words without what they must not hold, in any encoding.
func (c *Client) clean(s string, secrets ...string) string {
	return clip(redact.New(append(secrets, c.Secret)...).Text(s))
}

// clip returns at most 300 bytes of s, in one line of printable characters: nothing in it turns text around or hides.
func clip(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "…"
	}
	return s
}
