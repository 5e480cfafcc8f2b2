package gateway

import (
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
)

// may reports whether an agent may see and call a tool.
func (g *Gateway) may(agent string, tool keep.ToolName) bool {
	patterns, limited := g.cfg.Grants[agent]
	return !limited || slices.ContainsFunc(patterns, func(p string) bool { return matches(p, string(tool)) })
}

// opens reports whether an agent reaches a server at all: its resources and prompts, and what it tells and asks. It does if
// one of its patterns can be a tool of the server, also one that the server does not list.
func (g *Gateway) opens(agent, server string) bool {
	patterns, limited := g.cfg.Grants[agent]
	return !limited || slices.ContainsFunc(patterns, func(p string) bool { return ofServer(p, server) })
}

// serversOf returns the servers that an agent reaches.
func (g *Gateway) serversOf(agent string) []*mcp.Server {
	return slices.DeleteFunc(slices.Clone(g.servers), func(s *mcp.Server) bool { return !g.opens(agent, s.Name()) })
}

// ofServer reports whether a pattern stands for any name that a tool of a server can have.
func ofServer(pattern, server string) bool {
	server += "."
	begins, _, open := strings.Cut(pattern, "*")
	if !open {
		return strings.HasPrefix(pattern, server) && pattern != server
	}
	return strings.HasPrefix(begins, server) || strings.HasPrefix(server, begins)
}

// matches reports whether a name is one of those that a pattern stands for: * is any text.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(name) < len(first)+len(last) || !strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	name = name[len(first) : len(name)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name = name[i+len(part):]
	}
	return true
}
