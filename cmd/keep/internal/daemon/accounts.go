package daemon

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/host/account"
	"github.com/keep-run/keep/host/account/oauth"
	"github.com/keep-run/keep/host/account/seal"
)

// A Settle makes questions and runs fit the accounts that there are; see
// operator.SettleAccounts.
type Settle = func(ctx context.Context, read func(context.Context) ([]keep.Account, error)) error

// NewAccounts returns the accounts of a database, with the OAuth clients that a
// configuration names at each renewal.
func (e Env) NewAccounts(cfg func() *config.Config, db database.DB, settle Settle) *account.Manager {
	first := cfg()
	// Two processes of one machine are two that may renew, so the name ends at random.
	return account.New(account.Config{
		Store: db, Ring: first.Ring, Host: hostName() + "-" + rand.Text()[:8], TTL: first.Policy.Lease.TTL, Clock: e.Clock, Logger: e.Log, Settle: settle, By: caller,
		Clients: func(a keep.Account, content seal.Content) (account.Client, error) {
			if content.Client != nil {
				return clientOf(*content.Client, a.Scopes), nil
			}
			now := cfg()
			pack, err := config.OnePack(now.Dir, a.Pack)
			if err != nil {
				return nil, err
			}
			client, err := OAuthClient(now, pack, a.Scopes)
			if err == nil && content.TokenURL != "" {
				client.TokenURL, client.RevokeURL = content.TokenURL, content.RevokeURL // tokens go where they are from
			}
			return client, err
		},
	})
}

// caller says who sent the request of a context: the person who gave this command, if there is none.
func caller(ctx context.Context) (who, from string) {
	if id, ok := access.From(ctx); ok {
		return id.Name, id.Surface()
	}
	return User(), "cli"
}

// clientOf returns the client of an account that says itself where its tokens are from.
func clientOf(c seal.Client, scopes []string) *oauth.Client {
	return &oauth.Client{TokenURL: c.TokenURL, RevokeURL: c.RevokeURL, ID: c.ID, Secret: c.Secret, Auth: c.Auth, Scopes: scopes,
		Resource: c.Resource, Issuer: c.Issuer, HTTP: GuardedHTTP(c.Near)}
}

// GuardedHTTP returns what asks servers that others name: it reaches public addresses only, unless the one who
// names them is near.
func GuardedHTTP(near bool) *http.Client {
	t := account.NewTransport()
	if !near {
		t.Base.DialContext = oauth.Guard
	}
	return &http.Client{Transport: t}
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

// UsedBy returns the workflows under each account, sorted: those that may call a tool of one
// of its connections, for reading too, and those that have made changes there.
//
// It is what a person should know before he revokes an account: also a workflow that has not called yet.
func UsedBy(ctx context.Context, cfg *config.Config, db database.DB) (map[string][]keep.WorkflowName, error) {
	made, err := db.UsedTools(ctx)
	if err != nil {
		return nil, err
	}
	grants, err := db.Grants(ctx)
	if err != nil {
		return nil, err
	}
	connections := map[keep.WorkflowName][]string{}
	add := func(w keep.WorkflowName, tool string) {
		conn, _, _ := strings.Cut(tool, ".")
		connections[w] = append(connections[w], conn)
	}
	for w, tools := range made {
		for _, t := range tools {
			add(w, string(t))
		}
	}
	for _, g := range grants {
		for _, t := range g.Tools {
			add(g.Workflow, t.Tool)
		}
	}
	out := map[string][]keep.WorkflowName{}
	for _, w := range slices.Sorted(maps.Keys(connections)) {
		for _, conn := range cfg.Connections {
			of := func(name string) bool { return name == conn.Name || slices.Contains(conn.Was, name) }
			if !slices.ContainsFunc(connections[w], of) {
				continue
			}
			for _, name := range conn.Accounts {
				if !slices.Contains(out[name], w) {
					out[name] = append(out[name], w)
				}
			}
		}
	}
	return out, nil
}

// TestAccount makes the read by which the pack of an account tells whether it works.
func TestAccount(ctx context.Context, cfg *config.Config, m *account.Manager, name string) error {
	a, err := m.Account(ctx, name)
	if err != nil {
		return err
	}
	if strings.HasPrefix(a.Pack, config.MCPPack) {
		return untested(ctx, m, name)
	}
	pack, err := config.OnePack(cfg.Dir, a.Pack)
	if err != nil {
		return err
	}
	if pack.Auth.Test == "" {
		return untested(ctx, m, name)
	}
	return cfg.TestCredential(ctx, pack, name, m)
}

// untested is the error for an account that nothing tests: what is wrong with it as it is known here, or else that.
func untested(ctx context.Context, m *account.Manager, name string) error {
	if _, err := m.Credential(ctx, name); err != nil {
		return err
	}
	return fmt.Errorf("the account %s: %w", name, config.ErrNoTest)
}

// ServedAccounts are the accounts as a server shows them.
type ServedAccounts struct {
	Manager *account.Manager
	DB      database.DB
	Config  func() *config.Config
	Now     func() time.Time
}

// List implements api.Accounts.
func (s ServedAccounts) List(ctx context.Context) ([]api.AccountDetail, error) {
	all, err := s.Manager.Accounts(ctx)
	if err != nil {
		return nil, err
	}
	used, err := UsedBy(ctx, s.Config(), s.DB)
	if err != nil {
		return nil, err
	}
	out := []api.AccountDetail{}
	for _, a := range all {
		out = append(out, api.AccountDetail{Account: api.AccountOf(a, used[a.Name], s.Now()), Refreshes: api.RefreshesOf(a)})
	}
	return out, nil
}

// Test implements api.Accounts.
func (s ServedAccounts) Test(ctx context.Context, name string) error {
	return TestAccount(ctx, s.Config(), s.Manager, name)
}

// Renew implements api.Accounts.
func (s ServedAccounts) Renew(ctx context.Context, name string) error {
	_, err := s.Manager.Renew(ctx, name)
	return err
}

// Revoke implements api.Accounts.
func (s ServedAccounts) Revoke(ctx context.Context, name string, of time.Time) error {
	_, err := s.Manager.Revoke(ctx, name, of)
	return err
}
