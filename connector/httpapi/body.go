package httpapi

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime/multipart"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/jsonval"
	"github.com/keep-run/keep/connector/internal/match"
)

// A bodyForm writes the members of a body as bytes with their content type.
type bodyForm func(members map[string]json.RawMessage) (body []byte, kind string, err error)

// bodyForms are the values of body in configuration.
var bodyForms = map[string]bodyForm{"": jsonBody, "json": jsonBody, "form": formBody, "multipart": multipartBody, "text": textBody}

// jsonBody writes one object, with the bytes that the values came with.
func jsonBody(members map[string]json.RawMessage) ([]byte, string, error) {
	raw, err := jsonval.Encode(members)
	return raw, "application/json", err
}

// formBody writes nested names as a[b] and a[0][b]. Null is left out.
func formBody(members map[string]json.RawMessage) ([]byte, string, error) {
	var pairs []string
	var add func(name string, raw json.RawMessage) error
	add = func(name string, raw json.RawMessage) error {
		if list, ok := match.Elements(raw); ok {
			for i, e := range list {
				if err := add(fmt.Sprintf("%s[%d]", name, i), e); err != nil {
					return err
				}
			}
			return nil
		}
		switch raw = bytes.TrimSpace(raw); {
		case len(raw) == 0 || string(raw) == "null":
			return nil
		case raw[0] == '{':
			fields, err := jsonval.Fields(raw)
			if err != nil {
				return err
			}
			for _, k := range slices.Sorted(maps.Keys(fields)) {
				if err := add(name+"["+k+"]", fields[k]); err != nil {
					return err
				}
			}
			return nil
		}
		s, err := scalar(name, raw)
		pairs = append(pairs, url.QueryEscape(name)+"="+url.QueryEscape(s))
		return err
	}
	for _, k := range slices.Sorted(maps.Keys(members)) {
		if err := add(k, members[k]); err != nil {
			return nil, "", err
		}
	}
	return []byte(strings.Join(pairs, "&")), "application/x-www-form-urlencoded", nil
}

// A file is a param that multipart sends as one.
type file struct {
	Filename string `json:"filename"`
	Type     string `json:"type"`
	Base64   string `json:"base64"`
}

// multipartBody writes strings, numbers and truth values as fields, objects with base64 as
// files, and everything else as JSON. The same members make the same bytes.
func multipartBody(members map[string]json.RawMessage) ([]byte, string, error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	all, err := jsonval.Encode(members)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(all)
	if err := w.SetBoundary("keep-" + hex.EncodeToString(sum[:])); err != nil {
		return nil, "", err
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if err := writePart(w, name, bytes.TrimSpace(members[name])); err != nil {
			return nil, "", err
		}
	}
	if err := w.Close(); err != nil {
		return nil, "", err
	}
	return b.Bytes(), w.FormDataContentType(), nil
}

// writePart writes one member.
func writePart(w *multipart.Writer, name string, raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var f file
	if raw[0] == '{' && json.Unmarshal(raw, &f) == nil && f.Filename != "" {
		content, err := base64.StdEncoding.DecodeString(f.Base64)
		if err != nil {
			return fmt.Errorf("param %q: base64: %w", name, err)
		}
		f.Type = cmp.Or(f.Type, "application/octet-stream")
		if !isHeaderValue(f.Type) {
			return fmt.Errorf("param %q: the type is not a media type", name)
		}
		h := textproto.MIMEHeader{"Content-Type": {f.Type}}
		h.Set("Content-Disposition", multipart.FileContentDisposition(name, f.Filename))
		part, err := w.CreatePart(h)
		if err != nil {
			return err
		}
		_, err = part.Write(content)
		return err
	}
	text, err := scalar(name, raw)
	if err != nil {
		text = string(raw)
	}
	return w.WriteField(name, text)
}

// textBody sends the param text as it is.
func textBody(members map[string]json.RawMessage) ([]byte, string, error) {
	var text string
	if len(members) != 1 || json.Unmarshal(members["text"], &text) != nil {
		return nil, "", errors.New(`the body is the param "text", a string, and nothing else`)
	}
	return []byte(text), "text/plain; charset=utf-8", nil
}

// A fixedValue is a value of the body that configuration gives. Texts may be templates,
// and one that is a single param takes the param's value and type.
type fixedValue struct {
	template text // of a string
	list     []fixedValue
	members  map[string]fixedValue
	each     *eachValue
	raw      json.RawMessage // of everything else
}

// An eachValue writes the elements of a param that is a list, each by its type, with
// {value} for the element.
type eachValue struct {
	list  text
	first *fixedValue           // further members of the first element; nil: none
	as    map[string]fixedValue // by "string", "number", "boolean" and "null"
}

// elementTypes are the types that an eachValue tells apart, by the first byte of JSON.
var elementTypes = map[byte]string{'"': "string", 't': "boolean", 'f': "boolean", 'n': "null"}

// parseEach reads { each = "{param}", first = …, string = …, number = …, boolean = …,
// null = … }; nil: v is something else.
func parseEach(v map[string]any) (*eachValue, error) {
	list, ok := v["each"].(string)
	if !ok || len(v) < 2 {
		return nil, nil
	}
	e := &eachValue{as: map[string]fixedValue{}}
	for k, as := range v {
		switch k {
		case "each":
		case "first":
			f, err := parseFixed(as)
			if err != nil {
				return nil, err
			}
			e.first = &f
		case "string", "number", "boolean", "null":
			f, err := parseFixed(as)
			if err != nil {
				return nil, err
			}
			e.as[k] = f
		default:
			return nil, nil
		}
	}
	var err error
	if e.list, err = parseText(list); err == nil && (len(e.list) != 1 || e.list[0].param == "") {
		err = fmt.Errorf("each is %q, want one param such as \"{values}\"", list)
	}
	return e, err
}

// fill writes the list.
func (e *eachValue) fill(v values) (json.RawMessage, error) {
	raw, err := e.list.json(v)
	if err != nil || len(raw) == 0 {
		return nil, err
	}
	list, ok := match.Elements(raw)
	if !ok {
		return nil, fmt.Errorf("param %q must be a list", e.list[0].param)
	}
	out := make([]json.RawMessage, len(list))
	for i, element := range list {
		kind, ok := elementTypes[bytes.TrimSpace(element)[0]]
		if !ok {
			kind = "number"
		}
		as, ok := e.as[kind]
		if c := bytes.TrimSpace(element)[0]; !ok || c == '{' || c == '[' {
			return nil, fmt.Errorf("param %q: element %d cannot be sent: only a string, a number, true, false or null can", e.list[0].param, i)
		}
		fields := maps.Clone(v.fields)
		fields["value"] = element
		if out[i], err = as.fill(values{fields: fields, host: v.host}); err != nil {
			return nil, err
		}
	}
	if e.first == nil || len(out) == 0 {
		return jsonval.Encode(out)
	}
	extra, err := e.first.fill(v)
	if err != nil {
		return nil, err
	}
	one := map[string]json.RawMessage{"0": out[0]}
	if err := mergeMember(one, "0", extra); err != nil {
		return nil, err
	}
	out[0] = one["0"]
	return jsonval.Encode(out)
}

// parseFixed reads a value of configuration.
func parseFixed(v any) (fixedValue, error) {
	switch v := v.(type) {
	case string:
		t, err := parseText(v)
		return fixedValue{template: t, raw: json.RawMessage(`""`)}, err
	case []any:
		out := fixedValue{list: make([]fixedValue, len(v))}
		for i, e := range v {
			var err error
			if out.list[i], err = parseFixed(e); err != nil {
				return out, err
			}
		}
		return out, nil
	case map[string]any:
		if each, err := parseEach(v); each != nil || err != nil {
			return fixedValue{each: each}, err
		}
		out := fixedValue{members: make(map[string]fixedValue, len(v))}
		for k, e := range v {
			m, err := parseFixed(e)
			if err != nil {
				return out, fmt.Errorf("%s: %w", k, err)
			}
			out.members[k] = m
		}
		return out, nil
	}
	raw, err := jsonval.Encode(v)
	return fixedValue{raw: raw}, err
}

// params returns the params that the templates of f take something of, sorted.
func (f fixedValue) params() []string {
	params := paramsOf(f.names())
	slices.Sort(params)
	return slices.Compact(params)
}

// names returns the names in the templates of f, but for those of an element of a list, sorted.
func (f fixedValue) names() []string {
	names := f.template.names()
	if f.each != nil {
		names = append(names, f.each.list.names()...)
		if f.each.first != nil {
			names = append(names, f.each.first.names()...)
		}
		for _, as := range f.each.as {
			names = append(names, slices.DeleteFunc(as.names(), func(p string) bool { return p == "value" || strings.HasPrefix(p, "value.") })...)
		}
	}
	for _, e := range f.list {
		names = append(names, e.names()...)
	}
	for _, e := range f.members {
		names = append(names, e.names()...)
	}
	slices.Sort(names)
	return names
}

// fill returns the value; nil if it is a param that is not given.
func (f fixedValue) fill(v values) (json.RawMessage, error) {
	switch {
	case f.each != nil:
		return f.each.fill(v)
	case f.list != nil:
		out := []json.RawMessage{}
		for _, e := range f.list {
			raw, err := e.fill(v)
			if err != nil {
				return nil, err
			}
			if raw != nil {
				out = append(out, raw)
			}
		}
		return jsonval.Encode(out)
	case f.members != nil:
		out := map[string]json.RawMessage{}
		for k, e := range f.members {
			raw, err := e.fill(v)
			if err != nil {
				return nil, err
			}
			if raw != nil {
				out[k] = raw
			}
		}
		return jsonval.Encode(out)
	case len(f.template) > 0:
		return f.template.json(v)
	}
	return f.raw, nil
}

// body returns the bytes of the params that are in neither path nor query, and their
// content type; nil: no body.
func (t *tool) body(v values, token string) ([]byte, string, error) {
	rest := maps.Clone(v.fields)
	delete(rest, "subkey") // the host's, never sent
	for _, p := range slices.Concat(t.path.params(), t.query.params(), t.fixedParams()) {
		delete(rest, p)
	}
	if t.start != nil { // the params were the start's
		clear(rest)
	}
	if t.mail != nil {
		if err := t.mail.compose(rest, t.token.write(token)); err != nil {
			return nil, "", err
		}
	}
	if !t.hasBody() && len(rest) == 0 {
		return nil, "", nil
	}
	if !t.hasBody() && t.method != "DELETE" {
		return nil, "", fmt.Errorf("a %s request has no body for the params %s", t.method, strings.Join(slices.Sorted(maps.Keys(rest)), ", "))
	}
	for _, p := range slices.Sorted(maps.Keys(t.rename)) {
		raw, given := rest[p]
		if !given {
			continue
		}
		delete(rest, p)
		if err := setMember(rest, t.rename[p], raw); err != nil {
			return nil, "", err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.fixed.members)) {
		raw, err := t.fixed.members[name].fill(v)
		if err == nil && raw != nil {
			err = mergeMember(rest, name, raw)
		}
		if err != nil {
			return nil, "", err
		}
	}
	if token != "" {
		if err := t.token.addMembers(rest, token); err != nil {
			return nil, "", err
		}
	}
	return t.form(rest)
}

// fixedParams are the params in the templates of fixed.
func (t *tool) fixedParams() []string { return slices.DeleteFunc(t.fixed.params(), t.isHostParam) }

// mergeMember puts a fixed value into a body. Objects are merged; of everything else only
// one can be sent, and it is not the script's to choose.
func mergeMember(members map[string]json.RawMessage, name string, fixed json.RawMessage) error {
	was, given := members[name]
	if !given {
		members[name] = fixed
		return nil
	}
	inner, errA := jsonval.Fields(was)
	extra, errB := jsonval.Fields(fixed)
	if errA != nil || errB != nil {
		return fmt.Errorf("param %q is fixed by the configuration", name)
	}
	for _, k := range slices.Sorted(maps.Keys(extra)) {
		if err := mergeMember(inner, k, extra[k]); err != nil {
			return fmt.Errorf("param %q: %w", name, err)
		}
	}
	raw, err := jsonval.Encode(inner)
	members[name] = raw
	return err
}

// bodyConfig reads what is said about the body.
func (b *builder) bodyConfig(t *tool) {
	form, ok := bodyForms[b.cfg.Body]
	if !ok {
		b.addf("body", "is %q, want json, form, multipart or text", b.cfg.Body)
		form = jsonBody
	}
	t.form = form
	var err error
	if t.fixed, err = parseFixed(b.cfg.Fixed); err != nil && b.cfg.Fixed != nil {
		b.addf("fixed", "%v", err)
	}
	if (len(b.cfg.Fixed) > 0 || b.cfg.Body != "") && !t.hasBody() {
		b.addf("method", "a %s request has no body for body or fixed", t.method)
	}
	t.rename = map[string][]string{}
	for _, p := range slices.Sorted(maps.Keys(b.cfg.Rename)) {
		path := strings.Split(b.cfg.Rename[p], ".")
		if slices.Contains(path, "") || !paramName().MatchString(p) {
			b.addf("rename."+p, "is %q, want names with dots between them", b.cfg.Rename[p])
		}
		t.rename[p] = path
	}
	b.fixedParams(t)
	_, isParam := b.properties()[tokenParam]
	t.token.fixed = b.cfg.Effect == connector.Mutate && !isParam && slices.Contains(t.fixed.params(), tokenParam)
}

// properties are what the schema of params says of each of them.
func (b *builder) properties() map[string]any {
	properties, _ := b.cfg.Params["properties"].(map[string]any)
	return properties
}

// fixedParams refuses a schema or an identity with a param whose name is fixed.
func (b *builder) fixedParams(t *tool) {
	for name, f := range t.fixed.members {
		_, both := b.properties()[name]
		both = both || slices.Contains(b.cfg.Identity, name)
		if both && f.members == nil && !slices.Contains(f.params(), name) {
			b.addf("fixed."+name, "is also a param; what is fixed is not the script's to choose")
		}
	}
}
