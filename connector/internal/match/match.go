// Package match recognises what an answer of a service says, by a value in its JSON.
package match

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/internal/jsonval"
)

// classes are what may be said of an answer that refuses. None of them says that the change happened.
var classes = []keep.Class{
	keep.ClassLogic, keep.ClassPermission, keep.ClassTransient, keep.ClassPrecondition, keep.ClassUnknown,
}

// CheckClass returns an error if nobody may say c of an answer.
func CheckClass(c keep.Class) error {
	if slices.Contains(classes, c) {
		return nil
	}
	names := make([]string, len(classes))
	for i, c := range classes {
		names[i] = string(c)
	}
	return fmt.Errorf("is %q, want one of %s", c, strings.Join(names, ", "))
}

// A Value is what a value of an answer must be.
type Value struct {
	one    []json.RawMessage // it is one of these; nil: exists counts
	exists bool
}

// NewValue returns the Value that equals one of in or equals, or, if there are none, is there and not null, as exists says.
func NewValue(equals any, in []any, exists *bool) (Value, error) {
	v := Value{exists: exists == nil || *exists}
	if equals != nil {
		in = append(slices.Clone(in), equals)
	}
	for _, one := range in {
		raw, err := jsonval.Encode(one)
		if err != nil {
			return v, fmt.Errorf("has a value that is not JSON: %w", err)
		}
		v.one = append(v.one, raw)
	}
	if exists != nil && v.one != nil {
		return v, errors.New("exists contradicts equals and in")
	}
	return v, nil
}

// Is reports whether what was found is the value: equals compares it with one of those that it may be.
func (v Value) Is(found bool, equals func(want json.RawMessage) bool) bool {
	if v.one == nil {
		return found == v.exists
	}
	return found && slices.ContainsFunc(v.one, equals)
}

// At reports whether a path leads to the value in the JSON of an answer.
func (v Value) At(p Path, body json.RawMessage) bool {
	got, found := p.Find(body)
	return v.Is(found && string(got) != "null", func(want json.RawMessage) bool { return jsonval.Equal(got, want) })
}

// A Path leads to a value: names of members and, as ints, positions in lists, where
// -1 is the last.
type Path []any

var pathStep = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:\.([^.\[\]]+)|\[(-?[0-9]{1,6})\])`) })

// ParsePath reads "$.a.b[0]", or the RFC 6901 pointer "/a/b/0".
func ParsePath(s string) (Path, error) {
	path := Path{}
	if strings.HasPrefix(s, "/") {
		for _, part := range strings.Split(s[1:], "/") {
			path = append(path, strings.NewReplacer("~1", "/", "~0", "~").Replace(part))
		}
		return path, nil
	}
	rest, ok := strings.CutPrefix(s, "$")
	if !ok {
		return nil, fmt.Errorf(`is %q, want a path such as "$.data[0].id" or "/data"`, s)
	}
	for rest != "" {
		m := pathStep().FindStringSubmatch(rest)
		switch {
		case m == nil:
			return nil, fmt.Errorf(`is %q, want a path such as "$.data[0].id"; stopped at %q`, s, rest)
		case m[1] != "":
			path = append(path, m[1])
		default:
			n, err := strconv.Atoi(m[2])
			if err != nil {
				return nil, errors.New("has a position that is not a number")
			}
			path = append(path, n)
		}
		rest = rest[len(m[0]):]
	}
	return path, nil
}

// FieldPath reads the name of a field of a record, "a.b.c".
func FieldPath(s string) Path {
	path := Path{}
	for _, part := range strings.Split(s, ".") {
		path = append(path, part)
	}
	return path
}

// Find returns the value that p leads to.
func (p Path) Find(raw json.RawMessage) (json.RawMessage, bool) {
	for _, step := range p {
		if list, ok := Elements(raw); ok {
			i, ok := step.(int)
			if name, isName := step.(string); isName { // a pointer writes positions as names
				n, err := strconv.Atoi(name)
				i, ok = n, err == nil
			}
			if i < 0 {
				i += len(list)
			}
			if !ok || i < 0 || i >= len(list) {
				return nil, false
			}
			raw = list[i]
			continue
		}
		name, ok := step.(string)
		fields, err := jsonval.Fields(raw)
		if !ok || err != nil {
			return nil, false
		}
		if raw, ok = fields[name]; !ok {
			return nil, false
		}
	}
	return bytes.TrimSpace(raw), len(raw) > 0
}

// String writes p as ParsePath reads it.
func (p Path) String() string {
	var b strings.Builder
	b.WriteByte('$')
	for _, step := range p {
		if i, ok := step.(int); ok {
			fmt.Fprintf(&b, "[%d]", i)
		} else {
			fmt.Fprintf(&b, ".%v", step)
		}
	}
	return b.String()
}

// Elements returns the elements of a list, and whether raw is one.
func Elements(raw json.RawMessage) ([]json.RawMessage, bool) {
	raw = bytes.TrimSpace(raw)
	var list []json.RawMessage
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		return nil, false
	}
	return list, true
}
