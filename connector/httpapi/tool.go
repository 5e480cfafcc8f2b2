package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/jsonval"
	"github.com/keep-run/keep/connector/once"
	"github.com/keep-run/keep/internal/redact"
)

// A service is what the tools of one connection share.
type service struct {
	name   string
	config Config // as it was given
	base   string // without a slash at its end
	header http.Header
	query  map[string]string // of each request
	signer Signer            // of changes; nil: they are not signed

	references map[string]string // headers without the values of secrets
	hide       *redact.Hider
	auth       Auth // nil: the header and the query hold all credentials
	reads      *once.Transport
	writes     *once.Transport // has a connection for each request
}

// close ends idle connections.
func (s *service) close() error {
	s.reads.CloseIdleConnections()
	s.writes.CloseIdleConnections()
	return nil
}

// A tool is one configured operation. It never changes.
type tool struct {
	service   *service
	spec      connector.Spec
	method    string
	path      path
	query     query
	nullOn    []int       // reads
	header    http.Header // of each request, over that of the service
	keyHeader string      // of a read, for a bearer token of an Auth; empty: the usual one
	pages     *pager      // of a list that comes in pages; nil: it comes at once

	form   bodyForm
	fixed  fixedValue
	rename map[string][]string // where a param goes in the body

	appliedIf []condition
	refusedIf []condition
	statuses  map[int]keep.Class

	// Of mutate tools.
	token       tokenPlace
	notExecuted []int
	answersText bool
	happened    []int  // statuses of a repeated request that mean it happened earlier
	thenLookup  bool   // the result is then what the lookup finds
	start       *start // the request before the call; nil: there is none
	mail        *mailForm
	ignore      []string
	lookup      *lookup  // nil: there is none
	needs       []string // params of the lookup
	pinned      json.RawMessage
}

// Spec returns the description of the tool.
func (t *tool) Spec() connector.Spec { return t.spec }

// failf returns a failure of the tool.
func (t *tool) failf(class keep.Class, code, format string, args ...any) *keep.Failure {
	f := keep.Failf(class, code, format, args...)
	f.Tool = keep.ToolName(t.service.name + "." + t.spec.Name)
	return f
}

// hasBody reports whether every request of the tool has a body.
func (t *tool) hasBody() bool { return t.method == "POST" || t.method == "PUT" || t.method == "PATCH" }

// request builds the call. The error is a logic failure: nothing was sent.
func (t *tool) request(params json.RawMessage, mut *keep.Mutation) (*http.Request, error) {
	return t.requestWith(params, mut, nil)
}

// requestWith builds the call of mut, nil for a read, with more members in its body.
func (t *tool) requestWith(params json.RawMessage, mut *keep.Mutation, more url.Values) (*http.Request, error) {
	fields, err := jsonval.Fields(params)
	if err != nil {
		return nil, t.failf(keep.ClassLogic, "bad-params", "%v", err)
	}
	v, token := values{fields: maps.Clone(fields)}, ""
	if mut != nil {
		token = mut.Token
		v.host = t.hostValues(*mut)
		if err := t.token.appendTo(v.fields, token); err != nil {
			return nil, t.failf(keep.ClassLogic, "bad-params", "%v", err)
		}
	}
	target, err := t.target(v, token)
	if err != nil {
		return nil, t.failf(keep.ClassLogic, "bad-params", "%v", err)
	}
	body, kind, err := t.body(v, token)
	if err == nil && len(more) > 0 {
		body, err = addMembers(body, more)
	}
	if err != nil {
		return nil, t.failf(keep.ClassLogic, "bad-params", "%v", err)
	}
	req, err := t.service.request(t.method, target, body, kind)
	if err != nil {
		return nil, t.failf(keep.ClassLogic, "bad-params", "the request cannot be built: %v", err)
	}
	maps.Copy(req.Header, t.header)
	if t.token.header != "" && token != "" {
		req.Header.Set(t.token.header, t.token.write(token))
	}
	if mut != nil {
		t.service.sign(req, body, t.token.write(token))
	}
	return req, nil
}

// hostValues are what the templates of a call take that is not from the script.
func (t *tool) hostValues(mut keep.Mutation) map[string]string {
	host := map[string]string{createdRFC3339: mut.CreatedAt.UTC().Format(time.RFC3339)}
	if t.token.fixed {
		host[tokenParam] = t.token.write(mut.Token)
	}
	if t.start != nil {
		maps.Copy(host, claimed(mut))
	}
	return host
}

// target returns the URL of the call.
func (t *tool) target(v values, token string) (string, error) {
	target, err := t.service.url(t.path, slices.Concat(t.path.query, t.query), v)
	if err != nil || t.token.query == "" || token == "" {
		return target, err
	}
	between := "?"
	if strings.Contains(target, "?") {
		between = "&"
	}
	return target + between + url.QueryEscape(t.token.query) + "=" + url.QueryEscape(t.token.write(token)), nil
}

// url fills the templates.
func (s *service) url(p path, q query, v values) (string, error) {
	target, err := p.fill(v)
	if err != nil {
		return "", err
	}
	encoded, err := q.fill(v)
	if err != nil {
		return "", err
	}
	if encoded != "" {
		target += "?" + encoded
	}
	return s.base + target, nil
}

// request returns a request that the transport can't repeat.
func (s *service) request(method, target string, body []byte, kind string) (*http.Request, error) {
	for _, name := range slices.Sorted(maps.Keys(s.query)) {
		target = withQuery(target, name, s.query[name])
	}
	req, err := http.NewRequest(method, target, nil)
	if err != nil {
		return nil, err
	}
	req.Header = s.header.Clone()
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
		req.Header.Del("Host")
	}
	req.Body = rewindable{bytes.NewReader(body)}
	req.ContentLength = int64(len(body))
	if body != nil && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", kind)
	}
	return req, nil
}

// A reader is a tool with effect list or get.
type reader struct{ *tool }

// Read performs the call.
func (r *reader) Read(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	if r.pages != nil {
		return r.readPages(ctx, params)
	}
	req, err := r.request(params, nil)
	if err != nil {
		return nil, err
	}
	_, result, err := r.perform(ctx, req)
	if err != nil {
		return nil, err
	}
	return r.service.hide.JSON(result), nil
}

// perform sends the request of a read and returns the answer with its JSON.
func (r *reader) perform(ctx context.Context, req *http.Request) (answer, json.RawMessage, error) {
	resp, u, err := r.service.exchangeWith(ctx, r.service.reads, req, r.keyHeader)
	if err != nil {
		return answer{}, nil, r.unanswered(ctx, err, "")
	}
	a := read(resp)
	a.used = u
	if slices.Contains(r.nullOn, a.status) {
		return a, json.RawMessage("null"), nil
	}
	v := r.readVerdict(a)
	switch {
	case a.ok() && a.err != nil && !a.cut:
		return a, nil, r.failf(keep.ClassTransient, "cut-off", "the answer broke off: %s", r.service.hide.Text(why(ctx, a.err)))
	case v.class != "":
		return a, nil, r.refused(a, v)
	case a.cut:
		return a, nil, r.failf(keep.ClassLogic, "answer-too-large", "the answer is over %d bytes; ask for less at a time", maxBody)
	}
	result, err := a.value()
	if err != nil {
		return a, nil, r.failf(keep.ClassPrecondition, "not-json", "%v: %s", err, r.service.snippet(a.body))
	}
	if result == nil {
		result = json.RawMessage("null")
	}
	return a, result, nil
}

// A mutator is a tool with effect mutate.
type mutator struct{ *tool }

// Target names the identity, such as "id=17". The path is left out: a new
// version of an API must not make the same thing look like another.
func (m *mutator) Target(params json.RawMessage) string {
	fields, err := jsonval.Fields(params)
	if err != nil {
		return m.spec.Name
	}
	var parts []string
	for _, name := range m.spec.Identity {
		value, err := scalar(name, fields[name])
		if err != nil {
			value = string(bytes.TrimSpace(fields[name]))
		}
		parts = append(parts, name+"="+value)
	}
	target := strings.ToValidUTF8(strings.Join(parts, " "), "")
	if runes := []rune(target); len(runes) > maxTarget {
		target = string(runes[:maxTarget-1]) + "…"
	}
	return target
}

// maxTarget is the length of a target in characters; a person reads it.
const maxTarget = 120

// Mutate sends the one request.
func (m *mutator) Mutate(ctx context.Context, mut keep.Mutation) (connector.Receipt, error) {
	if m.start != nil && mut.SentAs().Claim == "" {
		return connector.Receipt{}, m.failf(keep.ClassLogic, "not-started", "the request that comes before this call was not made")
	}
	req, err := m.request(mut.Payload, &mut)
	if err != nil {
		return connector.Receipt{}, err
	}
	if m.lookup != nil {
		// A question that can't be asked later is a mistake of now.
		if _, err := m.lookup.request(m.service, questionOf(ctx, mut)); err != nil {
			return connector.Receipt{}, m.failf(keep.ClassLogic, "bad-params", "reconcile: %v", err)
		}
	}
	a, err := m.send(ctx, req)
	if err != nil {
		return connector.Receipt{}, err
	}
	if mut.Attempts > 1 && m.resendSaysHappened(a) {
		return m.earlier(ctx, mut), nil
	}
	if v := m.mutateVerdict(a); v.class != "" {
		return connector.Receipt{}, m.refused(a, v)
	}
	return m.receipt(a), nil
}

// send performs req on a connection of its own. The error is transient if
// nothing was sent, and else unknown.
func (m *mutator) send(ctx context.Context, req *http.Request) (answer, error) {
	resp, u, err := m.service.exchange(ctx, m.service.writes, req)
	if f := m.ownFailure(err); f != nil {
		return answer{}, f
	}
	if errors.Is(err, once.ErrNotSent) {
		return answer{}, m.failf(keep.ClassTransient, "not-sent", "nothing was sent: %s", m.service.hide.Text(why(ctx, err)))
	}
	if err != nil {
		return answer{}, m.failf(keep.ClassUnknown, "no-answer", "no answer: %s; %s",
			m.service.hide.Text(why(ctx, err)), advice[keep.ClassUnknown])
	}
	a := read(resp)
	a.used = u
	return a, nil
}

// receipt is the outcome of an answer that confirms the change.
func (m *mutator) receipt(a answer) connector.Receipt {
	result, err := a.value()
	r := connector.Receipt{Result: m.service.hide.JSON(result)}
	switch {
	case a.cut:
		r.Warning = "the answer was over 1 MiB; the result is its beginning"
	case err != nil:
		r.Warning = err.Error()
	}
	return r
}

// ComparePayload finds differences in ignored params minor.
func (m *mutator) ComparePayload(old, new json.RawMessage) connector.Difference {
	if jsonval.Equal(old, new) {
		return connector.Equivalent
	}
	a, errA := jsonval.Fields(old)
	b, errB := jsonval.Fields(new)
	if errA != nil || errB != nil {
		return connector.Significant
	}
	for _, name := range m.ignore {
		delete(a, name)
		delete(b, name)
	}
	same := maps.EqualFunc(a, b, func(x, y json.RawMessage) bool { return jsonval.Equal(x, y) })
	if same {
		return connector.Minor
	}
	return connector.Significant
}
