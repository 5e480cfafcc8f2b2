package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/grant"
	"github.com/keep-run/keep/law/ledger"
)

// What a workflow may do is decided here and nowhere else (law: permitted): by the grant
// that holds when a read begins, when a call is about to be recorded, and when a call in
// doubt would be sent again. The commit that records a call names the grant, and is refused
// if that was replaced meanwhile: nothing is sent under a grant that was taken away.

// permits are the rules of a grant.
type permits struct {
	n     int          // its number; 0: the workflow was never given one, and may call everything
	rules *grant.Rules // if n > 0
}

// check decides about a call. A failure says why it is not allowed.
func (p *permits) check(w keep.WorkflowName, t *tool, params json.RawMessage, at string) (grant.Verdict, *keep.Failure) {
	if p.n == 0 {
		return grant.Verdict{Allowed: true}, nil
	}
	v := p.rules.Check(t.name, params, t.names[1:]...)
	if v.Allowed {
		return v, nil
	}
	return v, &keep.Failure{Class: keep.ClassPermission, Code: keep.CodeNotGranted, Tool: t.name, At: at,
		Message: fmt.Sprintf("workflow %s may not call %s: %s; nothing was sent", w, t.name, v.Why)}
}

// learnGrant makes the grant of that number the one that the actor decides by.
func (a *actor) learnGrant(ctx context.Context, n int) (*permits, error) {
	if p := a.granted.Load(); p != nil && p.n == n {
		return p, nil
	}
	p, err := a.e.permitsOf(ctx, a.name, n)
	if err == nil {
		a.granted.Store(p)
	}
	return p, err
}

// permitsOf reads the grant that holds; n is 0 if the workflow was never given one.
func (e *Engine) permitsOf(ctx context.Context, w keep.WorkflowName, n int) (*permits, error) {
	if n == 0 {
		return &permits{}, nil
	}
	g, err := e.store.Grant(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("read the grant of %s: %w", w, err)
	}
	rules, err := grant.Compile(g.Tools)
	if err != nil {
		e.log.WarnContext(ctx, "conditions of a grant cannot be used, and count as not met", "workflow", w, "grant", g.ID(), "err", err)
	}
	return &permits{g.N, rules}, nil
}

// permits returns what the workflow may do now. It reads the store only if somebody changed
// the workflow since the actor read it.
func (x *execution) permits(ctx context.Context) (*permits, error) {
	a := x.a
	a.e.mu.Lock()
	stale := a.stale
	a.e.mu.Unlock()
	if p := a.granted.Load(); p != nil && !stale {
		return p, nil
	}
	w, err := a.e.store.Workflow(ctx, a.name)
	if err != nil {
		return nil, &storeError{err}
	}
	p, err := a.learnGrant(ctx, w.Granted)
	if err != nil {
		return nil, &storeError{err}
	}
	return p, nil
}

// mayRead refuses a read that the grant does not allow. What it says of approvals is about
// calls that send.
func (x *execution) mayRead(ctx context.Context, t *tool, params json.RawMessage, at string) error {
	p, err := x.permits(ctx)
	if err != nil {
		return err
	}
	if _, f := p.check(x.a.name, t, params, at); f != nil {
		return f
	}
	return nil
}

// mayCall refuses a call that the grant does not allow, and says whether a person must
// agree to it. It returns what the commit that records the call must hold to.
func (x *execution) mayCall(ctx context.Context, call *takenCall) (grant.Verdict, *keep.UnderGrant, error) {
	p, err := x.permits(ctx)
	if err != nil {
		return grant.Verdict{}, nil, err
	}
	v, f := p.check(x.a.name, call.tool, call.params, call.at)
	if f != nil {
		return v, nil, f
	}
	return v, &keep.UnderGrant{N: p.n}, nil
}

// toAsk returns the tool by which the outcome of m is asked for. To ask a tool of level A is
// to send again: one that the grant does not allow any more is asked by its lookup alone. If
// it has none, the answer says that a person is needed.
func (e *Engine) toAsk(ctx context.Context, t *tool, m keep.Mutation) (*tool, *connector.Answer) {
	if t.spec.Level != keep.LevelKey {
		return t, nil
	}
	w, err := e.store.Workflow(ctx, m.Workflow)
	if err != nil {
		return nil, &connector.Answer{Verdict: connector.Retry, Detail: err.Error()}
	}
	p, err := e.permitsOf(ctx, m.Workflow, w.Granted)
	if err != nil {
		return nil, &connector.Answer{Verdict: connector.Retry, Detail: err.Error()}
	}
	_, f := p.check(m.Workflow, t, paramsOf(m), "")
	if f == nil {
		return t, nil
	}
	if old, err := t.rebound(m); err == nil {
		return old, nil
	}
	f.Message = fmt.Sprintf("%s, and %s can only be asked by sending the call again", f.Message, t.name)
	return nil, &connector.Answer{Verdict: connector.Retry, Detail: ledger.NotAsked + "; " + f.Message, Refused: f}
}

// paramsOf returns what the script passed for a call that was recorded.
func paramsOf(m keep.Mutation) json.RawMessage {
	if m.Subkey == "" {
		return m.Payload
	}
	var params map[string]json.RawMessage
	if json.Unmarshal(m.Payload, &params) != nil || params == nil {
		return m.Payload
	}
	params["subkey"] = marshal(m.Subkey)
	return marshal(params)
}
