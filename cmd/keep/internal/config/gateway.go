package config

import (
	"encoding/json"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/law/grant"
	"github.com/keep-run/keep/law/repeat"
)

type (
	gatewayTable struct {
		Servers      map[string]gatewayServerTable `toml:"servers"`       // MCP servers behind the gateway, by name
		Agents       map[string]gatewayAgentTable  `toml:"agents"`        // agents that come by HTTP, by name
		Hosts        []string                      `toml:"hosts"`         // names by which agents reach it by HTTP, with a port; empty: those of this machine alone
		Tools        map[string]gatewayToolTable   `toml:"tools"`         // what is known of their tools, by SERVER.TOOL
		Repeat       string                        `toml:"repeat"`        // what an equal call means after its answer was delivered: allow, ask or replay
		RepeatWindow time.Duration                 `toml:"repeat_window"` // for how long after that; later an equal call is another one
		Rejoin       time.Duration                 `toml:"rejoin"`        // an answer that was not delivered for so long counts as delivered
		MessageLimit size                          `toml:"message_limit"` // of one message of an agent or a server
		ResultLimit  size                          `toml:"result_limit"`  // of what is kept of a result; a larger one is cut
	}

	gatewayAgentTable struct {
		Token string   `toml:"token"` // with which it comes by HTTP, as a bearer token, of at least 16 characters; keep token add NAME --role agent makes others
		Tools []string `toml:"tools"` // that it may call, such as "tracker.create_issue" and "tracker.list_*"; without the key: all
	}

	gatewayServerTable struct {
		Command string            `toml:"command"` // program that serves on stdin and stdout
		Args    []string          `toml:"args"`    // its arguments
		Env     map[string]string `toml:"env"`     // its variables, beside HOME, PATH and the like: nothing else of Keep's environment is passed on
		Cwd     string            `toml:"cwd"`     // its directory; empty: that of keep.toml
		URL     string            `toml:"url"`     // of a server that speaks HTTP, in place of a command
		Headers map[string]string `toml:"headers"` // that each request to it carries
	}

	gatewayToolTable struct {
		Effect       string                 `toml:"effect"`       // mutate, or read: it changes nothing, and its calls pass straight on
		Identity     []string               `toml:"identity"`     // params that say what is changed; empty: all
		Token        gatewayTokenTable      `toml:"token"`        // where the call shows a mark of its own
		Deduplicates bool                   `toml:"deduplicates"` // the server honours the token as a key
		Reconcile    *gatewayReconcileTable `toml:"reconcile"`    // how the server is asked what became of a call
		SettleAfter  time.Duration          `toml:"settle_after"` // how long an effect may lag behind the deadline of its call
		Timeout      time.Duration          `toml:"timeout"`      // of a call; empty: 60s
		Approve      string                 `toml:"approve"`      // when a person must agree: "always", or a condition over params
		Budget       string                 `toml:"budget"`       // in which its calls count, as if that named the tool
		Repeat       string                 `toml:"repeat"`       // as gateway.repeat, of this tool
		Unique       bool                   `toml:"unique"`       // a person is asked before an identity is applied a second time
		Errors       string                 `toml:"errors"`       // what an error in a result means: unknown, or refused: nothing happened
	}

	gatewayTokenTable struct {
		Param  string `toml:"param"`  // that has the token
		Append string `toml:"append"` // text with {token} that is appended to the param; empty: the param is the token
	}

	gatewayReconcileTable struct {
		Tool     string         `toml:"tool"`     // of the same server, which reads
		Args     map[string]any `toml:"args"`     // texts in it take {token}, {sent_at} and {param}
		Found    string         `toml:"found"`    // JSON path to the rows; empty: $
		Match    []string       `toml:"match"`    // fields of a row that equal the params; empty: a text in it has the token
		Complete bool           `toml:"complete"` // the rows are all that there can be, so that none means that nothing happened
	}
)

// A Gateway is what keep.toml says of the gateway. Servers are sorted by name.
type Gateway struct {
	Servers      []mcp.ServerConfig
	Agents       map[string]string   // their tokens, by name
	Grants       map[string][]string // what they may call, by name; an agent without one may call everything
	Hosts        []string
	Rules        map[keep.ToolName]gateway.Rule
	Repeat       repeat.Rules
	MessageLimit int
	ResultLimit  int
}

var gatewayServerName = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// gateway checks the table of the gateway and returns what it means. Budgets get the tools
// that name them.
func (b *binder) gateway(t gatewayTable, root *node, dir string, budgets []Budget) Gateway {
	n, at := root.table()["gateway"], "gateway"
	g := Gateway{Rules: make(map[keep.ToolName]gateway.Rule), MessageLimit: int(t.MessageLimit), ResultLimit: int(t.ResultLimit)}
	g.Repeat = repeat.Rules{Repeat: repeat.Policy(t.Repeat), Window: t.RepeatWindow, Rejoin: t.Rejoin}
	b.repeatPolicy(n, at, t.Repeat)
	for key, v := range map[string]int64{"repeat_window": int64(t.RepeatWindow), "rejoin": int64(t.Rejoin), "message_limit": int64(t.MessageLimit), "result_limit": int64(t.ResultLimit)} {
		if v < 0 {
			b.addf(n.table()[key], dotted(at, key), "must not be negative")
		}
	}
	if t.ResultLimit > 1<<20 {
		b.addf(n.table()["result_limit"], at+".result_limit", "is more than the 1MiB that a record holds")
	}
	g.Hosts = t.Hosts
	for _, name := range slices.Sorted(maps.Keys(t.Agents)) {
		b.gatewayAgent(&g, name, t.Agents[name], n.table()["agents"].table()[name], t)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Servers)) {
		g.Servers = append(g.Servers, b.gatewayServer(name, t.Servers[name], n.table()["servers"].table()[name], dir))
	}
	for _, name := range slices.Sorted(maps.Keys(t.Tools)) {
		b.gatewayTool(g, name, t.Tools[name], n.table()["tools"].table()[name], t, budgets)
	}
	return g
}

// gatewayAgent checks one agent.
func (b *binder) gatewayAgent(g *Gateway, name string, a gatewayAgentTable, n *node, t gatewayTable) {
	at := dotted("gateway.agents", name)
	if len(name) > 64 || a.Token != "" && len(a.Token) < gateway.MinToken && !isOpen(a.Token) {
		b.addf(n, at, "an agent has a name of at most 64 characters, and a token of at least %d", gateway.MinToken)
		return
	}
	if a.Token != "" {
		if g.Agents == nil {
			g.Agents = make(map[string]string)
		}
		g.Agents[name] = a.Token
	}
	if a.Tools == nil {
		return
	}
	for _, tool := range a.Tools {
		server, name, _ := strings.Cut(tool, ".")
		if _, known := t.Servers[server]; name == "" || !known && server != "*" {
			b.addf(n.table()["tools"], at+".tools", `%q: want SERVER.TOOL of a server in [gateway.servers], such as "%s.list_*"`, tool, server)
		}
	}
	if g.Grants == nil {
		g.Grants = make(map[string][]string)
	}
	g.Grants[name] = a.Tools
}

// repeatPolicy adds what is wrong with a policy.
func (b *binder) repeatPolicy(n *node, at, policy string) {
	if policy != "" && !slices.Contains(repeat.Policies(), repeat.Policy(policy)) {
		b.addf(n.table()["repeat"], at+".repeat", `%q: want "allow", "ask" or "replay"`, policy)
	}
}

// gatewayServer checks one server.
func (b *binder) gatewayServer(name string, t gatewayServerTable, n *node, dir string) mcp.ServerConfig {
	at := dotted("gateway.servers", name)
	u, err := url.Parse(t.URL)
	switch {
	case !gatewayServerName.MatchString(name):
		b.addf(n, at, "%q is no name of a server: use up to 32 of a-z, 0-9 and -", name)
	case (t.Command == "") == (t.URL == ""):
		b.addf(n, at, "say where the server is: either command or url")
	case t.URL != "" && !isOpen(t.URL) && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https"):
		b.addf(n.table()["url"], at+".url", "is no address, such as https://mcp.example.com/mcp")
	}
	if !filepath.IsAbs(t.Cwd) {
		t.Cwd = filepath.Join(dir, t.Cwd)
	}
	return mcp.ServerConfig{Name: name, Command: t.Command, Args: t.Args, Env: t.Env, Dir: t.Cwd, URL: t.URL, Headers: t.Headers}
}

// gatewayTool checks one tool and adds its rule.
func (b *binder) gatewayTool(g Gateway, name string, t gatewayToolTable, n *node, all gatewayTable, budgets []Budget) {
	at := dotted("gateway.tools", name)
	server, tool, _ := strings.Cut(name, ".")
	if _, known := all.Servers[server]; !known || tool == "" {
		b.addf(n, at, `want the name of a tool, SERVER.TOOL, of a server in [gateway.servers]; there is no server %q`, server)
		return
	}
	r := gateway.Rule{Read: t.Effect == "read", Repeat: repeat.Policy(t.Repeat), Pairing: mcp.Pairing{
		Tool: tool, Identity: t.Identity, TokenParam: t.Token.Param, TokenAppend: t.Token.Append, Deduplicates: t.Deduplicates,
		SettleAfter: t.SettleAfter, Timeout: t.Timeout, ErrorsRefused: t.Errors == "refused", Approve: t.Approve, Unique: t.Unique,
	}}
	if c := t.Reconcile; c != nil {
		r.Lookup = &mcp.Lookup{Tool: c.Tool, Args: make(map[string]json.RawMessage), Found: c.Found, Match: c.Match, Complete: c.Complete}
		for k, v := range c.Args {
			raw, err := json.Marshal(v)
			if err != nil {
				b.addf(n.table()["reconcile"], at+".reconcile.args", "%s: %v", k, err)
			}
			r.Lookup.Args[k] = raw
		}
	}
	if t.Effect != "" && t.Effect != "read" && t.Effect != "mutate" {
		b.addf(n.table()["effect"], at+".effect", `%q: want "mutate" or "read"`, t.Effect)
	}
	if t.Errors != "" && t.Errors != "unknown" && t.Errors != "refused" {
		b.addf(n.table()["errors"], at+".errors", `%q: want "unknown" or "refused"`, t.Errors)
	}
	if t.Timeout < 0 || t.SettleAfter < 0 {
		b.addf(n, at, "timeout and settle_after must not be negative")
	}
	b.repeatPolicy(n, at, t.Repeat)
	if err := r.Validate(); err != nil {
		b.addf(n, at, "%v", err)
	}
	if t.Approve != "" {
		if _, err := grant.CompileApprovals([]string{t.Approve}); err != nil {
			b.addf(n.table()["approve"], at+".approve", "%v", err)
		}
	}
	if t.Budget != "" {
		i := slices.IndexFunc(budgets, func(x Budget) bool { return x.Name == t.Budget })
		if i < 0 {
			b.addf(n.table()["budget"], at+".budget", "there is no [budgets.%s]", t.Budget)
		} else {
			budgets[i].Tools = append(budgets[i].Tools, name)
			budgets[i].tools = append(budgets[i].tools, n)
		}
	}
	g.Rules[keep.ToolName(name)] = r
}

// hasServer reports whether the gateway has a server of that name, whose tools only the server
// itself knows.
func (c *Config) hasServer(name string) bool {
	return slices.ContainsFunc(c.Gateway.Servers, func(s mcp.ServerConfig) bool { return s.Name == name })
}
