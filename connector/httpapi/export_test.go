package httpapi

import (
	"encoding/json"
	"net/http"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// RequestURL returns the URL that t would request.
func RequestURL(t connector.Tool, params json.RawMessage) (string, error) {
	var inner *tool
	switch t := t.(type) {
	case *reader:
		inner = t.tool
	case *mutator:
		inner = t.tool
	case *reconciler:
		inner = t.tool
	}
	req, err := inner.request(params, &keep.Mutation{Token: "token"})
	if err != nil {
		return "", err
	}
	return req.URL.String(), nil
}

// Judge returns what t's lookup would make of an answer.
func Judge(t connector.Tool, status int, kind, body string, m keep.Mutation) connector.Answer {
	r, ok := t.(*reconciler)
	if !ok || r.lookup == nil {
		return connector.Answer{}
	}
	r.lookup.request(r.service, question{Mutation: m, recorded: m.CreatedAt})
	a := answer{status: status, header: http.Header{"Content-Type": {kind}}, body: []byte(body)}
	if kind == "" {
		a.header.Set("Content-Type", "application/json")
	}
	if !r.lookup.answers(a) {
		return retry(": " + http.StatusText(status))
	}
	return r.lookup.judge(a, question{Mutation: m, recorded: m.CreatedAt})
}

// NextLink returns the target of the next link in lines of the header Link.
func NextLink(lines ...string) (string, error) {
	target, _, err := nextLink(http.Header{"Link": lines})
	return target, err
}

// Why is why for tests.
var Why = why
