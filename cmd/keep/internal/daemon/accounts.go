package daemon

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/host/account"
	"github.com/keep-run/keep/host/account/oauth"
)

// A Settle makes questions and runs fit the accounts that there are; see
// operator.SettleAccounts.
type Settle = func(ctx context.Context, all []keep.Account) error

// NewAccounts returns the accounts of a database, with the OAuth clients that a
// configuration names at each renewal.
func (e Env) NewAccounts(cfg func() *config.Config, db database.DB, settle Settle) *account.Manager {
	first := cfg()
	return account.New(account.Config{
		Store: db, Ring: first.Ring, Host: hostName() + "-" + rand.Text()[:8], TTL: first.Policy.Lease.TTL, Clock: e.Clock, Logger: e.Log, Settle: settle,
		Clients: func(a keep.Account) (account.Client, error) {
			now := cfg()
			pack, err := config.OnePack(now.Dir, a.Pack)
			if err != nil {
				return nil, err
			}
			return OAuthClient(now, pack, a.Scopes)
		},
	})
}

// OAuthClient returns the user's own client of a pack's service.
func OAuthClient(cfg *config.Config, p config.Pack, scopes []string) (*oauth.Client, error) {
	own := cfg.Clients[p.Name]
	auth := p.Auth.Over(own)
	switch {
	case auth.Style != "oauth2" && auth.TokenURL == "":
		return nil, fmt.Errorf("the pack %s has no OAuth: its credential is a key", p.Name)
	case own.ClientID == "":
		return nil, fmt.Errorf("the pack %s needs an OAuth client of yours: make one in the service's settings, and write client_id and client_secret into [packs.%s] of keep.toml", p.Name, p.Name)
	case auth.TokenURL == "":
		return nil, fmt.Errorf("the pack %s has no token_url: write it into [packs.%s] of keep.toml", p.Name, p.Name)
	}
	return &oauth.Client{
		AuthorizeURL: auth.AuthorizeURL, TokenURL: auth.TokenURL, DeviceURL: auth.DeviceURL, RevokeURL: auth.RevokeURL,
		ID: own.ClientID, Secret: own.ClientSecret, Auth: auth.ClientAuth, PKCE: auth.PKCE, Scopes: scopes, ScopeSeparator: auth.ScopeSeparator,
		Params: maps.Clone(auth.Params), HTTP: &http.Client{Transport: account.NewTransport()},
	}, nil
}
