package mcp

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/match"
)

// Kind is what configuration calls this connector.
const Kind = "mcp"

// A Place says where a server is, with the keys that clients' files have.
type Place struct {
	Command string            `toml:"command"` // program that serves on stdin and stdout
	Args    []string          `toml:"args"`    // its arguments
	Env     map[string]string `toml:"env"`     // its variables, beside HOME, PATH and the like: nothing else of Keep's environment is passed on
	Cwd     string            `toml:"cwd"`     // its directory; empty: that of keep.toml
	URL     string            `toml:"url"`     // of a server that speaks HTTP, in place of a command
	Headers map[string]string `toml:"headers"` // that each request to it carries

	Dir string `toml:"-"` // Cwd, absolute; empty: Cwd is
}

// An OAuth is the owner's own client at the authorization server of a server, and what is asked for.
type OAuth struct {
	ClientID     string   `toml:"client_id"`     // of the owner's own OAuth client, for keep connect mcp:NAME; empty: one is registered
	ClientSecret string   `toml:"client_secret"` // of that client
	Scopes       []string `toml:"scopes"`        // in place of those that the server asks for
	RedirectPort int      `toml:"redirect_port"` // of the loopback address that the client is registered with; zero: any
}

// Validate returns what is wrong with p, and with which of its keys; empty: the whole.
func (p Place) Validate() (key string, err error) {
	u, bad := url.Parse(p.URL)
	switch {
	case (p.Command == "") == (p.URL == ""):
		return "", errors.New("say where the server is: either command or url")
	case p.URL != "" && !strings.Contains(p.URL, "${") && (bad != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https"):
		return "url", errors.New("is no address, such as https://mcp.example.com/mcp")
	}
	return "", nil
}

// Server returns the configuration of a server at p.
func (p Place) Server(name string) ServerConfig {
	return ServerConfig{Name: name, Command: p.Command, Args: p.Args, Env: p.Env, Dir: cmp.Or(p.Dir, p.Cwd), Cwd: p.Cwd, URL: p.URL, Headers: p.Headers}
}

// Knowledge is what an owner knows of a tool that changes something: how its outcome can be
// known, and what calls of it need.
type Knowledge struct {
	Identity     []string           `toml:"identity"`     // params that say what is changed; empty: all
	Token        TokenConfig        `toml:"token"`        // where the call shows a mark of its own
	When         map[string]any     `toml:"when"`         // calls with these params have the token and are asked about; "*" is any value; others are level D
	Deduplicates bool               `toml:"deduplicates"` // the server honours the token as a key
	Sets         bool               `toml:"sets"`         // a call says what is to be, so that the same one again changes nothing more
	KeyLasts     connector.Duration `toml:"key_lasts"`    // for how long a call may be sent again; empty: 24h with deduplicates, 1h with sets
	Reconcile    *LookupConfig      `toml:"reconcile"`    // how the server is asked what became of a call
	SettleAfter  connector.Duration `toml:"settle_after"` // how long an effect may lag behind the deadline of its call
	Timeout      connector.Duration `toml:"timeout"`      // of a call; empty: 60s
	Approve      string             `toml:"approve"`      // when a person must agree: "always", or a condition over params
	Budget       string             `toml:"budget"`       // in which its calls count, as if that named the tool
	Unique       bool               `toml:"unique"`       // a person is asked before an identity is applied a second time
	Errors       string             `toml:"errors"`       // what an error in a result means: unknown, or refused: nothing happened
	RefusedIf    []Condition        `toml:"refused_if"`   // results that say that nothing happened; the first that fits counts
	AppliedIf    []Condition        `toml:"applied_if"`   // the results that show that it happened; empty: those that say nothing else
}

// A Condition recognises a result by a value in its JSON.
type Condition struct {
	Path string `toml:"path"` // such as "$.error.type"

	// What the value must be. None of them: it is there, and not null.
	Equals any   `toml:"equals"`
	In     []any `toml:"in"`
	Exists *bool `toml:"exists"`

	// Class is what a refusal means, in refused_if only. Empty: logic.
	Class keep.Class `toml:"class"`
}

// matcher returns the Matcher of a condition.
func (c Condition) matcher() (s Matcher, err error) {
	s = Matcher{class: cmp.Or(c.Class, keep.ClassLogic)}
	if s.path, err = match.ParsePath(c.Path); err != nil {
		return s, fmt.Errorf("path: %w", err)
	}
	if err = match.CheckClass(s.class); err != nil {
		return s, fmt.Errorf("class: %w", err)
	}
	s.value, err = match.NewValue(c.Equals, c.In, c.Exists)
	return s, err
}

// matchersOf returns the conditions at a key.
func matchersOf(key string, list []Condition) (out []Matcher, err error) {
	for i, c := range list {
		s, err := c.matcher()
		if err == nil && key == "applied_if" && c.Class != "" {
			err = errors.New("class: is for refused_if only")
		}
		if err != nil {
			return nil, fmt.Errorf("%s[%d].%w", key, i, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// A TokenConfig says where a call shows the host's token.
type TokenConfig struct {
	Param  string `toml:"param"`  // that has the token
	Append string `toml:"append"` // text with {token} that is appended to the param; empty: the param is the token
}

// A LookupConfig says how a server is asked.
type LookupConfig struct {
	Tool     string         `toml:"tool"`     // of the same server, which reads
	Args     map[string]any `toml:"args"`     // texts in it take {token} and {sent_at} of the host, and {param}
	Found    string         `toml:"found"`    // JSON path to the rows; empty: $
	Match    []string       `toml:"match"`    // fields of a row that equal the params; empty: a text in it has the token
	Complete bool           `toml:"complete"` // the rows are all that there can be, so that none means that nothing happened
	More     string         `toml:"more"`     // JSON path to what is true where there are more rows than these: then none means nothing
	Page     int            `toml:"page"`     // of as many rows or more there may be others: then none means nothing
}

// Pairing returns what k says of the tool that its server calls by that name.
func (k Knowledge) Pairing(tool string) (Pairing, error) {
	p := Pairing{
		Tool: tool, Identity: k.Identity, TokenParam: k.Token.Param, TokenAppend: k.Token.Append, Deduplicates: k.Deduplicates,
		Sets: k.Sets, KeyLasts: time.Duration(k.KeyLasts), SettleAfter: time.Duration(k.SettleAfter), Timeout: time.Duration(k.Timeout), ErrorsRefused: k.Errors == "refused",
		Approve: k.Approve, Unique: k.Unique,
	}
	if c := k.Reconcile; c != nil {
		p.Lookup = &Lookup{Tool: c.Tool, Args: make(map[string]json.RawMessage), Found: c.Found, Match: c.Match, Complete: c.Complete, More: c.More, Page: c.Page}
		for name, v := range c.Args {
			raw, err := json.Marshal(v)
			if err != nil {
				return p, fmt.Errorf("reconcile.args: %s: %w", name, err)
			}
			p.Lookup.Args[name] = raw
		}
	}
	for name, v := range k.When {
		raw, err := json.Marshal(v)
		if err != nil {
			return p, fmt.Errorf("when: %s: %w", name, err)
		}
		if p.When == nil {
			p.When = make(map[string]json.RawMessage)
		}
		p.When[name] = raw
	}
	var err error
	if p.Refused, err = matchersOf("refused_if", k.RefusedIf); err != nil {
		return p, err
	}
	if p.Applied, err = matchersOf("applied_if", k.AppliedIf); err != nil {
		return p, err
	}
	switch {
	case k.Errors != "" && k.Errors != "unknown" && k.Errors != "refused":
		return p, fmt.Errorf(`errors: %q: want "unknown" or "refused"`, k.Errors)
	case k.Timeout < 0 || k.SettleAfter < 0 || k.KeyLasts < 0:
		return p, errors.New("timeout, settle_after and key_lasts must not be negative")
	}
	return p, p.Validate()
}

// A ToolConfig is a tool of a server as scripts have it.
type ToolConfig struct {
	Effect      connector.Effect `toml:"effect"`         // list, get or mutate
	Tool        string           `toml:"tool"`           // as the server names it; empty: as it is called here
	Description string           `toml:"description"`    // for people and LLMs
	Params      map[string]any   `toml:"params"`         // JSON Schema of the params; empty: any object
	Result      map[string]any   `toml:"result"`         // JSON Schema of the result; empty: anything
	Example     map[string]any   `toml:"example"`        // params that fit, for guides and keep prove
	Was         connector.Names  `toml:"was"`            // all names that the tool had before, in the records of calls
	New         bool             `toml:"new"`            // it had no others
	Verify      string           `toml:"verify_by_hand"` // where a person looks when nobody can know
	Knowledge
}

// Config is one connection of keep.toml.
type Config struct {
	Connector string                `toml:"connector"` // Kind, or empty
	Account   string                `toml:"account"`   // a connected account whose token each request carries
	Tools     map[string]ToolConfig `toml:"tools"`     // by name; no others exist for scripts
	Place
	OAuth

	// Accounts has the credential of Account.
	Accounts connector.Accounts `toml:"-"`

	// Secrets are values that must never show in messages and results.
	Secrets []string `toml:"-"`

	// Pack is the file that tools are from. Nil: there is none.
	Pack *keep.Pack `toml:"-"`
}

// New returns the connection of a server. It starts nothing, and calls nothing.
func New(name string, cfg Config) (*connector.Connection, error) {
	c := connector.NewChecker(name)
	c.Kind(cfg.Connector, Kind)
	if key, err := cfg.Validate(); err != nil {
		c.Addf(key, "%v", err)
	}
	if len(cfg.Tools) == 0 {
		c.Addf("tools", "no tool is declared; write [connections.%s.tools.NAME], or name a pairing: scripts have no others", name)
	}
	at := cfg.Server(name)
	at.Account, at.Accounts, at.Secrets = cfg.Account, cfg.Accounts, cfg.Secrets
	server := NewServer(at)
	conn := &connector.Connection{Name: name, Connector: Kind, Pack: cfg.Pack, Close: server.Close}
	for _, tool := range slices.Sorted(maps.Keys(cfg.Tools)) {
		if t := declared(c, server, tool, cfg.Tools[tool]); t != nil {
			conn.Tools = append(conn.Tools, t)
		}
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	return conn, nil
}

// declared returns a tool as a table declares it; nil: something is wrong with it.
func declared(c *connector.Checker, server *Server, name string, cfg ToolConfig) connector.Tool {
	at := "tools." + name
	if !connector.IsName(name) {
		c.Addf(at, "scripts could not say this name; choose one of letters, digits and underscores, and write tool = %q", name)
		return nil
	}
	spec := connector.Spec{Name: name, Was: cfg.Was, New: cfg.New, Effect: cfg.Effect, Description: cfg.Description,
		Timeout: time.Duration(cfg.Timeout), VerifyByHand: cfg.Verify}
	for _, part := range []struct {
		key   string
		table map[string]any
		to    *json.RawMessage
	}{{"params", cfg.Params, &spec.Params}, {"result", cfg.Result, &spec.Result}, {"example", cfg.Example, &spec.Example}} {
		raw, err := json.Marshal(part.table)
		if err != nil {
			c.Addf(at+"."+part.key, "is no JSON: %v", err)
		}
		if len(part.table) > 0 {
			*part.to = raw
		}
	}
	cfg.Tool = cmp.Or(cfg.Tool, name)
	if spec.Description == "" {
		spec.Description = "Calls the tool " + cfg.Tool + " of the MCP server " + server.Name() + "."
	}
	switch cfg.Effect {
	case connector.List, connector.Get:
		if k := cfg.Knowledge; len(k.Identity) > 0 || k.Token != (TokenConfig{}) || k.Deduplicates || k.Sets || k.Reconcile != nil || k.Unique || k.Errors != "" || len(k.RefusedIf) > 0 || len(k.AppliedIf) > 0 || k.Approve != "" || k.Budget != "" {
			c.Addf(at, "effect is %q: what is said of changes is for effect = \"mutate\"", cfg.Effect)
		}
		return &reader{server, cfg.Tool, spec}
	case connector.Mutate:
		return change(c, server, at, spec, cfg)
	}
	c.Addf(at+".effect", "is %q, want list, get or mutate", cfg.Effect)
	return nil
}

// change returns a tool that changes something.
func change(c *connector.Checker, server *Server, at string, spec connector.Spec, cfg ToolConfig) connector.Tool {
	if len(cfg.Identity) == 0 {
		cfg.Identity = properties(cfg.Params)
		cfg.Identity = slices.DeleteFunc(cfg.Identity, func(p string) bool { return p == cfg.Token.Param && cfg.Token.Append == "" })
	}
	if len(cfg.Identity) == 0 {
		c.Addf(at+".identity", "is missing: at least one param must say what is changed")
	}
	p, err := cfg.Pairing(cfg.Tool)
	if err != nil {
		c.Addf(at, "%v", err)
		return nil
	}
	return server.tool(tool{p: p, limit: DefaultResultLimit, spec: spec})
}

// properties returns the names of the params that a schema has, sorted.
func properties(schema map[string]any) []string {
	all, _ := schema["properties"].(map[string]any)
	return slices.Sorted(maps.Keys(all))
}
