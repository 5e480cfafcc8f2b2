package httpapi

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/keep-run/keep/connector/internal/echo"
	"github.com/keep-run/keep/connector/internal/jsonval"
	"github.com/keep-run/keep/connector/internal/match"
)

// This file finds what keeps a list in which the effect is not from showing that there is none: an
// answer that says that it failed, or that there is more, and an entry that has what was sent in
// another spelling. None of it shows an effect.

// failure returns why a body with a list is not all there is, if it says that something of it failed.
func failure(body json.RawMessage) string {
	if fields, err := jsonval.Fields(body); err == nil && echo.Fails(fields) {
		return "the answer says that something of it failed"
	}
	return ""
}

// saysMore returns why a body with a list is not all there is, if it says that there is more. A flag
// counts more than an address: some services give one to the page after the last, too.
func saysMore(a answer, body json.RawMessage) string {
	v, err := jsonval.Decode(body)
	if err != nil {
		return ""
	}
	flag, at, _ := echo.More(v)
	if flag != nil {
		if *flag {
			return listHasMore
		}
		return ""
	}
	if _, linked, err := nextLink(a.header); at || linked || err != nil && strings.Contains(a.header.Get("Link"), "next") {
		return listHasMore
	}
	return ""
}

// listHasMore is why a list is not all there is.
const listHasMore = "the answer says that the list has more"

// silent reports whether a body says neither that a list has more nor that it ends.
func silent(a answer, body json.RawMessage) bool {
	v, err := jsonval.Decode(body)
	if err != nil {
		return false
	}
	flag, _, none := echo.More(v)
	return flag == nil && !none && saysMore(a, body) == ""
}

// flagged reports whether a body has a flag that says that a list has more.
func flagged(body json.RawMessage) bool {
	v, err := jsonval.Decode(body)
	if err != nil {
		return false
	}
	flag, _, _ := echo.More(v)
	return flag != nil && *flag
}

// continues is saysMore for a page that the pager takes for the last one. Where the configuration names what says that there is more,
// that is believed; where it names what says where, a flag counts all the same: the place may be a wrong one.
func (p *pager) continues(a answer, body json.RawMessage) string {
	switch {
	case p.more != nil:
		return ""
	case p.style != "cursor" && p.style != "link":
		return saysMore(a, body)
	case flagged(body):
		return listHasMore
	}
	return ""
}

// A sent is what a field is compared with: a value, or a marker that its text contains.
type sent struct {
	field  string
	value  json.RawMessage
	marker string // empty: value counts
	mark   bool   // it is our token
	shown  bool   // an entry has the field
}

// sent returns what of the call match and contains compare. A fixed text and a time are left out: our own record in
// another state is no absence. It is never nil.
func (l *lookup) sent(mut question) []sent {
	out := []sent{}
	v, err := l.values(mut)
	if err != nil {
		return out
	}
	for _, f := range l.match {
		if want, err := f.value.json(v); err == nil && ofCall(f.value.names()) {
			out = append(out, sent{field: f.key, value: want, mark: slices.Contains(f.value.names(), tokenParam)})
		}
	}
	for _, f := range l.contains {
		if marker, err := f.value.fill(v); err == nil && marker != "" && ofCall(f.value.names()) {
			out = append(out, sent{field: f.key, marker: marker, mark: slices.Contains(f.value.names(), tokenParam)})
		}
	}
	return out
}

// resembles reports whether a record, which does not prove the effect, has all that was sent as services change it: see jsonval.Alike.
// Nothing shows then that it is another's.
func resembles(record json.RawMessage, all []sent) bool {
	return !slices.ContainsFunc(all, func(s sent) bool {
		got := fieldOf(record, s.field)
		if s.marker != "" {
			return !mentions(got, s.marker)
		}
		return !jsonval.Alike(got, s.value)
	})
}

// mentions reports whether a text, or one of a list, has a marker in any spelling, also as a part of a word.
func mentions(field json.RawMessage, marker string) bool {
	list, ok := match.Elements(field)
	if !ok {
		list = []json.RawMessage{field}
	}
	return slices.ContainsFunc(list, func(e json.RawMessage) bool {
		var text string
		return json.Unmarshal(e, &text) == nil && strings.Contains(jsonval.Spelled(text), jsonval.Spelled(marker))
	})
}
