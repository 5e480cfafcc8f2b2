package config_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host/account"
	"github.com/keep-run/keep/host/account/oauth"
	"github.com/keep-run/keep/host/account/seal"
	"github.com/keep-run/keep/store/memory"
)

// A renewable service accepts one access token, which a refresh replaces, and repeats in its
// answers what it was sent.
type renewable struct {
	mu   sync.Mutex
	good string
	got  []string
}

func (s *renewable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/token" {
		s.good = "access-token-of-later"
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": s.good, "refresh_token": "refresh-token-of-later", "expires_in": 3600, "token_type": "Bearer"})
		return
	}
	s.got = append(s.got, r.Method+" "+r.Header.Get("Authorization"))
	if r.Header.Get("Authorization") != "Bearer "+s.good {
		w.WriteHeader(http.StatusUnauthorized)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"id": "x", "sent": r.Header.Get("Authorization")})
}

// A connection asks for its credential at each request. A read that was refused for an old
// token is repeated with a new one; a change is a failure after which it is made again.
func TestAccountOfAConnection(t *testing.T) {
	s := &renewable{good: "access-token-of-now"}
	srv := httptest.NewServer(s)
	defer srv.Close()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "packs"), 0o700); err != nil {
		t.Fatal(err)
	}
	write("packs/thing.toml", `
name = "thing"
version = "1"
title = "Thing"
[auth]
style = "oauth2"
[tools.read]
effect = "get"
path = "/read"
scopes = []
[tools.make]
effect = "mutate"
path = "/make"
scopes = []
identity = ["id"]
verify_by_hand = "look"
result = { type = "object", required = ["id"] }
`)
	write("keep.toml", `
[connections.thing]
connector = "thing"
base_url = "`+srv.URL+`"
account = "mine"
[connections.plain]
connector = "http"
base_url = "`+srv.URL+`"
headers = { Authorization = "Bearer ${account:mine}" }
[connections.plain.tools.read]
effect = "get"
path = "/read"
`)
	cfg, err := config.Load(config.Options{Dir: dir, File: filepath.Join(dir, "keep.toml"), Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	m := account.New(account.Config{Store: memory.New(), Ring: cfg.Ring, Host: "h", Clients: func(keep.Account, seal.Content) (account.Client, error) {
		return &oauth.Client{TokenURL: srv.URL + "/token", ID: "id"}, nil
	}})
	cfg.UseAccounts(m)
	conns, err := cfg.Connect()
	if err != nil {
		t.Fatal(err)
	}
	read, change := conns[1].Tools[1].(connector.Reader), conns[1].Tools[0].(connector.Mutator)
	mut := keep.Mutation{Key: "k", Token: "0123456789abcdef0123456789abcdef", Payload: json.RawMessage(`{"id":"x"}`), CreatedAt: time.Now(), Attempts: 1}

	_, err = change.Mutate(t.Context(), mut)
	if f, ok := errors.AsType[*keep.Failure](err); !ok || f.Class != keep.ClassPermission || f.Code != keep.CodeAccount || f.Account != "mine" || len(s.got) != 0 {
		t.Errorf("without the account: %v, and the service got %q", err, s.got)
	}
	connect := func() {
		t.Helper()
		if _, err := m.Connect(t.Context(), keep.Account{Name: "mine", Pack: "thing", Style: "oauth2", Renews: true, ExpiresAt: time.Now().Add(time.Hour)},
			seal.Content{Access: "access-token-of-now", Refresh: "refresh-token-of-now"}); err != nil {
			t.Fatal(err)
		}
	}
	connect()
	got, err := read.Read(t.Context(), json.RawMessage(`{}`))
	if err != nil || strings.Contains(string(got), "access-token") {
		t.Errorf("read: %s, %v", got, err)
	}
	s.good = "nothing" // the service has forgotten it before its time
	if got, err = read.Read(t.Context(), json.RawMessage(`{}`)); err != nil || strings.Contains(string(got), "access-token") {
		t.Errorf("a read was not repeated with new tokens: %s, %v", got, err)
	}
	connect()
	s.good, s.got = "nothing", nil
	_, err = change.Mutate(t.Context(), mut)
	if f, ok := errors.AsType[*keep.Failure](err); !ok || f.Class != keep.ClassTransient || f.Code != "credential-renewed" || strings.Contains(err.Error(), "access-token") {
		t.Errorf("a change that was refused for old tokens: %v", err)
	}
	if !slices.Equal(s.got, []string{"POST Bearer access-token-of-now"}) {
		t.Errorf("the connector sent a change %q", s.got)
	}
	mut.Attempts = 2
	if _, err = change.Mutate(t.Context(), mut); err != nil {
		t.Errorf("the new attempt: %v", err)
	}
	s.good = "nothing"
	if _, err = change.Mutate(t.Context(), mut); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("refused with fresh tokens: %v", err)
	} else if f, _ := errors.AsType[*keep.Failure](err); f.Class != keep.ClassPermission {
		t.Errorf("refused with fresh tokens: class %s", f.Class)
	}
	s.good = "access-token-of-later"
	if _, err := conns[0].Tools[0].(connector.Reader).Read(t.Context(), json.RawMessage(`{}`)); err != nil {
		t.Errorf("a header with the account: %v", err)
	}
	pin := string(change.(connector.Pinner).Pin())
	if strings.Contains(pin, "token-of") || !strings.Contains(pin, "mine") {
		t.Errorf("pin %s", pin)
	}
}

// The credential of one service is not sent to another, whatever keep.toml names: it would be a stranger's to use. Packs that get their
// tokens from one place, or that have one address, share accounts.
func TestAccountOfAnotherService(t *testing.T) {
	var got atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		got.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"x","ok":true}`)
	}))
	defer srv.Close()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "keep.toml"), []byte(`
[connections.a]
connector = "stripe"
base_url = "`+srv.URL+`"
account = "mine"
[connections.b]
connector = "google-calendar"
base_url = "`+srv.URL+`"
account = "mine"
`), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Options{Dir: dir, File: filepath.Join(dir, "keep.toml"), Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	m := account.New(account.Config{Store: memory.New(), Ring: cfg.Ring})
	cfg.UseAccounts(m)
	conns, err := cfg.Connect()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pack  string
		sends []bool // from the connections of Stripe and of Google
	}{
		{"slack", []bool{false, false}},
		{"stripe", []bool{true, false}},
		{"gmail", []bool{false, true}},
		{"gone", []bool{true, true}},
	} {
		if _, err := m.Connect(t.Context(), keep.Account{Name: "mine", Pack: c.pack, Style: "bearer"}, seal.Content{Value: "canary"}); err != nil {
			t.Fatal(err)
		}
		for i, tool := range []string{"getCustomer", "getEvent"} {
			params := []string{`{"id":"x"}`, `{"calendarId":"a","eventId":"b"}`}[i]
			n := slices.IndexFunc(conns[i].Tools, func(t connector.Tool) bool { return t.Spec().Name == tool })
			got.Store(0)
			_, err := conns[i].Tools[n].(connector.Reader).Read(t.Context(), json.RawMessage(params))
			f, _ := errors.AsType[*keep.Failure](err)
			if other := cfg.OtherService(c.pack, []string{"stripe", "google-calendar"}[i]); other == c.sends[i] {
				t.Errorf("keep check says of an account of %s at %s that it is of another service: %t", c.pack, tool, other)
			}
			if sent := got.Load() > 0; sent != c.sends[i] || !sent && (f == nil || f.Class != keep.ClassPermission || f.Account != "mine" || strings.Contains(f.Message, "canary")) {
				t.Errorf("an account of %s at %s: sent %t, %v", c.pack, tool, sent, err)
			}
		}
	}
}
