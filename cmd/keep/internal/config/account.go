package config

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/keychain"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/host/account/oauth"
	"github.com/keep-run/keep/host/account/seal"
	law "github.com/keep-run/keep/law/account"
)

// keyName is the file of the key beside keep.toml, and KeyVariable holds the key itself.
const (
	keyName     = "keep.key"
	KeyVariable = Prefix + "KEY"
)

// An accountsTable is [accounts] as it is written; the key itself is never in keep.toml, which is made to
// be shared.
type accountsTable struct {
	Key      string `toml:"key"`      // file of the key; empty: keep.key
	Keychain string `toml:"keychain"` // name of the key in the keychain of the system; empty: it is in a file
}

// A PackClient is the user's own OAuth client of a pack, and what it says instead of the
// pack.
type PackClient struct {
	ClientID     string   `toml:"client_id"`     // of the user's own OAuth client
	ClientSecret string   `toml:"client_secret"` // of that client
	AuthorizeURL string   `toml:"authorize_url"` // in place of the pack's
	TokenURL     string   `toml:"token_url"`     // in place of the pack's
	DeviceURL    string   `toml:"device_url"`    // in place of the pack's
	RevokeURL    string   `toml:"revoke_url"`    // in place of the pack's
	Scopes       []string `toml:"scopes"`        // in place of those that the tools name
	RedirectPort int      `toml:"redirect_port"` // of the loopback address that the client is registered with; zero: any
}

// ring returns where the key of accounts is.
func (t accountsTable) ring(cfg *Config, env *environment) seal.Ring {
	env.used[KeyVariable] = true
	name := t.Key
	name = cmp.Or(name, keyName)
	r := seal.Ring{Text: env.vars[KeyVariable], Path: filepath.Clean(cfg.abs(name))}
	if t.Keychain != "" {
		r.Keychain = keychain.Keychain{Name: t.Keychain}
	}
	return r
}

var accountReference = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{account:([^}]*)\}`) })

// AccountName reports whether s can name an account or a secret.
func AccountName(s string) bool { return law.IsName(s) }

// inHeader reports whether a path is a header of a connection, where ${account:NAME} may
// stand.
func inHeader(path string) bool {
	return strings.HasPrefix(path, "connections.") && strings.Contains(path, ".headers.")
}

// UseAccounts gives the connections, and the servers of the gateway, the accounts that they
// name. Without it each call that needs one fails.
//
// The configuration is read before the database is opened, since it says which one that is; so accounts
// are set afterwards, in the vaults that the connections share.
func (c *Config) UseAccounts(accounts connector.Accounts) {
	for _, conn := range c.Connections {
		conn.v.accounts = accounts
	}
	for _, server := range c.Gateway.Servers {
		if live, ok := server.Accounts.(liveAccounts); ok {
			live.v.accounts = accounts
		}
	}
}

// accountsIn returns the accounts that the headers of a connection name.
func accountsIn(headers map[string]string) []string {
	var names []string
	for _, value := range headers {
		for _, m := range accountReference().FindAllStringSubmatch(value, -1) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// A liveAuth gives requests what accounts hold at that moment.
type liveAuth struct {
	v       *vault
	account string            // whose credential goes where the pack says; empty: none
	pack    Pack              // of the connection, if account is not empty
	headers map[string]string // with ${account:NAME} in them
	names   []string          // of all accounts
}

// live moves the headers that name accounts out of a configuration, and returns the names
// of all accounts of the connection. An account may be empty.
func (v *vault) live(cfg *httpapi.Config, account string, pack Pack) []string {
	l := &liveAuth{v: v, account: account, pack: pack, headers: map[string]string{}}
	plain := map[string]string{}
	for name, value := range cfg.Headers {
		if accountReference().MatchString(value) {
			l.headers[name] = value
		} else {
			plain[name] = value
		}
	}
	l.names = accountsIn(l.headers)
	if account != "" && !slices.Contains(l.names, account) {
		l.names = append(l.names, account)
	}
	if len(l.names) == 0 {
		return nil
	}
	if cfg.References == nil {
		cfg.References = map[string]string{}
	}
	maps.Copy(cfg.References, l.headers)
	if account != "" {
		cfg.References["account"] = account
	}
	cfg.Headers, cfg.Auth = plain, l
	return l.names
}

// Authorize returns what a request carries now.
func (l *liveAuth) Authorize(ctx context.Context) (httpapi.Authorization, error) {
	a := httpapi.Authorization{Header: map[string]string{}, Query: map[string]string{}, Credentials: map[string]connector.Credential{}}
	for _, name := range l.names {
		c, err := liveAccounts{l.v, ""}.Credential(ctx, name)
		if err == nil && name == l.account {
			err = l.v.checkService(name, c, l.pack)
		}
		if err != nil {
			return a, err
		}
		a.Credentials[name] = c
		a.Secrets = append(append(a.Secrets, c.Secrets...), c.Value)
	}
	for name, value := range l.headers {
		a.Header[name] = accountReference().ReplaceAllStringFunc(value, func(ref string) string {
			return a.Credentials[accountReference().FindStringSubmatch(ref)[1]].Value
		})
	}
	if l.account != "" {
		l.pack.Auth.put(a.Credentials[l.account].Value, a.Header, a.Query)
	}
	for _, value := range a.Header {
		if _, word, ok := strings.Cut(value, " "); ok {
			a.Secrets = append(a.Secrets, word) // as Basic encodes it
		}
	}
	return a, nil
}

// checkService returns a failure if a credential is known to be of another service than that of a pack: connecting another pack
// under the name of an account, or a wrong name in keep.toml, would give it to a stranger. One account may serve several packs, such as
// those of Google, or a copy of a pack under another name.
func (v *vault) checkService(account string, c connector.Credential, p Pack) error {
	if !otherService(v.dir, c.Pack, p) {
		return nil
	}
	f := keep.Failf(keep.ClassPermission, keep.CodeAccount, "the account %s is of %s, and is not sent to %s: connect one of %[3]s under another name, keep connect %[3]s --name NAME, and write account = \"NAME\"", account, c.Pack, p.Name)
	f.Account, f.Generation = account, c.Generation
	return f
}

// otherService reports whether the credential of a pack is known to be of another service than that of p. A pack that is gone says nothing.
func otherService(dir, pack string, p Pack) bool {
	if pack == "" || pack == p.Name {
		return false
	}
	own, err := OnePack(dir, pack)
	return err == nil && !p.sharesService(own)
}

// OtherService reports whether an account of one pack is known to be of another service than that of the pack of a connection.
func (c *Config) OtherService(account, of string) bool {
	p, err := OnePack(c.Dir, of)
	return err == nil && otherService(c.Dir, account, p)
}

// sharesService reports whether two packs are of one service: their tokens, or their addresses, are from one place.
func (p Pack) sharesService(other Pack) bool {
	if p.Auth.TokenURL != "" && p.Auth.TokenURL == other.Auth.TokenURL {
		return true
	}
	one, err := url.Parse(p.BaseURL)
	two, otherErr := url.Parse(other.BaseURL)
	return err != nil || otherErr != nil || one.Host == "" || two.Host == "" || strings.EqualFold(one.Host, two.Host)
}

// Refused asks for other credentials.
//
// Every account is asked, not just the first that renews: which of them the service refused is not known.
func (l *liveAuth) Refused(ctx context.Context, a httpapi.Authorization) bool {
	renewed := false
	for _, name := range l.names {
		renewed = l.v.accounts.Refused(ctx, name, a.Credentials[name]) || renewed
	}
	return renewed
}

// Accepted says so of each account.
func (l *liveAuth) Accepted(ctx context.Context, _ httpapi.Authorization) {
	for _, name := range l.names {
		liveAccounts{l.v, ""}.Accepted(ctx, name)
	}
}

// liveAccounts are the accounts of a database that is opened after the configuration is
// read.
type liveAccounts struct {
	v  *vault
	to string // address of the one MCP server to which they are sent; empty: it is another kind of service
}

// Credential implements connector.Accounts.
func (l liveAccounts) Credential(ctx context.Context, account string) (connector.Credential, error) {
	if l.v.accounts == nil {
		return connector.Credential{}, keep.Failf(keep.ClassPermission, keep.CodeAccount, "the account %s is in the database, which is not open", account)
	}
	c, err := l.v.accounts.Credential(ctx, account)
	if err == nil && c.Resource != "" && (l.to == "" || !oauth.Covers(c.Resource, l.to)) {
		return connector.Credential{}, keep.Failf(keep.ClassPermission, keep.CodeAccount, "the account %s is for %s, and is sent nowhere else", account, c.Resource)
	}
	return c, err
}

// Refused implements connector.Accounts.
func (l liveAccounts) Refused(ctx context.Context, account string, c connector.Credential) bool {
	return l.v.accounts != nil && l.v.accounts.Refused(ctx, account, c)
}

// Accepted implements connector.Accounts.
func (l liveAccounts) Accepted(ctx context.Context, account string) {
	if l.v.accounts != nil {
		l.v.accounts.Accepted(ctx, account)
	}
}

// put puts a credential where the pack says it goes.
func (p PackAuth) put(value string, headers, query map[string]string) {
	switch p.Style {
	case "basic":
		headers["Authorization"] = "Basic " + base64.StdEncoding.EncodeToString([]byte(value))
	case "header":
		headers[p.Header] = value
	case "query":
		query[p.Query] = value
	default:
		headers["Authorization"] = "Bearer " + value
	}
}

// Over returns what the pack says, with what the user's own client says put over it.
func (p PackAuth) Over(own PackClient) PackAuth {
	for _, o := range []struct {
		to   *string
		from string
	}{{&p.AuthorizeURL, own.AuthorizeURL}, {&p.TokenURL, own.TokenURL}, {&p.DeviceURL, own.DeviceURL}, {&p.RevokeURL, own.RevokeURL}} {
		if o.from != "" {
			*o.to = o.from
		}
	}
	return p
}

// clients checks the user's own OAuth clients.
func (b *binder) clients(tables map[string]PackClient, root *node) map[string]PackClient {
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		b.oauthAddresses(root.table()["packs"].table()[name], dotted("packs", name))
	}
	return tables
}

// oauthAddresses checks where an OAuth service is, in a table that says it: codes, secrets and tokens go there.
func (b *binder) oauthAddresses(n *node, at string) {
	for _, key := range []string{"authorize_url", "device_url", "revoke_url", "token_url"} {
		v := n.table()[key]
		text, ok := v.string()
		if v == nil || !ok || text == "" || isOpen(text) {
			continue
		}
		switch u, err := url.Parse(text); {
		case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
			b.addf(v, dotted(at, key), "is no address, such as https://login.example.com/token")
		case u.User != nil:
			b.addf(v, dotted(at, key), "holds a user; write client_id and client_secret")
		case insecure(text):
			b.addf(v, dotted(at, key), "tokens are asked for by https only, but for this machine itself")
		}
	}
}

// OnePack returns a pack by its name, or a *keep.NotFoundError.
func OnePack(dir, name string) (Pack, error) {
	p, problems, err := readPack(dir, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p, &keep.NotFoundError{What: "pack", ID: name}
	case err != nil:
		return p, err
	}
	return p, asError(problems)
}

// Scopes returns the scopes that connections on a pack need for their tools, and those that
// the pack and the user's own client ask for, sorted.
func (c *Config) Scopes(p Pack) []string {
	scopes := slices.Concat(p.Auth.Scopes, c.Clients[p.Name].Scopes)
	for _, conn := range c.Connections {
		if conn.Connector == p.Name {
			for _, of := range conn.scopes {
				scopes = append(scopes, of...)
			}
		}
	}
	slices.Sort(scopes)
	return slices.Compact(scopes)
}

// A Need is what a tool wants of an account.
type Need struct {
	Tool    keep.ToolName
	Pack    string // of the tool; "PACK" if its connection has none
	Account string
	Scopes  []string
}

// Needs returns what tools want of the accounts of their connections. Tools without an
// account are left out.
func (c *Config) Needs(tools []keep.ToolName) (needs []Need) {
	for _, full := range tools {
		name, tool, _ := strings.Cut(string(full), ".")
		for _, conn := range c.Connections {
			if conn.Name != name {
				continue
			}
			pack := conn.Connector
			if conn.mcp != nil {
				pack = MCPPack + name
			} else if _, general := kinds[pack]; general {
				pack = "PACK"
			}
			for _, account := range conn.Accounts {
				needs = append(needs, Need{Tool: full, Pack: pack, Account: account, Scopes: conn.scopes[tool]})
			}
		}
	}
	return needs
}

// TestCredential makes the read by which the pack tells whether a credential works: on a
// connection that uses the account, or on the pack's own address.
//
// A connection that uses the account is preferred: it may have another address or other headers than
// the pack.
func (c *Config) TestCredential(ctx context.Context, p Pack, account string, accounts connector.Accounts) error {
	v := &vault{accounts: accounts, dir: c.Dir}
	if len(c.Connections) > 0 {
		if v = c.Connections[0].v; v.accounts == nil { // a running host has set it
			v.accounts = accounts
		}
	}
	cfg := p.Config
	cfg.Headers = maps.Clone(cfg.Headers)
	v.live(&cfg, account, p)
	open := func() (*connector.Connection, error) { return httpapi.New(p.Name, cfg) }
	for _, conn := range c.Connections {
		if conn.Connector == p.Name && slices.Contains(conn.Accounts, account) {
			open = conn.open
		}
	}
	conn, err := open()
	if err != nil {
		return err
	}
	if conn.Close != nil {
		defer conn.Close()
	}
	for _, t := range conn.Tools {
		if reader, ok := t.(connector.Reader); ok && t.Spec().Name == p.Auth.Test {
			_, err := reader.Read(ctx, json.RawMessage("{}"))
			return err
		}
	}
	return ErrNoTest
}

// MCPPack begins what an account names in place of a pack if it is one of an MCP server.
const MCPPack = "mcp:"

// MCPServer returns an MCP server by HTTP of the gateway or of the connections, and the owner's OAuth client of it.
func (c *Config) MCPServer(name string) (mcp.ServerConfig, mcp.OAuth, error) {
	table := dotted("gateway.servers", name)
	server, own, found := mcp.ServerConfig{}, c.Gateway.OAuth[name], false
	for _, s := range c.Gateway.Servers {
		if s.Name == name {
			server, found = s, true
		}
	}
	for _, conn := range c.Connections {
		if conn.Name == name && conn.mcp != nil && !found {
			server, own, found = conn.mcp.Server(name), conn.mcp.OAuth, true
			server.Account, table = conn.mcp.Account, dotted("connections", name)
		}
	}
	switch {
	case !found:
		return server, own, &keep.NotFoundError{What: "MCP server", ID: name}
	case server.URL == "":
		return server, own, fmt.Errorf("the MCP server %s is a command, which gets its credential by env", name)
	}
	return server, own, c.Lacks(table)
}

// ErrNoTest is returned for a pack that names no read to test a credential with.
var ErrNoTest = errors.New("nothing to test with: the pack names no read that shows whether a credential works; whether this one does, the next call shows")
