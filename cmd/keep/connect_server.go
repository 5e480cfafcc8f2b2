package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/host/account"
	"github.com/keep-run/keep/host/account/oauth"
	"github.com/keep-run/keep/host/account/seal"
)

// connectServer connects an account of an MCP server, whose authorization server it finds by what the server says.
// It needs no pack and, unless keep.toml has a client, no registration by the owner.
func (a *app) connectServer(ctx context.Context, name string, f connectFlags) error {
	if f.device || f.token || f.machine {
		return exit.Misusef("an MCP server is connected in the browser: --device, --token and --client-credentials are for packs")
	}
	return a.withAccounts(ctx, database.ToDeploy, func(cfg *config.Config, m *account.Manager, _ database.DB) error {
		server, own, err := cfg.MCPServer(name)
		switch {
		// The mistake of an empty name would else be called a server that is not there.
		case name == "":
			return exit.Misusef("which MCP server is not said; want mcp:SERVER, as keep.toml calls it in [gateway.servers.SERVER], or a connection with connector = \"mcp\"")
		case errors.Is(err, keep.ErrNotFound):
			return err
		case err != nil:
			return exit.Misusef("%w", err)
		}
		// The name that keep.toml gives the account of the server comes first: no line has to change then.
		called := cmp.Or(f.name, server.Account, name)
		if !config.AccountName(called) {
			return exit.Misusef("--name is %q: use letters, digits, dots, dashes and underscores", called)
		}
		fresh := keep.Account{Name: called, Pack: config.MCPPack + name, Style: "oauth2", ConnectedBy: daemon.User()}
		// An account of this name may be connected already, with scopes that were asked for
		// when a call lacked them (connector/mcp names the command).
		had, err := a.replaced(ctx, m, fresh)
		if err != nil {
			return err
		}
		if had.Pack == fresh.Pack && had.Status != keep.AccountRevoked {
			f.scopes = slices.Concat(f.scopes, had.Scopes) // more may be asked for, and nothing is lost
		}
		fresh, content, err := a.authorizeServer(ctx, server, own, fresh, f)
		if err != nil {
			return err
		}
		return a.storeAccount(ctx, m, fresh, content, name, had)
	})
}

// authorizeServer gets tokens for an MCP server. The addresses that it asks are named by the
// server, and so are not trusted: from a public server it goes to public ones only.
// What it found is stored with the tokens, so that a renewal asks where the tokens are from
// although the server may name another place by then.
func (a *app) authorizeServer(ctx context.Context, server mcp.ServerConfig, own mcp.OAuth, fresh keep.Account, f connectFlags) (keep.Account, seal.Content, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	failed := func(err error) (keep.Account, seal.Content, error) {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
			err = fmt.Errorf("nobody allowed it within %s; try again", f.timeout)
		}
		return fresh, seal.Content{}, exit.Failedf("connect %s: %w", fresh.Pack, err)
	}
	// A server in a private network, which is the owner's own, may name addresses there; a public one
	// may not, since that would let it ask inside.
	at, err := url.Parse(server.URL)
	if err != nil {
		return failed(err)
	}
	h := daemon.GuardedHTTP(oauth.Near(at))
	begun := time.Now()
	found, err := oauth.Discover(ctx, h, server.URL)
	if errors.Is(err, context.DeadlineExceeded) { // before anybody could allow it
		return fresh, seal.Content{}, exit.Failedf("connect %s: a server did not answer within %s: %w", fresh.Pack, time.Since(begun).Round(time.Second), err)
	}
	if err != nil {
		return failed(err)
	}
	scopes := slices.Concat(own.Scopes, f.scopes)
	// A list of the owner is all that is asked for; without one, what the server says that it needs.
	if len(own.Scopes) == 0 {
		scopes = append(scopes, found.Scopes...)
	}
	// Without it such a server gives no refresh token, and the person would be asked again each time
	// that the first one ends.
	if found.Offline {
		scopes = append(scopes, "offline_access")
	}
	slices.Sort(scopes)
	scopes = slices.Compact(scopes)
	// A client without a secret is a public one, which PKCE protects (Discover insists on it).
	auth := oauth.AuthNone
	if own.ClientSecret != "" {
		auth = oauth.AuthBasic
	}
	client := found.Client(own.ClientID, own.ClientSecret, auth, scopes, h)
	fmt.Fprintf(a.Err, "%s has its tokens from %s.\n", terminal.Clean(found.Resource), terminal.Clean(found.Issuer))
	tokens, err := client.Loopback(ctx, oauth.LoopbackOptions{
		Port: cmp.Or(f.port, own.RedirectPort),
		Open: func(page string) error { return a.showPage(a.Err, page, "", f.noBrowser) },
		// The client is registered with the port that is bound by now, and only if the owner has none.
		Before: func(redirect string) (err error) {
			if client.ID == "" {
				client.ID, client.Secret, client.Auth, err = found.Register(ctx, h, redirect)
			}
			return err
		},
	})
	if err != nil {
		return failed(err)
	}
	content := account.ContentOf(tokens)
	content.Client = &seal.Client{Resource: found.Resource, Issuer: found.Issuer, TokenURL: found.TokenURL, RevokeURL: found.RevokeURL,
		ID: client.ID, Secret: client.Secret, Auth: client.Auth, Near: found.Near()}
	return daemon.Granted(fresh, tokens, scopes), content, nil
}
