package account_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
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
		if _, err := person.Revoke(t.Context(), "mail"); err != nil {
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

func (b *beside) PutAccounts(ctx context.Context, as ...keep.Account) error {
	if f := b.first; f != nil {
		b.first = nil
		f()
	}
	return b.kept.PutAccounts(ctx, as...)
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
