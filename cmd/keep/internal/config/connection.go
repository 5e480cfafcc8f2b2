package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/files"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/connector/logsink"
	"github.com/keep-run/keep/connector/mail"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/connector/packs"
	"github.com/keep-run/keep/connector/s3"
	"github.com/keep-run/keep/connector/sqldb"
	"github.com/keep-run/keep/law/limit"
)

// A Connection is one configured account.
type Connection struct {
	Name      string
	Connector string          // kind of service, such as "http"
	Was       connector.Names // all names that it had before
	New       bool            // it had no others
	Accounts  []string        // that it uses

	mcp     *mcp.Config         // of an MCP server; nil: it is another kind of service
	scopes  map[string][]string // by tool
	budgets map[string]string   // that tools name themselves, by tool
	mark    string              // of the secrets that it uses; see connector.Connection
	sender  connector.Sender    // see connector.Connection

	// Limits say how often it may be used, by all of its users together.
	Limits limit.Rule

	approve approveTable

	open func() (*connector.Connection, error)
	at   *node
	b    *binder
	v    *vault
}

// A kind is one connector as configuration sees it.
type kind struct {
	settings reflect.Type // its Config

	// paths makes the paths in a Config absolute. Nil: it has none.
	paths func(settings any, abs func(string) string)

	// secrets gives a Config the values that must never show. Nil: it needs none.
	secrets func(settings any, values []string, references map[string]string)

	open func(name string, settings any) (*connector.Connection, error)
}

// kindOf describes a connector with a Config of type C.
func kindOf[C any](open func(string, C) (*connector.Connection, error), paths func(*C, func(string) string)) kind {
	k := kind{
		settings: reflect.TypeFor[C](),
		open:     func(name string, s any) (*connector.Connection, error) { return open(name, *s.(*C)) },
	}
	if paths != nil {
		k.paths = func(s any, abs func(string) string) { paths(s.(*C), abs) }
	}
	return k
}

// references returns the headers of a connection that hold references, as they are written.
func references(n *node) map[string]string {
	out := map[string]string{}
	for name, h := range n.table()["headers"].table() {
		if h.raw != "" {
			out[name] = h.raw
		}
	}
	return out
}

// hiding returns k with a way to pass secrets on.
func (k kind) hiding(set func(settings any, values []string, references map[string]string)) kind {
	k.secrets = set
	return k
}

// kinds are the connectors that Keep has, by the names that keep.toml uses.
var kinds = map[string]kind{
	httpapi.Kind: kindOf(httpapi.New, nil).hiding(func(s any, values []string, references map[string]string) {
		c := s.(*httpapi.Config)
		c.Secrets, c.References = values, references
	}),
	files.Kind: kindOf(files.New, func(c *files.Config, abs func(string) string) {
		c.Root = abs(c.Root)
	}),
	sqldb.Kind: kindOf(sqldb.New, func(c *sqldb.Config, abs func(string) string) {
		if file, ok := strings.CutPrefix(c.URL, "sqlite:"); ok {
			c.URL = "sqlite:" + abs(strings.TrimPrefix(file, "//"))
		}
	}),
	s3.Kind: kindOf(s3.New, nil),
	mcp.Kind: kindOf(func(name string, c mcpConnection) (*connector.Connection, error) { return mcp.New(name, c.Config) },
		func(c *mcpConnection, abs func(string) string) { c.Dir = abs(cmp.Or(c.Cwd, ".")) },
	).hiding(func(s any, values []string, _ map[string]string) { s.(*mcpConnection).Secrets = values }),
	mail.Kind: kindOf(mail.New, func(c *mail.Config, abs func(string) string) {
		if c.CA != "" {
			c.CA = abs(c.CA)
		}
	}),
	logsink.Kind: kindOf(logsink.New, func(c *logsink.Config, abs func(string) string) {
		if c.Path != "stdout" && c.Path != "stderr" {
			c.Path = abs(c.Path)
		}
	}),
}

// Kinds returns the names of all connectors, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// members are the names that ctx has already.
var members = []string{
	"publish", "peek", "getByIds", "registerInput", "kv", "withItem", "log", "now", "item",
	// JavaScript asks objects for these, so ctx answers them with undefined.
	"then", "toJSON", "constructor", "toString", "valueOf", "hasOwnProperty", "isPrototypeOf",
	"propertyIsEnumerable", "toLocaleString", "__proto__", "__defineGetter__", "__defineSetter__",
	"__lookupGetter__", "__lookupSetter__",
}

// connections binds the tables of all connections.
//
// One that is wrong is left out, and the others are still there: a command that needs only one of them,
// or none, is not stopped by it.
func (b *binder) connections(tables map[string]*node, v *vault) []Connection {
	var out []Connection
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		n, at := tables[name], dotted("connections", name)
		switch {
		case !connector.IsName(name):
			b.addf(n, at, "scripts could not say ctx.%s: use letters, digits and underscores, starting with a letter", cut(name, 40))
			continue
		case slices.Contains(members, name):
			b.addf(n, at, "ctx.%s is Keep's own; call the connection something else", name)
			continue
		case n.table() == nil:
			b.addf(n, at, "want a table, not %s", n.show())
			continue
		}
		was, isNew := b.formerName(n, at)
		limits, approve := b.limits(n, at), b.approvals(n, at)
		if c, ok := b.connection(name, at, n, v); ok {
			c.Was, c.New, c.Limits, c.approve = was, isNew, limits.over(c.Limits), approve
			if err := c.Limits.Validate(); err != nil && limits.fits() {
				b.addf(n, at, "%v", err)
			}
			out = append(out, c)
		}
	}
	return out
}

// formerNames is what a table of a connection says of names that records may have.
type formerNames struct {
	Was connector.Names `toml:"was"` // all names that the connection had before, in the records of calls
	New bool            `toml:"new"` // it had no others
}

// formerName takes out of a table what it says of names that records may have: every
// kind of connection may say it.
func (b *binder) formerName(n *node, at string) (was connector.Names, isNew bool) {
	var said formerNames
	some := map[string]*node{}
	for _, key := range []string{"was", "new"} {
		if v := n.table()[key]; v != nil {
			some[key] = v
			delete(n.table(), key)
		}
	}
	b.bind(reflect.ValueOf(&said).Elem(), &node{at: n.at, value: some}, at)
	return said.Was, said.New
}

// connection binds one table to the Config of its connector.
//
// What is no connector of Keep's is looked for among the packs, those of the project first.
func (b *binder) connection(name, at string, n *node, v *vault) (Connection, bool) {
	kn := n.table()["connector"]
	text, isText := kn.string()
	k, known := kinds[text]
	if isText && !known {
		p, problems, err := readPack(v.dir, text)
		b.libraries[p.File] = p.Hash
		switch {
		case len(problems) > 0:
			b.problems = append(b.problems, problems...)
			return Connection{}, false
		case err == nil:
			return b.packed(name, at, n, v, p)
		case !errors.Is(err, fs.ErrNotExist):
			b.addf(kn, at+".connector", "%v", err)
			return Connection{}, false
		}
	}
	switch {
	case kn == nil:
		b.addf(n, at+".connector", "is missing; it is one of %s, or the name of a pack (keep packs)", strings.Join(Kinds(), ", "))
		return Connection{}, false
	case !isText || !known:
		p := b.problem(kn, at+".connector", "is %s, want one of %s, or the name of a pack (keep packs)", kn.show(), strings.Join(Kinds(), ", "))
		p.Fix = suggest(text, append(Kinds(), packs.Names()...))
		b.problems = append(b.problems, p)
		return Connection{}, false
	}
	return b.settings(name, at, n, v, text, k)
}

// settings binds one table to the Config of a connector that Keep has.
//
// References to secrets are replaced by now; accounts are not, since what they hold is asked for at each
// request. A connection with a mistake is left out: its connector would object to the same things again.
func (b *binder) settings(name, at string, n *node, v *vault, text string, k kind) (Connection, bool) {
	b.plainSecrets(n, at)
	settings := reflect.New(k.settings)
	before, budgets := len(b.problems), map[string]string{}
	var pairing *Pairing
	var server *mcp.Config
	if text == mcp.Kind {
		if pairing = b.named(n, at, v.dir); pairing != nil {
			n = b.paired(n, at, pairing)
		}
	}
	b.bind(settings.Elem(), n, at)
	if len(b.problems) > before {
		return Connection{}, false
	}
	if k.paths != nil {
		k.paths(settings.Interface(), (&Config{Dir: v.dir}).abs)
	}
	if k.secrets != nil {
		k.secrets(settings.Interface(), v.secrets(), references(n))
	}
	var accounts []string
	switch c := settings.Interface().(type) {
	case *httpapi.Config:
		b.readable(n, at, "base_url", c.BaseURL)
		accounts = v.live(c, "", Pack{})
	case *mail.Config:
		if c.Account != "" {
			c.Accounts, accounts = liveAccounts{v, ""}, []string{c.Account}
		}
	case *mcpConnection:
		b.readable(n, at, "url", c.URL)
		for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
			if accountReference().MatchString(c.Headers[name]) { // which would be sent as it is written
				b.addf(n.table()["headers"].table()[name], dotted(at+".headers", name), "a server of MCP takes no ${account:NAME} in a header; write account = \"NAME\"")
			}
		}
		if b.mcpAccount(n, at, c.Account, c.Place) {
			c.Accounts, accounts = liveAccounts{v, c.URL}, []string{c.Account}
		}
		if server = &c.Config; pairing != nil {
			c.Pack = pairing.Pack()
		}
		for tool, t := range c.Tools {
			if t.Budget != "" {
				budgets[tool] = t.Budget
			}
		}
	}
	if len(b.problems) > before {
		return Connection{}, false
	}
	return Connection{
		Name: name, Connector: text, Accounts: accounts, budgets: budgets, mcp: server, at: n, b: b, v: v, mark: v.markOf(n), sender: v.sender(n, accounts, server != nil),
		open: func() (*connector.Connection, error) { return k.open(name, settings.Interface()) },
	}, true
}

// Connect opens the connections. No call is made: a service that is down is not
// noticed. The error is an *Error with everything that the connectors object
// to, and with every secret that is missing; nothing is left open then. The
// caller closes what it gets.
func (c *Config) Connect() ([]connector.Connection, error) {
	out, problems := c.open()
	if problems = append(problems, c.Missing...); len(problems) == 0 {
		return out, nil
	}
	for _, conn := range out {
		if conn.Close != nil {
			if err := conn.Close(); err != nil {
				problems = append(problems, Problem{File: c.File, Path: dotted("connections", conn.Name), Message: "close: " + err.Error()})
			}
		}
	}
	return nil, asError(problems)
}

// ConnectOne opens the connection of that name alone, whatever is wrong with others. The
// error is fs.ErrNotExist if there is none.
func (c *Config) ConnectOne(name string) (*connector.Connection, error) {
	i := slices.IndexFunc(c.Connections, func(conn Connection) bool { return conn.Name == name })
	if i < 0 {
		return nil, fs.ErrNotExist
	}
	if err := c.Lacks(dotted("connections", name)); err != nil {
		return nil, err
	}
	opened, err := c.Connections[i].open()
	if err != nil {
		return nil, asError(c.Connections[i].problems(err))
	}
	return opened, nil
}

// Lacks returns what is missing of the secrets and variables of a table, as an *Error.
func (c *Config) Lacks(table string) error {
	var missing []Problem
	for _, p := range c.Missing {
		if p.Path == table || strings.HasPrefix(p.Path, table+".") {
			missing = append(missing, p)
		}
	}
	return asError(missing)
}

// Describe opens what can be opened even if secrets are missing, to tell which
// tools there are. Nothing of it may be called. The caller closes what it gets.
func (c *Config) Describe() ([]connector.Connection, error) {
	out, problems := c.open()
	return out, asError(problems)
}

// open constructs what can be constructed.
func (c *Config) open() (out []connector.Connection, problems []Problem) {
	for _, conn := range c.Connections {
		opened, err := conn.open()
		if err != nil {
			problems = append(problems, conn.problems(err)...)
			continue
		}
		opened.Was, opened.New, opened.Secrets, opened.Limits = conn.Was, conn.New, conn.mark, conn.Limits
		opened.Approve, opened.Sender = conn.approve.when, conn.sender
		problems = append(problems, conn.approvalProblems(*opened)...)
		out = append(out, *opened)
	}
	for _, p := range connector.CheckNames(out) {
		for _, conn := range c.Connections {
			if p.Path == "connections."+conn.Name {
				problems = append(problems, conn.problems(&connector.ConfigError{Problems: []connector.Problem{p}})...)
			}
		}
	}
	return out, slices.Concat(problems, c.unknownTools(out), c.unknownSpenders(out))
}

// problems returns what a connector objects to, with lines and without secrets.
func (c Connection) problems(err error) []Problem {
	at := dotted("connections", c.Name)
	e, ok := errors.AsType[*connector.ConfigError](err)
	if !ok {
		return c.b.clean(c.v, []Problem{c.b.problem(c.at, at, "%v", err)})
	}
	var out []Problem
	for _, p := range e.Problems {
		out = append(out, c.b.problem(c.at.nearest(strings.TrimPrefix(p.Path, at)), p.Path, "%s", p.Message))
	}
	return c.b.clean(c.v, out)
}

// nearest returns the node at a dotted path below n, or the last one on the way
// to it that is there.
func (n *node) nearest(path string) *node {
	for path != "" {
		path = strings.TrimPrefix(path, ".")
		var child *node
		for key, c := range n.table() {
			// Keys may hold dots, so look for the one that the path begins with.
			if rest, ok := strings.CutPrefix(path, key); ok && (rest == "" || rest[0] == '.') {
				child, path = c, rest
				break
			}
		}
		if child == nil {
			return n
		}
		n = child
	}
	return n
}

// String names the connection and its kind.
func (c Connection) String() string { return fmt.Sprintf("%s (%s)", c.Name, c.Connector) }

// Rel returns a path below the project's directory as people write it.
func (c *Config) Rel(file string) string {
	if rel, err := filepath.Rel(c.Dir, file); err == nil && !strings.HasPrefix(rel, "..") {
		return filepath.ToSlash(rel)
	}
	return file
}
