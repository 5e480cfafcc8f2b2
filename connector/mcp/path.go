package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
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

// rows returns what the path leads to: the elements of a list, or one value. It is an error if
// the answer has another shape than the path says: that is no list without our row.
func (p jsonPath) rows(body json.RawMessage) ([]json.RawMessage, error) {
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
	if len(p) > 0 && p[len(p)-1] == "*" || len(at) != 1 {
		return at, nil
	}
	switch trimmed := strings.TrimSpace(string(at[0])); {
	case trimmed == "" || trimmed == "null":
		return nil, errors.New("the answer is empty where its rows should be")
	case trimmed[0] == '[':
		return elements(at[0])
	}
	return at, nil
}

func elements(v json.RawMessage) ([]json.RawMessage, error) {
	var list []json.RawMessage
	if json.Unmarshal(v, &list) != nil || list == nil {
		return nil, errors.New("the answer has no list where its rows should be")
	}
	return list, nil
}
