package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/jsonval"
)

// A Pairing is an owner's word on how the outcome of a tool can be known. The zero Pairing says
// that it cannot.
type Pairing struct {
	Tool     string   // as its server names it
	Identity []string // params that say what is changed; empty: all

	TokenParam   string // that the host's token is put into; empty: none
	TokenAppend  string // text with {token} that is appended to that param; empty: the param is the token
	Deduplicates bool   // the server honours the token as a key

	Lookup *Lookup // nil: there is none

	SettleAfter   time.Duration
	Timeout       time.Duration // zero: DefaultTimeout
	ErrorsRefused bool          // a result with isError means that nothing happened
	Approve       string        // see connector.Connection.Approve
	Unique        bool
}

// A Lookup is how a server is asked what became of a call.
type Lookup struct {
	Tool     string                     // of the same server; it reads
	Args     map[string]json.RawMessage // texts in it take {token}, {sent_at} and {param}
	Found    string                     // JSON path to the rows; empty: $
	Match    []string                   // fields of a row that equal the params of the call; empty: a text in it has the token
	Complete bool                       // the rows are all that there can be: none is there means that nothing happened
}

// Level returns how the outcome can be known.
func (p Pairing) Level() keep.Level {
	switch {
	case p.TokenParam != "" && p.TokenAppend == "" && p.Deduplicates:
		return keep.LevelKey
	case p.Lookup != nil && (p.TokenParam != "" || len(p.Lookup.Match) > 0):
		return keep.LevelWitness
	}
	return keep.LevelNone
}

// Validate returns the first thing wrong with p.
func (p Pairing) Validate() error {
	switch {
	case p.TokenAppend != "" && !strings.Contains(p.TokenAppend, "{token}"):
		return errors.New("token.append: the text must have {token} in it")
	case p.TokenAppend != "" && p.Deduplicates:
		return errors.New("deduplicates: a server honours a key in a parameter of its own, not one in a text")
	case p.Deduplicates && p.TokenParam == "":
		return errors.New("deduplicates: say in which param the key is (token = { param = … })")
	case slices.Contains(p.Identity, p.TokenParam) && p.TokenParam != "" && p.TokenAppend == "":
		return fmt.Errorf("identity: %s is the token, which is another for each call", p.TokenParam)
	case p.Lookup == nil:
		return nil
	case p.Lookup.Tool == "" || p.Lookup.Tool == p.Tool:
		return errors.New("reconcile.tool: name a tool of the same server that reads")
	case p.TokenParam == "" && len(p.Lookup.Match) == 0:
		return errors.New("reconcile: nothing shows that a row is ours; send a token (token = { param, append }), or name fields (match = […])")
	}
	_, err := parsePath(p.Lookup.Found)
	return err
}

// A tool makes calls of a tool of a server.
type tool struct {
	server *Server
	p      Pairing
	limit  int // of a result
}

// An asked tool can be asked what became of a call.
type asked struct{ tool }

// Tool returns a tool of a server that changes something.
func (s *Server) Tool(p Pairing, resultLimit int) connector.Tool {
	if p.Timeout == 0 {
		p.Timeout = DefaultTimeout
	}
	if resultLimit == 0 {
		resultLimit = DefaultResultLimit
	}
	t := tool{s, p, resultLimit}
	if p.Level() == keep.LevelNone {
		return &t
	}
	return &asked{t}
}

// Spec implements connector.Tool.
func (t *tool) Spec() connector.Spec {
	return connector.Spec{
		Name: t.p.Tool, Effect: connector.Mutate, Description: "Calls the tool " + t.p.Tool + " of the MCP server " + t.server.Name() + ".",
		Timeout: t.p.Timeout, Level: t.p.Level(), Identity: t.p.Identity, SettleAfter: t.p.SettleAfter, Approve: t.p.Approve, Unique: t.p.Unique,
		Marked: t.p.TokenParam != "" && t.p.Lookup != nil && len(t.p.Lookup.Match) == 0, CarriesToken: t.p.TokenParam != "",
		ByTarget: t.p.Lookup != nil && len(t.p.Lookup.Match) > 0,
	}
}

// Pin implements connector.Pinner: where and how the tool sends, without secrets.
func (t *tool) Pin() json.RawMessage {
	cfg := t.server.cfg
	pin, _ := json.Marshal(map[string]any{"command": cfg.Command, "args": cfg.Args, "url": cfg.URL, "tool": t.p.Tool,
		"token": []string{t.p.TokenParam, t.p.TokenAppend}, "lookup": t.p.Lookup})
	return pin
}

// Target implements connector.Mutator.
func (t *tool) Target(params json.RawMessage) string {
	var all map[string]json.RawMessage
	if json.Unmarshal(params, &all) != nil {
		return t.p.Tool
	}
	names := t.p.Identity
	if len(names) == 0 {
		for k := range all {
			names = append(names, k)
		}
		slices.Sort(names)
	}
	var parts []string
	for _, n := range names {
		if v, ok := all[n]; ok && len(parts) < 4 {
			parts = append(parts, n+"="+shorten(string(v), 60))
		}
	}
	if len(parts) == 0 {
		return t.p.Tool
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
	ans, err := t.server.Call(ctx, "tools/call", params)
	if a, ok := ctx.Value(answerKey{}).(*Answer); ok && err == nil {
		a.Result, a.Error = ans.Result, ans.Error
	}
	if f := Classify(ans, err); f != nil {
		if f.Code == CodeToolError && t.p.ErrorsRefused {
			f.Class = keep.ClassLogic
		}
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
	if t.p.TokenParam == "" {
		return m.Payload, nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(m.Payload, &all); err != nil {
		return nil, err
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

// Codes of failures.
const (
	// CodeToolError is that of a result with isError.
	CodeToolError = "tool-error"

	codeUnsent   = "not-sent"
	codeNoAnswer = "no-answer"
)

// refusals are the errors that a server gives before it executes a tool.
var refusals = []int{-32700, -32600, -32601, -32602, -32020, -32021, -32022}

// refusing are the statuses of HTTP that say that a request was not executed.
var refusing = []int{400, 401, 403, 404, 405, 413, 415, 422, 429}

// Classify returns what the end of a call proves; nil: it succeeded.
func Classify(ans Message, err error) *keep.Failure {
	if _, unsent := errors.AsType[*UnsentError](err); unsent {
		return keep.Failf(keep.ClassTransient, codeUnsent, "nothing was sent: %v", err)
	}
	if s, ok := errors.AsType[*StatusError](err); ok {
		code := fmt.Sprintf("http-%d", s.Status)
		switch {
		case s.Status == 401 || s.Status == 403:
			return keep.Failf(keep.ClassPermission, code, "%v", err)
		case slices.Contains(refusing, s.Status):
			return keep.Failf(keep.ClassLogic, code, "%v", err)
		}
		return keep.Failf(keep.ClassUnknown, code, "%v", err)
	}
	if err != nil {
		return keep.Failf(keep.ClassUnknown, codeNoAnswer, "%v", err)
	}
	if ans.Error != nil {
		class := keep.ClassUnknown
		if slices.Contains(refusals, ans.Error.Code) {
			class = keep.ClassLogic
		}
		return keep.Failf(class, fmt.Sprintf("mcp%d", ans.Error.Code), "%s", shorten(ans.Error.Message, 2000))
	}
	var r struct {
		IsError bool            `json:"isError"`
		Content json.RawMessage `json:"content"`
	}
	if len(ans.Result) == 0 || ans.Result[0] != '{' || json.Unmarshal(ans.Result, &r) != nil {
		return keep.Failf(keep.ClassUnknown, codeNoAnswer, "the answer is no result of a tool")
	}
	if r.IsError {
		return keep.Failf(keep.ClassUnknown, CodeToolError, "%s", shorten(TextOf(ans.Result), 2000))
	}
	return nil
}

// TextOf returns the text of a result of a tool.
func TextOf(result json.RawMessage) string {
	var r struct {
		Content []struct {
			Type, Text string
		} `json:"content"`
	}
	if json.Unmarshal(result, &r) != nil {
		return ""
	}
	var texts []string
	for _, c := range r.Content {
		if c.Type == "text" {
			texts = append(texts, c.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// receipt returns what is kept of a result: all of it, unless it is too large.
func (t *tool) receipt(result json.RawMessage) connector.Receipt {
	if len(result) > t.limit {
		cut, _ := json.Marshal(map[string]any{"content": []any{
			map[string]string{"type": "text", "text": shorten(TextOf(result), t.limit/2)},
			map[string]string{"type": "text", "text": fmt.Sprintf("(The call was made. Its result of %d bytes was cut: at most %s are kept.)", len(result), bytesText(t.limit))},
		}})
		return connector.Receipt{Result: cut, Warning: fmt.Sprintf("the result of %d bytes was cut", len(result))}
	}
	if connector.CheckNumbers(result) != nil {
		result, _ = json.Marshal(map[string]string{rawMember: string(result)})
	}
	return connector.Receipt{Result: result}
}

// rawMember holds a result that is kept as a text, since no record may have its numbers.
const rawMember = "keep/raw"

// Unwrap returns the result of a tool as its server gave it, from what a record has: also one
// that a person typed in, who need not know the form.
func Unwrap(result json.RawMessage) json.RawMessage {
	var r map[string]json.RawMessage
	var raw string
	if json.Unmarshal(result, &r) == nil {
		if r[rawMember] != nil && json.Unmarshal(r[rawMember], &raw) == nil {
			return json.RawMessage(raw)
		}
		if r["content"] != nil {
			return result
		}
	}
	return rowResult(result)
}

// rowResult returns the result that a row makes which a lookup found, or a person's word.
func rowResult(row json.RawMessage) json.RawMessage {
	out := map[string]any{"content": []any{map[string]string{"type": "text", "text": string(row)}}}
	if len(row) > 0 && row[0] == '{' {
		out["structuredContent"] = row
	}
	result, _ := json.Marshal(out)
	return result
}

// Reconcile implements connector.Reconciler.
func (t *asked) Reconcile(ctx context.Context, m keep.Mutation) (connector.Answer, error) {
	if t.p.Lookup != nil {
		return t.lookUp(ctx, m)
	}
	receipt, err := t.Mutate(ctx, m)
	if err != nil {
		return connector.Answer{}, err
	}
	return connector.Answer{Verdict: connector.Happened, Receipt: receipt, ByKey: true, Detail: "the server answered the call again under its key"}, nil
}

// lookUp asks by the lookup.
func (t *asked) lookUp(ctx context.Context, m keep.Mutation) (connector.Answer, error) {
	params, err := t.p.Lookup.params(m)
	if err != nil {
		return connector.Answer{}, err
	}
	ans, err := t.server.Call(ctx, "tools/call", params)
	if f := Classify(ans, err); f != nil {
		return connector.Answer{}, fmt.Errorf("%s: %s", t.p.Lookup.Tool, f.Message)
	}
	body, err := bodyOf(ans.Result)
	if err != nil {
		return connector.Answer{}, fmt.Errorf("%s: %w", t.p.Lookup.Tool, err)
	}
	path, err := parsePath(t.p.Lookup.Found)
	if err != nil {
		return connector.Answer{}, err
	}
	rows, err := path.rows(body)
	if err != nil {
		return connector.Answer{}, fmt.Errorf("%s: %w", t.p.Lookup.Tool, err)
	}
	for _, row := range rows {
		if t.p.Lookup.isOurs(row, m) {
			return connector.Answer{Verdict: connector.Happened, Receipt: t.receipt(rowResult(row)), Detail: t.p.Lookup.Tool + " shows it"}, nil
		}
	}
	detail := fmt.Sprintf("%s shows %d rows, and none is of this call", t.p.Lookup.Tool, len(rows))
	if t.p.Lookup.Complete {
		return connector.Answer{Verdict: connector.Absent, Detail: detail}, nil
	}
	return connector.Answer{Verdict: connector.Unwitnessed, Detail: detail}, nil
}

// bodyOf returns the JSON that a result holds.
func bodyOf(result json.RawMessage) (json.RawMessage, error) {
	var r struct {
		Structured json.RawMessage `json:"structuredContent"`
		Content    []struct {
			Type, Text string
		} `json:"content"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, err
	}
	if len(r.Structured) > 0 && string(r.Structured) != "null" {
		return r.Structured, nil
	}
	if len(r.Content) != 1 || r.Content[0].Type != "text" {
		return nil, errors.New("the answer has neither structuredContent nor one text")
	}
	if text := json.RawMessage(r.Content[0].Text); json.Valid(text) {
		return text, nil
	}
	quoted, err := json.Marshal(r.Content[0].Text)
	return quoted, err
}

// params returns those of the call that asks about m.
func (l *Lookup) params(m keep.Mutation) (json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(m.Payload, &all); err != nil {
		return nil, err
	}
	fill := func(text string) (json.RawMessage, error) {
		if name, whole := whole(text); whole && all[name] != nil {
			return all[name], nil
		}
		pairs := []string{"{token}", m.Token, "{sent_at}", m.CreatedAt.UTC().Add(-clockSlack).Format(time.RFC3339)}
		for k, v := range all {
			var s string
			if json.Unmarshal(v, &s) != nil {
				s = string(v)
			}
			pairs = append(pairs, "{"+k+"}", s)
		}
		return json.Marshal(strings.NewReplacer(pairs...).Replace(text))
	}
	args := make(map[string]json.RawMessage, len(l.Args))
	for k, v := range l.Args {
		var text string
		if json.Unmarshal(v, &text) != nil {
			args[k] = v
			continue
		}
		filled, err := fill(text)
		if err != nil {
			return nil, err
		}
		args[k] = filled
	}
	return json.Marshal(map[string]any{"name": l.Tool, "arguments": args})
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

// A jsonPath names rows: $.issues, $.data[*], $[0].
type jsonPath []string

// parsePath reads a path. Empty is $.
func parsePath(text string) (jsonPath, error) {
	if text == "" || text == "$" {
		return nil, nil
	}
	rest, ok := strings.CutPrefix(text, "$")
	if !ok {
		return nil, fmt.Errorf("found: %q is no path: it begins with $, such as $.issues", text)
	}
	var p jsonPath
	for rest != "" {
		switch {
		case strings.HasPrefix(rest, "[*]"):
			p, rest = append(p, "*"), rest[3:]
		case rest[0] == '.':
			name := rest[1:]
			if i := strings.IndexAny(name, ".["); i >= 0 {
				name = name[:i]
			}
			if name == "" {
				return nil, fmt.Errorf("found: %q has a step without a name", text)
			}
			p, rest = append(p, "."+name), rest[1+len(name):]
		default:
			return nil, fmt.Errorf("found: %q: after $ there are steps such as .issues and [*]", text)
		}
	}
	return p, nil
}

// rows returns what the path leads to: the elements of a list, or one value. It is an error if
// the answer has another shape than the path says: that is no list without our row.
func (p jsonPath) rows(body json.RawMessage) ([]json.RawMessage, error) {
	at := []json.RawMessage{body}
	for _, step := range p {
		var next []json.RawMessage
		for _, v := range at {
			if step == "*" {
				list, err := elements(v)
				if err != nil {
					return nil, err
				}
				next = append(next, list...)
				continue
			}
			var fields map[string]json.RawMessage
			if json.Unmarshal(v, &fields) != nil || fields[step[1:]] == nil {
				return nil, fmt.Errorf("the answer has no %s", step[1:])
			}
			next = append(next, fields[step[1:]])
		}
		at = next
	}
	if len(p) > 0 && p[len(p)-1] == "*" || len(at) != 1 {
		return at, nil
	}
	switch trimmed := strings.TrimSpace(string(at[0])); {
	case trimmed == "" || trimmed == "null":
		return nil, errors.New("the answer is empty where its rows should be")
	case trimmed[0] == '[':
		return elements(at[0])
	}
	return at, nil
}

func elements(v json.RawMessage) ([]json.RawMessage, error) {
	var list []json.RawMessage
	if json.Unmarshal(v, &list) != nil || list == nil {
		return nil, errors.New("the answer has no list where its rows should be")
	}
	return list, nil
}
