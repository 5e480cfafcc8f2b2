package scripttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fileValue returns a value of JSON for a file: by itself, or as text if TOML cannot say it.
func fileValue(raw json.RawMessage) (v any, text string) {
	if len(raw) == 0 {
		return nil, ""
	}
	v = value(raw)
	back, err := json.Marshal(v)
	if err != nil || holdsNull(v) || !sameNumbers(raw, back) {
		return nil, string(raw)
	}
	return v, ""
}

// sameNumbers reports whether no number lost digits on its way through a float.
func sameNumbers(a, b json.RawMessage) bool {
	return slices.Equal(digits(a), digits(b))
}

func digits(raw json.RawMessage) (all []string) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	for {
		t, err := d.Token()
		if err != nil {
			slices.Sort(all)
			return all
		}
		if n, ok := t.(json.Number); ok {
			all = append(all, n.String())
		}
	}
}

// holdsNull reports whether there is a null in v.
func holdsNull(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case []any:
		return slices.ContainsFunc(v, holdsNull)
	case map[string]any:
		for _, x := range v {
			if holdsNull(x) {
				return true
			}
		}
	}
	return false
}

// TOML returns the file as a person would write it. The comment is put before it.
func (f File) TOML(comment string) []byte {
	var w tomlWriter
	for line := range strings.Lines(comment) {
		w.line("# %s", strings.TrimSuffix(line, "\n"))
	}
	if f.Script != "" {
		w.line("script = %s", tomlText(f.Script))
	}
	for _, t := range f.Tests {
		w.test(t)
	}
	return w.Bytes()
}

// A tomlWriter writes tests.
type tomlWriter struct{ bytes.Buffer }

func (w *tomlWriter) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// set writes a key if its value is not the zero value.
func (w *tomlWriter) set(key string, v any) {
	switch v := v.(type) {
	case string:
		if v != "" {
			w.line("%s = %s", key, tomlText(v))
		}
	case int:
		if v != 0 {
			w.line("%s = %d", key, v)
		}
	case bool:
		if v {
			w.line("%s = true", key)
		}
	case time.Time:
		if !v.IsZero() {
			w.line("%s = %s", key, v.UTC().Format(time.RFC3339Nano))
		}
	case *Failure:
		if v != nil {
			w.set(key, map[string]any{"class": v.Class, "message": v.Message})
		}
	case map[string]any:
		if v != nil {
			w.line("%s = %s", key, tomlValue(v))
		}
	case nil:
	default:
		w.line("%s = %s", key, tomlValue(v))
	}
}

// result writes what a service answers, also if that is false or an empty text; nil is left out.
func (w *tomlWriter) result(v any) {
	if v != nil {
		w.line("result = %s", tomlValue(v))
	}
}

// rows writes a list with a line for each of its rows; nil is left out.
func (w *tomlWriter) rows(key string, rows []map[string]any) {
	switch {
	case rows == nil:
	case len(rows) == 0:
		w.line("%s = []", key)
	default:
		w.line("%s = [", key)
		for _, row := range rows {
			w.line("  %s,", tomlValue(row))
		}
		w.line("]")
	}
}

func (w *tomlWriter) test(t Test) {
	w.line("\n[[test]]")
	w.set("name", t.Name)
	w.set("handler", t.Handler)
	w.set("now", t.Now)
	w.set("runs", t.Runs)
	w.set("approved", t.Approved)
	w.set("kv", t.KV)
	var items, events []map[string]any
	for _, it := range t.Items {
		items = append(items, filled("id", it.ID, "title", it.Title, "status", string(it.Status)))
	}
	for _, e := range t.Events {
		row := filled("topic", e.Topic, "messageId", e.MessageID, "json", e.JSON)
		if e.Payload != nil {
			row["payload"] = e.Payload
		}
		events = append(events, row)
	}
	w.rows("items", items)
	w.rows("events", events)
	for _, r := range t.Reads {
		w.line("\n[[test.read]]")
		w.set("tool", r.Tool)
		w.set("params", r.Params)
		w.result(r.Result)
		w.set("json", r.JSON)
		w.set("error", r.Error)
	}
	for _, a := range t.Answers {
		w.line("\n[[test.answer]]")
		w.set("tool", a.Tool)
		w.set("says", string(a.Says))
		w.result(a.Result)
		w.set("json", a.JSON)
		w.set("error", a.Error)
	}
	w.line("\n[test.expect]")
	for _, x := range expected {
		w.rows(x.list, x.of(t.Expect))
	}
	w.set("kv", t.Expect.KV)
	w.set("error", t.Expect.Error)
}

// filled returns the texts that are not empty, by their keys.
func filled(pairs ...string) map[string]any {
	out := make(map[string]any)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out[pairs[i]] = pairs[i+1]
		}
	}
	return out
}

// spelled is the one key of a table that stands for a value of JSON which TOML cannot say: { "$json" = "null" }.
const spelled = "$json"

// asSpelled returns a value as such a table.
func asSpelled(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		raw = []byte("null") // of what came from JSON
	}
	return fmt.Sprintf("{ %s = %s }", tomlText(spelled), tomlText(string(raw)))
}

// meant returns a value of a file with what such tables stand for in their place.
func meant(v any) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		if text, is := v[spelled]; is {
			var of any
			if text, ok := text.(string); !ok || len(v) > 1 || json.Unmarshal([]byte(text), &of) != nil {
				return nil, fmt.Errorf("%s is the only key of its table, and has JSON in a text", spelled)
			}
			return of, nil
		}
		for k, x := range v {
			of, err := meant(x)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k, err)
			}
			v[k] = of
		}
	case []any:
		for i, x := range v {
			of, err := meant(x)
			if err != nil {
				return nil, err
			}
			v[i] = of
		}
	}
	return v, nil
}

// mean puts what is meant in the place of all values of a test.
func (t *Test) mean() error {
	var errs []error
	one := func(v *any) {
		of, err := meant(*v)
		*v, errs = of, append(errs, err)
	}
	table := func(m *map[string]any) {
		of, err := meant(*m)
		is, ok := of.(map[string]any)
		if err == nil && !ok {
			err = fmt.Errorf("%s stands for no table", spelled)
		}
		*m, errs = is, append(errs, err)
	}
	table(&t.KV)
	table(&t.Expect.KV)
	for i := range t.Events {
		one(&t.Events[i].Payload)
	}
	for i := range t.Reads {
		table(&t.Reads[i].Params)
		one(&t.Reads[i].Result)
	}
	for i := range t.Answers {
		one(&t.Answers[i].Result)
	}
	for _, x := range expected {
		rows := x.of(t.Expect)
		for i := range rows {
			table(&rows[i])
		}
	}
	return errors.Join(errs...)
}

// order is that of the keys that tests have; others follow by name.
var order = []string{"tool", "kind", "topic", "id", "ids", "messageId", "title", "params", "payload", "json", "status", "state", "class", "message"}

// tomlValue returns a value on one line.
func tomlValue(v any) string {
	switch v := v.(type) {
	case nil:
		return asSpelled(nil)
	case string:
		return tomlText(v)
	case bool:
		return strconv.FormatBool(v)
	case float64:
		if n := int64(v); float64(n) == v && max(n, -n) < 1<<53 {
			return strconv.FormatInt(n, 10)
		}
		s := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
		return s
	case map[string]any:
		if _, is := v[spelled]; is {
			return asSpelled(v)
		}
		keys := slices.SortedFunc(maps.Keys(v), func(a, b string) int {
			i, j := slices.Index(order, a), slices.Index(order, b)
			switch {
			case i >= 0 && j >= 0:
				return i - j
			case i >= 0:
				return -1
			case j >= 0:
				return 1
			}
			return strings.Compare(a, b)
		})
		parts := make([]string, len(keys))
		for i, k := range keys {
			parts[i] = tomlKey(k) + " = " + tomlValue(v[k])
		}
		if len(parts) == 0 {
			return "{}"
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = tomlValue(x)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return tomlValue(plain(v)) // of another type, as JSON has it
}

var bareKey = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]+$`) })

func tomlKey(k string) string {
	if bareKey().MatchString(k) {
		return k
	}
	return tomlText(k)
}

// tomlText returns a string of TOML: JSON has the same escapes.
func tomlText(s string) string {
	if strings.Contains(s, `"`) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == '\'' || r == 0x7f }) {
		return "'" + s + "'"
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil {
		return `""` // a string always is JSON
	}
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007f`)
}
