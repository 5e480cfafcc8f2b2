package httpapi

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/echo"
	"github.com/keep-run/keep/connector/internal/jsonval"
	"github.com/keep-run/keep/connector/internal/match"
)

// This file decides what in a lookup's answer is evidence (law: witnessed). A status
// says nothing about the effect: gateways, caches and login pages have statuses too.
// Only a record that holds our mark, or what was sent, does.

// proves reports whether record shows the effect of mut: an entry of a list, or a whole
// answer. It must be as match and contains say and, if they name nothing of the call, hold our
// marks, of which there is at least one.
func (l *lookup) proves(record json.RawMessage, entry bool, mut question) bool {
	fields, err := jsonval.Fields(record)
	if err != nil || len(fields) == 0 || echo.Denies(fields, entry) {
		return false
	}
	v, err := l.values(mut)
	if err != nil || !l.matches(record, v) {
		return false
	}
	if l.comparesCall() {
		return true
	}
	marks, err := l.marks(v)
	if err != nil {
		return false
	}
	return len(marks) > 0 && !slices.Contains(marks, "") && l.hasMarks(record, entry, marks)
}

// hasMarks reports whether record holds all marks. A whole answer to a search may have several records.
func (l *lookup) hasMarks(record json.RawMessage, entry bool, marks []string) bool {
	if !entry && l.searches() {
		v, err := jsonval.Decode(record)
		return err == nil && together(v, marks)
	}
	return !slices.ContainsFunc(marks, func(want string) bool { return !holds(record, want, entry) })
}

// together reports whether one record of a whole answer holds all marks. What stands in two entries of its lists
// is of two records.
func together(answer any, marks []string) bool {
	var entries []any
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, value := range v {
				if !echo.In(name, false) {
					walk(value)
				}
			}
		case []any:
			entries = append(entries, v...)
		default:
			held := func(want string) bool { return valueHolds(v, want, false) }
			if slices.ContainsFunc(marks, held) {
				marks = slices.DeleteFunc(slices.Clone(marks), held)
			}
		}
	}
	walk(answer)
	for i, e := range entries {
		if _, inner := e.(map[string]any); !inner { // a list of texts is of the record that has it
			walk(e)
			entries[i] = nil
		}
	}
	return len(marks) == 0 || slices.ContainsFunc(entries, func(e any) bool { return e != nil && together(e, marks) })
}

// marks are the texts that must come back in a record, if no match says which fields:
// our token, or else each value by which the record was asked for. The error says that one of
// them is no text, so that nothing shows whether it came back.
func (l *lookup) marks(v values) ([]string, error) {
	if l.marked() {
		return []string{v.host[tokenParam]}, nil
	}
	var out []string
	for _, name := range l.asked() {
		if isTime(name) {
			continue
		}
		list, err := v.list(name)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// A search is what was seen of a list, none of whose entries proves the effect.
type search struct {
	entries int
	near    bool   // one of them may be ours: it has what was sent, written otherwise
	part    string // why the list is not all there is; empty: nothing says so
	sent    []sent // what is compared; nil: it was not asked for yet
}

// add looks at an entry that does not prove the effect.
func (s *search) add(l *lookup, record json.RawMessage, mut question) {
	s.entries++
	if s.sent == nil {
		s.sent = l.sent(mut)
	}
	for i := range s.sent {
		s.sent[i].shown = s.sent[i].shown || len(fieldOf(record, s.sent[i].field)) > 0
	}
	s.near = s.near || len(s.sent) > 0 && resembles(record, s.sent)
}

// absentFrom reports whether what was seen of a list shows that there is no effect. It must be
// complete. Of entries, match or contains must say how ours would be recognised; and entries that
// were asked for by our token may be ours although they don't show it.
func (l *lookup) absentFrom(s search) bool {
	byToken := slices.Contains(l.asked(), tokenParam)
	return l.complete && s.part == "" && !s.near && (s.entries == 0 || l.comparesCall() && !byToken)
}

// absence is what a list that shows no effect is worth. If none of its entries has a field that ours would be recognised by,
// ours may be one of them, unless the field is our mark's, which entries of others lack.
func (s search) absence(detail string) connector.Answer {
	for _, f := range s.sent {
		if !f.mark && !f.shown {
			return connector.Answer{Verdict: connector.Unwitnessed, Detail: detail + ", but no entry has the field " + f.field}
		}
	}
	return connector.Answer{Verdict: connector.Absent, Detail: detail}
}

// why says what keeps a list from showing that there is no effect.
func (s search) why() string {
	switch {
	case s.part != "":
		return ", but " + s.part
	case s.near:
		return ", but an entry has what was sent, written otherwise"
	}
	return ", but what it holds is not what was sent"
}

// holds reports whether a field of record, at any depth, is want as a whole. The record is read
// once: reading each level by itself would take a time that grows with the square of an answer.
func holds(record json.RawMessage, want string, entry bool) bool {
	v, err := jsonval.Decode(record)
	return err == nil && valueHolds(v, want, entry)
}

func valueHolds(v any, want string, entry bool) bool {
	switch v := v.(type) {
	case string:
		return v == want
	case json.Number:
		return v.String() == want
	case bool:
		return strconv.FormatBool(v) == want
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return valueHolds(e, want, entry) })
	case map[string]any:
		for name, value := range v {
			if !echo.In(name, entry) && valueHolds(value, want, entry) {
				return true
			}
		}
	}
	return false
}

// matches reports whether record has in each named field what was sent.
func (l *lookup) matches(record json.RawMessage, v values) bool {
	for _, f := range l.match {
		want, err := f.value.json(v)
		if err != nil || !jsonval.Equal(fieldOf(record, f.key), want) {
			return false
		}
	}
	for _, f := range l.contains {
		var text string
		marker, err := f.value.fill(v)
		if err != nil {
			return false
		}
		if list, ok := match.Elements(fieldOf(record, f.key)); ok {
			if !slices.ContainsFunc(list, func(e json.RawMessage) bool { return json.Unmarshal(e, &text) == nil && text == marker }) {
				return false
			}
			continue
		}
		if json.Unmarshal(fieldOf(record, f.key), &text) != nil || !containsMarker(text, marker) {
			return false
		}
	}
	return true
}

// fieldOf returns the field of that name, or that the dotted name leads to.
func fieldOf(record json.RawMessage, name string) json.RawMessage {
	if fields, err := jsonval.Fields(record); err == nil && fields[name] != nil {
		return fields[name]
	}
	raw, _ := match.FieldPath(name).Find(record)
	return raw
}

// containsMarker reports whether text holds marker and not as part of a longer token.
func containsMarker(text, marker string) bool {
	for from := 0; marker != ""; {
		i := strings.Index(text[from:], marker)
		if i < 0 {
			return false
		}
		i += from
		if !isTokenByte(text, i-1) && !isTokenByte(text, i+len(marker)) {
			return true
		}
		from = i + 1
	}
	return false
}

// isTokenByte reports whether the byte at i may be part of a token.
func isTokenByte(s string, i int) bool {
	if i < 0 || i >= len(s) {
		return false
	}
	c := s[i]
	return c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// json returns the param itself if t is one param, and else the filled text.
func (t text) json(v values) (json.RawMessage, error) {
	if len(t) == 1 && t[0].param != "" && !v.isHost(t[0].param) {
		return v.get(t[0].param), nil
	}
	s, err := t.fill(v)
	if err != nil {
		return nil, err
	}
	return json.Marshal(s)
}
