package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/law/pin"
)

// outcomeTool is the one tool of the gateway's own.
const outcomeTool = "keep_outcome"

const outcomeEntry = `{"name":"keep_outcome","title":"What became of a call","description":"Tells what is known of a call whose outcome was unknown, or that waits for a person. It may ask the service, and makes no other call. Use it in place of repeating the call.","inputSchema":{"type":"object","properties":{"ref":{"type":"string","description":"the reference of the call, such as mut_01..."}},"required":["ref"]},"annotations":{"readOnlyHint":true}}`

// between stands in the name of a tool between its server and its own name.
const between = "__"

// Versions of the protocol that clients may speak, newest first.
var versions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// initialize agrees on a version, and says what there is.
func (s *session) initialize(ctx context.Context, x *exchange, params json.RawMessage) answer {
	var p struct {
		ProtocolVersion string          `json:"protocolVersion"`
		Capabilities    json.RawMessage `json:"capabilities"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return answer{err: &mcp.RPCError{Code: invalidParams, Message: "initialize takes {protocolVersion, capabilities, clientInfo}"}}
	}
	version := p.ProtocolVersion
	if !slices.Contains(versions, version) {
		version = versions[0]
	}
	s.mu.Lock()
	s.version, s.capabilities = version, p.Capabilities
	s.mu.Unlock()
	x.capabilities = p.Capabilities
	ctx = mcp.WithClient(ctx, x.client())
	result, _ := json.Marshal(map[string]any{"protocolVersion": version, "capabilities": s.g.capabilities(ctx, s.agent),
		"serverInfo": s.g.info(), "instructions": instructions})
	return answer{result: result}
}

const instructions = "Tools are named SERVER__TOOL. If the outcome of a call is unknown, do not repeat the call: ask keep_outcome with its reference."

// info is what the gateway says of itself.
func (g *Gateway) info() map[string]string {
	return map[string]string{"name": "keep-gateway", "title": "Keep gateway", "version": g.cfg.Version}
}

// capabilities are those of all servers of an agent together.
func (g *Gateway) capabilities(ctx context.Context, agent string) map[string]any {
	capabilities := map[string]any{"tools": map[string]any{"listChanged": true}}
	for _, i := range g.infos(ctx, g.serversOf(agent)) {
		var c map[string]json.RawMessage
		_ = json.Unmarshal(i.Capabilities, &c)
		for _, name := range []string{"resources", "prompts", "completions", "logging"} {
			if c[name] != nil && capabilities[name] == nil {
				capabilities[name] = c[name]
			}
		}
	}
	return capabilities
}

// infos returns what servers say of themselves, of those that can be reached.
func (g *Gateway) infos(ctx context.Context, servers []*mcp.Server) []mcp.Info {
	out := make([]mcp.Info, len(servers))
	each(servers, func(i int, s *mcp.Server) {
		var err error
		if out[i], err = s.Info(ctx); err != nil {
			g.log.Warn("an MCP server does not start", "server", s.Name(), "err", err)
		}
	})
	return out
}

// each calls f with every server, at once.
func each(servers []*mcp.Server, f func(i int, s *mcp.Server)) {
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { f(i, s) })
	}
	wg.Wait()
}

// listTools answers tools/list.
func (g *Gateway) listTools(ctx context.Context, agent string) answer {
	servers := g.serversOf(agent)
	lists := make([][]toolEntry, len(servers))
	each(servers, func(i int, s *mcp.Server) { lists[i] = g.offered(ctx, s) })
	entries := make([][]json.RawMessage, len(servers))
	for i, s := range servers {
		for _, t := range lists[i] {
			if t.state == pin.Changed && t.was != nil { // agents see what was agreed to
				t.raw, t.state = t.was, pin.Pinned
			}
			if !t.state.Stopped() && g.may(agent, keep.ToolName(s.Name()+"."+t.name)) {
				if p := g.rule(keep.ToolName(s.Name() + "." + t.name)).Pairing; p.TokenAppend == "" && len(p.When) == 0 {
					t.raw = without(t.raw, p.TokenParam)
				}
				entries[i] = append(entries[i], shown(t.raw, s.Name()+between+t.name))
			}
		}
	}
	all := append([]json.RawMessage{json.RawMessage(outcomeEntry)}, g.together("tools/list", servers, entries)...)
	result, err := json.Marshal(map[string]any{"tools": all})
	if err != nil {
		return answer{err: &mcp.RPCError{Code: internalError, Message: err.Error()}}
	}
	return answer{result: result}
}

// shown returns the entry of a list under another name, with its hidden characters marked.
func shown(raw json.RawMessage, name string) json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return raw
	}
	var v any
	_ = json.Unmarshal(raw, &v)
	if hides(v) {
		for k, member := range all {
			var m any
			if json.Unmarshal(member, &m) == nil {
				all[k], _ = json.Marshal(marked(m))
			}
		}
	}
	all["name"], _ = json.Marshal(pin.Mark(name))
	out, err := json.Marshal(all)
	if err != nil {
		return raw
	}
	return out
}

// hides reports whether there are hidden characters in a value.
func hides(v any) bool {
	switch v := v.(type) {
	case string:
		return strings.IndexFunc(v, pin.Hidden) >= 0
	case []any:
		return slices.ContainsFunc(v, hides)
	case map[string]any:
		for k, e := range v {
			if hides(k) || hides(e) {
				return true
			}
		}
	}
	return false
}

// marked returns a value with its texts marked.
func marked(v any) any {
	switch v := v.(type) {
	case string:
		return pin.Mark(v)
	case []any:
		for i := range v {
			v[i] = marked(v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[pin.Mark(k)] = marked(e)
		}
		return out
	}
	return v
}

// toolOf returns the tool of a name by which agents call it. There may be no such tool.
func toolOf(name string) (keep.ToolName, bool) {
	server, tool, ok := strings.Cut(name, between)
	if !ok || server == "" || len(server) > maxName || strings.Contains(server, ".") || tool == "" || len(tool) > maxName {
		return "", false
	}
	return keep.ToolName(server + "." + tool), true
}

// shownAs returns the name by which agents call a tool.
func shownAs(name keep.ToolName) string {
	return name.Connection() + between + ownName(name)
}

// ownName returns the name that a tool has at its server.
func ownName(name keep.ToolName) string { return string(name[len(name.Connection())+1:]) }

// unknownTool answers a call of a tool that there is not.
func unknownTool(name string) answer {
	return answer{err: &mcp.RPCError{Code: invalidParams, Message: fmt.Sprintf("Unknown tool: %.100s", name)}}
}

// refused answers a call that may not be sent now; false: it may. It is not asked about a call that was sent: that has the answer
// that the ledger has, whatever became of its server, its tool and the permission since.
func (g *Gateway) refused(ctx context.Context, agent string, name keep.ToolName, args json.RawMessage) (_ answer, refused bool) {
	s := g.server(name.Connection())
	switch {
	case s == nil:
		return unknownTool(shownAs(name)), true
	case !g.may(agent, name):
		return notCalled(name, fmt.Sprintf("the agent %s has no permission for it ([gateway.agents] in keep.toml)", agent)), true
	}
	// A call is not passed on to a server whose tools were not compared with what was agreed to.
	tools, err := g.list(ctx, s)
	if err != nil {
		g.log.Warn("the tools of an MCP server are not known", "server", s.Name(), "err", err)
		why := fmt.Sprintf("the tools of the MCP server %s are not known (%v)", s.Name(), err)
		if _, ruled := g.cfg.Rules[name]; ruled {
			return notCalled(name, why), true
		}
		return answer{err: &mcp.RPCError{Code: internalError, Message: why + ", so nothing was sent; it is tried again at the next call"}}, true
	}
	i := slices.IndexFunc(tools, func(t toolEntry) bool { return t.name == ownName(name) })
	if i < 0 {
		return unknownTool(shownAs(name)), true
	}
	why := cmp.Or(stopped(tools[i], g.rule(name), args), keyed(g.rule(name).Pairing, args))
	return notCalled(name, why), why != ""
}

// read passes a call on that changes nothing. One whose connection broke is made once more.
func (g *Gateway) read(ctx context.Context, x *exchange, name keep.ToolName, args, meta json.RawMessage) answer {
	s, tool, token := g.server(name.Connection()), ownName(name), ""
	if x.token != nil {
		var done func()
		token, done = g.progressing(s.Name(), func() *exchange { return x })
		defer done()
	}
	_, meta = passed(meta, token)
	params, err := json.Marshal(struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments,omitempty"`
		Meta      json.RawMessage `json:"_meta,omitempty"`
		mcp.Inputs
	}{tool, args, meta, x.inputs})
	if err != nil {
		return answer{err: &mcp.RPCError{Code: invalidParams, Message: err.Error()}}
	}
	return g.relay(x.reading(ctx, tool), s, "tools/call", params)
}

// relay passes a request on that changes nothing.
func (g *Gateway) relay(ctx context.Context, s *mcp.Server, method string, params json.RawMessage) answer {
	ans, err := s.Call(ctx, method, params)
	if err != nil && ctx.Err() == nil {
		ans, err = s.Call(ctx, method, params)
	}
	if err != nil {
		return answer{err: &mcp.RPCError{Code: internalError, Message: fmt.Sprintf("%s of the MCP server %s: %v", method, s.Name(), err)}}
	}
	return answer{result: ans.Result, err: ans.Error}
}

// lists of servers that are put together, and where they are in the answer.
var joined = map[string]string{
	"resources/list": "resources", "resources/templates/list": "resourceTemplates", "prompts/list": "prompts",
}

// pass answers what is no call of a tool.
func (g *Gateway) pass(ctx context.Context, x *exchange, m mcp.Message) answer {
	if member := joined[m.Method]; member != "" {
		return g.join(ctx, x.s.agent, m.Method, member)
	}
	m.Params = with(m.Params, "", nil)
	var p struct {
		Name string `json:"name"`
		Ref  struct {
			Type, Name string
		} `json:"ref"`
	}
	_ = json.Unmarshal(m.Params, &p)
	switch m.Method {
	case "prompts/get":
		prefix, name, _ := strings.Cut(p.Name, between)
		if s := g.server(prefix); s != nil && g.opens(x.s.agent, prefix) {
			return g.relay(x.reading(ctx, name), s, m.Method, with(m.Params, "name", name))
		}
		return answer{err: &mcp.RPCError{Code: invalidParams, Message: fmt.Sprintf("Unknown prompt: %.100s", p.Name)}}
	case "completion/complete":
		if prefix, name, ok := strings.Cut(p.Ref.Name, between); ok && g.server(prefix) != nil {
			if !g.opens(x.s.agent, prefix) {
				return answer{err: &mcp.RPCError{Code: invalidParams, Message: fmt.Sprintf("Unknown prompt: %.100s", p.Ref.Name)}}
			}
			ref, _ := json.Marshal(map[string]string{"type": p.Ref.Type, "name": name})
			return g.relay(ctx, g.server(prefix), m.Method, with(m.Params, "ref", json.RawMessage(ref)))
		}
		return g.first(ctx, x.s.agent, m, "completions")
	case "resources/read":
		return g.first(x.reading(ctx, ""), x.s.agent, m, "resources")
	}
	return answer{err: &mcp.RPCError{Code: methodNotFound, Message: fmt.Sprintf("there is no method %.60s", m.Method)}}
}

// with returns params with another value of a member, and without what is of this side alone.
func with(params json.RawMessage, name string, value any) json.RawMessage {
	all := make(map[string]any)
	var was map[string]json.RawMessage
	_ = json.Unmarshal(params, &was)
	for k, v := range was {
		all[k] = v
	}
	if _, meta := passed(was["_meta"], ""); meta != nil {
		all["_meta"] = meta
	} else {
		delete(all, "_meta")
	}
	if name != "" {
		all[name] = value
	}
	out, _ := json.Marshal(all)
	return out
}

// can reports whether a server says that it can do something.
func can(i mcp.Info, what string) bool {
	var c map[string]json.RawMessage
	return json.Unmarshal(i.Capabilities, &c) == nil && c[what] != nil
}

// join answers with the lists of all servers of an agent.
func (g *Gateway) join(ctx context.Context, agent, method, member string) answer {
	needs := "resources"
	if member == "prompts" {
		needs = "prompts"
	}
	servers := g.serversOf(agent)
	infos := g.infos(ctx, servers)
	lists := make([][]json.RawMessage, len(servers))
	each(servers, func(i int, s *mcp.Server) {
		if !can(infos[i], needs) {
			return
		}
		err := s.List(ctx, method, member, func(raw json.RawMessage) error {
			if member == "prompts" {
				var p struct {
					Name string `json:"name"`
				}
				_ = json.Unmarshal(raw, &p)
				raw = shown(raw, s.Name()+between+p.Name)
			}
			if lists[i] = append(lists[i], raw); len(lists[i]) > mcp.MaxTools {
				return fmt.Errorf("it lists more than %d", mcp.MaxTools)
			}
			return nil
		})
		if err != nil {
			g.log.Warn("a list of an MCP server is not known", "server", s.Name(), "method", method, "err", err)
		}
	})
	result, err := json.Marshal(map[string]any{member: g.together(method, servers, lists)})
	if err != nil {
		return answer{err: &mcp.RPCError{Code: internalError, Message: err.Error()}}
	}
	return answer{result: result}
}

// together returns the lists of servers as one that a message can have: the list of a server that does not fit into it beside
// those of the servers before is left out.
func (g *Gateway) together(method string, servers []*mcp.Server, lists [][]json.RawMessage) []json.RawMessage {
	all, left := []json.RawMessage{}, g.cfg.MessageLimit
	for i, list := range lists {
		size := 0
		for _, entry := range list {
			size += len(entry) + len(",")
		}
		if size > left {
			g.log.Warn("a list of an MCP server is left out: with those of others it is larger than message_limit", "server", servers[i].Name(), "method", method, "bytes", size)
			continue
		}
		all, left = append(all, list...), left-size
	}
	return all
}

// first answers with what the first server of an agent says that knows the thing.
func (g *Gateway) first(ctx context.Context, agent string, m mcp.Message, needs string) answer {
	a := answer{err: &mcp.RPCError{Code: methodNotFound, Message: fmt.Sprintf("no server has %s", needs)}}
	servers := g.serversOf(agent)
	for i, info := range g.infos(ctx, servers) {
		if !can(info, needs) {
			continue
		}
		if a = g.relay(ctx, servers[i], m.Method, m.Params); a.err == nil {
			return a
		}
	}
	return a
}
