package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// Rebind implements connector.Rebinder: it asks the place that was pinned, by the lookup
// that was pinned, with the secrets of today.
func (m *mutator) Rebind(text json.RawMessage) (connector.Tool, error) {
	var was, today pin
	if err := json.Unmarshal(text, &was); err != nil {
		return nil, fmt.Errorf("read how it was sent: %w", err)
	}
	if err := json.Unmarshal(m.pinned, &today); err != nil {
		return nil, fmt.Errorf("read how it is sent: %w", err)
	}
	if was.Lookup == nil && was.Start == nil {
		return nil, fmt.Errorf("it was sent to %s, and there was no lookup", was.Endpoint)
	}
	cfg := m.service.config
	headers, err := m.headersThen(was.Headers, today.Headers)
	if err != nil {
		return nil, err
	}
	cfg.BaseURL, cfg.Headers = was.Endpoint, headers
	token := was.Token
	cfg.Tools = map[string]Tool{m.spec.Name: {
		Effect: connector.Mutate, Method: was.Method, Path: was.Path, Query: was.InQuery, Body: was.Body, Fixed: was.Fixed, Rename: was.Rename,
		Identity: was.Identity, Token: &token, Reconcile: was.Lookup, Start: was.Start, Mail: was.Mail,
	}}
	if token == (Token{}) {
		cfg.Tools = withoutToken(cfg.Tools)
	}
	conn, err := New(m.service.name, cfg)
	if err != nil {
		return nil, err
	}
	if level := conn.Tools[0].Spec().Level; level == keep.LevelNone || level == keep.LevelKey {
		return nil, fmt.Errorf("it was sent to %s, and there was no lookup that can be asked alone", was.Endpoint)
	}
	return conn.Tools[0], nil
}

// withoutToken returns tools that send no key.
func withoutToken(tools map[string]Tool) map[string]Tool {
	for name, t := range tools {
		t.Token = nil
		tools[name] = t
	}
	return tools
}

// headersThen returns the headers of today with the literal values of then. One that holds
// another secret or account cannot be made again. Whether the secret of a pack is of the same user is
// asked beside: see connector.Sender.
func (m *mutator) headersThen(was, today map[string]string) (map[string]string, error) {
	for _, name := range slices.Sorted(maps.Keys(m.service.config.References)) {
		if key := http.CanonicalHeaderKey(name); key != "Secret" && was[key] != today[key] {
			return nil, fmt.Errorf("it was sent with another %s", key)
		}
	}
	out := maps.Clone(m.service.config.Headers)
	for name := range out {
		key := http.CanonicalHeaderKey(name)
		then, had := was[key]
		switch {
		case !had:
			delete(out, name)
		case then == today[key]:
		default:
			out[name] = then
		}
	}
	for name := range was {
		if _, has := today[name]; !has {
			return nil, fmt.Errorf("it was sent with the header %s, which is not configured any more", name)
		}
	}
	return out, nil
}
