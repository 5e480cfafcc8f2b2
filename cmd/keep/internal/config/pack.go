package config

import (
	"cmp"
	"encoding/base64"
	"errors"
	"maps"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/connector/packs"
	"github.com/keep-run/keep/law/limit"
)

// packDir is where a project keeps its own packs, beside keep.toml.
const packDir = "packs"

var packLibrary = library{packDir, packs.Names, packs.Read}

// A Pack is a file that makes one service a set of tools.
type Pack struct {
	Name    string // as connector = "…" says it
	Version string
	Title   string
	Docs    string // address of the vendor's documentation
	BaseURL string
	Hash    string // "sha256:…" of the file
	BuiltIn bool   // false: a file of the project
	File    string // as people write it
	Auth    PackAuth
	Config  httpapi.Config // its tools, without a credential
	Limits  limit.Rule
	Text    []byte

	tools map[string]*node
}

// PackAuth says how a credential is sent.
type PackAuth struct {
	Style          string            `toml:"style"`           // one of authStyles; "oauth2" sends a token as bearer
	Header         string            `toml:"header"`          // its name, for the style header
	Query          string            `toml:"query"`           // its name, for the style query
	AuthorizeURL   string            `toml:"authorize_url"`   // where a person agrees
	TokenURL       string            `toml:"token_url"`       // where a code becomes a token, and a token a new one
	DeviceURL      string            `toml:"device_url"`      // where a device flow begins
	RevokeURL      string            `toml:"revoke_url"`      // where a token ends
	PKCE           bool              `toml:"pkce"`            // the service takes a code verifier (RFC 7636)
	ClientAuth     string            `toml:"client_auth"`     // how the client proves itself to token_url
	Scopes         []string          `toml:"scopes"`          // that every account has, besides those of its tools
	ScopeSeparator string            `toml:"scope_separator"` // empty: a space
	Params         map[string]string `toml:"params"`          // more of the authorization request
	Test           string            `toml:"test"`            // a read that shows whether the credential works

	// Tools says of reads that their credential goes elsewhere: into this header. The
	// others have it as Style says.
	Tools map[string]string `toml:"tools"`
}

// packTable is a pack's file.
type packTable struct {
	Name    string            `toml:"name"`     // as connector = "…" says it: the name of the file
	Version string            `toml:"version"`  // of the pack; records of calls keep it
	Title   string            `toml:"title"`    // of the service, for people
	Docs    string            `toml:"docs"`     // address of the vendor's documentation
	BaseURL string            `toml:"base_url"` // of the API; empty: each connection has its own
	Headers map[string]string `toml:"headers"`  // sent with each request
	Auth    PackAuth          `toml:"auth"`     // how a credential is sent
	Tools   map[string]*node  `toml:"tools"`    // by name
}

// packConnection is a connection whose connector is a pack.
type packConnection struct {
	Connector string            `toml:"connector"` // name of the pack
	BaseURL   string            `toml:"base_url"`  // empty: the pack's
	Secret    string            `toml:"secret"`    // a token, an API key, or user:password
	Account   string            `toml:"account"`   // a connected account, in place of a secret
	Headers   map[string]string `toml:"headers"`   // sent with each request, over those of the pack
	Only      []string          `toml:"only"`      // tools; empty: all
	Tools     map[string]*node  `toml:"tools"`     // keys that are other than in the pack, by tool
}

// noBase stands for the address of a pack that has none: each connection has its own.
const noBase = "https://base-url.invalid"

// authStyles are the ways to send a credential.
var authStyles = []string{"bearer", "oauth2", "basic", "header", "query", "standard-webhooks", "none"}

// Packs returns the packs that a project in dir can use: its own, and those of Keep that it
// has none of the same name for, sorted. The error is an *Error with what is wrong in them.
func Packs(dir string) ([]Pack, error) { return readAll(packLibrary, dir, readPack) }

// readPack reads and checks a pack. The error is fs.ErrNotExist if there is none.
func readPack(dir, name string) (Pack, []Problem, error) {
	f, err := packLibrary.open(dir, name)
	p := Pack{Name: name, File: f.file, Hash: f.hash, BuiltIn: f.builtIn, Text: f.text}
	if err != nil {
		return p, nil, err
	}
	return p, p.parse(), nil
}

// parse reads the text of a pack and checks it by itself.
//
// It is checked without a connection, so that keep packs can say what is wrong with a file that nothing
// uses yet. A pack without an address of its own gets noBase for that.
func (p *Pack) parse() []Problem {
	root, syntax := parse(p.Text)
	if syntax != nil {
		syntax.File = p.File
		return []Problem{*syntax}
	}
	b := &binder{file: p.File}
	root.inFile(p.File)
	var t packTable
	p.Limits = b.limits(root, "").over(limit.Rule{})
	b.bind(reflect.ValueOf(&t).Elem(), root, "")
	if t.Name != p.Name {
		b.addf(root.table()["name"], "name", "is %q, and the file is %s", t.Name, p.File)
	}
	if t.Version == "" || t.Title == "" {
		b.addf(nil, "version", "version and title are required")
	}
	if !slices.Contains(authStyles, t.Auth.Style) {
		b.addf(root.table()["auth"], "auth.style", "is %q, want one of %s", t.Auth.Style, strings.Join(authStyles, ", "))
	}
	if (t.Auth.Header != "") != (t.Auth.Style == "header") || (t.Auth.Query != "") != (t.Auth.Style == "query") {
		b.addf(root.table()["auth"], "auth.style", "is %q: header and query name where a credential of that style goes", t.Auth.Style)
	}
	b.oauthAddresses(root.table()["auth"], "auth")
	for _, name := range slices.Sorted(maps.Keys(t.Auth.Tools)) {
		if tool := t.Tools[name]; tool == nil || t.Auth.Style != "bearer" {
			b.addf(root.table()["auth"], "auth.tools."+name, "names a tool of this pack, of the style bearer")
		}
	}
	p.Version, p.Title, p.Docs, p.BaseURL, p.Auth, p.tools = t.Version, t.Title, t.Docs, t.BaseURL, t.Auth, t.Tools
	p.Config = httpapi.Config{BaseURL: cmp.Or(t.BaseURL, noBase), Headers: t.Headers, Tools: b.tools(t.Tools, "tools")}
	if len(b.problems) > 0 {
		return b.problems
	}
	conn, err := httpapi.New("pack", p.Config)
	if err != nil {
		return packProblems(b, root, err)
	}
	for _, tool := range conn.Tools {
		p.witnessed(b, tool.Spec())
	}
	b.scoped(p.Auth, p.Config.Tools, p.tools, "tools")
	return b.problems
}

// scoped adds a problem for each tool that doesn't say which scopes it needs, on a service
// whose credentials have scopes: an account would be connected without them, and the first
// call would be refused.
func (b *binder) scoped(auth PackAuth, tools map[string]httpapi.Tool, nodes map[string]*node, at string) {
	has := auth.Style == "oauth2"
	for _, t := range tools {
		has = has || len(t.Scopes) > 0
	}
	if !has || len(auth.Scopes) > 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		if tools[name].Scopes == nil {
			p := b.problem(nodes[name], dotted(at, name)+".scopes", "is missing: the credential of this service has scopes, and an account is connected with those that its tools name")
			p.Fix = `write scopes = ["…"] with what the vendor's page of this request names, or scopes = [] if it needs none`
			b.problems = append(b.problems, p)
		}
	}
}

// witnessed adds a problem if a 2xx of a mutate tool would be believed without a look at
// what it holds: the pack's author knows what it holds.
func (p *Pack) witnessed(b *binder, spec connector.Spec) {
	t := p.Config.Tools[spec.Name]
	required, _ := t.Result["required"].([]any)
	if spec.Effect == connector.Mutate && len(t.AppliedIf) == 0 && len(required) == 0 {
		b.addf(p.tools[spec.Name], dotted("tools", spec.Name), "a mutate tool of a pack needs applied_if, or a result schema with required fields")
	}
}

// packProblems returns what the connector objects to, with the lines of the pack.
func packProblems(b *binder, root *node, err error) []Problem {
	e, ok := errors.AsType[*connector.ConfigError](err)
	if !ok {
		return []Problem{b.problem(nil, "", "%v", err)}
	}
	var out []Problem
	for _, p := range e.Problems {
		path := strings.TrimPrefix(p.Path, "connections.pack.")
		out = append(out, b.problem(root.nearest("."+path), path, "%s", p.Message))
	}
	return out
}

// tools binds the tables of tools.
func (b *binder) tools(tables map[string]*node, at string) map[string]httpapi.Tool {
	out := make(map[string]httpapi.Tool, len(tables))
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		var t httpapi.Tool
		b.bind(reflect.ValueOf(&t).Elem(), tables[name], dotted(at, name))
		out[name] = t
	}
	return out
}

// inFile notes for n and all below it which file they are from.
func (n *node) inFile(file string) {
	n.file = file
	switch v := n.value.(type) {
	case map[string]*node:
		for _, child := range v {
			child.inFile(file)
		}
	case []*node:
		for _, child := range v {
			child.inFile(file)
		}
	}
}

// packed binds a connection on a pack.
//
// The owner's keys are put over the pack's before the tools are bound, so that each key is checked once,
// as it will be used, and a problem has the line of whoever wrote the key.
func (b *binder) packed(name, at string, n *node, v *vault, p Pack) (Connection, bool) {
	before := len(b.problems)
	var c packConnection
	b.bind(reflect.ValueOf(&c).Elem(), n, at)
	tools := maps.Clone(p.tools)
	for _, tool := range slices.Sorted(maps.Keys(c.Tools)) {
		tools[tool] = over(tools[tool], c.Tools[tool])
	}
	for _, tool := range c.Only {
		if tools[tool] == nil {
			problem := b.problem(n.table()["only"], at+".only", "the pack %s has no tool %q", p.Name, tool)
			problem.Fix = suggest(tool, slices.Collect(maps.Keys(tools)))
			b.problems = append(b.problems, problem)
		}
	}
	if len(c.Only) > 0 {
		maps.DeleteFunc(tools, func(tool string, _ *node) bool { return !slices.Contains(c.Only, tool) })
	}
	cfg := httpapi.Config{BaseURL: p.BaseURL, Headers: maps.Clone(p.Config.Headers), Tools: b.tools(tools, at+".tools"), Secrets: v.secrets()}
	if c.BaseURL != "" {
		cfg.BaseURL = c.BaseURL
	}
	if cfg.Headers == nil {
		cfg.Headers = map[string]string{}
	}
	maps.Copy(cfg.Headers, c.Headers)
	b.credential(n, at, p.Auth, c, &cfg)
	b.readable(n, at, "base_url", cfg.BaseURL)
	accounts := v.live(&cfg, c.Account, p)
	b.scoped(p.Auth, cfg.Tools, tools, at+".tools")
	if len(b.problems) > before {
		return Connection{}, false
	}
	b.levels(n, at, p, cfg)
	// The tree that problems of the connector are looked up in: the pack's, under the
	// connection's own keys.
	tree := *n
	table := maps.Clone(n.table())
	table["tools"] = &node{at: n.at, value: tools}
	tree.value = table
	return Connection{
		Name: name, Connector: p.Name, Accounts: accounts, scopes: scopesOf(cfg), Limits: p.Limits, at: &tree, b: b, v: v, mark: v.markOf(n), sender: v.sender(n, accounts, false),
		open: func() (*connector.Connection, error) {
			conn, err := httpapi.New(name, cfg)
			if err == nil {
				conn.Connector = p.Name
				conn.Pack = &keep.Pack{Name: p.Name, Version: p.Version, Hash: p.Hash}
			}
			return conn, err
		},
	}, len(b.problems) == before
}

// scopesOf returns the scopes of all tools.
func scopesOf(cfg httpapi.Config) map[string][]string {
	out := map[string][]string{}
	for name, t := range cfg.Tools {
		out[name] = t.Scopes
	}
	return out
}

// over returns the table of a tool with the keys of another put over it. Tables within it
// are replaced as a whole.
func over(base, top *node) *node {
	if base == nil || top.table() == nil {
		return top
	}
	merged := *base
	table := maps.Clone(base.table())
	maps.Copy(table, top.table())
	merged.value = table
	return &merged
}

// credential puts the secret where the pack says it goes.
//
// The value is also given to the connector as one that must never show. Without https it could be read on
// the way, so that only this machine may go without.
func (b *binder) credential(n *node, at string, auth PackAuth, c packConnection, cfg *httpapi.Config) {
	s, secret := n.table()["secret"], c.Secret
	switch {
	case c.Account != "":
		b.account(n, at, auth, c, cfg)
		return
	case secret == "":
		if auth.Style != "none" && s == nil {
			b.addf(n, at+".secret", "is missing: this pack sends a credential (%s); write secret = \"${secret:name}\", or account = \"NAME\" of keep connect", auth.Style)
		}
		return
	case auth.Style == "none":
		b.addf(s, at+".secret", "this pack sends no credential")
		return
	case insecure(cfg.BaseURL):
		b.addf(n.table()["base_url"], at+".base_url", "a credential is sent over https only, but for this machine itself")
	}
	if s != nil && s.raw == "" && s.source == "" {
		p := b.problem(s, at+".secret", "looks like a secret in plain text")
		p.Fix = `write "${secret:name}" and put the value into .secrets/name`
		b.warnings = append(b.warnings, p)
	}
	cfg.Secrets = append(cfg.Secrets, secret)
	cfg.References = references(n)
	if s != nil && s.raw != "" {
		cfg.References["secret"] = s.raw
	}
	switch auth.Style {
	case "basic":
		cfg.Headers["Authorization"] = "Basic " + base64.StdEncoding.EncodeToString([]byte(secret))
	case "header":
		cfg.Headers[auth.Header] = secret
	case "standard-webhooks":
		sign, err := httpapi.StandardWebhooks(secret)
		if err != nil && s != nil && !strings.HasPrefix(secret, "${") {
			b.addf(s, at+".secret", "%v", err)
		}
		cfg.Sign = sign
	case "query":
		cfg.Query = map[string]string{auth.Query: secret}
	default:
		cfg.Headers["Authorization"] = "Bearer " + secret
	}
	if len(auth.Tools) > 0 {
		elsewhere(auth.Tools, secret, cfg)
	}
}

// elsewhere takes the credential out of the headers that all tools send, and puts it into
// those of each tool.
//
// So a tool that has a header of its own for it does not send it in the usual one, too.
func elsewhere(headers map[string]string, secret string, cfg *httpapi.Config) {
	usual := cfg.Headers["Authorization"]
	delete(cfg.Headers, "Authorization")
	for name, t := range cfg.Tools {
		t.Headers = maps.Clone(t.Headers)
		if t.Headers == nil {
			t.Headers = map[string]string{}
		}
		if header := headers[name]; header != "" {
			t.Headers[header] = secret
		} else if usual != "" {
			t.Headers["Authorization"] = usual
		}
		cfg.Tools[name] = t
	}
}

// account checks a connection that names an account.
func (b *binder) account(n *node, at string, auth PackAuth, c packConnection, cfg *httpapi.Config) {
	named, inTheClear := n.table()["account"], insecure(cfg.BaseURL)
	switch {
	case !AccountName(c.Account):
		b.addf(named, at+".account", "is no name of an account: use letters, digits, dots, dashes and underscores")
	case c.Secret != "" || n.table()["secret"] != nil:
		b.addf(named, at+".account", "and secret are given; want one of them")
	case auth.Style == "none":
		b.addf(named, at+".account", "this pack sends no credential")
	case auth.Style == "standard-webhooks":
		b.addf(named, at+".account", "this pack signs with a key: give it as secret")
	case inTheClear:
		b.addf(n.table()["base_url"], at+".base_url", "a credential is sent over https only, but for this machine itself")
	}
	cfg.References = references(n)
	for name, header := range auth.Tools {
		if t, there := cfg.Tools[name]; there {
			t.CredentialHeader = header
			cfg.Tools[name] = t
		}
	}
}

// insecure reports whether an address is plain HTTP to another machine.
func insecure(base string) bool {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
}

// levels refuses a connection that claims more for a tool than its pack does: a level is
// proved for a pack, and not by saying so.
func (b *binder) levels(n *node, at string, p Pack, cfg httpapi.Config) {
	own, err := httpapi.New("pack", p.Config)
	if err != nil {
		return
	}
	merged, err := httpapi.New("pack", cfg)
	if err != nil {
		return // said when the connection is opened
	}
	claimed := map[string]keep.Level{}
	for _, t := range merged.Tools {
		claimed[t.Spec().Name] = t.Spec().Level
	}
	for _, t := range own.Tools {
		s := t.Spec()
		if level, ok := claimed[s.Name]; ok && level < s.Level {
			b.addf(n.table()["tools"], dotted(at+".tools", s.Name), "is level %s here and level %s in the pack %s; copy the pack to change it: keep packs copy %s",
				level, s.Level, p.Name, p.Name)
		}
	}
}
