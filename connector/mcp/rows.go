package mcp

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/echo"
	"github.com/keep-run/keep/connector/internal/jsonval"
)

// judge says what the rows of an answer show of the call m. They are those of lists, or not.
func (t *asked) judge(m keep.Mutation, body json.RawMessage, rows []json.RawMessage, listed bool) connector.Answer {
	l := t.p.Lookup
	ours := m
	ours.Payload = t.server.cfg.hide.JSON(m.Payload) // as the rows are: a param that has a secret is one that the server shows
	repeats := false
	for _, row := range rows {
		switch {
		case !l.isOurs(row, ours):
		case !t.answers(row, m.Token, listed):
			repeats = true
		case l.blind(m.Payload, ours.Payload):
			return connector.Answer{Verdict: connector.Retry, Detail: l.Tool + " shows a row that may be ours: a secret is hidden in what it is compared by, and another one would look the same"}
		case t.p.unnamed(m.Payload) != "":
			return connector.Answer{Verdict: connector.Retry, Detail: fmt.Sprintf("%s shows a row that may be of another call: it is neither asked by nor compared with %s, and all params are identity; "+
				"name in identity those that say which call it is", l.Tool, t.p.unnamed(m.Payload))}
		default:
			return connector.Answer{Verdict: connector.Happened, Receipt: t.receipt(rowResult(row)), Detail: l.Tool + " shows it"}
		}
	}
	if repeats {
		return connector.Answer{Verdict: connector.Retry, Detail: l.Tool + " was asked by the mark of the call, and shows it where that may only repeat the question"}
	}
	detail := fmt.Sprintf("%s shows %d rows, and none is of this call", l.Tool, len(rows))
	if unknown := l.unshown(rows); unknown != "" {
		return connector.Answer{Verdict: connector.Unwitnessed, Detail: detail + fmt.Sprintf(", but none has the field %s of match", unknown)}
	}
	switch failed, part := l.denied(body, rows, ours); {
	case failed != "":
		return connector.Answer{Verdict: connector.Retry, Detail: detail + ", but " + failed}
	case part != "":
		return connector.Answer{Verdict: connector.Unwitnessed, Detail: detail + ", but " + part}
	case l.complete(body, len(rows)):
		return connector.Answer{Verdict: connector.Absent, Detail: detail}
	}
	return connector.Answer{Verdict: connector.Unwitnessed, Detail: detail}
}

// answers reports whether a row with our token shows more than the question: who is asked by the token may repeat it, also where there is
// nothing, as "No notes for …". A row of a list shows it in a member that repeats no question. Of another answer a text has to be as
// we sent it, with what the token was appended as, and not as we asked for it.
func (t *asked) answers(row json.RawMessage, token string, listed bool) bool {
	p, l := t.p, t.p.Lookup
	ours := p.TokenParam != "" && l.asksBy(p.TokenParam) // which has the token
	if len(l.Match) > 0 || !ours && !l.asksByToken() {
		return true
	}
	v, err := jsonval.Decode(row)
	if fields, noObject := jsonval.Fields(row); err != nil || noObject == nil && !listed && echo.Denies(fields, false) {
		return false
	}
	within := func(text string) bool { return strings.Contains(text, token) }
	if listed {
		return p.shown(v, true, within, within)
	}
	shows := func(string) bool { return false }
	switch _, text := v.(string); {
	case p.TokenAppend == "" && !text:
		shows = func(text string) bool { return text == token }
	case p.TokenAppend != "" && !ours && !l.asksWith(strings.TrimSpace(p.TokenAppend)):
		mark := strings.ReplaceAll(strings.TrimSpace(p.TokenAppend), "{token}", token)
		shows = func(text string) bool { return strings.Contains(text, mark) }
	}
	return p.shown(v, false, within, shows)
}

// shown reports whether a text of an answer shows something in a member that repeats no question. What is in a list of an answer is an
// entry, of which another text does, and of which the param with the token is data.
func (p Pairing) shown(v any, entry bool, ofEntry, shows func(string) bool) bool {
	switch v := v.(type) {
	case string:
		return shows(v)
	case []any:
		return slices.ContainsFunc(v, func(e any) bool {
			if _, object := e.(map[string]any); object {
				return p.shown(e, true, ofEntry, ofEntry)
			}
			return p.shown(e, entry, ofEntry, shows)
		})
	case map[string]any:
		for name, e := range v {
			if (!echo.In(name, entry) || entry && name == p.TokenParam) && p.shown(e, entry, ofEntry, shows) {
				return true
			}
		}
	}
	return false
}

// blind reports whether a param by which rows are compared is another one when secrets are hidden in it.
func (l *Lookup) blind(sent, hidden json.RawMessage) bool {
	a, err := jsonval.Fields(sent)
	b, err2 := jsonval.Fields(hidden)
	return err != nil || err2 != nil || slices.ContainsFunc(l.Match, func(name string) bool { return !jsonval.Equal(a[name], b[name]) })
}

// unshown returns a field of match that no row has, if there are rows.
func (l *Lookup) unshown(rows []json.RawMessage) string {
	for _, name := range l.Match {
		has := func(row json.RawMessage) bool {
			fields, err := jsonval.Fields(row)
			return err == nil && fields[name] != nil
		}
		if len(rows) > 0 && !slices.ContainsFunc(rows, has) {
			return name
		}
	}
	return ""
}

// denied returns why an answer in which no row is of the call m is no absence, whatever the owner says: it says that something of it
// failed, or that there is more, or a row has what was sent in another spelling.
func (l *Lookup) denied(body json.RawMessage, rows []json.RawMessage, m keep.Mutation) (failed, part string) {
	if fields, err := jsonval.Fields(body); err == nil && echo.Fails(fields) {
		return "the answer says that something of it failed", ""
	}
	if slices.ContainsFunc(rows, func(row json.RawMessage) bool { return l.resembles(row, m) }) {
		return "", "a row has what was sent in another spelling"
	}
	v, err := jsonval.Decode(body)
	if err != nil || l.More != "" {
		return "", "" // the owner says what says it
	}
	if flag, at, _ := echo.More(v); flag != nil && *flag || flag == nil && at && l.Page == 0 {
		return "", "the answer says that there are more"
	}
	return "", ""
}

// resembles reports whether a row that is not of the call m may be all the same, as servers change what they were sent: see jsonval.Alike.
func (l *Lookup) resembles(row json.RawMessage, m keep.Mutation) bool {
	if len(l.Match) == 0 {
		return m.Token != "" && strings.Contains(strings.ToLower(string(row)), strings.ToLower(m.Token))
	}
	fields, err := jsonval.Fields(row)
	sent, err2 := jsonval.Fields(m.Payload)
	return err == nil && err2 == nil && !slices.ContainsFunc(l.Match, func(name string) bool {
		return sent[name] == nil || !jsonval.Alike(fields[name], sent[name])
	})
}

// complete reports whether an answer with so many rows holds all that there can be.
func (l *Lookup) complete(body json.RawMessage, rows int) bool {
	if !l.Complete || l.Page > 0 && rows >= l.Page {
		return false
	}
	if l.More == "" {
		return true
	}
	path, err := parsePath(l.More)
	if err != nil {
		return false
	}
	more, err := path.values(body)
	return err == nil && len(more) == 1 && string(more[0]) == "false"
}

// isOurs reports whether a row is of the call m.
func (l *Lookup) isOurs(row json.RawMessage, m keep.Mutation) bool {
	if len(l.Match) == 0 {
		v, err := jsonval.Decode(row)
		return err == nil && m.Token != "" && hasText(v, m.Token)
	}
	fields, err := jsonval.Fields(row)
	sent, err2 := jsonval.Fields(m.Payload)
	if err != nil || err2 != nil {
		return false
	}
	for _, name := range l.Match {
		if sent[name] == nil || fields[name] == nil || !jsonval.Equal(sent[name], fields[name]) {
			return false
		}
	}
	return true
}

// hasText reports whether a text within v contains s.
func hasText(v any, s string) bool {
	switch v := v.(type) {
	case string:
		return strings.Contains(v, s)
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return hasText(e, s) })
	case map[string]any:
		for _, e := range v {
			if hasText(e, s) {
				return true
			}
		}
	}
	return false
}
