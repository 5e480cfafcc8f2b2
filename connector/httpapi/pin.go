package httpapi

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/internal/jsonval"
)

// A pin is where and how a tool sends, and how it can be asked (law: bound-to-its-world).
// What changes nothing about an effect is not in it: times, descriptions, other tools.
type pin struct {
	Connector string            `json:"connector"`
	Endpoint  string            `json:"endpoint"`
	Headers   map[string]string `json:"headers"` // without secrets, but with their names
	Query     []string          `json:"query,omitempty"`
	Level     keep.Level        `json:"level"`
	KeyLasts  string            `json:"key_lasts,omitempty"`
	Method    string            `json:"method"`
	Path      string            `json:"path"`
	InQuery   []string          `json:"in_query,omitempty"`
	Body      string            `json:"body"`
	Fixed     map[string]any    `json:"fixed,omitempty"`
	Rename    map[string]string `json:"rename,omitempty"`
	Identity  []string          `json:"identity"`
	Token     Token             `json:"token"`
	OnResend  *OnResend         `json:"on_resend,omitempty"`
	Sets      bool              `json:"sets,omitempty"`
	Start     *Start            `json:"start,omitempty"`
	Mail      *Mail             `json:"mail,omitempty"`
	Lookup    *Reconcile        `json:"lookup,omitempty"`
}

// pin returns the pin of a mutate tool, as it is kept with each call.
func (b *builder) pin(t *tool) json.RawMessage {
	cfg, s := b.cfg, b.service
	p := pin{
		Connector: Kind, Endpoint: s.base, Headers: map[string]string{}, Level: t.spec.Level, Method: t.method, Path: cfg.Path,
		InQuery: cfg.Query, Body: cmp.Or(cfg.Body, "json"), Fixed: cfg.Fixed, Rename: cfg.Rename, Identity: cfg.Identity,
		Token: Token{Header: cfg.IdempotencyHeader}, OnResend: cfg.OnResend, Lookup: cfg.Reconcile,
		Sets: cfg.Sets, Start: cfg.Start, Mail: cfg.Mail,
	}
	if cfg.Token != nil {
		p.Token = *cfg.Token
	}
	if t.spec.KeyLasts > 0 {
		p.KeyLasts = t.spec.KeyLasts.String()
	}
	for name := range s.header {
		p.Headers[name] = s.header.Get(name)
	}
	for name, text := range s.references {
		p.Headers[http.CanonicalHeaderKey(name)] = text
	}
	for name := range s.query {
		p.Query = append(p.Query, name)
	}
	slices.Sort(p.Query)
	raw, err := jsonval.Encode(p)
	if err != nil {
		b.addf("fixed", "cannot be kept with a call: %v", err)
	}
	return s.hide.JSON(raw)
}

// Pin returns where and how the tool sends.
func (m *mutator) Pin() json.RawMessage { return m.pinned }
