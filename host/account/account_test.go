package account_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/account"
	"github.com/keep-run/keep/host/account/oauth"
	"github.com/keep-run/keep/host/account/seal"
	"github.com/keep-run/keep/internal/port"
	"github.com/keep-run/keep/internal/redact"
	law "github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/memory"
)

// A service is an OAuth server that rotates refresh tokens and revokes the whole family
// when one is used that is older than its grace allows.
type service struct {
	mu      sync.Mutex
	grace   int // how many tokens before the current one are still taken
	n       int // of the current token
	dead    bool
	answers []func(http.ResponseWriter) bool // of the next requests; true: the request is dealt with
	seen    []string
	lasts   int  // seconds of an access token
	keeps   bool // a refresh token is not replaced
	revoked []string
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.URL.Path == "/revoke" {
		s.revoked = append(s.revoked, r.PostFormValue("token"))
		return
	}
	token := r.PostFormValue("refresh_token")
	s.seen = append(s.seen, token)
	var answer func(http.ResponseWriter) bool
	if len(s.answers) > 0 {
		answer, s.answers = s.answers[0], s.answers[1:]
	}
	if answer != nil && answer(w) {
		return
	}
	var n int
	if r.PostFormValue("grant_type") == "client_credentials" {
		n = s.n
	} else if _, err := fmt.Sscanf(token, "refresh-%d", &n); err != nil || s.dead || s.n-n > s.grace {
		s.dead = true // reuse: the family is revoked
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"invalid_grant"}`)
		return
	}
	s.n++
	if answer != nil { // executed, and its answer is lost
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	tokens := map[string]any{"access_token": fmt.Sprintf("access-token-%d", s.n), "token_type": "Bearer", "expires_in": s.lasts}
	if !s.keeps {
		tokens["refresh_token"] = fmt.Sprintf("refresh-%d", s.n)
	}
	_ = json.NewEncoder(w).Encode(tokens)
}

// lose is an answer that is lost after the tokens were rotated.
func lose(http.ResponseWriter) bool { return false }

// page is the answer of a gateway, and nothing was executed.
func page(w http.ResponseWriter) bool { w.WriteHeader(http.StatusBadGateway); return true }

// refuse says invalid_grant for a moment.
func refuse(w http.ResponseWriter) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	fmt.Fprint(w, `{"error":"invalid_grant"}`)
	return true
}

// busy says temporarily_unavailable.
func busy(w http.ResponseWriter) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprint(w, `{"error":"temporarily_unavailable"}`)
	return true
}

type world struct {
	*testing.T
	service *service
	url     string
	via     http.RoundTripper // to the service
	store   store.Accounts
	ring    seal.Ring
	settle  func() error // nil: works
}

func newWorld(t *testing.T) *world {
	s := &service{lasts: 3600}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return &world{T: t, service: s, url: srv.URL, via: account.NewTransport(), store: memory.New(), ring: seal.Ring{Path: filepath.Join(t.TempDir(), "keep.key")}}
}

// newBubble returns a world without connections, for virtual time.
func newBubble(t *testing.T) *world {
	s := &service{lasts: 3600}
	return &world{T: t, service: s, url: "http://service.example", via: direct{s}, store: memory.New(), ring: seal.Ring{Path: filepath.Join(t.TempDir(), "keep.key")}}
}

// A direct transport is a handler.
type direct struct{ to http.Handler }

func (d direct) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	defer func() {
		if v := recover(); v == http.ErrAbortHandler {
			resp, err = nil, io.ErrUnexpectedEOF
		} else if v != nil {
			panic(v)
		}
	}()
	w := httptest.NewRecorder()
	d.to.ServeHTTP(w, r)
	return w.Result(), nil
}

// host returns a manager of a host.
func (w *world) host(name string) *account.Manager {
	settle := func(context.Context, func(context.Context) ([]keep.Account, error)) error {
		if w.settle == nil {
			return nil
		}
		return w.settle()
	}
	return account.New(account.Config{Store: w.store, Ring: w.ring, Host: name, TTL: 3 * time.Second, Settle: settle, Clients: func(keep.Account, seal.Content) (account.Client, error) {
		return &oauth.Client{TokenURL: w.url + "/token", RevokeURL: w.url + "/revoke", ID: "id", HTTP: &http.Client{Transport: w.via}}, nil
	}})
}

// connect connects an account whose token ends after a time.
func (w *world) connect(m *account.Manager, ends time.Duration) {
	w.Helper()
	_, err := m.Connect(w.Context(), keep.Account{Name: "mail", Pack: "gmail", Style: "oauth2", Renews: true, ExpiresAt: time.Now().Add(ends), Lifetime: time.Hour},
		seal.Content{Access: "access-token-0", Refresh: "refresh-0"})
	if err != nil {
		w.Fatal(err)
	}
}

// requests returns the refresh tokens that came.
func (w *world) requests() []string {
	w.service.mu.Lock()
	defer w.service.mu.Unlock()
	return slices.Clone(w.service.seen)
}

func (w *world) account() keep.Account {
	w.Helper()
	list, err := w.store.Accounts(w.Context(), keep.AccountConnected, "mail")
	if err != nil || len(list) != 1 {
		w.Fatalf("%d accounts, %v", len(list), err)
	}
	return list[0]
}

// A host without a network renews nothing, uses what is still good, and asks nobody: requests that
// never left are none of the two that an account has.
func TestRenewalWithoutConnection(t *testing.T) {
	w := newWorld(t)
	client := &oauth.Client{TokenURL: "http://" + port.Addr(t), ID: "id", HTTP: &http.Client{Transport: account.NewTransport()}}
	m := account.New(account.Config{Store: w.store, Ring: w.ring, Host: "h", TTL: time.Hour, Clients: func(keep.Account, seal.Content) (account.Client, error) {
		return client, nil
	}})
	w.connect(m, 10*time.Minute)
	if _, err := m.Renew(t.Context(), "mail"); err == nil || !strings.Contains(err.Error(), "nothing was sent") {
		t.Errorf("renewed: %v", err)
	}
	if _, err := m.Renew(t.Context(), "mail"); err == nil || !strings.Contains(err.Error(), "nothing was sent") {
		t.Errorf("a person waits for no pause: %v", err)
	}
	got, err := m.Credential(t.Context(), "mail")
	if a := w.account(); err != nil || got.Value != "access-token-0" || a.Status != keep.AccountOK || a.LeaseHost != "" || len(a.Refreshes) != 1 || a.Refreshes[0].State != keep.RefreshUnsent {
		t.Errorf("credential %q, %v; the account is %s, its requests %+v", got.Value, err, a.Status, a.Refreshes)
	}
}

func TestRenewal(t *testing.T) {
	for _, c := range []struct {
		name    string
		grace   int
		answers []func(http.ResponseWriter) bool
		want    string // the credential; empty: a person is asked
		sent    int
	}{
		{"answered", 0, nil, "access-token-1", 1},
		{"lost, with grace", 1, []func(http.ResponseWriter) bool{lose}, "access-token-2", 2},
		{"lost, without grace", 0, []func(http.ResponseWriter) bool{lose}, "", 2},
		{"lost before it was executed", 0, []func(http.ResponseWriter) bool{page}, "access-token-1", 2},
		{"lost, and then refused", 0, []func(http.ResponseWriter) bool{page, refuse}, "", 2},
		{"refused for a moment", 0, []func(http.ResponseWriter) bool{refuse}, "access-token-1", 2},
		{"refused", 0, []func(http.ResponseWriter) bool{refuse, refuse}, "", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newBubble(t)
				w.service.grace, w.service.answers = c.grace, c.answers
				m := w.host("h")
				w.connect(m, time.Second)
				got, err := m.Credential(t.Context(), "mail")
				if got.Value != c.want || (err == nil) != (c.want != "") {
					t.Errorf("credential %q, %v; want %q", got.Value, err, c.want)
				}
				if len(w.requests()) != c.sent {
					t.Errorf("%d requests: %v, want %d", len(w.requests()), w.requests(), c.sent)
				}
				if c.want == "" {
					f, ok := errors.AsType[*keep.Failure](err)
					if a := w.account(); !ok || f.Class != keep.ClassPermission || f.Code != keep.CodeReconnect || a.Status != keep.AccountNeedsReconnect {
						t.Errorf("%v; the account is %s", err, a.Status)
					}
					w.service.mu.Lock()
					w.service.dead, w.service.n = false, 0
					w.service.mu.Unlock()
					w.connect(m, time.Hour)
					if got, err := m.Credential(t.Context(), "mail"); err != nil || got.Value != "access-token-0" {
						t.Errorf("connected anew: %q, %v", got.Value, err)
					}
				}
				if strings.Contains(fmt.Sprintf("%v %+v %#v %v", got, got, got, err), "access-token") {
					t.Error("a token shows when it is printed")
				}
			})
		})
	}
}

// down is a service that answers with what a gateway says, for a while, and that nothing reaches.
type down struct {
	http.RoundTripper
	until time.Time
	n     atomic.Int64 // requests meanwhile
}

func (d *down) RoundTrip(r *http.Request) (*http.Response, error) {
	if time.Now().Before(d.until) {
		d.n.Add(1)
		w := httptest.NewRecorder()
		page(w)
		return w.Result(), nil
	}
	return d.RoundTripper.RoundTrip(r)
}

// An outage ends no account whose tokens are taken afterwards, if it is over in a day, and none that uses nothing up.
func TestOutage(t *testing.T) {
	for _, c := range []struct {
		name    string
		refresh string
		lasts   time.Duration
		want    keep.AccountStatus
		most    int // requests while it lasts
	}{
		{"some seconds", "refresh-0", 9 * time.Second, keep.AccountOK, 1},
		{"a minute", "refresh-0", time.Minute, keep.AccountOK, 3},
		{"hours", "refresh-0", 20 * time.Hour, keep.AccountOK, 50},
		{"days", "refresh-0", 50 * time.Hour, keep.AccountNeedsReconnect, 60},
		{"days, and nothing to use up", "", 50 * time.Hour, keep.AccountOK, 6100},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newBubble(t)
				d := &down{RoundTripper: w.via, until: time.Now().Add(c.lasts)}
				w.via = d
				m := w.host("h")
				_, err := m.Connect(t.Context(), keep.Account{Name: "mail", Pack: "gmail", Style: "oauth2", Renews: true, ExpiresAt: time.Now().Add(10 * time.Minute), Lifetime: time.Hour},
					seal.Content{Access: "access-token-0", Refresh: c.refresh})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithTimeout(t.Context(), c.lasts+2*time.Hour)
				defer stop()
				m.Run(ctx)
				if a := w.account(); a.Status != c.want || int(d.n.Load()) > c.most || d.n.Load() == 0 {
					t.Errorf("the account is %s (%s) after %d requests in the outage; want %s and at most %d", a.Status, a.Error, d.n.Load(), c.want, c.most)
				}
			})
		})
	}
}

// A token service that takes longer than the lease of an account is waited for.
func TestSlowTokenService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubble(t)
		w.via = slow{w.via, 12 * time.Second}
		m := w.host("h")
		w.connect(m, time.Second)
		var wg sync.WaitGroup
		for _, m := range []*account.Manager{m, w.host("other")} { // whose lease is of 3 s
			wg.Go(func() {
				if c, err := m.Credential(t.Context(), "mail"); err != nil || c.Value != "access-token-1" {
					t.Errorf("credential %q, %v", c.Value, err)
				}
			})
		}
		wg.Wait()
		if a := w.account(); len(w.requests()) != 1 || a.Status != keep.AccountOK || a.LeaseHost != "" {
			t.Errorf("after requests %v the account is %s (%s)", w.requests(), a.Status, a.Error)
		}
	})
}

// slow is a way to a service that takes its time.
type slow struct {
	http.RoundTripper
	d time.Duration
}

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(s.d):
		return s.RoundTripper.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// During an outage a person is asked after some minutes, calls wait for the account and not for a time, and no call makes a request.
func TestCallsInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubble(t)
		d := &down{RoundTripper: w.via, until: time.Now().Add(time.Hour)}
		w.via = d
		m := w.host("h")
		w.connect(m, 2*time.Minute)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { m.Run(ctx) })
		time.Sleep(time.Minute)
		if c, err := m.Credential(t.Context(), "mail"); err != nil || c.Value != "access-token-0" {
			t.Errorf("while the tokens are good: %q, %v", c.Value, err)
		}
		if law.NeedsPerson(w.account(), time.Now()) {
			t.Error("a person is asked within a minute")
		}
		time.Sleep(10 * time.Minute)
		before := d.n.Load()
		for range 100 {
			if f := failureOf(t, m); f.Code != keep.CodeReconnect || !strings.Contains(f.Message, "renewing fails since") {
				t.Fatalf("a call in the outage: %+v", f)
			}
		}
		if a := w.account(); d.n.Load() != before || !law.NeedsPerson(a, time.Now()) || a.Status != keep.AccountOK {
			t.Errorf("%d requests of calls, the account is %s", d.n.Load()-before, a.Status)
		}
		time.Sleep(2 * time.Hour)
		if c, err := m.Credential(t.Context(), "mail"); err != nil || !strings.HasPrefix(c.Value, "access-token-") || w.account().Error != "" {
			t.Errorf("after the outage: %q, %v", c.Value, err)
		}
		stop()
		running.Wait()
	})
}

// Calls that come while the one more request waits have its result, on whichever host.
func TestCallsWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubble(t)
		w.service.answers = []func(http.ResponseWriter) bool{page}
		m := w.host("h")
		w.connect(m, time.Second)
		time.Sleep(2 * time.Second)
		var wg sync.WaitGroup
		for _, m := range []*account.Manager{m, m, w.host("other")} {
			wg.Go(func() {
				if c, err := m.Credential(t.Context(), "mail"); err != nil || c.Value != "access-token-1" {
					t.Errorf("credential %q, %v", c.Value, err)
				}
			})
			time.Sleep(time.Second) // the next call comes later
		}
		wg.Wait()
		if len(w.requests()) != 2 {
			t.Errorf("requests %v, want two", w.requests())
		}
	})
}

// A service that is busy after a lost answer is not asked at each call.
func TestBusyAfterLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubble(t)
		w.service.answers = append([]func(http.ResponseWriter) bool{page}, slices.Repeat([]func(http.ResponseWriter) bool{busy}, 100)...)
		m := w.host("h")
		w.connect(m, time.Second)
		var wg sync.WaitGroup
		for range 60 {
			wg.Go(func() { _, _ = m.Credential(t.Context(), "mail") })
			time.Sleep(time.Second)
		}
		if n := len(w.requests()); n < 2 || n > 4 {
			t.Errorf("%d requests in a minute, want two to four", n)
		}
		wg.Wait()
		if a := w.account(); a.Status != keep.AccountOK {
			t.Errorf("the account is %s: %s", a.Status, a.Error)
		}
	})
}

// Many hosts that want new tokens at once send one request, and all have its result.
func TestOneRequestForAllHosts(t *testing.T) {
	w := newWorld(t)
	w.connect(w.host("h0"), time.Second)
	var wg sync.WaitGroup
	for h := range 3 {
		m := w.host(fmt.Sprint("h", h))
		for range 5 {
			wg.Go(func() {
				if c, err := m.Credential(t.Context(), "mail"); err != nil || c.Value != "access-token-1" {
					t.Errorf("credential %q, %v", c.Value, err)
				}
			})
		}
	}
	wg.Wait()
	if len(w.requests()) != 1 {
		t.Errorf("requests %v, want one", w.requests())
	}
}

// A service that answers 401 has the tokens renewed once; those that came of it are not.
func TestUnauthorized(t *testing.T) {
	w := newWorld(t)
	m := w.host("h")
	w.connect(m, time.Hour)
	first, err := m.Credential(t.Context(), "mail")
	if err != nil {
		t.Fatal(err)
	}
	if !m.Refused(t.Context(), "mail", first) || !m.Refused(t.Context(), "mail", first) {
		t.Error("a refused credential was not renewed")
	}
	second, err := m.Credential(t.Context(), "mail")
	if err != nil || second.Value != "access-token-1" {
		t.Fatalf("%q, %v", second.Value, err)
	}
	if !slices.Contains(second.Secrets, "access-token-0") || !slices.Contains(second.Secrets, "refresh-0") {
		t.Error("secrets of the generation before are forgotten, and would show")
	}
	if m.Refused(t.Context(), "mail", second) || len(w.requests()) != 1 {
		t.Errorf("tokens that came of a 401 were renewed: %v", w.requests())
	}
}

// Old secrets are remembered up to a number, in which one that stays the same counts once.
func TestOldSecrets(t *testing.T) {
	w := newWorld(t)
	w.service.keeps, w.service.grace = true, 100
	m := w.host("h")
	w.connect(m, time.Hour)
	var want []string
	for n := range redact.MaxOld + 5 {
		c, err := m.Credential(t.Context(), "mail")
		if err != nil {
			t.Fatal(err)
		}
		want = append([]string{c.Value}, want...)
		if old := slices.DeleteFunc(c.Secrets, func(s string) bool { return s == "refresh-0" }); !slices.Equal(old, want[:min(len(want), redact.MaxOld+1)]) {
			t.Fatalf("after %d renewals %q are remembered", n, old)
		}
		if _, err := m.Renew(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
	}
}

// A host that dies when it has recorded a request, or has its answer and has not recorded
// it, is followed: the old token is sent once more.
func TestAnotherHostFollows(t *testing.T) {
	for _, p := range []account.Point{account.Recorded, account.Answered} {
		t.Run(string(p), func(t *testing.T) {
			w := newWorld(t)
			w.service.grace = 1
			dying := account.New(account.Config{Store: w.store, Ring: w.ring, Host: "dying", TTL: 300 * time.Millisecond,
				Clients: func(keep.Account, seal.Content) (account.Client, error) {
					return &oauth.Client{TokenURL: w.url, ID: "id"}, nil
				}, Trace: func(at account.Point) {
					if at == p {
						panic("killed")
					}
				}})
			w.connect(dying, time.Second)
			func() {
				defer func() { _ = recover() }()
				_, _ = dying.Credential(t.Context(), "mail")
			}()
			if a := w.account(); a.Refreshes[0].State != keep.RefreshSent {
				t.Fatalf("it was not recorded before it was sent: %+v", a.Refreshes)
			}
			c, err := w.host("next").Credential(t.Context(), "mail")
			if err != nil || !strings.HasPrefix(c.Value, "access-token-") || c.Generation != 2 {
				t.Errorf("credential %q of generation %d, %v", c.Value, c.Generation, err)
			}
		})
	}
}

func TestRevoke(t *testing.T) {
	w := newWorld(t)
	m := w.host("h")
	w.connect(m, time.Hour)
	if _, err := m.Revoke(t.Context(), "mail", time.Time{}); err != nil {
		t.Fatal(err)
	}
	w.service.mu.Lock()
	defer w.service.mu.Unlock()
	if a := w.account(); a.Sealed != nil || a.Status != keep.AccountRevoked || !slices.Equal(w.service.revoked, []string{"refresh-0", "access-token-0"}) {
		t.Errorf("%+v; the service heard %v", a.Status, w.service.revoked)
	}
	if _, err := m.Credential(t.Context(), "mail"); err == nil {
		t.Error("a revoked account has a credential")
	}
}

// The service is not told that a key is no longer wanted: it has no way for that. Who revokes one is not left to think that it is.
func TestRevokeAKey(t *testing.T) {
	w := newWorld(t)
	m := w.host("h")
	if _, err := m.Connect(t.Context(), keep.Account{Name: "shop", Pack: "shop", Style: "bearer", ConnectedBy: "ada"}, seal.Content{Value: "sk_live_0123456789"}); err != nil {
		t.Fatal(err)
	}
	a, err := m.Revoke(t.Context(), "shop", time.Time{})
	if err != nil || a.Status != keep.AccountRevoked || !strings.Contains(a.Error, "the service was not told") {
		t.Errorf("%s, %q, %v", a.Status, a.Error, err)
	}
	if kept, err := m.Account(t.Context(), "shop"); err != nil || kept.Error != a.Error {
		t.Errorf("on record is %q, %v", kept.Error, err)
	}
	if a, err = m.Connect(t.Context(), keep.Account{Name: "shop", Pack: "shop", Style: "bearer", ConnectedBy: "ada"}, seal.Content{Value: "sk_live_1"}); err != nil || a.Error != "" {
		t.Errorf("connected again: %q, %v", a.Error, err)
	}
	w.connect(m, time.Hour)
	if a, err := m.Revoke(t.Context(), "mail", time.Time{}); err != nil || a.Error != "" {
		t.Errorf("the service was told: %q, %v", a.Error, err)
	}
}

// However a change of the key is killed, the keys that are there open everything, and
// another one finishes it.
func TestRekey(t *testing.T) {
	for _, p := range []account.Point{"", account.NewKeyWritten, account.Resealed} {
		t.Run(string(p), func(t *testing.T) {
			w := newWorld(t)
			m := account.New(account.Config{Store: w.store, Ring: w.ring, Trace: func(at account.Point) {
				if at == p {
					panic("killed")
				}
			}})
			w.connect(m, time.Hour)
			if _, err := m.SetSecret(t.Context(), "crm", "a secret value", "ada"); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(w.ring.Path)
			if err != nil {
				t.Fatal(err)
			}
			func() {
				defer func() { _ = recover() }()
				_, _ = m.Rekey(t.Context(), false)
			}()
			after := w.host("h")
			check := func(when string) {
				t.Helper()
				c, err := after.Credential(t.Context(), "mail")
				s, err2 := after.Secret(t.Context(), "crm")
				if err != nil || err2 != nil || c.Value != "access-token-0" || s != "a secret value" {
					t.Errorf("%s: %v, %v", when, err, err2)
				}
			}
			check("killed")
			if n, err := after.Rekey(t.Context(), false); err != nil || n != 2 {
				t.Errorf("%d rows, %v", n, err)
			}
			after = w.host("h")
			check("finished")
			now, err := os.ReadFile(w.ring.Path)
			info, err2 := os.Stat(w.ring.Path)
			if err != nil || err2 != nil || string(now) == string(before) || info.Mode().Perm() != 0o600 {
				t.Errorf("the key is as before, or has mode %v: %v %v", info.Mode(), err, err2)
			}
			if _, err := os.Stat(w.ring.Path + ".new"); !os.IsNotExist(err) {
				t.Errorf("the new key is still beside: %v", err)
			}
		})
	}
}

// A key that is gone is no reason to make another one over sealed rows.
func TestLostKey(t *testing.T) {
	w := newWorld(t)
	m := w.host("h")
	w.connect(m, time.Hour)
	if err := os.Remove(w.ring.Path); err != nil {
		t.Fatal(err)
	}
	m = w.host("h")
	if _, err := m.SetSecret(t.Context(), "crm", "value", "ada"); err == nil || !strings.Contains(err.Error(), "is missing") {
		t.Errorf("a secret was sealed with a new key: %v", err)
	}
	list, err := m.Accounts(t.Context())
	if err != nil || list[0].Status != keep.AccountNeedsReconnect || !strings.Contains(list[0].Error, "cannot be opened") {
		t.Errorf("%+v, %v", list, err)
	}
	other, err := seal.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	w.ring.Text = other.Text()
	m = w.host("h")
	if list, err = m.Accounts(t.Context()); err != nil || list[0].Error != "cannot be opened: another key" {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := m.Credential(t.Context(), "mail"); err == nil {
		t.Error("opened with another key")
	}
}

// A run that fails for an account asks nobody itself, so its failure waits until the
// question about the account is on disk.
func TestRefusalAsksFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service.dead = true
	m := w.host("h")
	w.connect(m, time.Hour)
	if a, err := m.Renew(t.Context(), "mail"); err != nil || a.Status != keep.AccountNeedsReconnect {
		t.Fatalf("%+v, %v", a, err)
	}
	w.settle = func() error { return errors.New("the disk is full") }
	if f := failureOf(t, m); f.Class != keep.ClassTransient {
		t.Errorf("without the question: %+v", f)
	}
	w.settle = nil
	if f := failureOf(t, m); f.Class != keep.ClassPermission || f.Code != keep.CodeReconnect || f.Account != "mail" || f.Generation != 1 {
		t.Errorf("with the question: %+v", f)
	}
	if _, err := m.Revoke(t.Context(), "mail", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if f := failureOf(t, m); f.Code != keep.CodeAccount || f.Generation != 2 {
		t.Errorf("revoked, about which a run asks: %+v", f)
	}
}

// failureOf returns why the account has no credential.
func failureOf(t *testing.T, m *account.Manager) *keep.Failure {
	t.Helper()
	_, err := m.Credential(t.Context(), "mail")
	f, ok := errors.AsType[*keep.Failure](err)
	if !ok {
		t.Fatalf("credential: %v", err)
	}
	return f
}

// Tokens that come from a backup are tried once, and then a person is asked.
func TestRestored(t *testing.T) {
	t.Parallel()
	for name, usedUp := range map[string]bool{"used up since": true, "still good": false} {
		w := newWorld(t)
		w.service.dead = usedUp
		m := w.host("h")
		w.connect(m, time.Hour)
		for again := range 2 { // given twice, it is no other thing
			a, changed := law.Restored(w.account(), time.Now().UTC())
			if changed != (again == 0) {
				t.Fatalf("given %d times, it changes %+v: %t", again+1, a, changed)
			}
			if changed {
				if err := w.store.PutAccounts(t.Context(), []keep.Account{a}); err != nil {
					t.Fatal(err)
				}
			}
		}
		got, _ := m.Credential(t.Context(), "mail")
		a := w.account()
		if usedUp != (a.Status == keep.AccountNeedsReconnect) || !usedUp && got.Value != "access-token-1" || len(w.requests()) != 1 {
			t.Errorf("%s: the account is %s, the credential %q, after requests %q", name, a.Status, got.Value, w.requests())
		}
	}
}
