package account

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/account/seal"
	law "github.com/keep-run/keep/law/account"
)

// An exported is an account with what it holds, as it is in a file.
type exported struct {
	Version   int           `json:"version"`
	Name      string        `json:"name"`
	Pack      string        `json:"pack"`
	Style     string        `json:"style"`
	Subject   string        `json:"subject"`
	Scopes    []string      `json:"scopes"`
	Renews    bool          `json:"renews"`
	ExpiresAt time.Time     `json:"expires_at"`
	Lifetime  time.Duration `json:"lifetime"`
	Content   seal.Content  `json:"content"`
}

// exportVersion is the version of files that this Keep writes and reads.
const exportVersion = 1

// ErrWouldShare is returned for a copy of an account whose tokens are renewed: two
// databases that renew the same tokens end the account.
var ErrWouldShare = errors.New("its tokens are renewed, and a service may end an account whose tokens two places renew")

// Export gives write an account with what it holds, which is a secret. With move it is
// forgotten here once write has stored it; without, an account whose tokens are renewed is
// refused with ErrWouldShare.
func (m *Manager) Export(ctx context.Context, name string, move bool, write func(plain []byte) error) error {
	a, err := m.row(ctx, keep.AccountConnected, name)
	switch {
	case err != nil:
		return err
	case a.Status != keep.AccountOK:
		return fmt.Errorf("the account %s is %s and cannot be exported", name, a.Status)
	case a.Renews && !move:
		return fmt.Errorf("the account %s: %w", name, ErrWouldShare)
	}
	if move {
		// Nobody may renew it from here on: what is written would be spent.
		host := "export-" + m.cfg.Host
		var got bool
		if a, got, err = m.cfg.Store.LeaseAccount(ctx, keep.AccountConnected, name, host, m.now(), 10*m.cfg.TTL); err != nil {
			return err
		}
		if !got {
			return fmt.Errorf("the account %s is being renewed by %s; try again in a minute", name, a.LeaseHost)
		}
		for _, r := range a.Refreshes {
			if r.Generation == a.Generation && (r.State == keep.RefreshSent || r.State == keep.RefreshLost) {
				return errors.Join(fmt.Errorf("the answer to a request for new tokens of the account %s was lost; renew it first: keep accounts renew %s", name, name), m.giveBack(ctx, a))
			}
		}
	}
	o, err := m.open(a)
	if err == nil {
		var plain []byte
		plain, err = json.Marshal(exported{exportVersion, a.Name, a.Pack, a.Style, a.Subject, a.Scopes, a.Renews, a.ExpiresAt, a.Lifetime, o.content})
		if err == nil {
			err = write(plain)
		}
	}
	switch {
	case !move:
		return err
	case err != nil:
		return errors.Join(err, m.giveBack(ctx, a))
	}
	if err := m.cfg.Store.PutAccounts(ctx, law.Revoke(a)); err != nil {
		return fmt.Errorf("the account %s is written and not forgotten here, so import it nowhere and try again: %w", name, err)
	}
	return nil
}

// Import stores what Export gave. An account of that name that is there is replaced only if
// replace is set.
func (m *Manager) Import(ctx context.Context, plain []byte, by string, replace bool) (keep.Account, error) {
	var e exported
	if err := json.Unmarshal(plain, &e); err != nil || e.Name == "" {
		return keep.Account{}, errors.New("it holds no account")
	}
	if e.Version != exportVersion {
		return keep.Account{}, fmt.Errorf("it is of version %d, and this Keep reads version %d", e.Version, exportVersion)
	}
	old, err := m.row(ctx, keep.AccountConnected, e.Name)
	if err != nil && !errors.Is(err, keep.ErrNotFound) {
		return old, err
	}
	if err == nil && old.Status == keep.AccountOK && !replace {
		return old, fmt.Errorf("there is an account %s already, which the one of the file would replace: add --replace", e.Name)
	}
	return m.Connect(ctx, keep.Account{Name: e.Name, Pack: e.Pack, Style: e.Style, Subject: e.Subject, Scopes: e.Scopes, Renews: e.Renews,
		ExpiresAt: e.ExpiresAt, Lifetime: e.Lifetime, ConnectedBy: by}, e.Content)
}

// Recipient returns the public part of the key, for which others can seal what is imported
// here. The key is made if nothing was sealed yet.
func (m *Manager) Recipient(ctx context.Context) (string, error) {
	k, err := m.key(ctx)
	if err != nil {
		return "", err
	}
	return k.Recipient(), nil
}
