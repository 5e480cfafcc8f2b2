package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/internal/utf8json"
)

// A Client asks a Server. Every method is one request; what a method returns is
// described at its route. An error that the server answered is a *Problem, or a
// *ScriptError; any other means that there was no whole answer of it, as when a proxy
// waited for one for too long, and then a change may have been made. So it may after a
// *Problem whose Status is 500 or more.
type Client struct {
	// URL is where the server is, without Prefix. If empty, "http://localhost",
	// for a Transport that looks at no address.
	URL string

	// Transport makes the requests. If nil, http.DefaultTransport.
	Transport http.RoundTripper

	// Token is sent with each request. If empty, none is: the Transport is trusted.
	Token string
}

// A Problem is the answer of a server that did not do what it was asked to, or, if Status is 500 or more, not all of it.
type Problem struct {
	Status int
	Kind   Kind
	Detail string
}

// Error is what the server says.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return fmt.Sprintf("status %d %s", p.Status, http.StatusText(p.Status))
	}
	return p.Detail
}

// Unwrap returns the error of package keep that the problem is the picture of, or
// nil.
func (p *Problem) Unwrap() error {
	switch p.Kind {
	case KindNotFound:
		return keep.ErrNotFound
	case KindBadCursor:
		return keep.ErrBadCursor
	case KindDecided:
		return keep.ErrDecided
	case KindRunOpen:
		return keep.ErrRunOpen
	case KindStale:
		return keep.ErrStale
	}
	return nil
}

// A call is one request of a client.
type call struct {
	method string
	path   []string // segments below Prefix
	query  any      // a struct whose fields have the tag query, or queries; nil: none
	body   any      // nil: none
	header http.Header
	status *int // if not nil, where the status of a success goes
}

// ask makes a request and returns its answer.
func ask[T any](ctx context.Context, c *Client, q call) (v T, err error) {
	r, err := c.request(ctx, q)
	if err != nil {
		return v, err
	}
	client := http.Client{Transport: c.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(r)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // the address says nothing to a person
		}
		return v, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusCreated && res.StatusCode != http.StatusAccepted {
		return v, problemIn(res)
	}
	if q.status != nil {
		*q.status = res.StatusCode
	}
	var text json.RawMessage
	if err = json.NewDecoder(res.Body).Decode(&text); err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		return v, fmt.Errorf("read the answer of %s %s: %w", q.method, r.URL.Path, err)
	}
	if !isAnswer(typeOf[T](), text) {
		return *new(T), fmt.Errorf("no answer of Keep, which may have done it: %s %s: status %d: %.200q", q.method, r.URL.Path, res.StatusCode, text)
	}
	return v, nil
}

// isAnswer reports whether text may be an object of a type: it has a member of it. What stands between may answer for Keep, and of an
// object without members everything would be zero, such as how much is left to be done.
func isAnswer(of reflect.Type, text json.RawMessage) bool {
	var members map[string]json.RawMessage
	if of.Kind() != reflect.Struct || json.Unmarshal(text, &members) != nil {
		return true
	}
	return slices.ContainsFunc(reflect.VisibleFields(of), func(f reflect.StructField) bool {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		_, there := members[name]
		return name != "" && there
	})
}

// request makes the request of a call.
func (c *Client) request(ctx context.Context, q call) (*http.Request, error) {
	target := strings.TrimSuffix(c.URL, "/")
	target = cmp.Or(target, "http://localhost")
	target += Prefix
	for _, s := range q.path {
		if s == "" {
			return nil, &Problem{Status: http.StatusNotFound, Kind: KindNotFound, Detail: "an empty name names nothing"}
		}
		target += "/" + segment(s)
	}
	if q.query != nil {
		target += "?" + encode(q.query).Encode()
	}
	var body io.Reader
	if q.body != nil {
		if _, err := utf8json.Marshal(q.body); err != nil {
			return nil, err
		}
		var plain bytes.Buffer
		e := json.NewEncoder(&plain)
		e.SetEscapeHTML(false) // < as it is, not as the six bytes that a page needs
		if err := e.Encode(q.body); err != nil {
			return nil, err
		}
		body = &plain
	}
	r, err := http.NewRequestWithContext(ctx, q.method, target, body)
	if err != nil {
		return nil, err
	}
	maps.Copy(r.Header, q.header)
	if q.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	return r, nil
}

// segment writes a name as one segment of a path: also one of dots, which would
// be taken for a way up.
func segment(s string) string {
	if s == "." || s == ".." {
		return strings.ReplaceAll(s, ".", "%2E")
	}
	return url.PathEscape(s)
}

// encode writes the fields of a query that are not zero.
func encode(query any) url.Values {
	all, several := query.(queries)
	if !several {
		all = queries{query}
	}
	out := url.Values{}
	var add func(v reflect.Value)
	add = func(v reflect.Value) {
		for i := range v.NumField() {
			f, value := v.Type().Field(i), v.Field(i)
			switch name := cmp.Or(f.Tag.Get("query"), f.Tag.Get("path")); {
			case f.Anonymous:
				add(value)
			case value.IsZero():
			case value.Kind() == reflect.Bool:
				out.Set(name, "true")
			case value.Kind() == reflect.Int:
				out.Set(name, strconv.FormatInt(value.Int(), 10))
			default:
				out.Set(name, value.String())
			}
		}
	}
	for _, q := range all {
		add(reflect.ValueOf(q))
	}
	return out
}

// maxProblem bounds what is read of an answer that is none, in bytes.
const maxProblem = 1 << 20

// problemIn returns the error of an answer. One that is no problem of ours is
// quoted.
func problemIn(res *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(res.Body, maxProblem))
	if err != nil {
		return fmt.Errorf("read a problem: %w", err)
	}
	var p struct {
		Type, Detail string
		Errors       []struct{ Message, Location string }
	}
	isProblem := json.Unmarshal(text, &p) == nil
	if ours := isProblem && strings.HasPrefix(p.Type, idempotency.ProblemBase); !ours && (res.StatusCode < 300 || res.StatusCode >= 500) {
		return fmt.Errorf("no answer of Keep, which may have done it: status %d: %.200q", res.StatusCode, text)
	}
	if !isProblem {
		return &Problem{Status: res.StatusCode, Detail: fmt.Sprintf("status %d: %.200q", res.StatusCode, text)}
	}
	kind := Kind(strings.TrimPrefix(p.Type, idempotency.ProblemBase))
	if kind == KindScript {
		e := &ScriptError{}
		for _, m := range p.Errors {
			e.Mistakes = append(e.Mistakes, mistakeAt(m.Location, m.Message))
		}
		return e
	}
	for _, m := range p.Errors {
		if kind != "" { // the detail names them
			break
		}
		p.Detail += ": " + m.Message
		if m.Location != "" {
			p.Detail += " (" + m.Location + ")"
		}
	}
	return &Problem{Status: res.StatusCode, Kind: kind, Detail: p.Detail}
}

// mistakeAt reads a place as problem wrote it: file:line:column.
func mistakeAt(place, message string) Mistake {
	m := Mistake{File: place, Message: message}
	for _, n := range []*int{&m.Column, &m.Line} {
		i := strings.LastIndexByte(m.File, ':')
		if i < 0 {
			return m
		}
		*n, _ = strconv.Atoi(m.File[i+1:]) // 0: none
		m.File = m.File[:i]
	}
	return m
}
