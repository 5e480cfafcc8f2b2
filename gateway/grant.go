package gateway

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
)

// CheckAgent returns what is wrong with the name of an agent, which is in the records of all its calls; nil: nothing.
func CheckAgent(name string) error {
	switch {
	case name == "" || len(name) > 64:
		return errors.New("the name of an agent has 1 to 64 characters")
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%q is no name of an agent: it is text in UTF-8 without control characters", name)
	}
	return nil
}

// grant returns the patterns of the tools that an agent may call, and whether it is limited to them. What is said of an agent
// counts for a name that differs in case alone, too: nobody means that one to have no limits.
func (g *Gateway) grant(agent string) (patterns []string, limited bool) {
	if patterns, limited = g.cfg.Grants[agent]; limited {
		return patterns, true
	}
	for name, patterns := range g.cfg.Grants {
		if strings.EqualFold(name, agent) {
			return patterns, true
		}
	}
	return nil, false
}

// may reports whether an agent may see and call a tool.
func (g *Gateway) may(agent string, tool keep.ToolName) bool {
	patterns, limited := g.grant(agent)
	return !limited || slices.ContainsFunc(patterns, func(p string) bool { return matches(p, string(tool)) })
}

// opens reports whether an agent reaches a server at all: its resources and prompts, and what it tells and asks. It does if
// one of its patterns can be a tool of the server, also one that the server does not list.
func (g *Gateway) opens(agent, server string) bool {
	patterns, limited := g.grant(agent)
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
