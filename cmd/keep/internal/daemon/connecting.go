package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/host/account"
	"github.com/keep-run/keep/host/account/oauth"
	"github.com/keep-run/keep/host/account/seal"
	"github.com/keep-run/keep/web"
)

// Bounds of what is begun on the pages and not finished.
const (
	connectFor  = 10 * time.Minute // how long a person has at the service
	maxBegun    = 100
	usedStaysAs = 10 * time.Minute // how long a used answer is told from one that nobody knows
)

// Connecting connects accounts for admins at browsers. What is begun is in memory only: what
// ends with the process has to be begun again.
type Connecting struct {
	Accounts *account.Manager
	Config   func() *config.Config
	Now      func() time.Time

	mu    sync.Mutex
	begun map[string]begun // by state; protected by mu
}

// A begun is an authorization that a person began on the pages.
type begun struct {
	client  *oauth.Client
	attempt oauth.Attempt
	fresh   keep.Account
	over    time.Time // when what it takes the place of was connected; zero: there was none
	asked   []string  // scopes
	login   string    // of the browser that began it
	until   time.Time
	used    bool
}

// Offers implements web.Connector.
//
// They are the packs that are in use, by a connection, a client or an account, and not all that there are.
func (c *Connecting) Offers(ctx context.Context) ([]web.Offer, error) {
	cfg := c.Config()
	var names []string
	wanted := make(map[string][]string) // names of accounts, by pack
	for _, conn := range cfg.Connections {
		names = append(names, conn.Connector)
		wanted[conn.Connector] = append(wanted[conn.Connector], conn.Accounts...)
	}
	for name := range cfg.Clients {
		names = append(names, name)
	}
	all, err := c.Accounts.Accounts(ctx)
	for _, a := range all {
		names = append(names, a.Pack)
	}
	slices.Sort(names)
	var out []web.Offer
	for _, name := range slices.Compact(names) {
		pack, err := config.OnePack(cfg.Dir, name)
		if err != nil || pack.Auth.Style == "none" || pack.Auth.Style == "standard-webhooks" {
			continue // no pack, or one without a credential
		}
		slices.Sort(wanted[name])
		o := web.Offer{Pack: pack.Name, Names: slices.Compact(wanted[name]), Title: cmp.Or(pack.Title, pack.Name), OAuth: pack.Auth.Style == "oauth2", Style: pack.Auth.Style, Docs: pack.Docs}
		if o.OAuth {
			if _, err := OAuthClient(cfg, pack, nil); err != nil {
				o.Missing = err.Error()
			}
		}
		out = append(out, o)
	}
	return out, err
}

// unconnected returns an error that says why nothing was connected.
func unconnected(what, format string, args ...any) error {
	return &web.UnconnectedError{What: what, Why: fmt.Sprintf(format, args...)}
}

// named returns a pack, and the account that is about to be connected.
func (c *Connecting) named(by access.Identity, pack, name string) (config.Pack, keep.Account, error) {
	if !config.AccountName(name) {
		return config.Pack{}, keep.Account{}, unconnected("This is no name of an account", "%q is not made of letters, digits, dots, dashes and underscores", name)
	}
	p, err := config.OnePack(c.Config().Dir, pack)
	return p, keep.Account{Name: name, Pack: p.Name, Style: p.Auth.Style, ConnectedBy: by.Name}, err
}

// Begin implements web.Connector.
//
// Nothing is stored. What is begun belongs to the login that began it: an answer that another login
// brings is refused, so that nobody is made to connect somebody else's account.
func (c *Connecting) Begin(ctx context.Context, by access.Identity, pack, name, redirect string, over time.Time) (page string, scopes []string, err error) {
	p, fresh, err := c.named(by, pack, name)
	if err != nil {
		return "", nil, err
	}
	cfg := c.Config()
	scopes = cfg.Scopes(p)
	client, err := OAuthClient(cfg, p, scopes)
	if err != nil {
		return "", nil, unconnected("This service cannot be connected yet", "%v", err)
	}
	if client.AuthorizeURL == "" {
		return "", nil, unconnected("This service cannot be connected here", "the pack %s has no authorize_url", p.Name)
	}
	b := begun{client: client, attempt: client.Begin(redirect), fresh: fresh, over: over, asked: scopes, login: by.ID, until: c.Now().Add(connectFor)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	if len(c.begun) >= maxBegun {
		return "", nil, unconnected("Too much is begun", "%d accounts are being connected; try again in a few minutes", len(c.begun))
	}
	if c.begun == nil {
		c.begun = map[string]begun{}
	}
	c.begun[b.attempt.State] = b
	return b.attempt.URL, scopes, nil
}

// forget drops what expired a while ago. The caller holds mu.
func (c *Connecting) forget() {
	for state, b := range c.begun {
		if c.Now().After(b.until.Add(usedStaysAs)) {
			delete(c.begun, state)
		}
	}
}

// take returns what an answer belongs to, once.
func (c *Connecting) take(by access.Identity, answer url.Values) (begun, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	b, known := c.begun[answer.Get("state")]
	switch {
	case !known || !b.attempt.Matches(answer) || b.login != by.ID:
		return b, unconnected("This answer belongs to another attempt", "it was not begun in this browser, in this login, or the host was started again since")
	case b.used:
		return b, unconnected("This answer was used already", "each answer of a service counts once")
	case c.Now().After(b.until):
		return b, unconnected("This answer came too late", "it was begun more than %d minutes ago", int(connectFor.Minutes()))
	}
	b.used = true
	c.begun[b.attempt.State] = b
	return b, nil
}

// Finish implements web.Connector.
func (c *Connecting) Finish(ctx context.Context, by access.Identity, answer url.Values) (name string, err error) {
	b, err := c.take(by, answer)
	if err != nil {
		return "", err
	}
	ctx = context.WithoutCancel(ctx) // what the service gives is stored, also if the browser left
	tokens, err := b.client.Finish(ctx, b.attempt, answer)
	switch {
	case errors.Is(err, oauth.ErrDenied):
		refused, _ := errors.AsType[*oauth.RefusedError](err)
		return "", unconnected("It was refused on the page of the service", "the service sent you back: %v", refused)
	case err != nil:
		return "", unconnected("The service gave no tokens", "%v", err)
	}
	_, err = c.Accounts.ConnectOver(ctx, Granted(b.fresh, tokens, b.asked), account.ContentOf(tokens), b.over)
	if errors.Is(err, keep.ErrStale) {
		return "", unconnected("Somebody connected it meanwhile", "%v", err)
	}
	return b.fresh.Name, stored(err)
}

// stored says of the error of an account that was not stored what a person can do about it.
func stored(err error) error {
	_, open := errors.AsType[*seal.PermissionError](err)
	_, lost := errors.AsType[*account.LostKeyError](err)
	if open || lost {
		return unconnected("The key of accounts cannot be used", "%v", err)
	}
	return err
}

// Put implements web.Connector.
func (c *Connecting) Put(ctx context.Context, by access.Identity, pack, name, value string, over time.Time) error {
	p, fresh, err := c.named(by, pack, name)
	if err != nil {
		return err
	}
	value = strings.Trim(value, "\r\n")
	if err := CheckCredential(p, value); err != nil {
		return unconnected("This is no credential of the service", "%v", err)
	}
	_, err = c.Accounts.ConnectOver(ctx, fresh, seal.Content{Value: value}, over)
	if errors.Is(err, keep.ErrStale) {
		return unconnected("Somebody connected it meanwhile", "%v", err)
	}
	return stored(err)
}

// CheckCredential refuses what cannot be the credential that a pack wants.
func CheckCredential(p config.Pack, value string) error {
	switch {
	case value == "":
		return errors.New("nothing was given")
	case p.Auth.Style == "basic" && !strings.Contains(value, ":"):
		return fmt.Errorf("the pack %s wants user:password", p.Name)
	}
	return nil
}

// notSaid are scopes of OpenID Connect that services give and do not name.
var notSaid = []string{"openid", "profile", "email", "address", "phone", "offline_access"}

// NotGranted returns which of the scopes that were asked for a service did not name among those that an account has. It may have given a
// wider one.
func NotGranted(a keep.Account, asked []string) []string {
	return slices.DeleteFunc(slices.Clone(asked), func(s string) bool { return slices.Contains(a.Scopes, s) || slices.Contains(notSaid, s) })
}

// Granted returns an account with what is known of the tokens that it holds. asked are the
// scopes that were asked for: they count if the service does not say which it gave.
func Granted(a keep.Account, t oauth.Tokens, asked []string) keep.Account {
	a.ExpiresAt, a.Lifetime, a.Subject = t.Expires, t.Lifetime, t.Subject
	a.Renews = t.Refresh != ""
	if a.Scopes = t.Scopes; t.Scopes == nil {
		a.Scopes = asked
	}
	return a
}
