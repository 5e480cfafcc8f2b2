package access_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/store/memory"
)

// A door is a guard before a handler that says who came in.
type door struct {
	t      testing.TB
	store  *memory.Store
	server *httptest.Server
}

func newDoor(t testing.TB, cfg access.Config) *door {
	t.Helper()
	d := &door{t: t, store: memory.New()}
	if r, ok := cfg.Store.(*revoking); ok {
		r.Store = d.store
	}
	if r, ok := cfg.Store.(*unwritable); ok {
		r.Store = d.store
	}
	if cfg.Store == nil {
		cfg.Store = d.store
	}
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	g, err := access.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d.server = httptest.NewUnstartedServer(g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, ok := access.From(r.Context())
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		fmt.Fprintf(w, "%t %s %s %s", ok, id.Name, id.Role, id.Via)
	})))
	d.server.Config.MaxHeaderBytes = access.MaxHeader
	d.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	d.server.Start()
	t.Cleanup(d.server.Close)
	return d
}

// token makes a token.
func (d *door) token(role access.Role, life time.Duration, now time.Time) string {
	d.t.Helper()
	secret, _, err := access.Issue(d.t.Context(), d.store,
		keep.Credential{Kind: keep.CredentialToken, Name: "ann", Role: string(role)}, now, life)
	if err != nil {
		d.t.Fatal(err)
	}
	return secret
}

// ask sends a request that change may change first, and returns the answer.
func (d *door) ask(c *http.Client, method, path string, body io.Reader, change func(*http.Request)) (int, string) {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.server.URL+path, body)
	if err != nil {
		d.t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	res, err := c.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

func bearer(secret string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+secret) }
}

func TestTokens(t *testing.T) {
	d := newDoor(t, access.Config{})
	now := time.Now()
	good := d.token(access.Operator, time.Hour, now)
	if status, text := d.ask(http.DefaultClient, "GET", "/x", nil, bearer(good)); status != 200 || text != "true ann operator token" {
		t.Errorf("a good token: %d %s", status, text)
	}
	parts := strings.Split(good, "_")
	for name, secret := range map[string]string{
		"expired":          d.token(access.Admin, time.Hour, now.Add(-2*time.Hour)),
		"wrong secret":     parts[0] + "_" + parts[1] + "_" + strings.Repeat("a", 26),
		"wrong id":         parts[0] + "_aaaaaaaaaa_" + parts[2],
		"no secret":        parts[0] + "_" + parts[1] + "_",
		"nothing":          "",
		"long":             strings.Repeat("keep_", 1000),
		"another's prefix": "ghp_" + parts[1] + "_" + parts[2],
	} {
		status, text := d.ask(http.DefaultClient, "GET", "/x", nil, bearer(secret))
		if status != 401 || !strings.Contains(text, `"type":"`+idempotency.ProblemBase+`unauthorized"`) {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	if err := d.store.DropCredential(t.Context(), parts[1]); err != nil {
		t.Fatal(err)
	}
	if status, _ := d.ask(http.DefaultClient, "GET", "/x", nil, bearer(good)); status != 401 {
		t.Errorf("a revoked token: %d", status)
	}
	for _, c := range []keep.Credential{{Name: "", Role: "admin"}, {Name: "a", Role: "root"}, {Name: strings.Repeat("a", 101), Role: "admin"}} {
		if _, _, err := access.Issue(t.Context(), d.store, c, now, 0); err == nil {
			t.Errorf("Issue of %+v was not refused", c)
		}
	}
}

// browser returns a client with cookies that follows no redirect.
func browser(t testing.TB) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// post sends a form.
func (d *door) post(c *http.Client, path string, form url.Values) (int, string) {
	d.t.Helper()
	return d.ask(c, "POST", path, strings.NewReader(form.Encode()), func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	})
}

// A login URL logs in once; looking at it does not use it up.
func TestLoginURL(t *testing.T) {
	d := newDoor(t, access.Config{})
	link, err := access.LoginURL(t.Context(), d.store, d.server.URL, "owner", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	path := strings.TrimPrefix(link, d.server.URL)
	c := browser(t)
	for range 3 {
		if status, text := d.ask(c, "GET", path, nil, nil); status != 200 || !strings.Contains(text, "Log in on this browser") {
			t.Errorf("the page: %d %s", status, text)
		}
	}
	u, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	form := url.Values{"code": {u.Query().Get("code")}, "next": {"//evil.test/"}}
	statuses := make(map[int]int)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range 4 { // at once
		wg.Go(func() {
			status, _ := d.post(c, "/login", form)
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
		})
	}
	wg.Wait()
	if statuses[303] != 1 || statuses[401] != 3 {
		t.Errorf("four logins with one code: %v, want one that worked", statuses)
	}
	if status, text := d.ask(c, "GET", "/x", nil, nil); status != 200 || text != "true owner admin session" {
		t.Errorf("the session: %d %s", status, text)
	}
	if status, _ := d.ask(c, "POST", "/logout", nil, nil); status != 303 {
		t.Errorf("logout: %d", status)
	}
	if status, _ := d.ask(c, "GET", "/x", nil, func(r *http.Request) { r.Header.Set("Accept", "text/html") }); status != 303 {
		t.Errorf("after logout: %d, want a redirect to the login", status)
	}
}

// A session from a token has its role, and ends with it.
func TestSessionOfAToken(t *testing.T) {
	d := newDoor(t, access.Config{})
	token := d.token(access.Viewer, time.Hour, time.Now())
	c := browser(t)
	if status, text := d.post(c, "/login", url.Values{"token": {token}, "next": {"/runs?x=1"}}); status != 303 {
		t.Fatalf("login: %d %s", status, text)
	}
	if status, text := d.ask(c, "GET", "/x", nil, nil); status != 200 || text != "true ann viewer session" {
		t.Errorf("the session: %d %s", status, text)
	}
	if err := d.store.DropCredential(context.Background(), strings.Split(token, "_")[1]); err != nil {
		t.Fatal(err)
	}
	if status, _ := d.ask(c, "GET", "/x", nil, nil); status != 401 {
		t.Errorf("the session of a revoked token: %d", status)
	}
}

// revoking is a store in which a token ends right before its session is stored.
type revoking struct{ *memory.Store }

func (s *revoking) AddCredential(ctx context.Context, c keep.Credential, acts ...keep.Decided) error {
	if c.Parent != "" {
		if err := s.DropCredential(ctx, c.Parent); err != nil {
			return err
		}
	}
	return s.Store.AddCredential(ctx, c, acts...)
}

// A token that ends while somebody signs in with it leaves no session.
func TestTokenEndsWhileItSignsIn(t *testing.T) {
	d := newDoor(t, access.Config{Store: new(revoking)})
	token := d.token(access.Admin, 0, time.Now())
	c := browser(t)
	if status, text := d.post(c, "/login", url.Values{"token": {token}}); status != 401 {
		t.Errorf("login: %d %s", status, text)
	}
	if status, text := d.ask(c, "GET", "/x", nil, nil); status != 401 {
		t.Errorf("its session: %d %s", status, text)
	}
}

// unwritable is a store that notes no use of a credential, as one whose disk is full, or that is read-only.
type unwritable struct {
	*memory.Store
	asked atomic.Int64
}

func (s *unwritable) UseCredential(context.Context, string, time.Time) error {
	s.asked.Add(1)
	return errors.New("no space left on device")
}

// A store that takes nothing can be read: those who may see why come in, and it is not asked to note that each time.
func TestUnwritableStoreIsRead(t *testing.T) {
	s := new(unwritable)
	d := newDoor(t, access.Config{Store: s})
	token := d.token(access.Viewer, time.Hour, time.Now())
	c := browser(t)
	if status, text := d.post(c, "/login", url.Values{"token": {token}}); status != 303 {
		t.Fatalf("login: %d %s", status, text)
	}
	for range 3 {
		if status, text := d.ask(http.DefaultClient, "GET", "/x", nil, bearer(token)); status != 200 || text != "true ann viewer token" {
			t.Errorf("a token: %d %s", status, text)
		}
		if status, text := d.ask(c, "GET", "/x", nil, nil); status != 200 || text != "true ann viewer session" {
			t.Errorf("a session: %d %s", status, text)
		}
	}
	if n := s.asked.Load(); n != 1 {
		t.Errorf("the store was asked %d times to note a use, want once in a minute", n)
	}
	if name, err := access.AgentOf(t.Context(), s, d.token(access.Agent, time.Hour, time.Now()), time.Now()); name != "ann" || err != nil {
		t.Errorf("an agent: %q, %v", name, err)
	}
}

func TestCookie(t *testing.T) {
	for _, tt := range []struct {
		cfg  access.Config
		want string
	}{
		{access.Config{Secure: true, Hosts: []string{"keep.test"}}, "__Host-keep=VALUE; Path=/; Max-Age=604800; HttpOnly; Secure; SameSite=Lax"},
		{access.Config{Cookie: "7433"}, "keep-7433=VALUE; Path=/; Max-Age=604800; HttpOnly; SameSite=Lax"},
	} {
		d := newDoor(t, tt.cfg)
		token := d.token(access.Viewer, 0, time.Now())
		c := browser(t)
		res, err := c.PostForm(d.server.URL+"/login", url.Values{"token": {token}})
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		got := res.Header.Get("Set-Cookie")
		name, rest, _ := strings.Cut(got, "=")
		value, rest, _ := strings.Cut(rest, ";")
		if name+"=VALUE;"+rest != tt.want || len(value) < 40 {
			t.Errorf("cookie %q, want %q", got, tt.want)
		}
	}
}

// The token of an agent opens nothing here: neither pages nor the API, nor a session.
func TestTokenOfAnAgent(t *testing.T) {
	d := newDoor(t, access.Config{})
	token := d.token(access.Agent, time.Hour, time.Now())
	for _, path := range []string{"/x", "/", "/api/v1/runs", "/mcp", "/live"} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			status, text := d.ask(http.DefaultClient, method, path, nil, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) })
			if status != 403 || !strings.Contains(text, "keep gateway, and nothing else") {
				t.Errorf("%s %s: %d %s", method, path, status, text)
			}
		}
	}
	if status, _ := d.post(browser(t), "/login", url.Values{"token": {token}}); status != 401 {
		t.Errorf("login: %d", status)
	}
	if name, err := access.AgentOf(t.Context(), d.store, token, time.Now()); name != "ann" || err != nil {
		t.Errorf("%q, %v", name, err)
	}
	for _, other := range []string{d.token(access.Viewer, time.Hour, time.Now()), d.token(access.Admin, 0, time.Now()), d.token(access.Agent, time.Hour, time.Now().Add(-2*time.Hour)), token + "x", ""} {
		if _, err := access.AgentOf(t.Context(), d.store, other, time.Now()); !errors.Is(err, access.ErrDenied) {
			t.Errorf("%v", err)
		}
	}
}

// A form that comes without a session is answered with a page that leads back to where it was written, and never to another site.
func TestFormWithoutASession(t *testing.T) {
	d := newDoor(t, access.Config{})
	send := func(accept, from string) (int, string) {
		return d.ask(http.DefaultClient, http.MethodPost, "/inbox/esc_1", strings.NewReader("action=approve"), func(r *http.Request) {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Accept", accept)
			r.Header.Set("Referer", from)
		})
	}
	for from, back := range map[string]string{d.server.URL + "/inbox?workflow=a": "/inbox?workflow=a#typed", "https://elsewhere.example/x": "/#typed", d.server.URL + "//elsewhere.example": "/#typed", "": "/#typed"} {
		status, page := send("text/html,*/*", from)
		if status != http.StatusUnauthorized || !strings.Contains(page, "Nothing was done or recorded") || !strings.Contains(page, `href="`+back+`"`) {
			t.Errorf("from %q: %d, want a page that leads to %s:\n%s", from, status, back, page)
		}
	}
	for _, accept := range []string{"*/*", "application/json", "text/html, text/event-stream"} {
		if status, body := send(accept, ""); status != http.StatusUnauthorized || !strings.Contains(body, `"status":401`) {
			t.Errorf("a program that accepts %s reads %d %s", accept, status, body)
		}
	}
}

// A request is one of who may send it when all of it has come: a token that is revoked while a body is on its way, which may take a
// minute, does nothing with it any more.
func TestRevokedWhileTheBodyComes(t *testing.T) {
	for name, end := range map[string]bool{"revoked": true, "as before": false} {
		t.Run(name, func(t *testing.T) {
			d := newDoor(t, access.Config{})
			token := d.token(access.Admin, 0, time.Now())
			g, err := access.New(access.Config{Store: d.store, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			body, rest := io.Pipe()
			r := httptest.NewRequest(http.MethodPost, "http://localhost/x", body)
			bearer(token)(r)
			var got []byte
			var read error
			g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { // who sends it was let in
				if end {
					if err := d.store.DropCredential(t.Context(), strings.Split(token, "_")[1]); err != nil {
						t.Error(err)
					}
				}
				go func() {
					_, err := io.WriteString(rest, "action=approve")
					_ = rest.CloseWithError(err) // nil: that is all of it
				}()
				got, read = io.ReadAll(r.Body)
			})).ServeHTTP(httptest.NewRecorder(), r)
			if string(got) != "action=approve" || errors.Is(read, access.ErrDenied) != end || !end && read != nil {
				t.Errorf("%q was read to its end: %v; want that it is denied: %t", got, read, end)
			}
		})
	}
}

// A page of another site reaches nothing, whatever name it has.
func TestOtherSites(t *testing.T) {
	d := newDoor(t, access.Config{Hosts: []string{"keep.example.com"}})
	token := d.token(access.Admin, 0, time.Now())
	for _, tt := range []struct {
		name, method, host string
		header             map[string]string
		want               int
	}{
		{"its own name", "GET", "localhost:7433", nil, 200},
		{"another port", "GET", "[::1]:1", nil, 200},
		{"a configured name", "GET", "KEEP.example.com", nil, 200},
		{"DNS rebinding", "GET", "evil.test", nil, 421},
		{"DNS rebinding with a port", "POST", "127.0.0.1.evil.test:7433", nil, 421},
		{"an address that is not ours", "GET", "192.168.1.1", nil, 421},
		{"a form of another site", "POST", "localhost", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"a form of another site, in an old browser", "POST", "localhost", map[string]string{"Origin": "http://evil.test"}, 403},
		{"a form of another port", "POST", "localhost:1", map[string]string{"Origin": "http://localhost:2"}, 403},
		{"our own form", "POST", "localhost:1", map[string]string{"Origin": "http://localhost:1"}, 200},
		{"no browser", "POST", "localhost", nil, 200},
	} {
		status, text := d.ask(http.DefaultClient, tt.method, "/x", nil, func(r *http.Request) {
			r.Host = tt.host
			bearer(token)(r)
			for k, v := range tt.header {
				r.Header.Set(k, v)
			}
		})
		if status != tt.want {
			t.Errorf("%s: %d, want %d: %s", tt.name, status, tt.want, text)
		}
	}
}

// Nothing is open but login, health and static files.
func TestOpenPaths(t *testing.T) {
	d := newDoor(t, access.Config{})
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/static/a.css": 200, "/login": 200,
		"/": 401, "/api/v1/runs": 401, "/metrics": 401, "/static": 401, "/staticx": 401, "/healthz/": 401, "/loginx": 401,
		"/static/../api/v1/runs": 401, "/static//x": 401, "/static/%2e%2e/api": 401, "//healthz": 401, "/login/": 401,
	} {
		if status, text := d.ask(browser(t), "GET", path, nil, nil); status != want {
			t.Errorf("%s: %d, want %d: %s", path, status, want, text)
		}
	}
}

// Who guesses has ten tries; others at another address are not held up, and those
// who know their secret neither.
func TestGuessing(t *testing.T) {
	d := newDoor(t, access.Config{})
	token := d.token(access.Admin, 0, time.Now())
	got := make(map[int]int)
	for range 15 {
		status, _ := d.post(browser(t), "/login", url.Values{"token": {"keep_x_y"}})
		got[status]++
	}
	if got[401] != 10 || got[429] != 5 {
		t.Errorf("15 guesses: %v, want 10 that are answered", got)
	}
	if status, _ := d.ask(http.DefaultClient, "GET", "/x", nil, bearer("keep_x_y")); status != 429 {
		t.Errorf("a guessed token: %d", status)
	}
	if status, _ := d.ask(http.DefaultClient, "GET", "/x", nil, bearer(token)); status != 200 {
		t.Errorf("a right token while somebody guesses: %d", status)
	}
	// Behind a reverse proxy, browsers have the address of who guesses.
	page := func(r *http.Request) { r.Header.Set("Accept", "text/html") }
	if status, _ := d.ask(http.DefaultClient, "GET", "/x", nil, page); status != 200 { // the form, after the redirect
		t.Errorf("a browser without a session while somebody guesses: %d", status)
	}
	if status, body := d.post(browser(t), "/login", url.Values{"token": {token}}); status != http.StatusSeeOther {
		t.Errorf("a login with the right token while somebody guesses: %d %s", status, body)
	}
}

func TestLimits(t *testing.T) {
	d := newDoor(t, access.Config{})
	token := d.token(access.Admin, 0, time.Now())
	status, _ := d.ask(http.DefaultClient, "GET", "/x", nil, func(r *http.Request) {
		bearer(token)(r)
		r.Header.Set("X", strings.Repeat("x", access.MaxHeader+8192))
	})
	if status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a huge header: %d", status)
	}
	// Without a length, so that it has to be read.
	body := io.MultiReader(strings.NewReader(strings.Repeat("x", access.MaxBody)), strings.NewReader("x"))
	if status, _ := d.ask(http.DefaultClient, "PUT", "/x", body, bearer(token)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a huge body: %d", status)
	}
}

func TestCheckListen(t *testing.T) {
	for addr, ok := range map[string]bool{
		"127.0.0.1:7433": true, "localhost:0": true, "[::1]:7433": true, "127.9.9.9:1": true,
		":7433": false, "0.0.0.0:7433": false, "[::]:7433": false, "192.168.1.1:7433": false, "keep.example.com:7433": false, "7433": false,
	} {
		if err := access.CheckListen(addr, false); (err == nil) != ok {
			t.Errorf("CheckListen(%s) = %v", addr, err)
		}
	}
	if err := access.CheckListen("0.0.0.0:7433", true); err != nil {
		t.Errorf("with TLS: %v", err)
	}
}
