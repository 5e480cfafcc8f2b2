package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A jsonPath names rows: $.issues, $.data[*], $[0].
type jsonPath []string

// parsePath reads a path. Empty is $.
func parsePath(text string) (jsonPath, error) {
	if text == "" || text == "$" {
		return nil, nil
	}
	rest, ok := strings.CutPrefix(text, "$")
	if !ok {
		return nil, fmt.Errorf("found: %q is no path: it begins with $, such as $.issues", text)
	}
	var p jsonPath
	for rest != "" {
		switch {
		case strings.HasPrefix(rest, "[*]"):
			p, rest = append(p, "*"), rest[3:]
		case rest[0] == '.':
			name := rest[1:]
			if i := strings.IndexAny(name, ".["); i >= 0 {
				name = name[:i]
			}
			if name == "" {
				return nil, fmt.Errorf("found: %q has a step without a name", text)
			}
			p, rest = append(p, "."+name), rest[1+len(name):]
		default:
			return nil, fmt.Errorf("found: %q: after $ there are steps such as .issues and [*]", text)
		}
	}
	return p, nil
}

// values returns what the path leads to. It is an error if the answer has another shape than the path says.
func (p jsonPath) values(body json.RawMessage) ([]json.RawMessage, error) {
	at := []json.RawMessage{body}
	for _, step := range p {
		var next []json.RawMessage
		for _, v := range at {
			if step == "*" {
				list, err := elements(v)
				if err != nil {
					return nil, err
				}
				next = append(next, list...)
				continue
			}
			var fields map[string]json.RawMessage
			if json.Unmarshal(v, &fields) != nil || fields[step[1:]] == nil {
				return nil, fmt.Errorf("the answer has no %s", step[1:])
			}
			next = append(next, fields[step[1:]])
		}
		at = next
	}
	return at, nil
}

// rows returns the values of the path, and for lists their elements. Whole reports whether they are those of lists alone:
// one object, or a text that a server answers in place of a list, may show our row, and is no list without it.
func (p jsonPath) rows(body json.RawMessage) (list []json.RawMessage, whole bool, err error) {
	values, err := p.values(body)
	if err != nil || len(p) > 0 && p[len(p)-1] == "*" {
		return values, true, err
	}
	whole = true
	for _, v := range values {
		switch trimmed := strings.TrimSpace(string(v)); {
		case trimmed == "" || trimmed == "null":
			return nil, false, errors.New("the answer is empty where its rows should be")
		case trimmed[0] == '[':
			of, err := elements(v)
			if err != nil {
				return nil, false, err
			}
			list = append(list, of...)
			continue
		case trimmed[0] != '{' || !slices.Contains(p, "*"):
			whole = false
		}
		list = append(list, v)
	}
	return list, whole, nil
}

func elements(v json.RawMessage) ([]json.RawMessage, error) {
	var list []json.RawMessage
	if json.Unmarshal(v, &list) != nil || list == nil {
		return nil, errors.New("the answer has no list where its rows should be")
	}
	return list, nil
}
