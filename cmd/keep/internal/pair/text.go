package pair

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/keep-run/keep/connector/mcp"
)

// Text returns a draft as the file of a pairing: each tool that may change something is of level D, and
// what is guessed is a comment.
//
// A guess that the owner overlooks must not make a call count as known: so it has no effect until he takes
// the mark away.
func Text(name string, tools []Tool) string {
	var b strings.Builder
	b.WriteString(Head(name))
	for _, t := range tools {
		b.WriteString("\n")
		table := "tools." + key(t.Name)
		switch {
		case t.Reads:
			fmt.Fprintf(&b, "# Take the marks away if it changes nothing, as its name says.\n# [%s]\n# effect = \"get\"\n", table)
			continue
		case len(t.Params) == 0:
			fmt.Fprintf(&b, "# %s has no params: of such a tool nothing can be known.\n", comment(t.Name))
			continue
		}
		fmt.Fprintf(&b, "[%s]\neffect = \"mutate\"\nidentity = %s\n", table, list(without(t.Params, t.Key)))
		if t.Key != "" {
			fmt.Fprintf(&b, "# token = { param = %s }   # a guess: keep gateway pair shows whether the server honours it\n# deduplicates = true\n", Quote(t.Key))
		}
		if t.Mark == "" {
			continue
		}
		fmt.Fprintf(&b, "# token = { param = %s, append = %s }   # a guess\n", Quote(t.Mark), Quote(mark))
		for _, l := range t.Lookups {
			fmt.Fprintf(&b, "# reconcile = { tool = %s, args = %s }   # a guess\n", Quote(l.Tool), table1(l.Args))
		}
	}
	return b.String()
}

// Head returns the beginning of a pairing's file.
func Head(name string) string {
	return fmt.Sprintf("# Made by keep gateway pair. docs/gateway.md says what the keys mean.\nname = %s\nversion = \"1\"\ntitle = %s\n", Quote(name), Quote(name))
}

// Block returns what was shown of a tool as a table of a pairing's file.
func (p Proof) Block(at time.Time) string {
	var b strings.Builder
	table := "tools." + key(p.Pairing.Tool)
	fmt.Fprintf(&b, "\n# Level %s was shown on %s by %d calls. settle_after is three times the longest that an effect took to show.\n[%s]\neffect = \"mutate\"\nidentity = %s\n",
		p.Tool.Grade, at.UTC().Format(time.DateOnly), p.Tool.Calls, table, list(p.Pairing.Identity))
	if p.Pairing.Deduplicates {
		fmt.Fprintf(&b, "token = { param = %s }\ndeduplicates = true\n", Quote(p.Pairing.TokenParam))
		return b.String()
	}
	fmt.Fprintf(&b, "token = { param = %s, append = %s }\nsettle_after = %s\n", Quote(p.Pairing.TokenParam), Quote(p.Pairing.TokenAppend), Quote(p.Pairing.SettleAfter.String()))
	l := p.Pairing.Lookup
	fmt.Fprintf(&b, "[%s.reconcile]\ntool = %s\nargs = %s\nfound = %s\n", table, Quote(l.Tool), table1(args(*l)), Quote(l.Found))
	b.WriteString("# complete = true   # your word, which no trial shows: the list holds all that could be ours. Without it a person is asked about what is not in it\n")
	return b.String()
}

var bare = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]+$`) })

// key returns a name as TOML has it in the name of a table.
func key(name string) string {
	if bare().MatchString(name) {
		return name
	}
	return Quote(name)
}

// comment returns a name on one line.
func comment(name string) string { return strings.Trim(Quote(name), `"`) }

// Quote returns s as a string of TOML, on one line. Characters that nobody sees are escaped.
func Quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case !unicode.IsPrint(r) && r < 1<<16:
			fmt.Fprintf(&b, `\u%04X`, r)
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\U%08X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// list returns texts as TOML has them.
func list(texts []string) string {
	quoted := make([]string, len(texts))
	for i, s := range texts {
		quoted[i] = Quote(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// table1 returns texts by name as a table on one line.
func table1(texts map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		parts = append(parts, key(name)+" = "+Quote(texts[name]))
	}
	if len(parts) == 0 {
		return "{}"
	}
	return "{ " + strings.Join(parts, ", ") + " }"
}

// without returns a list without one name.
func without(list []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == name })
}

// Choose returns t with what the owner says in place of guesses: the param of the mark, and the tool that
// shows it with its arguments. The error names what the server does not have.
func (t Tool) Choose(param, lookup string, arguments map[string]string, listed []mcp.ToolInfo) (Tool, error) {
	if param != "" {
		if !slices.Contains(t.Params, param) {
			return t, fmt.Errorf("%s has no param %s: it has %s", t.Name, param, strings.Join(t.Params, ", "))
		}
		t.Mark = param
	}
	if lookup == "" {
		return t, nil
	}
	if !slices.ContainsFunc(listed, func(l mcp.ToolInfo) bool { return l.Name == lookup && l.Name != t.Name }) {
		return t, fmt.Errorf("the server has no other tool %s", lookup)
	}
	for _, l := range t.Lookups {
		if l.Tool == lookup && arguments == nil {
			arguments = l.Args
		}
	}
	t.Lookups = []Lookup{{lookup, arguments}}
	return t, nil
}
