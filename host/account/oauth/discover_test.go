package oauth_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/keep-run/keep/host/account/oauth"
)

// A pretender is a resource and its authorization server, which say what a test wants.
type pretender struct {
	at        string // of the resource
	challenge string
	resource  map[string]any // null: there is no metadata
	server    map[string]any
}

// newPretender starts one that says what is right.
func newPretender(t *testing.T) (*pretender, *httptest.Server) {
	p := &pretender{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := func(m map[string]any) {
			if m == nil {
				http.NotFound(w, r)
				return
			}
			_ = json.NewEncoder(w).Encode(m)
		}
		switch {
		case r.URL.Path == "/x/mcp":
			w.Header().Set("WWW-Authenticate", p.challenge)
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasPrefix(r.URL.Path, "/.well-known/oauth-protected-resource"), r.URL.Path == "/meta":
			answer(p.resource)
		case r.URL.Path == "/.well-known/oauth-authorization-server/as":
			answer(p.server)
		case r.URL.Path == "/moved":
			http.Redirect(w, r, "/meta", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	p.at = s.URL + "/x/mcp"
	p.challenge = fmt.Sprintf(`Basic realm="a", Bearer error="invalid_token", resource_metadata="%s/meta", scope="notes.read notes.write"`, s.URL)
	p.resource = map[string]any{"resource": p.at, "authorization_servers": []string{s.URL + "/as"}, "scopes_supported": []string{"other"}}
	p.server = map[string]any{"issuer": s.URL + "/as", "authorization_endpoint": s.URL + "/as/auth", "token_endpoint": s.URL + "/as/token",
		"code_challenge_methods_supported": []string{"plain", "S256"}, "scopes_supported": []string{"offline_access"}}
	return p, s
}

// What a resource and its authorization server say is taken, or refused with the reason.
func TestDiscover(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *pretender, base string)
		wrong  string // empty: it is found
	}{
		"all of it":           {func(*pretender, string) {}, ""},
		"no challenge":        {func(p *pretender, _ string) { p.challenge = "" }, ""},
		"a resource above":    {func(p *pretender, base string) { p.resource["resource"] = base + "/x" }, ""},
		"metadata elsewhere":  {func(p *pretender, _ string) { p.challenge = `Bearer resource_metadata="http://127.0.0.1:1/meta"` }, "not at its own origin"},
		"metadata of a file":  {func(p *pretender, _ string) { p.challenge = `Bearer resource_metadata="file:///etc/passwd"` }, "not at its own origin"},
		"metadata that moved": {func(p *pretender, base string) { p.challenge = `Bearer resource_metadata="` + base + `/moved"` }, "there is none"},
		"another resource":    {func(p *pretender, _ string) { p.resource["resource"] = "https://bank.example/" }, "which is not"},
		"half a segment":      {func(p *pretender, base string) { p.resource["resource"] = base + "/x/mc" }, "which is not"},
		"no resource":         {func(p *pretender, _ string) { delete(p.resource, "resource") }, "which is not"},
		"another issuer":      {func(p *pretender, _ string) { p.server["issuer"] = "https://bank.example" }, "is of the issuer"},
		"an issuer by http":   {func(p *pretender, _ string) { p.resource["authorization_servers"] = []string{"http://bank.example"} }, "by https only"},
		"an issuer with a user": {func(p *pretender, _ string) {
			p.resource["authorization_servers"] = []string{"https://a:b@bank.example"}
		}, "neither a password"},
		"an issuer with a query": {func(p *pretender, base string) { p.resource["authorization_servers"] = []string{base + "/as?a=b"} }, "has a query"},
		"no server":              {func(p *pretender, base string) { p.resource["authorization_servers"] = []string{base + "/nobody"} }, "has no metadata"},
		"a page for scripts":     {func(p *pretender, _ string) { p.server["authorization_endpoint"] = "javascript:alert(1)" }, "authorization_endpoint is"},
		"a page of a file":       {func(p *pretender, _ string) { p.server["authorization_endpoint"] = "file:///etc/passwd" }, "authorization_endpoint is"},
		"a page for shells":      {func(p *pretender, base string) { p.server["authorization_endpoint"] = base + "/as?a=$(reboot)" }, "in a shell"},
		"a page for old shells":  {func(p *pretender, base string) { p.server["authorization_endpoint"] = base + "/`reboot`" }, "in a shell"},
		"a page with a command":  {func(p *pretender, base string) { p.server["authorization_endpoint"] = base + "/as?a=b&reboot" }, "in a shell"},
		"a page with a space":    {func(p *pretender, base string) { p.server["authorization_endpoint"] = base + "/as reboot" }, "in a shell"},
		"a page with a query":    {func(p *pretender, base string) { p.server["authorization_endpoint"] = base + "/as?a=b%20c&p=B2C_1" }, ""},
		"tokens by http":         {func(p *pretender, _ string) { p.server["token_endpoint"] = "http://169.254.169.254/latest" }, "by https only"},
		"no tokens":              {func(p *pretender, _ string) { delete(p.server, "token_endpoint") }, "token_endpoint is"},
		"registration by http":   {func(p *pretender, _ string) { p.server["registration_endpoint"] = "http://10.0.0.1/" }, "by https only"},
		"no PKCE":                {func(p *pretender, _ string) { delete(p.server, "code_challenge_methods_supported") }, "does not know PKCE"},
		"too much":               {func(p *pretender, _ string) { p.server["x"] = strings.Repeat("x", 300<<10) }, "more than"},
		"no JSON":                {func(p *pretender, _ string) { p.server["issuer"] = 7 }, "not the JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := newPretender(t)
			c.change(p, s.URL)
			got, err := oauth.Discover(t.Context(), s.Client(), p.at)
			switch {
			case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
				t.Errorf("%v, want %q", err, c.wrong)
			case c.wrong == "" && (err != nil || got.Issuer != s.URL+"/as" || got.TokenURL != s.URL+"/as/token" || !got.Offline || got.Resource != p.resource["resource"]):
				t.Errorf("%+v, %v", got, err)
			case name == "all of it" && strings.Join(got.Scopes, " ") != "notes.read notes.write", name == "no challenge" && strings.Join(got.Scopes, " ") != "other":
				t.Errorf("the scopes are %v", got.Scopes)
			}
		})
	}
}

// elsewhere answers for every host.
type elsewhere struct{ to *httptest.Server }

// RoundTrip implements http.RoundTripper.
func (e elsewhere) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = "http", strings.TrimPrefix(e.to.URL, "http://")
	return http.DefaultTransport.RoundTrip(r)
}

// A resource of the internet names addresses of this machine in vain.
func TestDiscoverStaysOutside(t *testing.T) {
	p, s := newPretender(t)
	p.challenge = ""
	p.resource["resource"], p.resource["authorization_servers"] = "https://mcp.example/x/mcp", []string{"http://127.0.0.1/as"}
	if _, err := oauth.Discover(t.Context(), &http.Client{Transport: elsewhere{s}}, "https://mcp.example/x/mcp"); err == nil || !strings.Contains(err.Error(), "by https only") {
		t.Errorf("a server on this machine: %v", err)
	}
	for _, address := range []string{s.URL, strings.Replace(s.URL, "127.0.0.1", "localhost", 1), "http://[::1]:1", "http://[::ffff:127.0.0.1]:1", "http://10.0.0.1:1", "http://169.254.169.254:80",
		"http://100.64.0.1:1", "http://0.0.0.0:1", "http://[fd00::1]:1", "http://[fe80::1%25lo]:1", "http://[64:ff9b::7f00:1]:1"} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := oauth.Guard(t.Context(), "tcp", u.Host); err == nil {
			c.Close()
			t.Errorf("%s is reached", address)
		} else if !strings.Contains(err.Error(), "of this machine or of a private network") {
			t.Errorf("%s: %v", address, err)
		}
	}
	for address, near := range map[string]bool{"http://127.0.0.1:1/mcp": true, "http://localhost/mcp": true, "https://mcp.internal/": true, "https://10.1.2.3/": true, "https://tracker/": true,
		"https://mcp.example.com/": false, "https://8.8.8.8/": false, "https://localhost.example.com/": false} {
		u, err := url.Parse(address)
		if err != nil || oauth.Near(u) != near {
			t.Errorf("%s is near: %t, %v", address, !near, err)
		}
	}
}

// An answer of another authorization server is refused before its code is used.
func TestAnswerOfAnotherServer(t *testing.T) {
	for name, c := range map[string]struct {
		iss   []string
		names bool
		wrong string
	}{
		"none, and none is due": {nil, false, "has no code"},
		"its own":               {[]string{"https://as.example"}, true, "has no code"},
		"none, and it is due":   {nil, true, "does not say"},
		"another":               {[]string{"https://bank.example"}, false, "another server"},
		"two":                   {[]string{"https://as.example", "https://bank.example"}, true, "another server"},
	} {
		client := &oauth.Client{Issuer: "https://as.example", NamesIssuer: c.names}
		a := client.Begin("http://127.0.0.1:1/callback")
		_, err := client.Finish(t.Context(), a, url.Values{"state": {a.State}, "iss": c.iss})
		if err == nil || !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q", name, err, c.wrong)
		}
	}
}

// A resource covers what is at or below its address, and nothing else.
func TestCovers(t *testing.T) {
	for _, c := range []struct {
		resource, address string
		want              bool
	}{
		{"https://a.example/mcp", "https://a.example/mcp", true},
		{"https://a.example", "https://A.example:443/mcp", true},
		{"https://a.example/", "https://a.example/mcp", true},
		{"https://a.example/mcp", "https://a.example/mcp/x", true},
		{"https://a.example/mcp", "https://a.example/mcpx", false},
		{"https://a.example/mcp", "https://a.example/", false},
		{"https://a.example/mcp", "http://a.example/mcp", false},
		{"https://a.example/mcp", "https://a.example:444/mcp", false},
		{"https://a.example@b.example/", "https://b.example/", false},
		{"", "https://a.example/", false},
	} {
		if got := oauth.Covers(c.resource, c.address); got != c.want {
			t.Errorf("%s covers %s: %t", c.resource, c.address, got)
		}
	}
}
