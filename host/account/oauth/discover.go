package oauth

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// A Server is the authorization server of a protected resource, as both say it, and checked.
type Server struct {
	Resource string   // that tokens are for, and are bound to (RFC 8707)
	Issuer   string   // of the authorization server
	Scopes   []string // that the resource asks for
	Offline  bool     // the server gives refresh tokens for the scope offline_access

	AuthorizeURL, TokenURL, RevokeURL, RegisterURL string // empty: there is none

	ids  bool // it names itself in its answers (RFC 9207)
	near bool // the resource is on this machine or in a network of its own
}

// metadataLimit bounds what is read of an answer.
const metadataLimit = 256 << 10

// Discover finds the authorization server of a resource (RFC 9728, RFC 8414). All that the
// resource and the server say is hostile until it was checked:
//
//   - Metadata of the resource is read at its own origin only, and must cover its address.
//   - The issuer of the server's metadata is the one that the resource names, and its endpoints are https. Addresses
//     that lead to this machine or into a private network are refused, unless the resource is there itself.
//   - PKCE with S256 must be known to the server.
func Discover(ctx context.Context, h *http.Client, resource string) (Server, error) {
	at, err := url.Parse(resource)
	if err != nil || at.Host == "" {
		return Server{}, fmt.Errorf("%q is no address", resource)
	}
	at.Fragment, at.RawFragment = "", ""
	s := Server{Resource: at.String(), near: Near(at)}
	metadata, scopes, err := challenged(ctx, h, at)
	if err != nil {
		return s, err
	}
	issuers, err := s.readResource(ctx, h, at, metadata)
	if err != nil {
		return s, err
	}
	if len(scopes) > 0 {
		s.Scopes = scopes
	}
	s.Issuer = cmp.Or(append(issuers, origin(at))...)
	return s, s.readServer(ctx, h)
}

// challenged asks the resource for nothing, without a token, and returns what its refusal names: the
// address of its metadata, and scopes.
func challenged(ctx context.Context, h *http.Client, at *url.URL) (metadata string, scopes []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		return "", nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := once(h).Do(req)
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 300 {
		return "", nil, errors.New("the server wants no token")
	}
	challenges, err := oauthex.ParseWWWAuthenticate(resp.Header.Values("WWW-Authenticate"))
	if err != nil {
		return "", nil, nil // then its metadata is where the standard says
	}
	for _, c := range challenges {
		if c.Scheme == "bearer" {
			metadata, scopes = cmp.Or(metadata, c.Params["resource_metadata"]), append(scopes, strings.Fields(c.Params["scope"])...)
		}
	}
	return metadata, scopes, nil
}

// readResource reads the metadata of the resource, and returns the issuers that it names; none: it has no
// metadata.
func (s *Server) readResource(ctx context.Context, h *http.Client, at *url.URL, named string) ([]string, error) {
	candidates := []string{origin(at) + "/.well-known/oauth-protected-resource" + strings.TrimSuffix(at.EscapedPath(), "/"), origin(at) + "/.well-known/oauth-protected-resource"}
	if named != "" {
		u, err := url.Parse(named)
		if err != nil || origin(u) != origin(at) || u.User != nil {
			return nil, fmt.Errorf("the server names %.200q for its metadata, which is not at its own origin %s", named, origin(at))
		}
		candidates = []string{named}
	}
	for _, address := range candidates {
		var m struct {
			Resource string   `json:"resource"`
			Issuers  []string `json:"authorization_servers"`
			Scopes   []string `json:"scopes_supported"`
		}
		switch found, err := fetch(ctx, h, address, &m); {
		case err != nil:
			return nil, err
		case !found:
			continue
		case !Covers(m.Resource, at.String()):
			return nil, fmt.Errorf("%s is about %.200q, which is not %s", address, m.Resource, at)
		}
		s.Resource, s.Scopes = m.Resource, m.Scopes
		return m.Issuers, nil
	}
	if named != "" {
		return nil, fmt.Errorf("the server names %s for its metadata, and there is none", named)
	}
	return nil, nil
}

// readServer reads and checks the metadata of the authorization server.
func (s *Server) readServer(ctx context.Context, h *http.Client) error {
	u, err := s.endpoint("issuer", s.Issuer)
	if err != nil {
		return err
	}
	if u.RawQuery != "" {
		return fmt.Errorf("the issuer %.200q has a query", s.Issuer)
	}
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	for _, address := range slices.Compact([]string{
		origin(u) + "/.well-known/oauth-authorization-server" + path, origin(u) + "/.well-known/openid-configuration" + path, origin(u) + path + "/.well-known/openid-configuration",
	}) {
		var m struct {
			Issuer    string   `json:"issuer"`
			Authorize string   `json:"authorization_endpoint"`
			Token     string   `json:"token_endpoint"`
			Revoke    string   `json:"revocation_endpoint"`
			Register  string   `json:"registration_endpoint"`
			Methods   []string `json:"code_challenge_methods_supported"`
			Scopes    []string `json:"scopes_supported"`
			IDs       bool     `json:"authorization_response_iss_parameter_supported"`
		}
		found, err := fetch(ctx, h, address, &m)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		switch {
		case strings.TrimSuffix(m.Issuer, "/") != strings.TrimSuffix(s.Issuer, "/"):
			return fmt.Errorf("%s is of the issuer %.200q, and not of %s", address, m.Issuer, s.Issuer)
		case !slices.Contains(m.Methods, "S256"):
			return fmt.Errorf("the authorization server %s does not know PKCE with S256", s.Issuer)
		}
		s.Issuer, s.AuthorizeURL, s.TokenURL, s.RevokeURL, s.RegisterURL = m.Issuer, m.Authorize, m.Token, m.Revoke, m.Register
		s.Offline, s.ids = slices.Contains(m.Scopes, "offline_access"), m.IDs
		var wrong []error
		for name, address := range map[string]string{"authorization_endpoint": m.Authorize, "token_endpoint": m.Token, "revocation_endpoint": m.Revoke, "registration_endpoint": m.Register} {
			if address != "" || name == "authorization_endpoint" || name == "token_endpoint" {
				_, err := s.endpoint(name, address)
				wrong = append(wrong, err)
			}
		}
		return errors.Join(wrong...)
	}
	return fmt.Errorf("the authorization server %s has no metadata", s.Issuer)
}

// Near reports whether tokens may be asked for inside a private network, since the resource is there itself.
func (s Server) Near() bool { return s.near }

// plainAddress is an address that a person can paste into a shell without its quotes: a command in it, behind $ or ` or &, would be
// the server's.
var plainAddress = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9._~:/@%,+\[\]-]*(\?([A-Za-z0-9._~%+-]+=[A-Za-z0-9._~:/@%,+=-]*(&|$))*)?$`)
})

// endpoint checks an address that a server names.
func (s *Server) endpoint(name, address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "" || len(address) > 2048:
		return nil, fmt.Errorf("%s is %.200q, which is no address", name, address)
	case u.User != nil || u.Fragment != "":
		return nil, fmt.Errorf("%s is %.200q: an address has neither a password nor a fragment", name, address)
	case !plainAddress().MatchString(address):
		return nil, fmt.Errorf("%s is %.200q, which would mean something else in a shell", name, address)
	case u.Scheme != "https" && (u.Scheme != "http" || !s.near || !isLoopback(u.Hostname())):
		return nil, fmt.Errorf("%s is %.200q: a token is asked for by https only", name, address)
	case !s.near && Near(u): // also what is opened in a browser, which nothing guards
		return nil, fmt.Errorf("%s is %.200q, in a private network, and the server that names it is not there", name, address)
	}
	return u, nil
}

// Client returns a client of the server that asks for tokens of the resource.
func (s Server) Client(id, secret, auth string, scopes []string, h *http.Client) *Client {
	c := &Client{AuthorizeURL: s.AuthorizeURL, TokenURL: s.TokenURL, RevokeURL: s.RevokeURL, ID: id, Secret: secret, Auth: auth, PKCE: true,
		Scopes: scopes, Resource: s.Resource, Issuer: s.Issuer, NamesIssuer: s.ids, HTTP: h}
	if slices.Contains(scopes, "offline_access") {
		c.Params = map[string]string{"prompt": "consent"} // without it OpenID Connect gives no refresh token
	}
	return c
}

// Register makes a client for an address to which answers come (RFC 7591).
func (s Server) Register(ctx context.Context, h *http.Client, redirect string) (id, secret, auth string, err error) {
	if s.RegisterURL == "" {
		return "", "", "", fmt.Errorf("the authorization server %s registers no clients by itself: make one in its settings, and write its client_id", s.Issuer)
	}
	body, err := json.Marshal(map[string]any{"client_name": "Keep", "redirect_uris": []string{redirect}, "application_type": "native",
		"grant_types": []string{"authorization_code", "refresh_token"}, "response_types": []string{"code"}, "token_endpoint_auth_method": "none"})
	if err != nil {
		return "", "", "", err
	}
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.RegisterURL, bytes.NewReader(body))
	if err != nil {
		return "", "", "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := once(h).Do(req)
	if err != nil {
		return "", "", "", err
	}
	defer resp.Body.Close()
	var m struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
		Auth   string `json:"token_endpoint_auth_method"`
		Error  string `json:"error"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, metadataLimit)).Decode(&m)
	if resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusOK || err != nil || m.ID == "" {
		return "", "", "", fmt.Errorf("the authorization server %s registered no client: HTTP %d %s", s.Issuer, resp.StatusCode, clip(m.Error))
	}
	switch {
	case m.Secret == "":
		return m.ID, "", AuthNone, nil
	case m.Auth == "client_secret_post":
		return m.ID, m.Secret, AuthPost, nil
	}
	return m.ID, m.Secret, AuthBasic, nil
}

// fetch reads JSON; false: there is none.
func fetch(ctx context.Context, h *http.Client, address string, to any) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := once(h).Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 && resp.StatusCode < 500 {
		return false, nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, metadataLimit+1))
	switch {
	case err != nil:
		return false, fmt.Errorf("%s: %w", address, err)
	case resp.StatusCode != http.StatusOK:
		return false, fmt.Errorf("%s answered HTTP %d", address, resp.StatusCode)
	case len(text) > metadataLimit:
		return false, fmt.Errorf("%s has more than %d bytes", address, metadataLimit)
	case json.Unmarshal(text, to) != nil:
		return false, fmt.Errorf("%s is not the JSON of metadata", address)
	}
	return true, nil
}

// once returns a client that does not follow redirects: each address is one that was checked.
func once(h *http.Client) *http.Client { return (&Client{HTTP: h}).http() }

// origin returns scheme, host and port as they are compared.
func origin(u *url.URL) string {
	host := strings.ToLower(u.Host)
	if u.Scheme == "https" {
		host = strings.TrimSuffix(host, ":443")
	} else {
		host = strings.TrimSuffix(host, ":80")
	}
	return strings.ToLower(u.Scheme) + "://" + host
}

// Covers reports whether a resource is an address or above it: of the same origin, with a path that its own
// begins with, whole segments of it.
func Covers(resource, address string) bool {
	r, err := url.Parse(resource)
	a, err2 := url.Parse(address)
	if err != nil || err2 != nil || r.Host == "" || r.User != nil || r.Fragment != "" || origin(r) != origin(a) || r.RawQuery != "" && r.RawQuery != a.RawQuery {
		return false
	}
	above, path := strings.TrimSuffix(r.EscapedPath(), "/"), a.EscapedPath()
	return path == above || strings.HasPrefix(path, above+"/") || above == ""
}
