package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/jsonval"
)

// lookUp asks by the lookup. One since the call is by the server's clock: if that is behind, what was made is older there than we say, so it
// is asked once more, from when the server had it. One that does not tell its time, as a process, shows no absence by it.
func (t *asked) lookUp(ctx context.Context, m keep.Mutation) (connector.Answer, error) {
	clock := new(serverClock)
	found, err := t.lookOnce(withClock(ctx, clock), m)
	switch {
	case err != nil || found.Verdict == connector.Happened || !t.p.Lookup.sinceCall():
	case clock.known && clock.behind >= clockSlack/2:
		m.CreatedAt = m.CreatedAt.Add(-clock.behind)
		if found, err = t.lookOnce(ctx, m); err == nil {
			found.Detail += fmt.Sprintf("; the server's clock is %s behind ours, and it was asked from that much earlier", clock.behind.Round(time.Second))
		}
	case !clock.known && found.Verdict == connector.Absent:
		found.Verdict, found.Detail = connector.Unwitnessed, found.Detail+", and it does not say what time it is there, from which it was asked"
	}
	return found, err
}

// sinceCall reports whether the lookup asks by the time of the call.
func (l *Lookup) sinceCall() bool { return l.asksBy("sent_at") }

// lookOnce asks once, with the params as they were sent: with the token.
func (t *asked) lookOnce(ctx context.Context, m keep.Mutation) (_ connector.Answer, err error) {
	l := t.p.Lookup
	if m.Payload, err = t.arguments(m); err != nil {
		return connector.Answer{}, err
	}
	if missing, err := l.missing(m); err != nil {
		return connector.Answer{}, err
	} else if len(missing) > 0 {
		return connector.Answer{Verdict: connector.Unwitnessed, Detail: "the call has no " + strings.Join(missing, ", no ") + ", and " + l.Tool + " is asked by it"}, nil
	}
	params, err := l.params(m)
	if err != nil {
		return connector.Answer{}, err
	}
	ans, err := t.server.read(ctx, params)
	switch f := t.server.failure(l.Tool, ans, err); {
	case f != nil && f.Class == keep.ClassPermission:
		return connector.Answer{Verdict: connector.Retry, Detail: f.Message, Refused: f}, nil
	case f != nil:
		return connector.Answer{}, fmt.Errorf("%s: %s", l.Tool, f.Message)
	}
	body, err := bodyOf(ans.Result)
	if err != nil {
		return connector.Answer{}, fmt.Errorf("%s: %w", l.Tool, err)
	}
	path, err := parsePath(l.Found)
	if err != nil {
		return connector.Answer{}, err
	}
	rows, whole, err := path.rows(body)
	if err != nil {
		return connector.Answer{}, fmt.Errorf("%s: %w", l.Tool, err)
	}
	shown := t.judge(m, body, rows, whole)
	if shown.Verdict == connector.Absent && !whole {
		shown.Verdict, shown.Detail = connector.Unwitnessed, shown.Detail+", but it answered no list, which "+cmp.Or(l.Found, "$")+" should be"
	}
	return shown, nil
}

// placeholder is a name in braces, of what a call has or the host. A param may have any name.
var placeholder = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{([^{}]+)\}`) })

// missing returns the params by which the lookup asks or compares that the call m does not have: an answer would be about
// something else.
func (l *Lookup) missing(m keep.Mutation) (names []string, err error) {
	all, err := jsonval.Fields(m.Payload)
	if err != nil {
		return nil, err
	}
	want := slices.Clone(l.Match)
	for _, arg := range l.Args {
		_, err = eachText(arg, func(text string) any {
			for _, found := range placeholder().FindAllStringSubmatch(text, -1) {
				if found[1] != "token" && found[1] != "sent_at" {
					want = append(want, found[1])
				}
			}
			return text
		})
		if err != nil {
			return nil, err
		}
	}
	for _, name := range want {
		if v := bytes.TrimSpace(all[name]); len(v) == 0 || string(v) == "null" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// params returns those of the call that asks about m.
func (l *Lookup) params(m keep.Mutation) (json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(m.Payload, &all); err != nil {
		return nil, err
	}
	delete(all, "token") // the names of the host's values mean these, whatever the caller sends
	delete(all, "sent_at")
	fill := func(text string) any {
		if name, whole := whole(text); whole && all[name] != nil {
			return all[name]
		}
		pairs := []string{"{token}", m.Token, "{sent_at}", m.CreatedAt.UTC().Add(-clockSlack).Format(time.RFC3339)}
		for k, v := range all {
			var s string
			if json.Unmarshal(v, &s) != nil {
				s = string(v)
			}
			pairs = append(pairs, "{"+k+"}", s)
		}
		return strings.NewReplacer(pairs...).Replace(text)
	}
	args := make(map[string]any, len(l.Args))
	for k, v := range l.Args {
		filled, err := eachText(v, fill)
		if err != nil {
			return nil, err
		}
		args[k] = filled
	}
	return json.Marshal(map[string]any{"name": l.Tool, "arguments": args})
}

// eachText returns a value with each text in it, however deep, replaced by what fill returns for it. The names of members are
// no texts.
func eachText(raw json.RawMessage, fill func(string) any) (any, error) {
	v, err := jsonval.Decode(raw)
	if err != nil {
		return nil, err
	}
	var walk func(v any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case string:
			return fill(v)
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		case map[string]any:
			for name := range v {
				v[name] = walk(v[name])
			}
		}
		return v
	}
	return walk(v), nil
}

// clockSlack is how far the clock of a service may be behind.
const clockSlack = time.Minute

// whole reports whether a text is nothing but one placeholder, whose value is then taken as it is.
func whole(text string) (name string, ok bool) {
	if len(text) > 2 && text[0] == '{' && text[len(text)-1] == '}' && strings.Count(text, "{") == 1 {
		return text[1 : len(text)-1], true
	}
	return "", false
}
