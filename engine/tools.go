package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/schema"
	"github.com/keep-run/keep/law/given"
	"github.com/keep-run/keep/law/grant"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/limit"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/law/rename"
)

// defaultTimeout ends a call of a tool that states no timeout.
const defaultTimeout = 30 * time.Second

// Tools are the callable operations of all connections, by their full names. They may
// be replaced while the engine runs: a call uses those that it found.
type Tools struct{ now atomic.Pointer[toolSet] }

// A toolSet is the tools of one configuration.
type toolSet struct {
	byName map[keep.ToolName]*tool
	byWas  map[keep.ToolName]*tool // by names that they had before
	names  []string                // sorted
	limits map[string]limit.Rule   // of each connection

	watches []*watch

	rebounds sync.Map // hash of a pin to the tool as it was then

	mu    sync.Mutex // protects all below
	calls int        // that are out
	ended func()     // not nil: the set was replaced; called when no call is out
}

// enter notes that a call of one of the tools begins, until the returned function is
// called.
func (ts *toolSet) enter() (leave func()) {
	ts.mu.Lock()
	ts.calls++
	ts.mu.Unlock()
	return func() {
		ts.mu.Lock()
		ts.calls--
		ended := ts.ended
		if ts.calls > 0 {
			ended = nil
		}
		ts.mu.Unlock()
		if ended != nil {
			ended()
		}
	}
}

// Replace puts the tools of other in the place of those that there are. ended is
// called once no call of those is out; it may be called again by a late one.
func (ts *Tools) Replace(other *Tools, ended func()) {
	old := ts.now.Swap(other.now.Load())
	leave := old.enter()
	old.mu.Lock()
	old.ended = ended
	old.mu.Unlock()
	for _, w := range old.watches {
		w.end()
	}
	leave()
}

// get returns a tool by its full name; nil: there is none.
func (ts *Tools) get(name keep.ToolName) *tool { return ts.now.Load().byName[name] }

// known returns the tool that a record or a script names: by its name, or by one that it had before.
func (ts *Tools) known(name keep.ToolName) *tool {
	set := ts.now.Load()
	if t := set.byName[name]; t != nil {
		return t
	}
	return set.byWas[name]
}

// limits returns the limits of a connection, and false if it is not configured.
func (ts *Tools) limits(connection string) (r limit.Rule, configured bool) {
	r, configured = ts.now.Load().limits[connection]
	return r, configured
}

// A tool is a connector's tool with what the host adds.
type tool struct {
	set       *toolSet
	watch     *watch // of its connection; nil: there is none
	name      keep.ToolName
	names     []keep.ToolName // that its records may have: name, and those that it had before
	connector string
	spec      connector.Spec
	impl      connector.Tool
	secrets   string           // mark of those of its connection
	sender    connector.Sender // of its connection; nil: nobody
	limits    limit.Rule
	approvals *grant.Approvals   // when a person must agree; nil: never
	named     rename.ToolOf      // what the configuration says of its names
	params    *jsonschema.Schema // nil: anything
	result    *jsonschema.Schema // nil: anything

	// Of mutate tools; see pin.go.
	sentAs  keep.SentAs     // of every call, without a claim
	pin     json.RawMessage // sentAs as JSON
	pinHash string          // of what in it says where and how
}

// NewTools checks and collects the tools of connections. All errors are
// reported at once.
func NewTools(conns []connector.Connection) (*Tools, error) { return new(Schemas).Tools(conns) }

// Tools is NewTools with schemas that others compiled before.
func (s *Schemas) Tools(conns []connector.Connection) (*Tools, error) {
	ts := &toolSet{byName: make(map[keep.ToolName]*tool), byWas: make(map[keep.ToolName]*tool), limits: make(map[string]limit.Rule)}
	var errs []error
	for _, c := range conns {
		if err := c.Limits.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("connection %s: %w", c.Name, err))
		}
		ts.limits[c.Name] = c.Limits
		w := newWatch(c)
		if w != nil {
			ts.watches = append(ts.watches, w)
		}
		for _, impl := range c.Tools {
			t, err := newTool(c, impl, s.compile)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if _, ok := ts.byName[t.name]; ok {
				errs = append(errs, fmt.Errorf("tool %s is there twice", t.name))
			}
			t.set, t.watch = ts, w
			ts.byName[t.name] = t
			ts.names = append(ts.names, string(t.name))
			for _, was := range t.names[1:] {
				ts.byWas[was] = t
			}
		}
	}
	for _, p := range connector.CheckNames(conns) {
		errs = append(errs, errors.New(p.Message))
	}
	slices.Sort(ts.names)
	for _, name := range ts.names {
		errs = append(errs, ts.checkResultFrom(ts.byName[keep.ToolName(name)]))
	}
	tools := new(Tools)
	tools.now.Store(ts)
	return tools, errors.Join(errs...)
}

// newTool checks one tool. It gets its schemas from compile.
func newTool(c connector.Connection, impl connector.Tool, compile func(json.RawMessage) (*jsonschema.Schema, error)) (*tool, error) {
	spec := impl.Spec()
	name := keep.ToolName(c.Name + "." + spec.Name)
	t := &tool{name: name, names: append([]keep.ToolName{name}, connector.FormerNames(c, spec)...),
		connector: c.Connector, limits: c.Limits, spec: spec, impl: impl, secrets: c.Secrets, sender: c.Sender}
	t.named = rename.ToolOf{Name: name, Was: t.names[1:], New: connector.IsNew(c, spec), NewConn: c.New}
	t.spec.Timeout = cmp.Or(t.spec.Timeout, defaultTimeout)
	var err error
	if t.params, err = compile(spec.Params); err != nil {
		return nil, fmt.Errorf("tool %s: params schema: %w", t.name, err)
	}
	if t.result, err = compile(spec.Result); err != nil {
		return nil, fmt.Errorf("tool %s: result schema: %w", t.name, err)
	}
	_, reads := impl.(connector.Reader)
	_, mutates := impl.(connector.Mutator)
	switch {
	case spec.Effect == connector.Mutate && !mutates:
		return nil, fmt.Errorf("tool %s: effect mutate, but it is no Mutator", t.name)
	case spec.Effect == connector.Mutate && !slices.Contains(keep.Levels(), spec.Level):
		return nil, fmt.Errorf("tool %s: level %q is not one of A, B, C, D", t.name, spec.Level)
	case (spec.Effect == connector.List || spec.Effect == connector.Get) && !reads:
		return nil, fmt.Errorf("tool %s: effect %s, but it is no Reader", t.name, spec.Effect)
	case spec.Effect != connector.List && spec.Effect != connector.Get && spec.Effect != connector.Mutate:
		return nil, fmt.Errorf("tool %s: effect %q is not list, get or mutate", t.name, spec.Effect)
	}
	if spec.Effect != connector.Mutate {
		return t, nil
	}
	if t.approvals, err = grant.CompileApprovals(connector.Approvals(c, spec)); err != nil {
		return nil, fmt.Errorf("tool %s: approve: %w", t.name, err)
	}
	return t, t.setPin(c.Pack)
}

// find returns the tool that a script named, or the logic failure that says
// what there is instead. A version that was deployed before a tool was renamed calls it as it was.
func (t *Tools) find(c HostCall) (*tool, *keep.Failure) {
	if t := t.known(keep.ToolName(c.Name)); t != nil {
		return t, nil
	}
	ts := t.now.Load()
	conn, _, _ := strings.Cut(c.Name, ".")
	var same []string
	for _, n := range ts.names {
		if strings.HasPrefix(n, conn+".") {
			same = append(same, n)
		}
	}
	switch {
	case len(same) > 0:
		return nil, c.logicf("unknown-tool", "ctx.%s: connection %q has no such tool; it has %s", c.Name, conn, strings.Join(same, ", "))
	case len(ts.names) == 0:
		return nil, c.logicf("unknown-tool", "ctx.%s: no connection is configured; add [connections.%s] to keep.toml", c.Name, conn)
	}
	return nil, c.logicf("unknown-tool", "ctx.%s: there is no connection %q; the tools are %s", c.Name, conn, strings.Join(ts.names, ", "))
}

// Connections returns, for each connection, a hash of where and how its tools send. It
// says nothing of secrets, and is the same for all hosts with the same configuration.
func (ts *Tools) Connections() map[string]string {
	set := ts.now.Load()
	texts := make(map[string]string)
	for _, name := range set.names {
		conn, tool, _ := strings.Cut(name, ".")
		t := set.byName[keep.ToolName(name)]
		texts[conn] += fmt.Sprintf("%s %s %s\n", tool, t.spec.Effect, t.pinHash)
	}
	for conn, text := range texts {
		texts[conn] = ledger.Hash([]byte(text))
	}
	return texts
}

// kind returns the kind of call that the tool is in the table of phases.
func (t *tool) kind() policy.Call {
	switch t.spec.Effect {
	case connector.List:
		return policy.CallList
	case connector.Get:
		return policy.CallGet
	default:
		return policy.CallMutate
	}
}

// canReconcile reports whether the service can be asked what happened.
func (t *tool) canReconcile() bool {
	_, ok := t.impl.(connector.Reconciler)
	return ok && t.spec.Level != keep.LevelNone
}

// checkParams returns the one object that was passed, or why it is refused.
func (t *tool) checkParams(c HostCall, limit int) (json.RawMessage, *keep.Failure) {
	params := c.arg(0)
	switch {
	case len(c.Args) > 1:
		return nil, c.logicf(badParams, "takes one object, got %d arguments", len(c.Args))
	case params == nil:
		params = json.RawMessage("{}")
	case len(params) > limit:
		return nil, c.logicf("params-too-large", "params of %d bytes: at most %d", len(params), limit)
	case params[0] != '{':
		return nil, c.logicf(badParams, "takes one object, got %s", given.Show(params))
	}
	if err := connector.CheckNumbers(params); err != nil {
		return nil, c.logicf(badParams, "%v", err)
	}
	if t.params == nil {
		return params, nil
	}
	doc, err := schema.Value(params)
	if err != nil {
		return nil, c.logicf(badParams, "read params: %v", err)
	}
	if m, ok := doc.(map[string]any); ok && t.spec.Effect == connector.Mutate {
		delete(m, "subkey") // accepted by every mutate tool, never sent
	}
	if err := t.params.Validate(doc); err != nil {
		return nil, c.logicf(badParams, "invalid params: %s", schema.Reasons(err))
	}
	return params, nil
}

// maxResult is the largest result of a mutate call that is kept, in bytes.
const maxResult = 1 << 20

// accept returns the receipt of a call that succeeded, whatever the result is:
// it is applied, and never sent again. What no script could read is left out,
// and a warning says so.
func (t *tool) accept(r connector.Receipt) connector.Receipt {
	warning := ""
	switch n := len(r.Result); {
	case n == 0:
		r.Result = nil
	case n > maxResult:
		warning, r.Result = fmt.Sprintf("the result of %d bytes was left out: at most %d", n, maxResult), nil
	case !utf8.Valid(r.Result):
		warning, r.Result = "the result is not UTF-8 and was left out", nil
	case !json.Valid(r.Result):
		warning, r.Result = "the result is not JSON and was left out", nil
	case connector.CheckNumbers(r.Result) != nil:
		warning, r.Result = "the result was left out: "+connector.CheckNumbers(r.Result).Error(), nil
	default:
		warning = t.checkResult(r.Result)
	}
	if warning != "" {
		r.Warning = strings.TrimPrefix(r.Warning+"; "+warning, "; ")
	}
	return r
}

// checkResult returns a warning if the result does not have the declared shape.
func (t *tool) checkResult(result json.RawMessage) string {
	if why := t.fits(result); why != "" {
		return "the result does not have the declared shape: " + why
	}
	return ""
}

// read performs a list or get call. A failure without a class is transient, and
// a failed read is never unknown: it changed nothing.
func (t *tool) read(ctx context.Context, c HostCall, params json.RawMessage) (result json.RawMessage, fail *keep.Failure) {
	defer t.set.enter()()
	ctx, cancel := withTime(ctx, t.spec.Timeout, &keep.TimeoutError{Op: string(t.name), After: t.spec.Timeout})
	defer cancel()
	guarded(func() { result, fail = t.readNow(ctx, c, params) }, func(how string) { fail = t.panicked(how, keep.ClassInternal, c.At) })
	return result, fail
}

// readNow is read as the connector answers.
func (t *tool) readNow(ctx context.Context, c HostCall, params json.RawMessage) (json.RawMessage, *keep.Failure) {
	result, err := t.impl.(connector.Reader).Read(ctx, params)
	switch {
	case err == nil && len(result) == 0:
		return nil, nil
	case err == nil && !utf8.Valid(result): // two texts of it could become one
		err = keep.Failf(keep.ClassLogic, "not-utf-8", "the answer is not UTF-8")
	case err == nil && json.Valid(result):
		if err = connector.CheckNumbers(result); err == nil {
			return result, nil
		}
	case err == nil:
		err = errors.New("the answer is not JSON")
	}
	f, classed := failureOf(err, keep.ClassTransient, "read-failed")
	if cause := context.Cause(ctx); !classed && cause != nil {
		f.Message = cause.Error()
	}
	f.Tool, f.At = t.name, c.At
	return nil, t.marked(f)
}

// marked returns f with the mark of the secrets that were refused, if it is about them.
func (t *tool) marked(f keep.Failure) *keep.Failure {
	if f.Class == keep.ClassPermission && f.Account == "" {
		f.Secrets = t.secrets
	}
	return &f
}

// Secrets returns the mark of the secrets that a tool's connection has now.
func (ts *Tools) Secrets(name keep.ToolName) (mark string, known bool) {
	t := ts.known(name)
	if t == nil {
		return "", false
	}
	return t.secrets, true
}

// target names what a call with these params changes. A connector that panics
// over them is wrong; nothing was sent.
func (t *tool) target(params json.RawMessage, at string) (target string, fail *keep.Failure) {
	guarded(func() { target = keep.CutTitle(t.impl.(connector.Mutator).Target(params)) }, func(how string) { fail = t.panicked(how, keep.ClassInternal, at) })
	return target, fail
}

// start makes what the tool needs before a call of it can be recorded. A failure
// means that nothing was sent.
func (t *tool) start(ctx context.Context, at string) (fail *keep.Failure) {
	defer t.set.enter()()
	starter, ok := t.impl.(connector.Starter)
	if !ok {
		return nil
	}
	ctx, cancel := withTime(ctx, t.spec.Timeout, &keep.TimeoutError{Op: "starting " + string(t.name), After: t.spec.Timeout})
	defer cancel()
	guarded(func() {
		if err := starter.Start(ctx); err != nil {
			f, _ := failureOf(err, keep.ClassTransient, "not-started")
			f.Tool, f.At = t.name, at
			fail = t.marked(f)
		}
	}, func(how string) { fail = t.panicked(how, keep.ClassInternal, at) })
	return fail
}

// mutate performs the call that m records, once, and gives it up after rest. The
// error is nil, or a failure of class unknown unless the connector vouches for
// another.
func (t *tool) mutate(ctx context.Context, m keep.Mutation, rest time.Duration, at string) (receipt connector.Receipt, fail *keep.Failure) {
	defer t.set.enter()()
	ctx, cancel := context.WithTimeoutCause(ctx, rest, &keep.TimeoutError{Op: string(t.name), After: min(t.spec.Timeout, m.CallDeadline.Sub(m.UpdatedAt))})
	defer cancel()
	guarded(func() { receipt, fail = t.mutateNow(ctx, m, at) }, func(how string) { fail = t.panicked(how, keep.ClassUnknown, at) })
	return receipt, fail
}

// mutateNow is mutate as the connector answers.
func (t *tool) mutateNow(ctx context.Context, m keep.Mutation, at string) (connector.Receipt, *keep.Failure) {
	receipt, err := t.impl.(connector.Mutator).Mutate(ctx, m)
	if err == nil {
		return t.accept(receipt), nil
	}
	f, classed := failureOf(err, keep.ClassUnknown, "no-answer")
	if cause := context.Cause(ctx); !classed && f.Code == "no-answer" && cause != nil {
		f.Code, f.Message = "timeout", cause.Error()
	}
	f.Tool, f.At = t.name, at
	return connector.Receipt{}, t.marked(f)
}

// reconcile asks the service what became of m. Errors, timeouts and answers that
// make no sense all mean: ask again.
func (t *tool) reconcile(ctx context.Context, m keep.Mutation, limit time.Duration) (ans connector.Answer) {
	defer t.set.enter()()
	ctx, cancel := withTime(ctx, limit, &keep.TimeoutError{Op: "asking " + string(t.name), After: limit})
	defer cancel()
	guarded(func() { ans = t.reconcileNow(ctx, m) }, func(how string) {
		ans = connector.Answer{Verdict: connector.Retry, Detail: t.panicked(how, keep.ClassUnknown, "").Message}
	})
	return ans
}

// reconcileNow is reconcile as the connector answers.
func (t *tool) reconcileNow(ctx context.Context, m keep.Mutation) connector.Answer {
	ans, err := t.impl.(connector.Reconciler).Reconcile(ctx, m)
	switch {
	case err != nil && context.Cause(ctx) != nil:
		noteLookup(ctx, t, context.Cause(ctx))
		return connector.Answer{Verdict: connector.Retry, Detail: context.Cause(ctx).Error()}
	case err != nil:
		ans = connector.Answer{Verdict: connector.Retry, Detail: readable(err.Error())}
		noteLookup(ctx, t, err)
		if f, ok := errors.AsType[*keep.Failure](err); ok && f.Class == keep.ClassPermission && (t.spec.Level == keep.LevelKey || ledger.Waits(f) || f.Account != "") {
			refused := *f
			refused.Tool = t.name
			ans.Refused = t.marked(refused)
		}
		return ans
	case ans.Verdict == connector.Happened:
		ans.Receipt = t.accept(ans.Receipt)
	case ans.Verdict != connector.Absent && ans.Verdict != connector.Unwitnessed:
		ans.Verdict = connector.Retry
	}
	return ans
}

// control asks the service for a known effect. Whatever is not a clear answer counts as
// not found.
func (t *tool) control(ctx context.Context, known keep.Mutation) (found bool) {
	c, ok := t.impl.(connector.Controller)
	if !ok {
		return false
	}
	guarded(func() {
		there, err := c.Control(ctx, known)
		found = err == nil && there
	}, func(string) {})
	return found
}
