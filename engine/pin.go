package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/law/ledger"
)

// setPin computes the pin of a mutate tool: where and how its calls are sent, as records
// keep it (law: bound-to-its-world).
func (t *tool) setPin(pack *keep.Pack) error {
	p := keep.SentAs{Connector: t.connector, Level: t.spec.Level, Identity: t.spec.Identity}
	if pinner, ok := t.impl.(connector.Pinner); ok {
		if p.How = pinner.Pin(); !json.Valid(p.How) {
			return fmt.Errorf("tool %s: the pin is not JSON", t.name)
		}
	}
	t.pinHash = ledger.Hash(marshal(p))
	p.Pack, p.Was = pack, append([]keep.ToolName{}, t.names[1:]...)
	p.Verify = t.spec.VerifyByHand
	t.sentAs, t.pin = p, marshal(p)
	return nil
}

// claim returns the pin of c with what the service gives for the one call; see
// connector.Claimer. What it gave for the call before is kept, unless changed says that it may have been
// given to another user. A failure means that no call was made.
func (t *tool) claim(ctx context.Context, c ledger.Call, before keep.Mutation, changed []account.Change, now time.Time, at string) (pin json.RawMessage, fail *keep.Failure) {
	claimer, ok := t.impl.(connector.Claimer)
	if !ok {
		return c.Pin, nil
	}
	p := keep.Mutation{Pin: c.Pin}.SentAs()
	if was := before.SentAs(); before.PinHash == t.pinHash && before.PayloadHash == c.PayloadHash && was.Claim != "" && len(changed) == 0 {
		p.Claim = was.Claim // whatever became of the call before: it is used up once
		return marshal(p), nil
	}
	m, _ := ledger.Open(c, now)
	if before.Key != "" {
		m.Token = before.Token
	}
	defer t.set.enter()()
	ctx, cancel := withTime(ctx, t.spec.Timeout, &keep.TimeoutError{Op: "preparing " + string(t.name), After: t.spec.Timeout})
	defer cancel()
	guarded(func() {
		id, err := claimer.Claim(ctx, m)
		if err == nil {
			p.Claim = id
			pin = marshal(p)
			return
		}
		f, _ := failureOf(err, keep.ClassTransient, "not-started")
		f.Tool, f.At = t.name, at
		fail = &f
	}, func(how string) { fail = t.panicked(how, keep.ClassInternal, at) })
	return pin, fail
}

// moved reports whether the tool sends in another way than the call of m was sent.
func (t *tool) moved(m keep.Mutation) bool { return m.PinHash != "" && m.PinHash != t.pinHash }

// rebound returns the tool as it was when m was sent, for lookups.
func (t *tool) rebound(m keep.Mutation) (*tool, error) {
	var was keep.SentAs
	if err := json.Unmarshal(m.Pin, &was); err != nil {
		return nil, fmt.Errorf("read how it was sent: %w", err)
	}
	r, ok := t.impl.(connector.Rebinder)
	if !ok || was.Connector != t.connector {
		return nil, fmt.Errorf("the %s connector cannot ask a place that is not configured any more", was.Connector)
	}
	impl, err := r.Rebind(was.How)
	if err != nil {
		return nil, err
	}
	old := *t
	old.impl, old.spec.Level, old.spec.ComparesAge = impl, impl.Spec().Level, impl.Spec().ComparesAge
	if !old.canReconcile() || old.spec.Level == keep.LevelKey {
		return nil, fmt.Errorf("it had no lookup")
	}
	return &old, nil
}

// asker returns the tool by which the outcome of m can be asked for, or nil and what
// that means. A connection that is missing, perhaps because of a typing error, may be
// back at the next start: it is asked for again, and then "check again" is offered.
func (ts *Tools) asker(m keep.Mutation) (*tool, ledger.Fact) {
	none := ledger.Fact{Evidence: ledger.CannotAsk, By: "reconcile", Detail: "the tool cannot be asked any more"}
	t := ts.known(m.Tool)
	switch {
	case !m.CanReconcile:
		return nil, none
	case t == nil:
		none.Evidence, none.Detail = ledger.Unsure, fmt.Sprintf(ledger.NotAsked+"; there is no tool %s at present; if it was renamed or removed, bring it back", m.Tool)
		none.Failure = toolMissing(m)
		return nil, none
	case !t.moved(m) && t.canReconcile():
		return t, ledger.Fact{}
	case !t.moved(m):
		return nil, none
	}
	key := string(m.Tool) + " " + m.PinHash
	if old, ok := t.set.rebounds.Load(key); ok {
		return old.(*tool), ledger.Fact{}
	}
	old, err := t.rebound(m)
	if err == nil {
		t.set.rebounds.Store(key, old)
		return old, ledger.Fact{}
	}
	none.Detail = fmt.Sprintf("the configuration of %s changed since the call was sent: %v", m.Tool, err)
	return nil, none
}

// dueByTool returns the record of a call in doubt as it is due now: its next lookup was planned while there was no tool to
// ask, and now there is.
func (e *Engine) dueByTool(m keep.Mutation) keep.Mutation {
	if now := e.Now(); ledger.ToolMissing(m.Error) && m.NextReconcileAt.After(now) && e.tools.known(m.Tool) != nil {
		m.NextReconcileAt = now
	}
	return m
}

// toolMissing is why the outcome of m is not known while its tool is missing: what it was before, and that. Of a call of another
// user it stays that: what answers do to it depends on it.
func toolMissing(m keep.Mutation) *keep.Failure {
	if ledger.ToolMissing(m.Error) || ledger.OfAnotherUser(m.Error) {
		return m.Error
	}
	f := keep.Failf(keep.ClassUnknown, keep.CodeToolMissing, "there is no tool %s in this program or its keep.toml", m.Tool)
	if m.Error != nil {
		f.Message, f.At = strings.TrimRight(m.Error.Message, ".")+"; "+f.Message, m.Error.At
	}
	f.Tool = m.Tool
	return f
}

// howItDiffers says for a person how the call of m was sent and how its tool sends now;
// empty if that is the same.
func (ts *Tools) howItDiffers(m keep.Mutation) string {
	t := ts.known(m.Tool)
	if t == nil || !t.moved(m) {
		return ""
	}
	return "the configuration of the tool changed since the call was sent:\n" + howDiffers(m.Pin, t.pin, "\n")
}

// howDiffers says where two pins differ in where and how they send.
func howDiffers(old, now json.RawMessage, between string) string {
	how := func(pin json.RawMessage) json.RawMessage {
		s := keep.Mutation{Pin: pin}.SentAs()
		return marshal(keep.SentAs{Connector: s.Connector, Level: s.Level, Identity: s.Identity, How: s.How})
	}
	return differences(how(old), how(now), between, 20)
}

// carriedToken reports whether the call of m had the host's key in it, as its tool was when
// it was sent. Of a place that is not configured any more nothing is known.
func (ts *Tools) carriedToken(m keep.Mutation) bool {
	t := ts.known(m.Tool)
	if t != nil && t.moved(m) {
		t, _ = ts.asker(m)
	}
	return t != nil && t.impl.Spec().CarriesToken
}
