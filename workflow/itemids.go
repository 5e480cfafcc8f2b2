package workflow

import (
	"encoding/json"
	"regexp"
	"strings"
)

// An ItemPattern is the form of the ids that a job gives its items: text in which
// each * stands for something that is computed.
type ItemPattern string

// Matches reports whether an id can be of that form.
func (p ItemPattern) Matches(id string) bool {
	parts := strings.Split(string(p), "*")
	if len(parts) == 1 {
		return id == parts[0]
	}
	first, last := parts[0], parts[len(parts)-1]
	if !strings.HasPrefix(id, first) || !strings.HasSuffix(id[len(first):], last) {
		return false
	}
	rest := id[len(first) : len(id)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return true
}

var withItem = regexp.MustCompile(`\bwithItem\s*\(\s*`)

// ItemPatterns returns the forms of the ids in the withItem calls of all jobs.
// known is false if there is no job, or if one makes an id in a way that its own
// text does not show: then nothing can be said about any item.
func ItemPatterns(decl json.RawMessage) (patterns []ItemPattern, known bool) {
	root, err := decode(decl)
	if err != nil {
		return nil, false
	}
	jobs, _ := root.get("jobs")
	for _, m := range jobs.members {
		v := m.value
		if h, ok := v.get("handler"); ok {
			v = h
		}
		calls := withItem.FindAllStringIndex(v.source, -1)
		if len(calls) == 0 {
			return nil, false // in a function of its own, perhaps
		}
		for _, at := range calls {
			p, ok := firstArgument(v.source[at[1]:])
			if !ok {
				return nil, false
			}
			patterns = append(patterns, p)
		}
	}
	return patterns, len(patterns) > 0
}

// firstArgument reads the string or template that text begins with, as an argument
// that more follow.
func firstArgument(text string) (ItemPattern, bool) {
	if text == "" || !strings.ContainsRune("\"'`", rune(text[0])) {
		return "", false
	}
	var out strings.Builder
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == text[0]:
			after := strings.TrimSpace(text[i+1:])
			return ItemPattern(out.String()), strings.HasPrefix(after, ",")
		case text[i] == '\\' || text[i] == '*':
			return "", false // rare enough to leave
		case text[0] == '`' && strings.HasPrefix(text[i:], "${"):
			end := closing(text[i+2:])
			if end < 0 {
				return "", false
			}
			out.WriteByte('*')
			i += 2 + end
		default:
			out.WriteByte(text[i])
		}
	}
	return "", false
}

// closing returns the index of the brace that ends the expression text begins
// with, or -1.
func closing(text string) int {
	depth := 0
	for i, r := range text {
		switch r {
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return i
			}
			depth--
		case '`', '\'', '"':
			return -1 // an expression with strings in it is left alone
		}
	}
	return -1
}
