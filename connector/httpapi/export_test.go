package httpapi

import (
	"encoding/json"

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
	req, err := inner.request(params, "token")
	if err != nil {
		return "", err
	}
	return req.URL.String(), nil
}

// Judge returns what t's lookup would make of an answer with status 200.
func Judge(t connector.Tool, body string, m keep.Mutation) connector.Answer {
	r, ok := t.(*reconciler)
	if !ok || r.lookup == nil {
		return connector.Answer{}
	}
	r.lookup.request(r.service, m)
	return r.lookup.judge(answer{status: 200, body: []byte(body)}, m)
}
