package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/keep-run/keep/connector/internal/match"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Names that stand for values of the host in a lookup: its key for the mutation, and the
// time of the first call less a minute, for clocks that differ.
const (
	tokenParam  = "token"
	sentParam   = "sent_at" // as sent_at:rfc3339
	sentUnix    = "sent_at:unix"
	sentRFC3339 = "sent_at:rfc3339"

	createdRFC3339 = "created_at:rfc3339" // when the call was first recorded, in fixed
	startParam     = "start"              // what was made before the call
)

// hostParams are all of these names.
var hostParams = []string{tokenParam, sentParam, sentUnix, sentRFC3339, createdRFC3339}

// isTime reports whether a name in a lookup is that of a time, which other effects have, too.
func isTime(name string) bool { return name != tokenParam && slices.Contains(hostParams, name) }

// A piece of a template is fixed text, or the name of a param if param is set.
type piece struct {
	text  string
	param string
}

// A text is a template such as "ref-{token}".
type text []piece

// A path is a template for the part of a URL after the base: segments between
// slashes, each of which is filled on its own.
type path struct {
	segments []text
	query    query // of "?key=template&…" in the path
}

// A query is a list of "key=template" in the order of the configuration.
type query []field

// A field is a key with its template, in a query or in match.
type field struct {
	key   string
	value text
}

// Values fills a template.
type values struct {
	fields map[string]json.RawMessage
	host   map[string]string // of hostParams, in a lookup; in a call {token} is a param
}

var (
	paramName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`) })
	paramPath = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)*$`)
	}) // into an object
)

// parseText reads a template with {param} in it.
func parseText(s string) (text, error) {
	var t text
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			return append(t, piece{text: s}), nil
		}
		if i > 0 {
			t = append(t, piece{text: s[:i]})
		}
		end := strings.IndexByte(s[i:], '}')
		if s[i] == '}' || end < 0 {
			return nil, errors.New("a brace without its pair")
		}
		name := s[i+1 : i+end]
		if !paramPath().MatchString(name) && !slices.Contains(hostParams, name) {
			return nil, fmt.Errorf("{%s} does not name a param", name)
		}
		t = append(t, piece{param: name})
		s = s[i+end+1:]
	}
	return t, nil
}

// parsePath reads a path template. The fixed parts are URL text, so a space is
// written %20 there; the params are escaped when the template is filled.
func parsePath(s string) (path, error) {
	if s == "." {
		return path{}, nil // the base URL itself
	}
	raw, rest, hasQuery := strings.Cut(s, "?")
	if !strings.HasPrefix(raw, "/") {
		return path{}, fmt.Errorf("%q must start with /", s)
	}
	var p path
	for _, part := range strings.Split(raw[1:], "/") {
		if name, ok := strings.CutPrefix(part, ":"); ok && paramName().MatchString(name) {
			return path{}, fmt.Errorf("%q: write {%s} for a param, not :%[2]s", s, name)
		}
		t, err := parseText(part)
		if err != nil {
			return path{}, fmt.Errorf("%q: %w", s, err)
		}
		if err := checkFixed(t); err != nil {
			return path{}, fmt.Errorf("%q: %w", s, err)
		}
		p.segments = append(p.segments, t)
	}
	if !hasQuery {
		return p, nil
	}
	for _, part := range strings.Split(rest, "&") {
		f, err := parseField(part)
		if err != nil || !strings.Contains(part, "=") {
			return path{}, fmt.Errorf("%q: the query must be key=template&…", s)
		}
		p.query = append(p.query, f)
	}
	return p, nil
}

// checkFixed refuses what would leave the base URL or break the request line.
func checkFixed(t text) error {
	var fixed strings.Builder
	for _, p := range t {
		fixed.WriteString(p.text)
		for _, c := range []byte(p.text) {
			if c <= ' ' || c >= 0x7f || strings.IndexByte(`#"<>\^|`+"`", c) >= 0 {
				return fmt.Errorf("the character %q must be written %%%02X", c, c)
			}
		}
		if _, err := url.PathUnescape(p.text); err != nil {
			return err
		}
	}
	plain, _ := url.PathUnescape(fixed.String())
	if len(t.params()) == 0 && climbs(plain) {
		return errors.New("the segments . and .. are not allowed")
	}
	return nil
}

// parseField reads "name", which means the param of that name, or
// "name={template}".
func parseField(s string) (field, error) {
	key, value, ok := strings.Cut(s, "=")
	if !ok {
		if !paramName().MatchString(key) {
			return field{}, fmt.Errorf("%q does not name a param", key)
		}
		return field{key: key, value: text{{param: key}}}, nil
	}
	if key == "" {
		return field{}, fmt.Errorf("%q has no name before the =", s)
	}
	t, err := parseText(value)
	if err != nil {
		return field{}, fmt.Errorf("%q: %w", s, err)
	}
	return field{key: key, value: t}, nil
}

// names returns the names in t in order, as they are written: also paths into an object.
func (t text) names() []string {
	var names []string
	for _, p := range t {
		if p.param != "" {
			names = append(names, p.param)
		}
	}
	return names
}

func (q query) names() []string {
	var names []string
	for _, f := range q {
		names = append(names, f.value.names()...)
	}
	return names
}

// names returns the names in the path and its query.
func (p path) names() []string {
	var names []string
	for _, s := range p.segments {
		names = append(names, s.names()...)
	}
	return append(names, p.query.names()...)
}

// params returns the params that t takes something of.
func (t text) params() []string { return paramsOf(t.names()) }

func (q query) params() []string { return paramsOf(q.names()) }

func (p path) params() []string { return paramsOf(p.names()) }

// paramsOf replaces each path into an object by the param that is the object.
func paramsOf(names []string) []string {
	for i, name := range names {
		names[i], _, _ = strings.Cut(name, ".")
	}
	return names
}

// String writes t as parseText reads it.
func (t text) String() string {
	var b strings.Builder
	for _, p := range t {
		if p.param != "" {
			b.WriteString("{" + p.param + "}")
		} else {
			b.WriteString(p.text)
		}
	}
	return b.String()
}

// String writes the path as parsePath reads it, without its query.
func (p path) String() string {
	var b strings.Builder
	for _, s := range p.segments {
		b.WriteString("/" + s.String())
	}
	return b.String()
}

// fill returns t with its params replaced, without any escaping.
func (t text) fill(v values) (string, error) {
	var b strings.Builder
	for _, p := range t {
		if p.param == "" {
			b.WriteString(p.text)
			continue
		}
		s, err := v.text(p.param)
		if err != nil {
			return "", err
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

// fill returns the escaped path. A value stays inside its segment: it may hold
// a slash, which is escaped, but nothing that a lenient server could read as a
// way up.
func (p path) fill(v values) (string, error) {
	var b strings.Builder
	for _, segment := range p.segments {
		b.WriteByte('/')
		var whole strings.Builder
		for _, piece := range segment {
			if piece.param == "" {
				b.WriteString(piece.text)
				plain, _ := url.PathUnescape(piece.text)
				whole.WriteString(plain)
				continue
			}
			s, err := v.text(piece.param)
			if err != nil {
				return "", err
			}
			if s == "" {
				return "", fmt.Errorf("param %q is empty, but the path needs it", piece.param)
			}
			b.WriteString(url.PathEscape(s))
			whole.WriteString(s)
		}
		if len(segment.params()) > 0 && climbs(whole.String()) {
			return "", fmt.Errorf("params %s must not hold . or .. as a path segment", strings.Join(segment.params(), ", "))
		}
	}
	return b.String(), nil
}

// climbs reports whether s has a segment that means "here" or "up".
func climbs(s string) bool {
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == '/' || r == '\\' })
	return slices.Contains(parts, ".") || slices.Contains(parts, "..")
}

// fill returns the encoded query. A field that is one param alone may be
// absent, which leaves it out, or an array, which repeats it.
func (q query) fill(v values) (string, error) {
	var out []string
	add := func(key, value string) { out = append(out, url.QueryEscape(key)+"="+url.QueryEscape(value)) }
	for _, f := range q {
		if len(f.value) == 1 && f.value[0].param != "" {
			list, err := v.list(f.value[0].param)
			if err != nil {
				return "", err
			}
			for _, s := range list {
				add(f.key, s)
			}
			continue
		}
		s, err := f.value.fill(v)
		if err != nil {
			return "", err
		}
		add(f.key, s)
	}
	return strings.Join(out, "&"), nil
}

// isHost reports whether the host has a value of that name.
func (v values) isHost(name string) bool {
	_, ok := v.host[name]
	return ok
}

// isHostParam reports whether a name in a template is one of the host's and not a param.
func (t *tool) isHostParam(name string) bool {
	return slices.Contains(hostParams, name) || name == startParam && t.start != nil
}

// text returns the param as it goes into a URL: a string as it is, a number as
// it was written, true or false.
func (v values) text(name string) (string, error) {
	if s, ok := v.host[name]; ok {
		return s, nil
	}
	raw := v.get(name)
	if len(raw) == 0 {
		return "", fmt.Errorf("param %q is required", name)
	}
	return scalar(name, raw)
}

// get returns the param, or what is in it at a path; nil: it is not there.
func (v values) get(name string) json.RawMessage {
	root, path, inside := strings.Cut(name, ".")
	raw := v.fields[root]
	if inside {
		raw, _ = match.FieldPath(path).Find(raw)
	}
	return raw
}

// list returns the texts of a value of the host, or of an optional param: none, one, or
// those of an array.
func (v values) list(name string) ([]string, error) {
	if s, ok := v.host[name]; ok {
		return []string{s}, nil
	}
	raw := bytes.TrimSpace(v.get(name))
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if raw[0] != '[' {
		s, err := scalar(name, raw)
		return []string{s}, err
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, fmt.Errorf("param %q: %w", name, err)
	}
	out := make([]string, len(items))
	for i, item := range items {
		s, err := scalar(name, item)
		if err != nil {
			return nil, err
		}
		out[i] = s
	}
	return out, nil
}

func scalar(name string, raw json.RawMessage) (string, error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0 || raw[0] == '{' || raw[0] == '[' || raw[0] == 'n':
		return "", fmt.Errorf("param %q must be a string, a number, true or false", name)
	case raw[0] != '"':
		return string(raw), nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", fmt.Errorf("param %q: %w", name, err)
	}
	return s, nil
}
