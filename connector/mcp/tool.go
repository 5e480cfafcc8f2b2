package mcp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/jsonval"
)

// A tool makes calls of a tool of a server that changes something.
type tool struct {
	server *Server
	p      Pairing
	limit  int // of a result
	spec   connector.Spec
	whole  bool // results are kept as the server gives them, for whoever passes them on
}

// An asked tool can be asked what became of a call.
type asked struct{ tool }

// Tool returns a tool of a server that changes something, for whoever passes its results on: they
// are kept as the server gives them.
func (s *Server) Tool(p Pairing, resultLimit int) connector.Tool {
	resultLimit = cmp.Or(resultLimit, DefaultResultLimit)
	return s.tool(tool{p: p, limit: resultLimit, whole: true, spec: connector.Spec{
		Name: p.Tool, Description: "Calls the tool " + p.Tool + " of the MCP server " + s.Name() + ".",
	}})
}

// tool completes t by its pairing.
func (s *Server) tool(t tool) connector.Tool {
	t.p.Timeout = cmp.Or(t.p.Timeout, DefaultTimeout)
	p := t.p
	t.server = s
	t.spec.Effect, t.spec.Timeout, t.spec.Level, t.spec.Identity = connector.Mutate, p.Timeout, p.Level(), p.Identity
	t.spec.SettleAfter, t.spec.Approve, t.spec.Unique = p.SettleAfter, p.Approve, p.Unique
	t.spec.CarriesToken = p.TokenParam != "" && len(p.When) == 0
	if t.spec.Level == keep.LevelKey {
		t.spec.Sets = p.Sets
		if t.spec.KeyLasts = p.KeyLasts; t.spec.KeyLasts == 0 {
			t.spec.KeyLasts = map[bool]time.Duration{true: DefaultSetLasts, false: DefaultKeyLasts}[p.Sets]
		}
	}
	if l := p.Lookup; l != nil && t.spec.Level != keep.LevelKey {
		t.spec.ByTarget, t.spec.ComparesAge = len(l.Match) > 0, l.sinceCall()
		t.spec.Marked, t.spec.NeedsControl = p.TokenParam != "" && !t.spec.ByTarget, !l.Complete || l.More != "" || l.Page > 0 || len(p.When) > 0 || l.sinceCall() && s.cfg.URL == ""
	}
	if t.spec.Level == keep.LevelNone {
		return &t
	}
	return &asked{t}
}

// Spec implements connector.Tool.
func (t *tool) Spec() connector.Spec { return t.spec }

// Pin implements connector.Pinner: where and how the tool sends, without secrets.
func (t *tool) Pin() json.RawMessage {
	cfg := t.server.cfg
	says := map[string]any{"command": cfg.Command, "args": cfg.Args, "url": cfg.URL, "account": cfg.Account, "tool": t.p.Tool,
		"token": []string{t.p.TokenParam, t.p.TokenAppend}, "when": t.p.When, "sets": t.p.Sets, "lookup": t.p.Lookup}
	if cfg.Cwd != "" { // which pins of before did not have
		says["cwd"] = cfg.Cwd
	}
	if env := cfg.hashes(cfg.Env, func(name string) string { return name }); len(env) > 0 {
		says["env"] = env
	}
	if headers := cfg.hashes(cfg.Headers, http.CanonicalHeaderKey); len(headers) > 0 {
		says["headers"] = headers
	}
	pin, _ := json.Marshal(says)
	return t.server.cfg.hide.JSON(pin)
}

// hashes returns what variables or headers say of a place: of each a hash, since it may be what nobody is to read. Those with a secret are
// left out: whose that is, Sender says.
func (c ServerConfig) hashes(values map[string]string, canonical func(name string) string) map[string]string {
	out := make(map[string]string)
	for name, value := range values {
		secret := func(s string) bool { return s != "" && strings.Contains(value, s) }
		if name = canonical(name); name == "Authorization" || slices.ContainsFunc(c.Secrets, secret) {
			continue
		}
		sum := sha256.Sum256([]byte(value))
		out[name] = hex.EncodeToString(sum[:8])
	}
	return out
}

// Target implements connector.Mutator.
func (t *tool) Target(params json.RawMessage) string {
	var all map[string]json.RawMessage
	if json.Unmarshal(params, &all) != nil {
		return t.spec.Name
	}
	names := t.p.Identity
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(all))
	}
	var parts []string
	for _, n := range names {
		if v, ok := all[n]; ok && len(parts) < 4 {
			parts = append(parts, n+"="+shorten(string(v), 60))
		}
	}
	if len(parts) == 0 {
		return t.spec.Name
	}
	return strings.Join(parts, " ")
}

func shorten(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}

// An Answer is what a server said to a call, for whoever passes it on as it was.
type Answer struct {
	Result json.RawMessage // nil: none came
	Error  *RPCError
}

type answerKey struct{}

// WithAnswer returns a context in which a call notes in a what the server said.
func WithAnswer(ctx context.Context, a *Answer) context.Context {
	return context.WithValue(ctx, answerKey{}, a)
}

// Mutate implements connector.Mutator.
func (t *tool) Mutate(ctx context.Context, m keep.Mutation) (connector.Receipt, error) {
	args, err := t.arguments(m)
	if err != nil {
		return connector.Receipt{}, keep.Failf(keep.ClassLogic, "bad-params", "%v", err)
	}
	params, err := json.Marshal(struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      json.RawMessage `json:"_meta,omitempty"`
	}{t.p.Tool, args, metaOf(ctx)})
	if err != nil {
		return connector.Receipt{}, err
	}
	ans, err := t.server.Call(alone(ctx), "tools/call", params)
	if a, ok := ctx.Value(answerKey{}).(*Answer); ok && err == nil {
		a.Result, a.Error = ans.Result, ans.Error
	}
	f := t.server.failure(t.p.Tool, ans, err)
	if f == nil || f.Code == CodeToolError {
		f = t.says(ans.Result, f)
	}
	if f != nil {
		f.Tool = keep.ToolName(t.server.Name() + "." + t.spec.Name)
		return connector.Receipt{}, f
	}
	return t.receipt(ans.Result), nil
}

type metaKey struct{}

// WithMeta returns a context in which a call carries that _meta.
func WithMeta(ctx context.Context, meta json.RawMessage) context.Context {
	return context.WithValue(ctx, metaKey{}, meta)
}

func metaOf(ctx context.Context) json.RawMessage {
	meta, _ := ctx.Value(metaKey{}).(json.RawMessage)
	return meta
}

// arguments returns what is sent: the payload with the token.
func (t *tool) arguments(m keep.Mutation) (json.RawMessage, error) {
	all, err := jsonval.Fields(m.Payload)
	if err != nil {
		return nil, err
	}
	if (t.p.TokenParam == "" || !t.p.covers(m.Payload)) && len(m.Payload) > 0 {
		return m.Payload, nil
	}
	text := m.Token
	if t.p.TokenAppend != "" {
		var before string
		if v, ok := all[t.p.TokenParam]; ok && json.Unmarshal(v, &before) != nil {
			return nil, fmt.Errorf("%s must be a text, since the mark of the call is appended to it", t.p.TokenParam)
		}
		text = before + strings.ReplaceAll(t.p.TokenAppend, "{token}", m.Token)
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return nil, err
	}
	if all == nil {
		all = make(map[string]json.RawMessage)
	}
	all[t.p.TokenParam] = quoted
	return json.Marshal(all)
}

type askingKey struct{}

// Asks reports whether a call under a context finds out what became of another one: by the same call again, or by a lookup.
func Asks(ctx context.Context) bool { return ctx.Value(askingKey{}) != nil }

// Reconcile implements connector.Reconciler.
func (t *asked) Reconcile(ctx context.Context, m keep.Mutation) (connector.Answer, error) {
	ctx = context.WithValue(ctx, askingKey{}, true)
	switch {
	case !t.p.covers(m.Payload):
		return connector.Answer{Verdict: connector.Unwitnessed, Detail: "a call with these params has no mark"}, nil
	case t.spec.Level == keep.LevelKey && t.spec.KeyLives(ctx, m):
	case t.p.Lookup != nil:
		return t.lookUp(ctx, m)
	default:
		return connector.Answer{}, keep.Failf(keep.ClassPrecondition, "key-forgotten",
			"the call may be sent again for %s, and that time is over; only a person can look", t.spec.KeyLasts)
	}
	receipt, err := t.Mutate(ctx, m)
	if err != nil {
		return connector.Answer{}, err
	}
	return connector.Answer{Verdict: connector.Happened, Receipt: receipt, ByKey: true, Detail: "the server answered the call again under its key"}, nil
}
