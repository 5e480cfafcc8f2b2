package config

import (
	"cmp"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/law/grant"
	"github.com/keep-run/keep/law/repeat"
)

type (
	// A gatewayTable is [gateway] as it is written.
	gatewayTable struct {
		Servers      map[string]gatewayServerTable `toml:"servers"`       // MCP servers behind the gateway, by name
		Agents       map[string]gatewayAgentTable  `toml:"agents"`        // agents that come by HTTP, by name
		Hosts        []string                      `toml:"hosts"`         // names by which agents reach it by HTTP, with a port; empty: those of this machine alone
		Origins      []string                      `toml:"origins"`       // pages of other hosts that may speak to it by HTTP, such as "https://app.example.com"
		Tools        map[string]gatewayToolTable   `toml:"tools"`         // what is known of their tools, by SERVER.TOOL
		Repeat       string                        `toml:"repeat"`        // what an equal call means after its answer was delivered: allow, ask or replay
		RepeatWindow time.Duration                 `toml:"repeat_window"` // for how long after that; later an equal call is another one
		Rejoin       time.Duration                 `toml:"rejoin"`        // an answer that was not delivered for so long counts as delivered
		MessageLimit size                          `toml:"message_limit"` // of one message of an agent or a server
		ResultLimit  size                          `toml:"result_limit"`  // of what is kept of a result; a larger one is cut
	}

	// A gatewayAgentTable is [gateway.agents.NAME]: who may come by HTTP, and what for.
	gatewayAgentTable struct {
		Token string   `toml:"token"` // with which it comes by HTTP, as a bearer token, of at least 16 characters; keep token add NAME --role agent makes others
		Tools []string `toml:"tools"` // that it may call, such as "tracker.create_issue" and "tracker.list_*"; without the key: all
	}

	// A gatewayServerTable is [gateway.servers.NAME]: where a server is, and with which credential it is asked.
	gatewayServerTable struct {
		mcp.Place
		mcp.OAuth
		Account string          `toml:"account"` // a connected account whose token each request carries
		Was     connector.Names `toml:"was"`     // all names that the server had before, in the records of calls
		Pairing string          `toml:"pairing"` // file of what is known of the server's tools, such as github
	}

	// A gatewayToolTable is [gateway.tools."SERVER.TOOL"]: what the owner knows of a tool, over its pairing.
	gatewayToolTable struct {
		Effect string `toml:"effect"` // mutate, or read: it changes nothing, and its calls pass straight on
		Repeat string `toml:"repeat"` // as gateway.repeat, of this tool
		mcp.Knowledge
	}
)

// A Gateway is what keep.toml says of the gateway. Servers are sorted by name.
type Gateway struct {
	Servers      []mcp.ServerConfig
	OAuth        map[string]mcp.OAuth // the owner's clients, by the name of a server
	Was          map[string]connector.Names
	Agents       map[string]string   // their tokens, by name
	Grants       map[string][]string // what they may call, by name; an agent without one may call everything
	Hosts        []string
	Origins      []string
	Rules        map[keep.ToolName]gateway.Rule
	Declared     map[string]map[string]mcp.ToolConfig // what pairings and the owner say of tools, by server and tool
	Repeat       repeat.Rules
	MessageLimit int
	ResultLimit  int
}

// UsesAccounts reports whether a server has a connected account.
func (g Gateway) UsesAccounts() bool {
	return slices.ContainsFunc(g.Servers, func(s mcp.ServerConfig) bool { return s.Account != "" })
}

var gatewayServerName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9-]{1,32}$`) })

// gateway checks the table of the gateway and returns what it means. Budgets get the tools
// that name them.
//
// What is known of a tool is put together first, from the pairing of its server and the owner's table
// over it, and then checked as one: the owner may write one key and leave the rest to the pairing.
func (b *binder) gateway(t gatewayTable, root *node, v *vault, budgets []Budget) Gateway {
	n, at := root.table()["gateway"], "gateway"
	g := Gateway{Rules: make(map[keep.ToolName]gateway.Rule), MessageLimit: int(t.MessageLimit), ResultLimit: int(t.ResultLimit)}
	g.Repeat = repeat.Rules{Repeat: repeat.Policy(t.Repeat), Window: t.RepeatWindow, Rejoin: t.Rejoin}
	b.repeatPolicy(n, at, t.Repeat)
	for key, n64 := range map[string]int64{"repeat_window": int64(t.RepeatWindow), "rejoin": int64(t.Rejoin), "message_limit": int64(t.MessageLimit), "result_limit": int64(t.ResultLimit)} {
		if n64 < 0 {
			b.addf(n.table()[key], dotted(at, key), "must not be negative")
		}
	}
	if t.ResultLimit > 1<<20 {
		b.addf(n.table()["result_limit"], at+".result_limit", "is more than the 1MiB that a record holds")
	}
	g.Hosts, g.Origins = t.Hosts, t.Origins
	for _, origin := range t.Origins {
		if err := gateway.CheckOrigin(origin); err != nil {
			b.addf(n.table()["origins"], at+".origins", "%v", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Agents)) {
		b.gatewayAgent(&g, name, t.Agents[name], n.table()["agents"].table()[name], t)
	}
	said := make(map[string]gatewayToolTable) // what pairings say, by the full name of a tool
	for _, name := range slices.Sorted(maps.Keys(t.Servers)) {
		kn := n.table()["servers"].table()[name]
		server := b.gatewayServer(name, t.Servers[name], kn, v)
		if g.OAuth == nil {
			g.OAuth = make(map[string]mcp.OAuth)
		}
		g.OAuth[name] = t.Servers[name].OAuth
		b.gatewayNames(&g, name, t, kn)
		if p := b.named(kn, dotted("gateway.servers", name), v.dir); p != nil {
			server.Pack = p.Pack()
			for tool, cfg := range p.Tools {
				said[name+"."+tool] = gatewayToolTable{Effect: gatewayEffect(cfg.Effect), Knowledge: cfg.Knowledge}
			}
		}
		g.Servers = append(g.Servers, server)
	}
	for name, own := range t.Tools {
		said[name] = overlaid(said[name], own, n.table()["tools"].table()[name])
	}
	for _, name := range slices.Sorted(maps.Keys(said)) {
		b.gatewayTool(&g, name, said[name], cmp.Or(n.table()["tools"].table()[name], n.table()["servers"]), t, budgets)
	}
	return g
}

// gatewayNames checks the names that a server had before: each is that of one server alone.
func (b *binder) gatewayNames(g *Gateway, name string, t gatewayTable, n *node) {
	for _, was := range t.Servers[name].Was {
		_, today := t.Servers[was]
		for other, s := range t.Servers {
			today = today || other != name && slices.Contains(s.Was, was)
		}
		if today || was == "" {
			b.addf(n.table()["was"], dotted("gateway.servers", name)+".was", "%q is a name of another server, or of none", was)
		}
	}
	if g.Was == nil {
		g.Was = make(map[string]connector.Names)
	}
	g.Was[name] = t.Servers[name].Was
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
	// A list that is empty is not nil: such an agent may call nothing. Without the key it may call all.
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

// gatewayEffect returns an effect as the gateway says it.
func gatewayEffect(e connector.Effect) string {
	if e == connector.Mutate {
		return "mutate"
	}
	return "read"
}

// overlaid returns what a pairing says of a tool, with the keys that the owner wrote over it.
//
// It asks which keys were written, and not which values are zero, so that the owner can also set a key
// back to its zero.
func overlaid(base, own gatewayToolTable, n *node) gatewayToolTable {
	to, from := reflect.ValueOf(&base).Elem(), reflect.ValueOf(own)
	for key, field := range fieldsOf(to.Type()) {
		if n.table()[key] != nil {
			to.FieldByIndex(field).Set(from.FieldByIndex(field))
		}
	}
	return base
}

// repeatPolicy adds what is wrong with a policy.
func (b *binder) repeatPolicy(n *node, at, policy string) {
	if policy != "" && !slices.Contains(repeat.Policies(), repeat.Policy(policy)) {
		b.addf(n.table()["repeat"], at+".repeat", `%q: want "allow", "ask" or "replay"`, policy)
	}
}

// gatewayServer checks one server.
func (b *binder) gatewayServer(name string, t gatewayServerTable, n *node, v *vault) mcp.ServerConfig {
	at := dotted("gateway.servers", name)
	if !gatewayServerName().MatchString(name) {
		b.addf(n, at, "%q is no name of a server: use up to 32 of a-z, 0-9 and -", name)
	}
	if key, err := t.Validate(); err != nil {
		b.addf(cmp.Or(n.table()[key], n), strings.TrimSuffix(at+"."+key, "."), "%v", err)
	}
	b.readable(n, at, "url", t.URL)
	// Also if none is named: a server runs in the project, wherever the command was started.
	t.Dir = (&Config{Dir: v.dir}).abs(cmp.Or(t.Cwd, "."))
	s := t.Server(name)
	s.Secrets = v.secrets()
	var accounts []string
	if b.mcpAccount(n, at, t.Account, t.Place) {
		s.Account, s.Accounts, accounts = t.Account, liveAccounts{v, t.URL}, []string{t.Account}
	}
	s.Sender = v.sender(n, accounts, true)
	return s
}

// gatewayTool checks one tool and adds its rule.
//
// That the server has such a tool is not checked: only the server knows, and it is not asked here.
func (b *binder) gatewayTool(g *Gateway, name string, t gatewayToolTable, n *node, all gatewayTable, budgets []Budget) {
	at := dotted("gateway.tools", name)
	server, tool, _ := strings.Cut(name, ".")
	if _, known := all.Servers[server]; !known || tool == "" {
		b.addf(n, at, `want the name of a tool, SERVER.TOOL, of a server in [gateway.servers]; there is no server %q`, server)
		return
	}
	if g.Declared == nil {
		g.Declared = make(map[string]map[string]mcp.ToolConfig)
	}
	if g.Declared[server] == nil {
		g.Declared[server] = make(map[string]mcp.ToolConfig)
	}
	g.Declared[server][tool] = mcp.ToolConfig{Knowledge: t.Knowledge}
	p, err := t.Pairing(tool)
	if err != nil {
		b.addf(n, at, "%v", err)
	}
	r := gateway.Rule{Read: t.Effect == "read", Repeat: repeat.Policy(t.Repeat), Pairing: p}
	if t.Effect != "" && t.Effect != "read" && t.Effect != "mutate" {
		b.addf(n.table()["effect"], at+".effect", `%q: want "mutate" or "read"`, t.Effect)
	}
	b.repeatPolicy(n, at, t.Repeat)
	if t.Approve != "" {
		if _, err := grant.CompileApprovals([]string{t.Approve}); err != nil {
			b.addf(n.table()["approve"], at+".approve", "%v", err)
		}
	}
	b.spends(budgets, t.Budget, name, n, at)
	g.Rules[keep.ToolName(name)] = r
}

// spends makes a tool count in the budget that its own table names; empty: in none.
func (b *binder) spends(budgets []Budget, budget, tool string, n *node, at string) {
	if budget == "" {
		return
	}
	i := slices.IndexFunc(budgets, func(x Budget) bool { return x.Name == budget })
	if i < 0 && b.budgetNames[budget] { // what is wrong with it is said there
		return
	}
	if i < 0 {
		b.addf(n.table()["budget"], at+".budget", "there is no [budgets.%s]", budget)
		return
	}
	budgets[i].Tools = append(budgets[i].Tools, tool)
	budgets[i].tools = append(budgets[i].tools, n)
}

// hasServer reports whether the gateway has a server of that name, whose tools only the server
// itself knows.
func (c *Config) hasServer(name string) bool {
	return slices.ContainsFunc(c.Gateway.Servers, func(s mcp.ServerConfig) bool { return s.Name == name })
}
