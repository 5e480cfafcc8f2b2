package oauth_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/account/oauth"
)

// A service that does not say which scopes it gave has given those that were asked for (RFC 6749 §5.1), which nil says; one
// that says so differs.
func TestScopesUnsaid(t *testing.T) {
	for answer, want := range map[string][]string{
		`{"access_token":"a"}`:                     nil,
		`{"access_token":"a","scope":""}`:          nil,
		`{"access_token":"a","scope":"  "}`:        nil,
		`{"access_token":"a","scope":7}`:           nil,
		`{"access_token":"a","scope":"mail.read"}`: {"mail.read"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answer)
		}))
		defer s.Close()
		for _, separator := range []string{"", ","} {
			c := &oauth.Client{TokenURL: s.URL, ID: "id", Secret: "a-client-secret", ScopeSeparator: separator}
			got, err := c.Refresh(t.Context(), "a-refresh-token")
			if err != nil || !slices.Equal(got.Scopes, want) || (got.Scopes == nil) != (want == nil) {
				t.Errorf("%s: scopes %#v, %v, want %#v", answer, got.Scopes, err, want)
			}
		}
	}
}

// What a service says to a device is refused, or is what it says, and ends nothing else.
func TestDeviceHostile(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		wrong  string // empty: tokens come
	}{
		"null":                 {`null`, "no code"},
		"a list":               {`[]`, "no JSON"},
		"half of it":           {`{"device_code":"d"`, "no JSON"},
		"no code":              {`{"user_code":"u","verification_uri":"https://a.example/"}`, "no code"},
		"a negative interval":  {`{"device_code":"d","user_code":"u","verification_uri":"https://a.example/","expires_in":600,"interval":-1}`, "interval"},
		"an endless interval":  {`{"device_code":"d","user_code":"u","verification_uri":"https://a.example/","expires_in":600,"interval":9223372036854775807}`, "interval"},
		"an interval too long": {`{"device_code":"d","user_code":"u","verification_uri":"https://a.example/","expires_in":600,"interval":9300000000}`, "interval"},
		"a negative life":      {`{"device_code":"d","user_code":"u","verification_uri":"https://a.example/","expires_in":-1,"interval":1}`, "expired"},
		"an endless life":      {`{"device_code":"d","user_code":"u","verification_uri":"https://a.example/","expires_in":9223372036854775807,"interval":1}`, ""},
		"the name of before":   {`{"device_code":"d","user_code":"u","verification_url":"https://a.example/","expires_in":600,"interval":1}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.URL.Path == "/device" {
					_, _ = io.WriteString(w, c.answer)
					return
				}
				_, _ = io.WriteString(w, `{"access_token":"a","token_type":"Bearer"}`)
			}))
			defer s.Close()
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("it panics: %v", p)
				}
			}()
			client := &oauth.Client{DeviceURL: s.URL + "/device", TokenURL: s.URL + "/token", ID: "id"}
			got, err := client.Device(t.Context(), func(page, code string) error {
				if page != "https://a.example/" || code != "u" {
					t.Errorf("it shows %q and %q", page, code)
				}
				return nil
			})
			switch {
			case c.wrong == "" && (err != nil || got.Access != "a"):
				t.Errorf("%+v, %v", got, err)
			case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
				t.Errorf("%v, want %q", err, c.wrong)
			}
		})
	}
}

// A request of a device that takes too long is made again: the code is good as long as the service says.
func TestDeviceSlowAnswer(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/device":
			_, _ = io.WriteString(w, `{"device_code":"d","user_code":"u","verification_uri":"https://a.example/","expires_in":600,"interval":1}`)
		case asked == 0:
			asked++
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done() // the client gives it up
		default:
			_, _ = io.WriteString(w, `{"access_token":"a","token_type":"Bearer"}`)
		}
	}))
	defer s.Close()
	c := &oauth.Client{DeviceURL: s.URL + "/device", TokenURL: s.URL + "/token", ID: "id", HTTP: &http.Client{Timeout: 300 * time.Millisecond}}
	if got, err := c.Device(t.Context(), func(string, string) error { return nil }); err != nil || got.Access != "a" {
		t.Errorf("%+v, %v", got, err)
	}
}

// An attempt whose time is over while its code is exchanged has the tokens that come: the page says that it is connected, and the
// service thinks so.
func TestLoopbackEndsWhileItExchanges(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		end()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token":"a","token_type":"Bearer"}`)
	}))
	defer s.Close()
	c := &oauth.Client{AuthorizeURL: s.URL + "/auth", TokenURL: s.URL + "/token", ID: "id"}
	shown := make(chan string, 1)
	got, err := c.Loopback(ctx, oauth.LoopbackOptions{Open: func(page string) error {
		u, err := url.Parse(page)
		if err != nil {
			return err
		}
		go func() {
			resp, err := http.Get(u.Query().Get("redirect_uri") + "?code=c&state=" + u.Query().Get("state"))
			if err != nil {
				shown <- err.Error()
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			shown <- fmt.Sprint(string(text), err)
		}()
		return nil
	}})
	if page := <-shown; strings.Contains(page, "<h1>Connected</h1>") != (err == nil) || err != nil && !errors.Is(err, context.Canceled) || err == nil && got.Access != "a" {
		t.Errorf("it returns %+v, %v, and the page says\n%s", got, err, page)
	}
}

// A server of the internet names no address of this machine or of a private network, also not one that is opened in the
// person's browser: a request from there would be made with what that network lets its own people do.
func TestDiscoverNamesNothingInside(t *testing.T) {
	for _, name := range []string{"authorization_endpoint", "token_endpoint", "revocation_endpoint", "registration_endpoint"} {
		for _, inside := range []string{"https://192.168.1.1/reboot", "https://127.0.0.1:8443/x", "https://[::1]/x", "https://router.local/x", "https://router/x", "https://localhost/x", "https://localhost./x", "https://ROUTER.LAN./x"} {
			p, s := newPretender(t)
			p.challenge = ""
			p.resource["resource"], p.resource["authorization_servers"] = "https://mcp.example.com/x/mcp", []string{"https://mcp.example.com/as"}
			p.server = map[string]any{"issuer": "https://mcp.example.com/as", "authorization_endpoint": "https://mcp.example.com/auth", "token_endpoint": "https://mcp.example.com/token",
				"code_challenge_methods_supported": []string{"S256"}}
			h := &http.Client{Transport: elsewhere{s}}
			if _, err := oauth.Discover(t.Context(), h, "https://mcp.example.com/x/mcp"); err != nil {
				t.Fatalf("what is right: %v", err)
			}
			p.server[name] = inside
			if got, err := oauth.Discover(t.Context(), h, "https://mcp.example.com/x/mcp"); err == nil || !strings.Contains(err.Error(), "private network") {
				t.Errorf("%s at %s: %+v, %v", name, inside, got, err)
			}
		}
	}
}

// What a service says is shown to people, in one line: nothing in it turns their text around, hides in it or moves their cursor.
func TestWordsOfAService(t *testing.T) {
	for _, odd := range []string{"\x1b[2J", "\u009b2J", "\u202e", "\u2028", "\u200b", "\u0085", "\x7f", "\n"} {
		claims, err := json.Marshal(map[string]string{"email": "ann" + odd + "@example.com", "sub": "1", "iss": "https://a.example"})
		if err != nil {
			t.Fatal(err)
		}
		id := "e30." + base64.RawURLEncoding.EncodeToString(claims) + ".x"
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.PostFormValue("refresh_token") == "refused" {
				w.WriteHeader(http.StatusBadRequest)
				_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_grant", "error_description": "no" + odd + "way"})
				return
			}
			_ = json.NewEncoder(w).Encode(map[string]string{"access_token": "an-access-token", "scope": "mail" + odd + "read", "id_token": id})
		}))
		defer s.Close()
		c := &oauth.Client{TokenURL: s.URL, ID: "id", Secret: "a-client-secret"}
		got, err := c.Refresh(t.Context(), "a-refresh-token")
		_, refused := c.Refresh(t.Context(), "refused")
		if err != nil || refused == nil {
			t.Fatal(err, refused)
		}
		if text := got.Subject + strings.Join(got.Scopes, "") + refused.Error(); strings.ContainsFunc(text, keep.Deceives) || !strings.HasPrefix(got.Subject, "ann") {
			t.Errorf("with %q it is %q", odd, text)
		}
	}
}

// A mute server takes a request, and never answers.
type mute struct{}

func (mute) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A server that never answers is given up, whoever asks.
func TestDiscoverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		_, err := oauth.Discover(t.Context(), &http.Client{Transport: mute{}}, "https://mcp.example.com/x/mcp")
		if took := time.Since(begun); err == nil || took > time.Minute {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// A device asks no more often than its service wants: slower for good after slow_down, and slower and slower while it has no
// answer (RFC 8628 §3.5).
func TestDeviceAsksSlower(t *testing.T) {
	const pending, slower, busy = `{"error":"authorization_pending"}`, `{"error":"slow_down"}`, "429"
	for name, c := range map[string]struct {
		answers []string // to each poll; empty: none. Then tokens come
		want    []int    // seconds before each poll
	}{
		"as it wants":                    {[]string{pending, pending}, []int{5, 5, 5}},
		"slow_down":                      {[]string{slower, pending, slower, pending}, []int{5, 10, 10, 15, 15}},
		"slow_down, then no answer":      {[]string{slower, "", pending}, []int{5, 10, 20, 10}},
		"no answers":                     {[]string{"", "", "", "", "", ""}, []int{5, 10, 20, 40, 60, 60, 60}},
		"it is busy":                     {[]string{busy, pending}, []int{5, 10, 5}},
		"no answer, and then one":        {[]string{"", pending, ""}, []int{5, 10, 5, 10}},
		"no answers of a slow one, ever": {[]string{slower, slower, slower, slower, slower, slower, slower, slower, slower, slower, slower, slower, ""}, []int{5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 65}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var polls []int
				var last time.Time
				answer := func(r *http.Request, status int, text string) *http.Response {
					return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)), Request: r}
				}
				service := roundTrip(func(r *http.Request) (*http.Response, error) {
					if r.URL.Path == "/device" {
						last = time.Now()
						return answer(r, 200, `{"device_code":"d","user_code":"u","verification_uri":"https://a.example/","expires_in":3600}`), nil
					}
					if text, err := io.ReadAll(r.Body); err != nil || string(text) != "client_id=id&device_code=d&grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code" {
						t.Errorf("it asks with %s, %v", text, err)
					}
					polls = append(polls, int(time.Since(last)/time.Second))
					last = time.Now()
					n := len(polls) - 1
					switch {
					case n >= len(c.answers):
						return answer(r, 200, `{"access_token":"a","token_type":"Bearer"}`), nil
					case c.answers[n] == "":
						return nil, errors.New("connection reset by peer")
					case c.answers[n] == busy:
						return answer(r, 429, ``), nil
					}
					return answer(r, 400, c.answers[n]), nil
				})
				client := &oauth.Client{DeviceURL: "https://a.example/device", TokenURL: "https://a.example/token", ID: "id", HTTP: &http.Client{Transport: service}}
				got, err := client.Device(t.Context(), func(string, string) error { return nil })
				if err != nil || got.Access != "a" || !slices.Equal(polls, c.want) {
					t.Errorf("%+v, %v, polls after %v seconds, want %v", got, err, polls, c.want)
				}
			})
		})
	}
}

// A roundTrip answers requests.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
