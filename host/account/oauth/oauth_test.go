package oauth_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/host/account/oauth"
	"github.com/keep-run/keep/internal/browsertest"
	"github.com/keep-run/keep/internal/oidctest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	browsertest.Stop()
	os.Exit(code)
}

// client returns a client that s knows.
func client(s *oidctest.Server, id string) *oauth.Client {
	c := &oauth.Client{
		AuthorizeURL: s.Issuer + "/auth", TokenURL: s.Issuer + "/token", DeviceURL: s.Issuer + "/device/auth", RevokeURL: s.Issuer + "/token/revocation",
		ID: id, Secret: oidctest.Secret, PKCE: true,
		Scopes: []string{"openid", "offline_access", "mail.read"},
		Params: map[string]string{"prompt": "consent"}, // the server wants it for offline_access
	}
	switch id {
	case "public":
		c.Secret, c.Auth = "", oauth.AuthNone
	case "basic", "machine":
		c.Auth = oauth.AuthBasic
	}
	return c
}

// connect lets ann allow what c asks for.
func connect(t *testing.T, s *oidctest.Server, c *oauth.Client) oauth.Tokens {
	t.Helper()
	last := make(chan string, 1)
	got, err := c.Loopback(t.Context(), oauth.LoopbackOptions{Open: func(page string) error {
		go func() { last <- s.Allow(t, page, "ann") }()
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if end := <-last; !strings.Contains(end, "<h1>Connected</h1>") {
		t.Fatalf("the browser ends at\n%s", end)
	}
	return got
}

func TestLoopback(t *testing.T) {
	s := oidctest.Start(t, oidctest.Options{Rotate: true})
	for _, id := range []string{"public", "posting", "basic"} {
		t.Run(id, func(t *testing.T) {
			got := connect(t, s, client(s, id))
			if got.Access == "" || got.Refresh == "" || got.Type != "Bearer" || got.Lifetime != time.Hour || time.Until(got.Expires) > time.Hour {
				t.Errorf("tokens are %+v", got)
			}
			if want := []string{"mail.read", "offline_access", "openid"}; !slices.Equal(got.Scopes, want) || got.Subject != "ann@example.com" || !strings.HasPrefix(got.Identity, s.Issuer+" ") {
				t.Errorf("scopes %v of %q, want %v of ann", got.Scopes, got.Subject, want)
			}
		})
	}
}

// What must not end an attempt, and how attempts end without tokens.
func TestCallback(t *testing.T) {
	s := oidctest.Start(t, oidctest.Options{Rotate: true})
	get := func(t *testing.T, method, address, host string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	t.Run("stray requests", func(t *testing.T) {
		c := client(s, "public")
		_, err := c.Loopback(t.Context(), oauth.LoopbackOptions{Open: func(page string) error {
			u, err := url.Parse(page)
			if err != nil {
				return err
			}
			q := u.Query()
			back, state := q.Get("redirect_uri"), q.Get("state")
			if q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 || len(state) < 52 {
				t.Errorf("the page that is opened is %s", page)
			}
			for _, stray := range []struct {
				name, method, address, host string
				want                        int
			}{
				{"wrong state", "GET", back + "?code=x&state=guessed", "", 400},
				{"no state", "GET", back + "?code=x", "", 400},
				{"state twice", "GET", back + "?code=x&state=" + state + "&state=other", "", 400},
				{"another path", "GET", strings.TrimSuffix(back, "callback") + "?state=" + state, "", 404},
				{"another name", "GET", back + "?code=x&state=" + state, "keep.attacker.example", 421},
				{"POST", "POST", back + "?code=x&state=" + state, "", 405},
				{"HEAD", "HEAD", back + "?code=x&state=" + state, "", 405},
			} {
				if got, body := get(t, stray.method, stray.address, stray.host); got != stray.want {
					t.Errorf("%s: HTTP %d, want %d\n%s", stray.name, got, stray.want, body)
				}
			}
			go s.Allow(t, page, "ann")
			return nil
		}})
		if err != nil {
			t.Errorf("after them: %v", err)
		}
	})
	t.Run("denied", func(t *testing.T) {
		_, err := client(s, "public").Loopback(t.Context(), oauth.LoopbackOptions{Open: func(page string) error {
			u, err := url.Parse(page)
			if err != nil {
				return err
			}
			q := u.Query()
			_, body := get(t, "GET", q.Get("redirect_uri")+"?error=access_denied&error_description=no+%3Cb%3Ethanks&state="+q.Get("state"), "")
			if !strings.Contains(body, "Nothing was connected") {
				t.Errorf("the page is\n%s", body)
			}
			return nil
		}})
		if !errors.Is(err, oauth.ErrDenied) {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("code of another", func(t *testing.T) {
		_, err := client(s, "public").Loopback(t.Context(), oauth.LoopbackOptions{Open: func(page string) error {
			u, err := url.Parse(page)
			if err != nil {
				return err
			}
			q := u.Query()
			if status, body := get(t, "GET", q.Get("redirect_uri")+"?code=%3Cscript%3E&state="+q.Get("state"), ""); status != 502 || strings.Contains(body, "<script>") {
				t.Errorf("HTTP %d, and the page is\n%s", status, body)
			}
			return nil
		}})
		if r, ok := errors.AsType[*oauth.RefusedError](err); !ok || r.Code != "invalid_grant" {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("used code", func(t *testing.T) {
		release, answered := make(chan struct{}), make(chan struct{})
		token := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(answered)
			<-release
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"access_token":"a","token_type":"bearer"}`)
		}))
		defer token.Close()
		c := client(s, "public")
		c.TokenURL = token.URL
		got, err := c.Loopback(t.Context(), oauth.LoopbackOptions{Open: func(page string) error {
			u, err := url.Parse(page)
			if err != nil {
				return err
			}
			q := u.Query()
			address := q.Get("redirect_uri") + "?code=once&state=" + q.Get("state")
			go func() { _, _ = http.Get(address) }() // others look at how it ends
			<-answered
			if status, _ := get(t, "GET", address, ""); status != http.StatusGone {
				t.Errorf("the second use: HTTP %d", status)
			}
			close(release)
			return nil
		}})
		if err != nil || got.Access != "a" || got.Expires != (time.Time{}) {
			t.Errorf("tokens are %+v, %v", got, err)
		}
	})
	t.Run("closed tab", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		late := errors.New("nobody pressed Allow")
		var page string
		_, err := client(s, "public").Loopback(ctx, oauth.LoopbackOptions{Open: func(p string) error { page = p; cancel(late); return nil }})
		if !errors.Is(err, late) {
			t.Errorf("error is %v", err)
		}
		u, err := url.Parse(page)
		if err != nil {
			t.Fatal(err)
		}
		back, err := url.Parse(u.Query().Get("redirect_uri"))
		if err != nil {
			t.Fatal(err)
		}
		if conn, err := net.Dial("tcp", back.Host); err == nil {
			conn.Close()
			t.Error("the address is still open")
		}
	})
	t.Run("taken port", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		port := l.Addr().(*net.TCPAddr).Port
		_, err = client(s, "public").Loopback(t.Context(), oauth.LoopbackOptions{Port: port, Open: func(string) error { t.Error("a page was opened"); return nil }})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint("port ", port)) {
			t.Errorf("error is %v", err)
		}
	})
}

func TestRefresh(t *testing.T) {
	for _, rotate := range []bool{true, false} {
		t.Run(fmt.Sprintf("rotate=%v", rotate), func(t *testing.T) {
			s := oidctest.Start(t, oidctest.Options{Rotate: rotate})
			c := client(s, "posting")
			first := connect(t, s, c)
			second, err := c.Refresh(t.Context(), first.Refresh)
			if err != nil || second.Access == first.Access || (second.Refresh != first.Refresh) != rotate {
				t.Fatalf("from %+v to %+v, %v", first, second, err)
			}
			_, err = c.Refresh(t.Context(), first.Refresh)
			if r, ok := errors.AsType[*oauth.RefusedError](err); rotate && (!ok || r.Code != "invalid_grant" || r.Temporary()) || !rotate && err != nil {
				t.Errorf("the old token again: %v", err)
			}
			if _, err = c.Refresh(t.Context(), second.Refresh); rotate == (err == nil) {
				t.Errorf("the new token after the old one: %v", err) // the server revokes the family
			}
		})
	}
}

func TestRevoke(t *testing.T) {
	s := oidctest.Start(t, oidctest.Options{Rotate: true})
	for _, id := range []string{"public", "posting", "basic"} {
		c := client(s, id)
		got := connect(t, s, c)
		for range 2 { // a token that is not known is revoked
			if err := c.Revoke(t.Context(), got.Refresh, oauth.HintRefresh); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
		if _, err := c.Refresh(t.Context(), got.Refresh); err == nil {
			t.Errorf("%s: a revoked token was refreshed", id)
		}
	}
	c := client(s, "posting")
	c.RevokeURL = "http://127.0.0.1:1/"
	if _, lost := errors.AsType[*oauth.LostError](c.Revoke(t.Context(), "x", oauth.HintAccess)); !lost {
		t.Error("a request that nobody answers isn't lost")
	}
}

func TestClientCredentials(t *testing.T) {
	s := oidctest.Start(t, oidctest.Options{})
	c := client(s, "machine")
	c.Scopes = []string{"mail.send"}
	got, err := c.ClientCredentials(t.Context())
	if err != nil || got.Access == "" || got.Refresh != "" || got.Lifetime != 10*time.Minute || !slices.Equal(got.Scopes, c.Scopes) {
		t.Errorf("tokens are %+v, %v", got, err)
	}
	c.Secret = "a-wrong-secret"
	_, err = c.ClientCredentials(t.Context())
	if r, ok := errors.AsType[*oauth.RefusedError](err); !ok || r.Code != "invalid_client" || strings.Contains(err.Error(), c.Secret) {
		t.Errorf("with a wrong secret: %v", err)
	}
}

func TestDevice(t *testing.T) {
	s := oidctest.Start(t, oidctest.Options{Rotate: true})
	c := client(s, "public")
	got, err := c.Device(t.Context(), func(page, code string) error {
		if page != s.Issuer+"/device" {
			t.Errorf("the page is %s", page)
		}
		s.Allow(t, page+"?user_code="+url.QueryEscape(code), "ann")
		return nil
	})
	if err != nil || got.Refresh == "" {
		t.Errorf("tokens are %+v, %v", got, err)
	}
}

// Answers that say nothing reliable are lost; those with an error of OAuth are refusals;
// neither shows a secret.
func TestAnswers(t *testing.T) {
	const refresh, secret = "the-refresh-token", "the-client-secret"
	for _, tt := range []struct {
		name, contentType, body string
		status                  int
		code                    string // "": lost
	}{
		{"invalid_grant", "application/json", `{"error":"invalid_grant","error_description":"the-refresh-token is over; the-client-secret"}`, 400, "invalid_grant"},
		{"error with 200", "application/json", `{"ok":false,"error":"invalid_refresh_token"}`, 200, "invalid_refresh_token"},
		{"error in a form", "application/x-www-form-urlencoded", `error=bad_refresh_token`, 200, "bad_refresh_token"},
		{"too many", "text/html", `<p>slow`, 429, "too_many_requests"},
		{"500", "application/json", `{"error":"server_error"}`, 500, ""},
		{"not now", "application/json", `{"error":"temporarily_unavailable"}`, 503, "temporarily_unavailable"},
		{"503 of a gateway", "text/html", `<h1>the-refresh-token`, 503, ""},
		{"404 of a gateway", "text/html", `<h1>not here`, 404, ""},
		{"403 without a code", "application/json", `{"message":"forbidden"}`, 403, ""},
		{"page with 200", "text/html", `<h1>maintenance`, 200, ""},
		{"null", "application/json", `null`, 200, ""},
		{"empty", "application/json", ``, 200, ""},
		{"no token", "application/json", `{"token_type":"bearer","expires_in":3600}`, 200, ""},
		{"half of it", "application/json", `{"access_token":"abc`, 200, ""},
		{"redirect", "text/html", ``, 307, ""},
		{"a token of two lines", "application/json", `{"access_token":"abc\r\nX-Admin: 1","token_type":"bearer"}`, 200, ""},
		{"a token that is no ASCII", "application/json", `{"access_token":"abc\u00e9","token_type":"bearer"}`, 200, ""},
		{"a token that is a key", "application/json", `{"access_token":"abc","token_type":"mac"}`, 200, ""},
		{"a token that needs a proof", "application/json", `{"access_token":"abc","token_type":"DPoP"}`, 200, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			requests := 0
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests++
				w.Header().Set("Location", "/elsewhere")
				w.Header().Set("Content-Type", tt.contentType)
				w.WriteHeader(tt.status)
				io.WriteString(w, tt.body)
			}))
			defer srv.Close()
			c := &oauth.Client{TokenURL: srv.URL, ID: "id", Secret: secret}
			_, err := c.Refresh(t.Context(), refresh)
			if err == nil || strings.Contains(err.Error(), refresh) || strings.Contains(err.Error(), secret) {
				t.Fatalf("error is %v", err)
			}
			refused, ok := errors.AsType[*oauth.RefusedError](err)
			_, lost := errors.AsType[*oauth.LostError](err)
			if ok == lost || ok && refused.Code != tt.code || lost && tt.code != "" {
				t.Errorf("error is %T %v, want code %q", err, err, tt.code)
			}
			if requests != 1 {
				t.Errorf("%d requests were made", requests) // each may use up the token
			}
		})
	}
}

// A connection that is cut after the request is a lost answer.
func TestCut(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer srv.Close()
	_, err := (&oauth.Client{TokenURL: srv.URL, ID: "id", Secret: "hidden-secret"}).Refresh(t.Context(), "hidden-refresh")
	if _, lost := errors.AsType[*oauth.LostError](err); !lost || strings.Contains(err.Error(), "hidden") {
		t.Errorf("error is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = (&oauth.Client{TokenURL: srv.URL, ID: "id"}).Refresh(ctx, "x")
	if _, lost := errors.AsType[*oauth.LostError](err); lost || err == nil {
		t.Errorf("before anything was sent: %v", err)
	}
}

// Scopes are asked for as the service wants them, and understood in both ways.
func TestScopes(t *testing.T) {
	c := &oauth.Client{AuthorizeURL: "https://a.example/auth?x=1", Scopes: []string{"a:read", "b:write"}, ScopeSeparator: ",", ID: "id"}
	u, err := url.Parse(c.Begin("http://127.0.0.1:1/callback").URL)
	if err != nil || u.Query().Get("scope") != "a:read,b:write" || u.Query().Get("x") != "1" {
		t.Errorf("the page is %v, %v", u, err)
	}
	for _, said := range []string{"a:read,b:write", "b:write a:read", "b:write, a:read"} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(map[string]any{"access_token": "a", "scope": said})
		}))
		c.TokenURL = srv.URL
		got, err := c.Refresh(t.Context(), "r")
		srv.Close()
		if err != nil || !slices.Equal(got.Scopes, c.Scopes) || got.Refresh != "r" {
			t.Errorf("%q: %+v, %v", said, got, err)
		}
	}
}
