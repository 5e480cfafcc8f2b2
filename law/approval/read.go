package approval

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/keep-run/keep"
)

// A Line is one part of a call as a person reads it. Its texts have no character that
// would change how others are read.
type Line struct {
	Label string `json:"label"`
	Text  string `json:"text"`
	Now   string `json:"now,omitempty"` // what is there instead; empty: not known
	Long  bool   `json:"long"`          // Text or Now is several lines, or its middle is left out
}

// maxLines and maxLine bound what a Line shows; all of it is in the payload.
const (
	maxLines = 120
	maxLine  = 4000
)

// labels are what people call the roles.
var labels = map[string]string{"reply_to": "Reply to", "html": "Text (HTML, shown as text)", "smallest": "Amount", "cc": "Copy to", "bcc": "Blind copy to", "key": "Row"}

// label is what people call a role.
func label(role string) string {
	if l := labels[role]; l != "" {
		return l
	}
	return strings.ToUpper(role[:1]) + role[1:]
}

// Read returns the call as a person reads it: what its view names, in the order of its
// kind, then everything else that is sent. Long texts are last, so that they push nothing
// out of sight.
func Read(a keep.Approval) []Line {
	var payload any
	d := json.NewDecoder(bytes.NewReader(a.Payload))
	d.UseNumber()
	if d.Decode(&payload) != nil {
		return []Line{line("Sent", string(a.Payload))}
	}
	var lines []Line
	used := map[string]bool{}
	at := func(role string) (text string, value any, ok bool) {
		for _, part := range a.View.Parts {
			if part.Role != role {
				continue
			}
			if part.Param == "" {
				return part.Text, part.Text, true
			}
			if v, found := find(payload, part.Param); found {
				used[part.Param] = true
				return plain(v), v, true
			}
		}
		return "", nil, false
	}
	for _, role := range a.View.Kind.Roles() {
		text, value, ok := at(role)
		switch {
		case !ok:
		case role == "currency" && len(lines) > 0 && lines[len(lines)-1].Label == label("amount"):
			amount, currency := &lines[len(lines)-1], line("", text)
			amount.Text, amount.Long = amount.Text+" "+currency.Text, amount.Long || currency.Long
		case role == "smallest":
			lines = append(lines, line(label(role), text+" (of the smallest unit)"))
		case role == "html":
			lines = append(lines, line(label(role), inert(text)))
		case role == "values":
			lines = append(lines, columns(value, a.Now)...)
		default:
			lines = append(lines, line(label(role), text))
		}
	}
	rest := leaves(payload, "", used)
	for _, path := range slices.Sorted(maps.Keys(rest)) {
		name := path
		if a.View.Kind != keep.ViewFields {
			name = "Also sent: " + path
		}
		lines = append(lines, line(name, rest[path]))
	}
	slices.SortStableFunc(lines, func(a, b Line) int { return cmp.Compare(size(a), size(b)) })
	return lines
}

// size is 1 for lines that are read after the others.
func size(l Line) int {
	if l.Long {
		return 1
	}
	return 0
}

// columns returns a line for each column of a row, beside what is there now.
func columns(row any, now json.RawMessage) []Line {
	set, ok := row.(map[string]any)
	if !ok {
		return []Line{line("Values", plain(row))}
	}
	var is map[string]any
	d := json.NewDecoder(bytes.NewReader(now))
	d.UseNumber()
	_ = d.Decode(&is) // not known, or no row
	var lines []Line
	for _, name := range slices.Sorted(maps.Keys(set)) {
		l := line(name, plain(set[name]))
		if old, known := is[name]; known {
			is := line("", plain(old))
			l.Now, l.Long = is.Text, l.Long || is.Long
		}
		lines = append(lines, l)
	}
	return lines
}

// find returns what params have at a path of names that are joined by dots.
func find(v any, path string) (any, bool) {
	for name := range strings.SplitSeq(path, ".") {
		object, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = object[name]; !ok {
			return nil, false
		}
	}
	return v, true
}

// leaves returns the texts of what no view used, by path. The path of the whole is empty.
func leaves(v any, path string, used map[string]bool) map[string]string {
	out := map[string]string{}
	if path != "" && used[path] {
		return out
	}
	object, ok := v.(map[string]any)
	if !ok || len(object) == 0 {
		out[cmp.Or(path, "Sent")] = plain(v)
		return out
	}
	for name, part := range object {
		maps.Copy(out, leaves(part, member(path, name), used))
	}
	return out
}

// member returns the path of a member of the object at a path. A name that could be taken for another path is
// quoted: two things that are sent never have the same.
func member(path, name string) string {
	if name == "" || strings.ContainsAny(name, `."[`) {
		name = `"` + quoted.Replace(name) + `"`
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

var quoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`) // and nothing else: what cannot be seen is marked

// plain returns a value as text: a text itself, a list of texts one after the other, and
// anything else as JSON.
func plain(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []any:
		var texts []string
		for _, e := range v {
			s, ok := e.(string)
			if !ok {
				texts = nil
				break
			}
			texts = append(texts, s)
		}
		if len(texts) > 0 {
			return strings.Join(texts, ", ")
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimRight(b.String(), "\n")
}

// line returns a line whose texts are shown as what they are.
func line(label, text string) Line {
	shown := strings.Split(Visible(text), "\n")
	n := len(shown)
	l := Line{Label: strings.ReplaceAll(Visible(label), "\n", "⟨U+000A⟩"), Long: n > 1}
	for i, s := range shown {
		if len(s) > maxLine {
			shown[i] = fmt.Sprintf("%s … (%d bytes between) … %s", strings.ToValidUTF8(s[:maxLine/2], ""), len(s)-maxLine, strings.ToValidUTF8(s[len(s)-maxLine/2:], ""))
			l.Long = true
		}
	}
	if n > maxLines {
		half := maxLines / 2
		shown = slices.Concat(shown[:half], []string{fmt.Sprintf("… %d of %d lines are between; all of it is below, and in the payload …", n-maxLines, n)}, shown[n-half:])
	}
	l.Text = strings.Join(shown, "\n")
	return l
}

// Visible returns s with every character that a reader would not see, or that moves what
// stands around it, replaced by its number. Ends of lines and tabs stay.
func Visible(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == 0xfffd && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, "⟨byte %02X⟩", s[i])
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case unseen(r):
			fmt.Fprintf(&b, "⟨U+%04X⟩", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Text returns the call as several lines of text.
func Text(a keep.Approval) string {
	var b strings.Builder
	for _, l := range Read(a) {
		text := l.Text
		if l.Now != "" {
			text = fmt.Sprintf("%s (now: %s)", text, l.Now)
		}
		if strings.Contains(text, "\n") {
			text = "\n  " + strings.ReplaceAll(text, "\n", "\n  ")
		}
		fmt.Fprintf(&b, "%s: %s\n", l.Label, text)
	}
	return strings.TrimRight(b.String(), "\n")
}
