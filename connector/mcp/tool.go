package mcp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/echo"
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

	// When are params with which a call has the token and can be asked about; the value "*"
	// stands for any. A call with others is sent as it is, and nobody can know what became of it.
	When map[string]json.RawMessage

	Sets     bool          // a call says what is to be: the same one again changes nothing more
	KeyLasts time.Duration // for how long a call may be sent again; zero: by what the server does

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
	Args     map[string]json.RawMessage // texts in it, however deep, take {token} and {sent_at} of the host, and {param}
	Found    string                     // JSON path to the rows; empty: $
	Match    []string                   // fields of a row that equal the params of the call; empty: a text in it has the token
	Complete bool                       // the rows are all that there can be: none is there means that nothing happened
	More     string                     // JSON path to what is true if there are more rows; empty: it is not said
	Page     int                        // of as many rows or more there may be others; zero: any number is all
}

// Level returns how the outcome can be known.
func (p Pairing) Level() keep.Level {
	switch {
	case p.Sets, p.TokenParam != "" && p.TokenAppend == "" && p.Deduplicates:
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
	case p.Sets && (p.Deduplicates || len(p.When) > 0):
		return errors.New("sets: the same call again is the key; deduplicates and when are for a token")
	case len(p.When) > 0 && p.TokenParam == "":
		return errors.New("when: says which calls have the token, and there is none (token = { param, append })")
	case p.Lookup == nil:
		return nil
	case p.Lookup.Tool == "" || p.Lookup.Tool == p.Tool:
		return errors.New("reconcile.tool: name a tool of the same server that reads")
	case p.TokenParam == "" && len(p.Lookup.Match) == 0:
		return errors.New("reconcile: nothing shows that a row is ours; send a token (token = { param, append }), or name fields (match = […])")
	case p.TokenParam == "" && p.Lookup.asksByToken():
		return errors.New("reconcile.args: {token} is Keep's mark of a call, and no call would show it; send one (token = { param, append }), or ask by another param")
	}
	if missing := p.unasked(); len(missing) > 0 {
		return fmt.Errorf("reconcile: asks for nothing of %s, which is in identity, so a row of another call would count as this one's; "+
			"name it in args or match, or take it out of identity if the rest says which call it is", strings.Join(missing, ", "))
	}
	if _, err := parsePath(p.Lookup.More); err != nil {
		return err
	}
	_, err := parsePath(p.Lookup.Found)
	return err
}

// unasked returns the params of the identity that a lookup by fields compares with nothing and does not ask by.
func (p Pairing) unasked() []string {
	if len(p.Lookup.Match) == 0 || p.Lookup.asksByToken() {
		return nil // the rows show our mark
	}
	return slices.DeleteFunc(slices.Clone(p.Identity), func(name string) bool {
		return slices.Contains(p.Lookup.Match, name) || p.Lookup.asksBy(name)
	})
}

// unnamed returns a param of a call by which its lookup neither asks nor compares rows, where all of them are the identity; empty:
// there is none, or the rows show our mark.
func (p Pairing) unnamed(payload json.RawMessage) string {
	l := p.Lookup
	if len(p.Identity) > 0 || len(l.Match) == 0 || l.asksByToken() || slices.Contains(l.Match, p.TokenParam) {
		return ""
	}
	fields, err := jsonval.Fields(payload)
	if err != nil {
		return "what cannot be read"
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		token := name == p.TokenParam && p.TokenAppend == "" // and not a text of the caller that it is appended to
		if !token && !slices.Contains(l.Match, name) && !l.asksBy(name) {
			return name
		}
	}
	return ""
}

// asksByToken reports whether the lookup asks for the host's token.
func (l *Lookup) asksByToken() bool { return l.asksBy("token") }

// asksBy reports whether {name} is in a text of the lookup's args.
func (l *Lookup) asksBy(name string) bool { return l.asksWith("{" + name + "}") }

// asksWith reports whether a template is in a text of the lookup's args.
func (l *Lookup) asksWith(template string) bool {
	there := false
	for _, arg := range l.Args {
		_, _ = eachText(arg, func(text string) any {
			there = there || strings.Contains(text, template)
			return text
		})
	}
	return there
}

// covers reports whether a call with these params has the token.
func (p Pairing) covers(payload json.RawMessage) bool {
	fields, err := jsonval.Fields(payload)
	if err != nil {
		return false
	}
	for name, want := range p.When {
		if got := fields[name]; got == nil || string(want) != `"*"` && !jsonval.Equal(got, want) {
			return false
		}
	}
	return true
}

// Key returns the param that is the host's token in a call with these params, and in which the caller has no say; empty: there is none.
func (p Pairing) Key(params json.RawMessage) string {
	if p.TokenAppend != "" || !p.covers(params) {
		return ""
	}
	return p.TokenParam
}

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
	if resultLimit == 0 {
		resultLimit = DefaultResultLimit
	}
	return s.tool(tool{p: p, limit: resultLimit, whole: true, spec: connector.Spec{
		Name: p.Tool, Description: "Calls the tool " + p.Tool + " of the MCP server " + s.Name() + ".",
	}})
}

// tool completes t by its pairing.
func (s *Server) tool(t tool) connector.Tool {
	if t.p.Timeout == 0 {
		t.p.Timeout = DefaultTimeout
	}
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
	if f := t.server.failure(t.p.Tool, ans, err); f != nil {
		if f.Code == CodeToolError && t.p.ErrorsRefused && !strings.Contains(f.Message, outputError) {
			f.Class = keep.ClassLogic
		}
		f.Tool = keep.ToolName(t.server.Name() + "." + t.spec.Name)
		return connector.Receipt{}, f
	}
	return t.receipt(ans.Result), nil
}

// outputError is how SDKs say that what a tool made of a call does not fit its schema: the call was executed.
const outputError = "Output validation error"

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

// judge says what the rows of an answer show of the call m. They are those of lists, or not.
func (t *asked) judge(m keep.Mutation, body json.RawMessage, rows []json.RawMessage, listed bool) connector.Answer {
	l := t.p.Lookup
	ours := m
	ours.Payload = t.server.cfg.hide.JSON(m.Payload) // as the rows are: a param that has a secret is one that the server shows
	repeats := false
	for _, row := range rows {
		switch {
		case !l.isOurs(row, ours):
		case !t.answers(row, m.Token, listed):
			repeats = true
		case l.blind(m.Payload, ours.Payload):
			return connector.Answer{Verdict: connector.Retry, Detail: l.Tool + " shows a row that may be ours: a secret is hidden in what it is compared by, and another one would look the same"}
		case t.p.unnamed(m.Payload) != "":
			return connector.Answer{Verdict: connector.Retry, Detail: fmt.Sprintf("%s shows a row that may be of another call: it is neither asked by nor compared with %s, and all params are identity; "+
				"name in identity those that say which call it is", l.Tool, t.p.unnamed(m.Payload))}
		default:
			return connector.Answer{Verdict: connector.Happened, Receipt: t.receipt(rowResult(row)), Detail: l.Tool + " shows it"}
		}
	}
	if repeats {
		return connector.Answer{Verdict: connector.Retry, Detail: l.Tool + " was asked by the mark of the call, and shows it where that may only repeat the question"}
	}
	detail := fmt.Sprintf("%s shows %d rows, and none is of this call", l.Tool, len(rows))
	if unknown := l.unshown(rows); unknown != "" {
		return connector.Answer{Verdict: connector.Unwitnessed, Detail: detail + fmt.Sprintf(", but none has the field %s of match", unknown)}
	}
	switch failed, part := l.denied(body, rows, ours); {
	case failed != "":
		return connector.Answer{Verdict: connector.Retry, Detail: detail + ", but " + failed}
	case part != "":
		return connector.Answer{Verdict: connector.Unwitnessed, Detail: detail + ", but " + part}
	case l.complete(body, len(rows)):
		return connector.Answer{Verdict: connector.Absent, Detail: detail}
	}
	return connector.Answer{Verdict: connector.Unwitnessed, Detail: detail}
}

// answers reports whether a row with our token shows more than the question: who is asked by the token may repeat it, also where there is
// nothing, as "No notes for …". A row of a list shows it in a member that repeats no question. Of another answer a text has to be as
// we sent it, with what the token was appended as, and not as we asked for it.
func (t *asked) answers(row json.RawMessage, token string, listed bool) bool {
	p, l := t.p, t.p.Lookup
	ours := p.TokenParam != "" && l.asksBy(p.TokenParam) // which has the token
	if len(l.Match) > 0 || !ours && !l.asksByToken() {
		return true
	}
	v, err := jsonval.Decode(row)
	if fields, noObject := jsonval.Fields(row); err != nil || noObject == nil && !listed && echo.Denies(fields) {
		return false
	}
	within := func(text string) bool { return strings.Contains(text, token) }
	if listed {
		return p.shown(v, true, within, within)
	}
	shows := func(string) bool { return false }
	switch _, text := v.(string); {
	case p.TokenAppend == "" && !text:
		shows = func(text string) bool { return text == token }
	case p.TokenAppend != "" && !ours && !l.asksWith(strings.TrimSpace(p.TokenAppend)):
		mark := strings.ReplaceAll(strings.TrimSpace(p.TokenAppend), "{token}", token)
		shows = func(text string) bool { return strings.Contains(text, mark) }
	}
	return p.shown(v, false, within, shows)
}

// shown reports whether a text of an answer shows something in a member that repeats no question. What is in a list of an answer is an
// entry, of which another text does, and of which the param with the token is data.
func (p Pairing) shown(v any, entry bool, ofEntry, shows func(string) bool) bool {
	switch v := v.(type) {
	case string:
		return shows(v)
	case []any:
		return slices.ContainsFunc(v, func(e any) bool {
			if _, object := e.(map[string]any); object {
				return p.shown(e, true, ofEntry, ofEntry)
			}
			return p.shown(e, entry, ofEntry, shows)
		})
	case map[string]any:
		for name, e := range v {
			if (!echo.In(name, entry) || entry && name == p.TokenParam) && p.shown(e, entry, ofEntry, shows) {
				return true
			}
		}
	}
	return false
}

// blind reports whether a param by which rows are compared is another one when secrets are hidden in it.
func (l *Lookup) blind(sent, hidden json.RawMessage) bool {
	a, err := jsonval.Fields(sent)
	b, err2 := jsonval.Fields(hidden)
	return err != nil || err2 != nil || slices.ContainsFunc(l.Match, func(name string) bool { return !jsonval.Equal(a[name], b[name]) })
}

// unshown returns a field of match that no row has, if there are rows.
func (l *Lookup) unshown(rows []json.RawMessage) string {
	for _, name := range l.Match {
		has := func(row json.RawMessage) bool {
			fields, err := jsonval.Fields(row)
			return err == nil && fields[name] != nil
		}
		if len(rows) > 0 && !slices.ContainsFunc(rows, has) {
			return name
		}
	}
	return ""
}

// denied returns why an answer in which no row is of the call m is no absence, whatever the owner says: it says that something of it
// failed, or that there is more, or a row has what was sent in another spelling.
func (l *Lookup) denied(body json.RawMessage, rows []json.RawMessage, m keep.Mutation) (failed, part string) {
	if fields, err := jsonval.Fields(body); err == nil && echo.Fails(fields) {
		return "the answer says that something of it failed", ""
	}
	if slices.ContainsFunc(rows, func(row json.RawMessage) bool { return l.resembles(row, m) }) {
		return "", "a row has what was sent in another spelling"
	}
	v, err := jsonval.Decode(body)
	if err != nil || l.More != "" {
		return "", "" // the owner says what says it
	}
	if flag, at, _ := echo.More(v); flag != nil && *flag || flag == nil && at && l.Page == 0 {
		return "", "the answer says that there are more"
	}
	return "", ""
}

// resembles reports whether a row that is not of the call m may be all the same: servers change case, white space, times, and numbers into texts.
func (l *Lookup) resembles(row json.RawMessage, m keep.Mutation) bool {
	if len(l.Match) == 0 {
		return m.Token != "" && strings.Contains(strings.ToLower(string(row)), strings.ToLower(m.Token))
	}
	fields, err := jsonval.Fields(row)
	sent, err2 := jsonval.Fields(m.Payload)
	return err == nil && err2 == nil && !slices.ContainsFunc(l.Match, func(name string) bool {
		return sent[name] == nil || fields[name] == nil || !jsonval.Alike(fields[name], sent[name])
	})
}

// complete reports whether an answer with so many rows holds all that there can be.
func (l *Lookup) complete(body json.RawMessage, rows int) bool {
	if !l.Complete || l.Page > 0 && rows >= l.Page {
		return false
	}
	if l.More == "" {
		return true
	}
	path, err := parsePath(l.More)
	if err != nil {
		return false
	}
	more, err := path.values(body)
	return err == nil && len(more) == 1 && string(more[0]) == "false"
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
