package gateway

import (
	"slices"
	"strings"

	"github.com/keep-run/keep"
)

// may reports whether an agent may see and call a tool.
func (g *Gateway) may(agent string, tool keep.ToolName) bool {
	patterns, limited := g.cfg.Grants[agent]
	return !limited || slices.ContainsFunc(patterns, func(p string) bool { return matches(p, string(tool)) })
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
