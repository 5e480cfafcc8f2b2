package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/internal/jsonval"
)

// A Condition recognises an answer by its status, a header, or a value in its JSON
// body. All that is given must hold.
type Condition struct {
	Status []int  `toml:"status"` // empty: any 2xx; in absent_if: 404
	Header string `toml:"header"` // name of a header
	Path   string `toml:"path"`   // such as "$.error.type"

	// What the header or the value must be. None of them: it is there, and not null.
	Equals any   `toml:"equals"`
	In     []any `toml:"in"`
	Exists *bool `toml:"exists"`

	// Class is what a refusal means, in refused_if only. Empty: logic.
	Class keep.Class `toml:"class"`
}

// A condition is a checked Condition.
type condition struct {
	status []int
	header string
	path   jsonPath
	want   []json.RawMessage // nil: existence counts
	exists bool
	class  keep.Class
}

// classes are what refused_if and statuses may say of an answer. None of them says
// that the change happened.
var classes = []keep.Class{
	keep.ClassLogic, keep.ClassPermission, keep.ClassTransient, keep.ClassPrecondition, keep.ClassUnknown,
}

// condition checks c, which stands at key.
func (b *builder) condition(key string, cfg Condition) condition {
	c := condition{status: cfg.Status, header: http.CanonicalHeaderKey(cfg.Header), exists: true, class: cfg.Class}
	b.statuses(key+".status", cfg.Status, 100, 599)
	if cfg.Path == "" && cfg.Header == "" && len(cfg.Status) == 0 {
		b.addf(key, "names no status, path or header to recognise an answer by")
	}
	if cfg.Path != "" && cfg.Header != "" {
		b.addf(key, "names both path and header; two conditions need two entries")
	}
	if cfg.Header != "" && !isHeaderName(cfg.Header) {
		b.addf(key+".header", "is not a header name")
	}
	var err error
	if c.path, err = parseJSONPath(cfg.Path); cfg.Path != "" && err != nil {
		b.addf(key+".path", "%v", err)
	}
	values := cfg.In
	if cfg.Equals != nil {
		values = append(slices.Clone(values), cfg.Equals)
	}
	for _, v := range values {
		raw, err := jsonval.Encode(v)
		if err != nil {
			b.addf(key, "has a value that is not JSON: %v", err)
		}
		c.want = append(c.want, raw)
	}
	if cfg.Exists != nil {
		c.exists = *cfg.Exists
		if c.want != nil {
			b.addf(key+".exists", "contradicts equals and in")
		}
	}
	return c
}

// matches reports whether a is what c describes. The statuses that c does not name are
// those of ok.
func (c condition) matches(a answer, ok func(status int) bool) bool {
	switch {
	case len(c.status) > 0 && !slices.Contains(c.status, a.status), len(c.status) == 0 && !ok(a.status):
		return false
	case c.header != "":
		values := a.header.Values(c.header)
		return c.holds(len(values) > 0, func(want json.RawMessage) bool {
			var text string
			return json.Unmarshal(want, &text) == nil && slices.Contains(values, text)
		})
	case c.path == nil:
		return true
	case a.cut || a.err != nil || !json.Valid(a.body):
		return false
	}
	got, found := c.path.find(a.body)
	return c.holds(found && string(got) != "null", func(want json.RawMessage) bool { return jsonval.Equal(got, want) })
}

// holds compares what was found with what is wanted.
func (c condition) holds(found bool, equals func(json.RawMessage) bool) bool {
	if c.want == nil {
		return found == c.exists
	}
	return found && slices.ContainsFunc(c.want, equals)
}

// String names what c looks at, for a person.
func (c condition) String() string {
	if c.header != "" {
		return "the header " + c.header
	}
	return c.path.String()
}

// A jsonPath leads to a value: names of members and, as ints, positions in lists, where
// -1 is the last.
type jsonPath []any

var pathStep = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:\.([^.\[\]]+)|\[(-?[0-9]{1,6})\])`) })

// parseJSONPath reads "$.a.b[0]", or the RFC 6901 pointer "/a/b/0".
func parseJSONPath(s string) (jsonPath, error) {
	path := jsonPath{}
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

// parseFieldPath reads the name of a field of a record, "a.b.c".
func parseFieldPath(s string) jsonPath {
	path := jsonPath{}
	for _, part := range strings.Split(s, ".") {
		path = append(path, part)
	}
	return path
}

// find returns the value that p leads to.
func (p jsonPath) find(raw json.RawMessage) (json.RawMessage, bool) {
	for _, step := range p {
		if list, ok := elements(raw); ok {
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

// String writes p as parseJSONPath reads it.
func (p jsonPath) String() string {
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

// elements returns the elements of a list, and whether raw is one.
func elements(raw json.RawMessage) ([]json.RawMessage, bool) {
	raw = bytes.TrimSpace(raw)
	var list []json.RawMessage
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		return nil, false
	}
	return list, true
}
