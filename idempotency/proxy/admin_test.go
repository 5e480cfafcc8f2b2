package proxy_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/memory"
)

func TestAdmin(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"other_sites": adminOtherSites,
		"token":       adminToken,
	} {
		t.Run(name, test)
	}
}

// Any user of the machine reaches an address: it needs the token, but for what
// monitors read.
func adminToken(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		configured, given, path string
		want                    int
	}{
		{"", "", "/healthz", 200}, {"", "", "/metrics", 200}, {"", "", "/api/v1/keys", 401}, {"", "Bearer ", "/api/v1/keys", 401},
		{"secret", "", "/api/v1/keys", 401}, {"secret", "Bearer secre", "/api/v1/keys", 401}, {"secret", "secret", "/readyz", 200},
		{"secret", "Bearer secret", "/api/v1/keys", 200},
	} {
		p, err := proxy.New(new(memory.Keys), proxy.Config{Upstream: "http://127.0.0.1:1", AdminToken: test.configured, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "http://127.0.0.1"+test.path, nil)
		r.Header.Set("Authorization", test.given)
		w := httptest.NewRecorder()
		if p.Admin().ServeHTTP(w, r); w.Code != test.want {
			t.Errorf("%+v: %d", test, w.Code)
		}
	}
}

func adminOtherSites(t *testing.T) {
	t.Parallel()
	p, err := proxy.New(new(memory.Keys), proxy.Config{Upstream: "http://127.0.0.1:1", AdminToken: "t", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	admin := httptest.NewServer(p.Admin())
	defer admin.Close()
	r, _ := http.NewRequest("GET", admin.URL+"/api/v1/keys", nil)
	r.Host = "evil.example:7434"
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("another name: %d", resp.StatusCode)
	}
	if resp, _ := post(t, admin.URL+"/api/v1/keys/x/forget", "", `{"by":"a"}`, "Origin", "https://evil.example"); resp.StatusCode != 403 {
		t.Errorf("another origin: %d", resp.StatusCode)
	}
	if resp, _ := post(t, admin.URL+"/api/v1/keys/"+key.NewID("", "", "x").String()+"/forget", "", `{"by":"a"}`, "Authorization", "Bearer t"); resp.StatusCode != 404 {
		t.Errorf("unknown reference: %d", resp.StatusCode)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"names":         configNames,
		"documentation": configDocumentation,
	} {
		t.Run(name, test)
	}
}

func configNames(t *testing.T) {
	t.Parallel()
	var cfg proxy.Config
	dec := toml.NewDecoder(strings.NewReader(example))
	if err := dec.DisallowUnknownFields().Decode(&cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := proxy.New(new(memory.Keys), cfg); err != nil || cfg.Routes[0].BodyLimit != 1<<20 || cfg.Routes[0].TTL != proxy.Duration(168*time.Hour) {
		t.Errorf("%v, %+v", err, cfg)
	}
	for want, change := range map[string]func(*proxy.Config){
		"upstream": func(c *proxy.Config) { c.Upstream = "127.0.0.1:8000" },
		"loopback": func(c *proxy.Config) { c.AdminListen = "0.0.0.0:1" },
		"caller":   func(c *proxy.Config) { c.Routes[0].Caller = "cookie" },
		"probe":    func(c *proxy.Config) { c.Routes[0].Probe = "http://x/" },
		"24h":      func(c *proxy.Config) { c.Routes[0].TTL = 1 },
		"together": func(c *proxy.Config) { c.TLSCert = "x" },
	} {
		bad := cfg
		bad.Routes = append([]proxy.Route(nil), cfg.Routes...)
		change(&bad)
		if _, err := proxy.New(new(memory.Keys), bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want it to say %q", err, want)
		}
	}
}

// The example of the documentation is what the proxy takes.
func configDocumentation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/idempotency.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```toml\n")
	block, _, _ := strings.Cut(rest, "```")
	var file struct {
		DB    string
		Proxy proxy.Config
	}
	if err := toml.NewDecoder(strings.NewReader(block)).DisallowUnknownFields().Decode(&file); err != nil {
		t.Fatal(err)
	}
	if _, err := proxy.New(new(memory.Keys), file.Proxy); err != nil || len(file.Proxy.Routes) != 2 {
		t.Errorf("New: %v, %d routes", err, len(file.Proxy.Routes))
	}
}

// A probe that knows only the key would give one caller's answer to another.
func TestRouteRefused(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]proxy.Route{
		"{caller}":     {Probe: "http://x/{key}"},
		"put {caller}": {Probe: "http://x/{key}", Caller: "header:X-User"},
		"with {key}":   {Probe: "http://x/{caller}"},
		"probe_caller": {Probe: "http://x/{key}/{caller}", ProbeCaller: "value"},
		"jwks":         {Caller: "jwt:sub"},
		"jwks is for":  {Caller: "basic", JWKS: "https://x"},
		`want "header`: {Key: "X-Id"},
		"body:id":      {Key: "body:id2"},
		"method":       {Methods: []string{"get"}},
		"not-executed": {NotExecuted: []int{200}},
	} {
		_, err := proxy.New(new(memory.Keys), proxy.Config{Upstream: "http://x", Routes: []proxy.Route{r}})
		if want == "body:id" {
			want = "$.id"
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error with %s", r, err, want)
		}
	}
	for _, r := range []proxy.Route{
		{Probe: "http://x/{key}?by={caller}"}, {Probe: "http://x/{key}", Caller: "none"}, {Caller: "jwt:sub", JWKS: "https://x/jwks"},
		{Probe: "http://x/{key}/{caller}", ProbeCaller: "value", Caller: "header:X-User"}, {Key: "header:X-GitHub-Delivery"}, {Key: "body:$.id"},
	} {
		if _, err := proxy.New(new(memory.Keys), proxy.Config{Upstream: "http://x", Routes: []proxy.Route{r}}); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// fullStore deletes what there is, and takes nothing new, as one on a full disk.
type fullStore struct{ memory.Keys }

func (*fullStore) Write(context.Context, key.Record) error { return keep.ErrDiskFull }

// countedStore counts what is written.
type countedStore struct {
	memory.Keys
	writes atomic.Int64
}

func (s *countedStore) Write(ctx context.Context, r key.Record) error {
	s.writes.Add(1)
	return s.Keys.Write(ctx, r)
}

// Whether a proxy is ready, which costs two durable writes, is found out once a second, whoever asks, and not for who left.
func TestReadyOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := new(countedStore)
		p, err := proxy.New(store, proxy.Config{Upstream: "http://127.0.0.1:1", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		for want := range int64(3) {
			left, leave := context.WithCancel(t.Context())
			leave()
			for _, ctx := range []context.Context{left, t.Context(), t.Context()} {
				got := httptest.NewRecorder()
				p.OwnerAdmin().ServeHTTP(got, httptest.NewRequest("GET", "/readyz", nil).WithContext(ctx))
				if n := store.writes.Load(); n != want+1 || got.Code != 200 {
					t.Errorf("/readyz = %d %s, after %d writes, want %d", got.Code, got.Body, n, want+1)
				}
			}
			time.Sleep(time.Second)
		}
	})
}

// A proxy on a full disk is not ready.
func TestNotReadyOnAFullDisk(t *testing.T) {
	t.Parallel()
	for want, store := range map[int]idempotency.Store{200: new(memory.Keys), 503: new(fullStore)} {
		p, err := proxy.New(store, proxy.Config{Upstream: "http://127.0.0.1:1", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		got := httptest.NewRecorder()
		p.OwnerAdmin().ServeHTTP(got, httptest.NewRequest("GET", "/readyz", nil))
		if got.Code != want {
			t.Errorf("/readyz = %d %s, want %d", got.Code, got.Body, want)
		}
	}
}

// brokenStore cannot be read.
type brokenStore struct{ memory.Keys }

func (*brokenStore) Read(context.Context, key.ID) (key.Record, error) {
	return key.Record{}, keep.ErrClosed
}

func (*brokenStore) List(context.Context, key.Filter, keep.Page) ([]key.Record, string, error) {
	return nil, "", keep.ErrClosed
}

// That the store fails is no mistake of who asks.
func TestAdminWhoseStoreFails(t *testing.T) {
	t.Parallel()
	broken, whole := new(brokenStore), new(memory.Keys)
	of := key.NewID("", "", "k").String()
	for _, test := range []struct {
		store              idempotency.Store
		method, path, body string
		code               int
	}{
		{broken, "GET", "", "", 500},
		{broken, "GET", "/" + of, "", 500},
		{broken, "POST", "/" + of + "/forget", `{"by": "ada"}`, 500},
		{broken, "POST", "/" + of + "/resolve", `{"by": "ada", "happened": false}`, 500},
		{broken, "GET", "?limit=x", "", 400},
		{broken, "GET", "/key_x", "", 400},
		{broken, "POST", "/" + of + "/forget", `{}`, 400},
		{broken, "POST", "/" + of + "/resolve", `{"happened": false}`, 400},
		{broken, "POST", "/" + of + "/resolve", `{"by": "ada", "happened": true, "status": 7}`, 400},
		{whole, "GET", "?cursor=x", "", 400},
		{whole, "GET", "/" + of, "", 404},
	} {
		p, err := proxy.New(test.store, proxy.Config{Upstream: "http://127.0.0.1:1", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		p.OwnerAdmin().ServeHTTP(w, httptest.NewRequest(test.method, "/api/v1/keys"+test.path, strings.NewReader(test.body)))
		if w.Code != test.code {
			t.Errorf("%s %s %s: %d %s, want %d", test.method, test.path, test.body, w.Code, w.Body, test.code)
		}
	}
}

// Who leaves out whether a request happened does not say that it may be executed again.
func TestResolveSaysWhetherItHappened(t *testing.T) {
	t.Parallel()
	store := new(memory.Keys)
	p, err := proxy.New(store, proxy.Config{Upstream: "http://127.0.0.1:1", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	claim := key.Claim{ID: key.NewID("", "", "k"), Key: "k", Method: "POST", Path: "/", TTL: time.Hour}
	now := time.Now()
	rec, _ := key.Apply(key.Record{}, key.Fact{Evidence: key.Begun, Fence: 7, Claim: claim, Lease: time.Second}, now)
	rec, _ = key.Apply(rec, key.Fact{Evidence: key.Unsure, Fence: 7}, now)
	if err := store.Write(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		body  string
		code  int
		state key.State
	}{
		{`{"by": "ada"}`, 400, key.Unknown},
		{`{"by": "ada", "status": 201, "happened": null}`, 400, key.Unknown},
		{`{"by": "ada", "status": 201, "happened": true}`, 200, key.Done},
	} {
		w := httptest.NewRecorder()
		p.OwnerAdmin().ServeHTTP(w, httptest.NewRequest("POST", "/api/v1/keys/"+rec.ID.String()+"/resolve", strings.NewReader(test.body)))
		now, err := store.Read(t.Context(), rec.ID)
		if err != nil || w.Code != test.code || now.State != test.state {
			t.Errorf("%s: %d %s, and the key is %q", test.body, w.Code, w.Body, now.State)
		}
	}
}
