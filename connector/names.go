package connector

import (
	"fmt"
	"slices"

	"github.com/keep-run/keep"
)

// Names are what something was called before. Configuration writes one name, or a list of them.
type Names []string

// FormerNames returns the full names that a tool of c may have had before, as records have them:
// each name of its connection with each of its own.
func FormerNames(c Connection, s Spec) []keep.ToolName {
	names := []keep.ToolName{keep.ToolName(c.Name + "." + s.Name)}
	for _, conn := range slices.Concat(Names{c.Name}, c.Was) {
		for _, tool := range slices.Concat(Names{s.Name}, s.Was, c.ToolWas[s.Name]) {
			if name := keep.ToolName(conn + "." + tool); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names[1:]
}

// IsNew reports whether the configuration says that a tool of c had no other names within it than those of FormerNames.
func IsNew(c Connection, s Spec) bool { return s.New || c.ToolNew[s.Name] }

// CheckNames reports names of before that are not those of one tool alone: another tool has such a
// name today, or says that it had it.
func CheckNames(conns []Connection) (problems []Problem) {
	today, before := make(map[keep.ToolName]bool), make(map[keep.ToolName]keep.ToolName)
	for _, c := range conns {
		for _, t := range c.Tools {
			today[keep.ToolName(c.Name+"."+t.Spec().Name)] = true
		}
	}
	for _, c := range conns {
		for _, t := range c.Tools {
			name := keep.ToolName(c.Name + "." + t.Spec().Name)
			for _, was := range FormerNames(c, t.Spec()) {
				text := ""
				switch other := before[was]; {
				case today[was]:
					text = fmt.Sprintf("%s says that it was %s, which is still there", name, was)
				case other != "":
					text = fmt.Sprintf("both %s and %s say that they were %s", other, name, was)
				}
				if before[was] = name; text != "" {
					problems = append(problems, Problem{Path: "connections." + c.Name, Message: text})
				}
			}
		}
	}
	return problems
}
