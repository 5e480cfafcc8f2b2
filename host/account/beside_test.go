package account_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/account"
	"github.com/keep-run/keep/host/account/oauth"
	"github.com/keep-run/keep/host/account/seal"
	"github.com/keep-run/keep/store"
)

// What a person ends while new tokens of it are on their way is ended with these, too: they are nowhere here, and would be good
// for as long as the service likes.
func TestRevokeBesideARenewal(t *testing.T) {
	w := newWorld(t)
	person := w.host("person")
	m := account.New(account.Config{Store: w.store, Ring: w.ring, Host: "h", Trace: func(at account.Point) {
		if at != account.Answered {
			return
		}
		if _, err := person.Revoke(t.Context(), "mail", time.Time{}); err != nil {
			t.Error(err)
		}
	}, Clients: func(keep.Account, seal.Content) (account.Client, error) {
		return &oauth.Client{TokenURL: w.url + "/token", RevokeURL: w.url + "/revoke", ID: "id", HTTP: &http.Client{Transport: w.via}}, nil
	}})
	w.connect(m, time.Hour)
	if a, err := m.Renew(t.Context(), "mail"); err != nil || a.Status != keep.AccountRevoked {
		t.Errorf("renewed: %s, %v", a.Status, err)
	}
	w.service.mu.Lock()
	defer w.service.mu.Unlock()
	want := []string{"refresh-0", "access-token-0", "refresh-1", "access-token-1"}
	if a := w.account(); a.Status != keep.AccountRevoked || a.Sealed != nil || !slices.Equal(w.service.revoked, want) {
		t.Errorf("the account is %s, and the service heard that %v are not wanted; want revoked, and %v", a.Status, w.service.revoked, want)
	}
}

// A beside is a store that does something once, before it writes.
type beside struct {
	kept
	first func()
}

type kept interface{ store.Accounts }

func (b *beside) PutAccounts(ctx context.Context, as []keep.Account, acts ...keep.Decided) error {
	if f := b.first; f != nil {
		b.first = nil
		f()
	}
	return b.kept.PutAccounts(ctx, as, acts...)
}

// What was sealed with a key that is replaced before it is written can be opened all the same: tokens that a renewal brought
// are nowhere else, and a secret that a person set is said to be set.
func TestRekeyBesideWrites(t *testing.T) {
	for name, write := range map[string]func(w *world, m *account.Manager, replaced func()) error{
		"a renewal": func(w *world, m *account.Manager, replaced func()) error {
			w.service.answers = []func(http.ResponseWriter) bool{func(rw http.ResponseWriter) bool {
				replaced()
				w.service.n++
				rw.Header().Set("Content-Type", "application/json")
				_, _ = rw.Write([]byte(`{"access_token":"access-token-1","refresh_token":"refresh-1","expires_in":3600}`))
				return true
			}}
			_, err := m.Renew(w.Context(), "mail")
			return err
		},
		"a connect": func(w *world, m *account.Manager, replaced func()) error {
			replaced()
			_, err := m.Connect(w.Context(), keep.Account{Name: "mail", Pack: "gmail"}, seal.Content{Value: "access-token-1"})
			return err
		},
		"a new secret": func(w *world, m *account.Manager, replaced func()) error {
			replaced()
			_, err := m.SetSecret(w.Context(), "crm", "a secret value", "ada")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			person := w.host("person")
			b := &beside{kept: w.store}
			w.connect(person, time.Hour)
			w.store = b
			m := w.host("h")
			err := write(w, m, func() {
				b.first = func() {
					if _, err := person.Rekey(t.Context(), false); err != nil {
						t.Error(err)
					}
				}
			})
			if err != nil || b.first != nil {
				t.Fatalf("written: %v; the key was replaced meanwhile: %t", err, b.first == nil)
			}
			fresh := w.host("fresh")
			if name == "a new secret" {
				if got, err := fresh.Secret(t.Context(), "crm"); err != nil || got != "a secret value" {
					t.Errorf("the secret is %q, %v (law: nothing-lost)", got, err)
				}
				return
			}
			if c, err := fresh.Credential(t.Context(), "mail"); err != nil || c.Value != "access-token-1" {
				t.Errorf("the credential is %q, %v (law: nothing-lost)", c.Value, err)
			}
			if n, err := fresh.Rekey(t.Context(), false); err != nil || n != 1 {
				t.Errorf("another change of the key: %d rows, %v", n, err)
			}
		})
	}
}

// Tokens that another host brought while a person revokes their account are named to the service, too: those that it heard
// before are not the ones that are forgotten.
func TestRevokeOfWhatWasRenewed(t *testing.T) {
	w := newWorld(t)
	other := w.host("other")
	w.connect(other, time.Hour)
	b := &beside{kept: w.store, first: func() {
		if _, err := other.Renew(t.Context(), "mail"); err != nil {
			t.Error(err)
		}
	}}
	w.store = b
	if a, err := w.host("person").Revoke(t.Context(), "mail", time.Time{}); err != nil || a.Status != keep.AccountRevoked {
		t.Errorf("revoked: %s, %v", a.Status, err)
	}
	w.service.mu.Lock()
	defer w.service.mu.Unlock()
	want := []string{"refresh-0", "access-token-0", "refresh-1", "access-token-1"}
	if a := w.account(); a.Sealed != nil || !slices.Equal(w.service.revoked, want) {
		t.Errorf("the account is %s, and the service heard that %v are not wanted; want %v", a.Status, w.service.revoked, want)
	}
}

// What somebody connects under the name of an account that is being revoked stays: nobody asked for that to be revoked.
func TestRevokeOfWhatAnotherConnected(t *testing.T) {
	for name, c := range map[string]struct {
		before bool // bob connects his before the revocation begins
		revoke func(*account.Manager, time.Time) error
	}{
		"by name, meanwhile": {false, func(m *account.Manager, _ time.Time) error {
			_, err := m.Revoke(t.Context(), "mail", time.Time{})
			return err
		}},
		"as shown, meanwhile": {false, func(m *account.Manager, shown time.Time) error {
			_, err := m.Revoke(t.Context(), "mail", shown)
			return err
		}},
		"as shown, before": {true, func(m *account.Manager, shown time.Time) error {
			_, err := m.Revoke(t.Context(), "mail", shown)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.connect(w.host("h"), time.Hour)
			shown := w.account().ConnectedAt
			later := account.New(account.Config{Store: w.store, Ring: w.ring, Host: "other", Clock: func() time.Time { return time.Now().Add(time.Minute) }})
			connect := func() {
				if _, err := later.Connect(t.Context(), keep.Account{Name: "mail", Pack: "gmail", Style: "oauth2", ConnectedBy: "bob"}, seal.Content{Access: "of-bob"}); err != nil {
					t.Error(err)
				}
			}
			told := []string{"refresh-0", "access-token-0"}
			if c.before {
				connect()
				told = nil
			} else {
				w.store = &beside{kept: w.store, first: connect}
			}
			if err := c.revoke(w.host("person"), shown); !errors.Is(err, keep.ErrStale) || !strings.Contains(err.Error(), "bob connected the account mail") {
				t.Errorf("it says: %v", err)
			}
			w.service.mu.Lock()
			defer w.service.mu.Unlock()
			if a := w.account(); a.Status != keep.AccountOK || a.Sealed == nil || !slices.Equal(w.service.revoked, told) {
				t.Errorf("the account of bob is %s, and the service heard that %v are not wanted", a.Status, w.service.revoked)
			}
		})
	}
}

// What somebody connects under the name of an account that is being moved stays, and is in no file: nobody asked for that to be moved.
func TestMoveOfWhatAnotherConnected(t *testing.T) {
	w := newWorld(t)
	w.connect(w.host("h"), time.Hour)
	later := account.New(account.Config{Store: w.store, Ring: w.ring, Host: "other", Clock: func() time.Time { return time.Now().Add(time.Minute) }})
	connected := false
	var file paper
	to := file.sink()
	to.Wrap = func(plain []byte) ([]byte, error) {
		if !connected {
			connected = true
			if _, err := later.Connect(t.Context(), keep.Account{Name: "mail", Pack: "gmail", Style: "oauth2", ConnectedBy: "bob"}, seal.Content{Access: "of-bob"}); err != nil {
				t.Error(err)
			}
		}
		return plain, nil
	}
	if err := w.host("person").Export(t.Context(), "mail", true, to); !errors.Is(err, keep.ErrStale) || !strings.Contains(err.Error(), "bob connected the account mail") {
		t.Errorf("it says: %v", err)
	}
	if a := w.account(); a.Status != keep.AccountOK || a.Sealed == nil || a.ConnectedBy != "bob" || file.text != nil {
		t.Errorf("the account of bob is %s, and the file has %q", a.Status, file.text)
	}
}

// A slow reader is a store after whose reading something happens, once.
type slowReader struct {
	kept
	then  func()
	lease bool // after a lease, which reads, too
}

func (s *slowReader) LeaseAccount(ctx context.Context, kind keep.AccountKind, name, host string, now time.Time, ttl time.Duration) (keep.Account, bool, error) {
	a, got, err := s.kept.LeaseAccount(ctx, kind, name, host, now, ttl)
	if f := s.then; f != nil && s.lease {
		s.then = nil
		f()
	}
	return a, got, err
}

func (s *slowReader) Accounts(ctx context.Context, kind keep.AccountKind, names ...string) ([]keep.Account, error) {
	list, err := s.kept.Accounts(ctx, kind, names...)
	if f := s.then; f != nil && len(list) > 0 && !s.lease {
		s.then = nil
		f()
	}
	return list, err
}

// A row that was read before its key was replaced, and opened after, is what it was: a call is not refused for it, no person is asked, and
// nothing is deleted.
func TestRekeyBesideReads(t *testing.T) {
	for name, read := range map[string]func(w *world, m *account.Manager) error{
		"a call": func(w *world, m *account.Manager) error {
			_, err := m.Credential(w.Context(), "mail")
			return err
		},
		"whose call": func(w *world, m *account.Manager) error {
			_, err := m.Owner(w.Context(), "mail")
			return err
		},
		"a list": func(w *world, m *account.Manager) error {
			list, err := m.Accounts(w.Context())
			for _, a := range list {
				if a.Status != keep.AccountOK {
					err = errors.Join(err, errors.New(a.Error))
				}
			}
			return err
		},
		"a secret": func(w *world, m *account.Manager) error {
			_, err := m.Secret(w.Context(), "crm")
			return err
		},
		"a move": func(w *world, m *account.Manager) error {
			var file paper
			return m.Export(w.Context(), "mail", true, file.sink())
		},
		"a renewal": func(w *world, m *account.Manager) error {
			_, err := m.Renew(w.Context(), "mail")
			return err
		},
		"a revocation": func(w *world, m *account.Manager) error {
			_, err := m.Revoke(w.Context(), "mail", time.Time{})
			return err
		},
		"another change of the key": func(w *world, m *account.Manager) error {
			_, err := m.Rekey(w.Context(), false)
			return err
		},
		"a change that discards": func(w *world, m *account.Manager) error {
			rows, err := m.Rekey(w.Context(), true)
			if err == nil && rows != 2 {
				err = fmt.Errorf("%d rows are left of 2", rows)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			person := w.host("person")
			w.connect(person, time.Hour)
			if _, err := person.SetSecret(t.Context(), "crm", "a secret value", "ada"); err != nil {
				t.Fatal(err)
			}
			s := &slowReader{kept: w.store, lease: name == "a renewal", then: func() {
				if _, err := person.Rekey(t.Context(), false); err != nil {
					t.Error(err)
				}
			}}
			w.store = s
			if err := read(w, w.host("h")); err != nil || s.then != nil {
				t.Errorf("%v; the key was replaced meanwhile: %t", err, s.then == nil)
			}
		})
	}
}

// Keys are replaced by several processes, some of which are killed: the key that is there last opens everything.
func TestRekeysBesideEachOther(t *testing.T) {
	kill := func(m *account.Manager, w *world) {
		defer func() { _ = recover() }()
		_, _ = m.Rekey(w.Context(), false)
	}
	for name, beside := range map[string]func(w *world, other *account.Manager){
		"another one finishes it": func(w *world, other *account.Manager) {
			if n, err := other.Rekey(w.Context(), false); err != nil || n != 1 {
				w.Errorf("the other one: %d, %v", n, err)
			}
		},
		"another one finishes it, and the next is killed at once": func(w *world, other *account.Manager) {
			if _, err := other.Rekey(w.Context(), false); err != nil {
				w.Error(err)
			}
			kill(w.dying(account.NewKeyWritten), w)
		},
		"another one finishes it, and the next is killed before its end": func(w *world, other *account.Manager) {
			if _, err := other.Rekey(w.Context(), false); err != nil {
				w.Error(err)
			}
			kill(w.dying(account.Resealed), w)
		},
		"two others finish": func(w *world, other *account.Manager) {
			for range 2 {
				if _, err := other.Rekey(w.Context(), false); err != nil {
					w.Error(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			other := w.host("other")
			w.connect(other, time.Hour)
			once := true
			slow := account.New(account.Config{Store: w.store, Ring: w.ring, Host: "slow", Trace: func(at account.Point) {
				if at == account.Resealed && once {
					once = false
					beside(w, other)
				}
			}})
			if n, err := slow.Rekey(t.Context(), false); err != nil || n != 1 {
				t.Errorf("the slow one: %d rows, %v", n, err)
			}
			if c, err := w.host("fresh").Credential(t.Context(), "mail"); err != nil || c.Value != "access-token-0" {
				t.Errorf("the credential is %q, %v (law: nothing-lost)", c.Value, err)
			}
			if n, err := w.host("later").Rekey(t.Context(), false); err != nil || n != 1 {
				t.Errorf("another change of the key: %d rows, %v", n, err)
			}
		})
	}
}

// A file replaces no account that somebody connected while it was read, unless that is said.
func TestImportBesideAConnect(t *testing.T) {
	for _, replace := range []bool{false, true} {
		w := newWorld(t)
		person := w.host("person")
		if _, err := person.Connect(t.Context(), keep.Account{Name: "mail", Pack: "gmail"}, seal.Content{Value: "of the file"}); err != nil {
			t.Fatal(err)
		}
		var file paper
		if err := person.Export(t.Context(), "mail", true, file.sink()); err != nil {
			t.Fatal(err)
		}
		w.store = &slowReader{kept: w.store, then: func() {
			if _, err := person.Connect(t.Context(), keep.Account{Name: "mail", Pack: "gmail"}, seal.Content{Value: "of a person"}); err != nil {
				t.Error(err)
			}
		}}
		_, err := w.host("h").Import(t.Context(), file.text, "ada", replace)
		want := "of a person"
		if replace {
			want = "of the file"
		}
		if c, cerr := person.Credential(t.Context(), "mail"); cerr != nil || c.Value != want || (err == nil) != replace {
			t.Errorf("replace %t: the account holds %q, want %q; %v, %v", replace, c.Value, want, err, cerr)
		}
	}
}

// A full store takes no writes.
type full struct{ kept }

func (full) PutAccounts(context.Context, []keep.Account, ...keep.Decided) error {
	return errors.New("the disk is full")
}

// An account that could not be forgotten is not said to be, also if the service could not be told.
func TestRevokeThatIsNotWritten(t *testing.T) {
	w := newWorld(t)
	w.connect(w.host("h"), time.Hour)
	w.store = full{w.store}
	w.via = untold{}
	_, err := w.host("person").Revoke(t.Context(), "mail", time.Time{})
	if err == nil || strings.Contains(err.Error(), "is forgotten here") || !strings.Contains(err.Error(), "the disk is full") || !strings.Contains(err.Error(), "no route") || strings.Contains(err.Error(), "issued") {
		t.Errorf("it says: %v", err)
	}
	if a := w.account(); a.Status != keep.AccountOK {
		t.Errorf("the account is %s", a.Status)
	}
}

// An untold service is not reached.
type untold struct{}

func (untold) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("no route") }

// A late dropper is a store in which something happens before something is deleted, once.
type lateDropper struct {
	kept
	first func()
}

func (d *lateDropper) DropAccount(ctx context.Context, kind keep.AccountKind, name string, rev int64, acts ...keep.Decided) error {
	if f := d.first; f != nil {
		d.first = nil
		f()
	}
	return d.kept.DropAccount(ctx, kind, name, rev, acts...)
}

// What a person connects again, or sets, while what no key opens is given up is not given up with it.
func TestDiscardBesideAConnect(t *testing.T) {
	w := newWorld(t)
	person := w.host("person")
	w.connect(person, time.Hour)
	if _, err := person.SetSecret(t.Context(), "crm", "an old secret", "ada"); err != nil {
		t.Fatal(err)
	}
	w.ring = seal.Ring{Path: filepath.Join(t.TempDir(), "another.key")}
	if _, err := w.ring.Make(); err != nil {
		t.Fatal(err)
	}
	again := w.host("person")
	w.store = &lateDropper{kept: w.store, first: func() {
		_, err := again.SetSecret(t.Context(), "crm", "a new secret", "ada")
		w.connect(again, time.Hour)
		if err != nil {
			t.Error(err)
		}
	}}
	if n, err := w.host("h").Rekey(t.Context(), true); err != nil || n != 2 {
		t.Errorf("%d rows are left, %v; want those that were set anew", n, err)
	}
	if got, err := w.host("fresh").Secret(t.Context(), "crm"); err != nil || got != "a new secret" {
		t.Errorf("the secret is %q, %v (law: nothing-lost)", got, err)
	}
	if c, err := w.host("fresh").Credential(t.Context(), "mail"); err != nil || c.Value != "access-token-0" {
		t.Errorf("the account holds %q, %v (law: nothing-lost)", c.Value, err)
	}
}

// unknownClient says invalid_client.
func unknownClient(w http.ResponseWriter) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnauthorized)
	fmt.Fprint(w, `{"error":"invalid_client"}`)
	return true
}

// A secret of a client that is mistyped in keep.toml says nothing of the accounts: they are renewed when it is right. A client that
// the account has of its own is gone with what it was given.
func TestWrongClient(t *testing.T) {
	for _, own := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newBubble(t)
			m := w.host("h")
			w.connect(m, time.Hour)
			w.service.answers = []func(http.ResponseWriter) bool{unknownClient, unknownClient, unknownClient}
			if own {
				if _, err := m.Connect(t.Context(), keep.Account{Name: "mail", Pack: "mcp:box", Style: "oauth2", Renews: true, ExpiresAt: time.Now().Add(time.Hour), Lifetime: time.Hour},
					seal.Content{Access: "access-token-0", Refresh: "refresh-0", Client: &seal.Client{ID: "id"}}); err != nil {
					t.Fatal(err)
				}
				if a, err := m.Renew(t.Context(), "mail"); err != nil || a.Status != keep.AccountNeedsReconnect {
					t.Errorf("an account whose own client is gone is %s, %v", a.Status, err)
				}
				return
			}
			for range 3 {
				a, err := m.Renew(t.Context(), "mail")
				if err == nil || a.Status != keep.AccountOK || !strings.Contains(w.account().Error, "invalid_client") {
					t.Errorf("the account is %s, %v, and says %q", a.Status, err, w.account().Error)
				}
			}
			if a, err := m.Renew(t.Context(), "mail"); err != nil || a.Status != keep.AccountOK || w.account().Error != "" {
				t.Errorf("when the client is right: %s, %v, %q (law: nothing-lost)", a.Status, err, w.account().Error)
			}
		})
	}
}

// Who presses Renew while a call only looks whether that is due gets new tokens, or an error.
func TestRenewBesideACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubble(t)
		m := w.host("h")
		w.connect(m, time.Minute)
		w.service.answers = []func(http.ResponseWriter) bool{busy}
		if _, err := m.Renew(t.Context(), "mail"); err == nil {
			t.Fatal("renewed by a service that is busy")
		}
		before := w.account()
		var renewed keep.Account
		var err error
		s := &slowReader{kept: w.store, lease: true}
		w.store = s
		other := w.host("h")
		s.then = func() {
			go func() { renewed, err = other.Renew(t.Context(), "mail") }()
			synctest.Wait()
		}
		if _, err := other.Credential(t.Context(), "mail"); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if err != nil || renewed.Generation != before.Generation+1 {
			t.Errorf("generation %d, %v; want %d", renewed.Generation, err, before.Generation+1)
		}
	})
}
