package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/jsonval"
)

// A service is what the tools of one connection share.
type service struct {
	name   string
	base   string // without a slash at its end
	header http.Header
	hide   redactor
	reads  *http.Transport
	writes *http.Transport // has a connection for each request
}

// close ends idle connections.
func (s *service) close() error {
	s.reads.CloseIdleConnections()
	s.writes.CloseIdleConnections()
	return nil
}

// A tool is one configured operation. It never changes.
type tool struct {
	service *service
	spec    connector.Spec
	method  string
	path    path
	query   query
	nullOn  []int // reads

	tokenHeader string // empty: the token is not sent
	notExecuted []int
	ignore      []string
	lookup      *lookup  // nil: there is none
	needs       []string // params of the lookup
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
func (t *tool) request(params json.RawMessage, token string) (*http.Request, error) {
	fields, err := jsonval.Fields(params)
	if err != nil {
		return nil, t.failf(keep.ClassLogic, "bad-params", "%v", err)
	}
	v := values{fields: fields}
	target, err := t.service.url(t.path, slices.Concat(t.path.query, t.query), v)
	if err != nil {
		return nil, t.failf(keep.ClassLogic, "bad-params", "%v", err)
	}
	body, err := t.body(fields)
	if err != nil {
		return nil, err
	}
	req, err := t.service.request(t.method, target, body)
	if err != nil {
		return nil, t.failf(keep.ClassLogic, "bad-params", "the request cannot be built: %v", err)
	}
	if t.tokenHeader != "" && token != "" {
		req.Header.Set(t.tokenHeader, token)
	}
	return req, nil
}

// body returns the params that are in neither path nor query; nil: no body.
func (t *tool) body(fields map[string]json.RawMessage) ([]byte, error) {
	rest := maps.Clone(fields)
	delete(rest, "subkey") // the host's, never sent
	for _, p := range slices.Concat(t.path.params(), t.query.params()) {
		delete(rest, p)
	}
	if !t.hasBody() && len(rest) == 0 {
		return nil, nil
	}
	if !t.hasBody() && t.method != "DELETE" {
		return nil, t.failf(keep.ClassLogic, "bad-params", "a %s request has no body for the params %s",
			t.method, strings.Join(slices.Sorted(maps.Keys(rest)), ", "))
	}
	raw, err := jsonval.Encode(rest)
	if err != nil {
		return nil, t.failf(keep.ClassLogic, "bad-params", "params: %v", err)
	}
	return raw, nil
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
func (s *service) request(method, target string, body []byte) (*http.Request, error) {
	req, err := http.NewRequest(method, target, nil)
	if err != nil {
		return nil, err
	}
	req.Header = s.header.Clone()
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
		req.Header.Del("Host")
	}
	req.Body = once{bytes.NewReader(body)}
	req.ContentLength = int64(len(body))
	if body != nil && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// A reader is a tool with effect list or get.
type reader struct{ *tool }

// Read performs the call.
func (r *reader) Read(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	req, err := r.request(params, "")
	if err != nil {
		return nil, err
	}
	resp, err := roundTrip(ctx, r.service.reads, req)
	if err != nil {
		return nil, r.failf(keep.ClassTransient, "no-answer", "no answer: %s", r.service.hide.text(why(ctx, err)))
	}
	a := read(resp)
	switch {
	case slices.Contains(r.nullOn, a.status):
		return json.RawMessage("null"), nil
	case !a.ok():
		return nil, r.refused(a, readClass(a.status))
	case a.err != nil:
		return nil, r.failf(keep.ClassTransient, "cut-off", "the answer broke off: %s", r.service.hide.text(why(ctx, a.err)))
	case a.cut:
		return nil, r.failf(keep.ClassLogic, "answer-too-large", "the answer is over %d bytes; ask for less at a time", maxBody)
	}
	result, err := a.value()
	if err != nil {
		return nil, r.failf(keep.ClassPrecondition, "not-json", "%v: %s", err, r.service.hide.snippet(a.body))
	}
	if result == nil {
		result = json.RawMessage("null")
	}
	return result, nil
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
	req, err := m.request(mut.Payload, mut.Token)
	if err != nil {
		return connector.Receipt{}, err
	}
	if m.lookup != nil {
		// A question that can't be asked later is a mistake of now.
		if _, err := m.lookup.request(m.service, mut); err != nil {
			return connector.Receipt{}, m.failf(keep.ClassLogic, "bad-params", "reconcile: %v", err)
		}
	}
	a, err := m.send(ctx, req)
	if err != nil {
		return connector.Receipt{}, err
	}
	if !a.ok() {
		return connector.Receipt{}, m.refused(a, mutateClass(a.status, m.notExecuted))
	}
	if a.err != nil && !a.cut {
		return connector.Receipt{}, m.failf(keep.ClassUnknown, "cut-off", "the service answered %d, but the answer broke off: %s",
			a.status, m.service.hide.text(why(ctx, a.err)))
	}
	return a.receipt(), nil
}

// send performs req on a connection of its own. The error is transient if
// nothing was sent, and else unknown.
func (m *mutator) send(ctx context.Context, req *http.Request) (answer, error) {
	resp, err := roundTrip(ctx, m.service.writes, req)
	if errors.Is(err, errNotSent) {
		return answer{}, m.failf(keep.ClassTransient, "not-sent", "nothing was sent: %s", m.service.hide.text(why(ctx, err)))
	}
	if err != nil {
		return answer{}, m.failf(keep.ClassUnknown, "no-answer", "no answer: %s; %s",
			m.service.hide.text(why(ctx, err)), advice[keep.ClassUnknown])
	}
	return read(resp), nil
}

// receipt is the outcome of a 2xx answer.
func (a answer) receipt() connector.Receipt {
	result, err := a.value()
	r := connector.Receipt{Result: result}
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
