package engine

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/law/ledger"
)

// A record says whose credentials its call was sent with (keep.SentAs.As), beside where and how (law:
// bound-to-its-world). After a doubt, an effect that is found counts whoever finds it. That nothing is
// found counts, and the call is sent again under its key, only with credentials of the same user: the same
// ones, those that Keep knows to be of the same user, or those of which a person said so. A service shows
// another user nothing, and does not know that user's keys.
//
// A person is asked when it first matters for a call, and once for each change of an account or a secret:
// see account.Change. Records of versions before have no credentials, and are believed as they were.

// users knows whose credentials tools send with, and what persons said of them.
type users struct {
	store interface {
		Escalation(ctx context.Context, id keep.EscalationID) (keep.Escalation, error)
	}
	key []byte // of fingerprints
}

// sender returns whose credentials a tool sends with now.
func (u users) sender(ctx context.Context, t *tool) (map[string]string, error) {
	if t.sender == nil {
		return nil, nil
	}
	return t.sender(ctx, u.fingerprint)
}

// fingerprint tells a secret from another to who has the key of the store, and nothing to anybody else.
func (u users) fingerprint(secret string) string {
	mac := hmac.New(sha256.New, u.key)
	mac.Write([]byte("secret of a connection\n" + secret))
	return hex.EncodeToString(mac.Sum(nil)[:12])
}

// withSender returns a pin that says whose credentials the call is sent with.
func withSender(pin json.RawMessage, as map[string]string) (json.RawMessage, error) {
	as = maps.Clone(as)
	maps.DeleteFunc(as, func(_, who string) bool { return who == "" })
	if len(as) == 0 {
		return pin, nil
	}
	var p keep.SentAs
	if err := json.Unmarshal(pin, &p); err != nil {
		return nil, fmt.Errorf("read the pin: %w", err)
	}
	p.As = as
	return marshal(p), nil
}

// userSince returns what of the credentials of a call in doubt changed since and is not known to be of the
// same user, and whose credentials a lookup may use if that is nothing.
func (u users) userSince(ctx context.Context, t *tool, m keep.Mutation) (changed []account.Change, as map[string]string, err error) {
	was := m.SentAs().As
	if len(was) == 0 {
		return nil, nil, nil
	}
	now, err := u.sender(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	if changed, err = u.otherUser(ctx, was, now); err != nil {
		return nil, nil, err
	}
	as = maps.Clone(now)
	for ref, who := range as {
		if who == "" { // an account that holds nothing; what it may hold meanwhile is that of then
			as[ref] = was[ref]
		}
	}
	return changed, as, nil
}

// otherUser returns what of the credentials of a call changed and is not known to be of the same user.
func (u users) otherUser(ctx context.Context, was, now map[string]string) (changed []account.Change, err error) {
	for _, c := range account.Changes(was, now) {
		q, _, err := u.userQuestion(ctx, c)
		if err != nil {
			return nil, err
		}
		if same, _ := account.Said(q); !same {
			changed = append(changed, c)
		}
	}
	return changed, nil
}

// userQuestion returns the question about a change that counts, and which one of those about it that is; zero: the nth is
// to be asked.
func (u users) userQuestion(ctx context.Context, c account.Change) (q keep.Escalation, n int, err error) {
	for ; ; n++ {
		switch q, err = u.store.Escalation(ctx, c.QuestionID(n)); {
		case isNotFound(err):
			return keep.Escalation{}, n, nil
		case err != nil || !account.Withdrawn(q):
			return q, n, err
		}
	}
}

// signs returns the pin of c with whose credentials it would be sent now, and notes what of them may be
// another user's than those of the call before it.
func (x *execution) signs(ctx context.Context, call *takenCall, c ledger.Call, before keep.Mutation) (pin json.RawMessage, err error) {
	if call.as, err = x.e.users.sender(ctx, call.tool); err != nil {
		return nil, unreadAccount(err)
	}
	if call.changed, err = x.e.users.otherUser(ctx, before.SentAs().As, call.as); err != nil {
		return nil, &storeError{err}
	}
	return withSender(c.Pin, call.as)
}

// unreadAccount is why a call is not made whose credentials cannot be told.
func unreadAccount(err error) *keep.Failure {
	return keep.Failf(keep.ClassTransient, "account-unread", "%v", err)
}

// asAnother returns what of the credentials of the call before changed since, if the service may take this
// one for a new one: a person said that the call before did not happen, and no service has shown that.
func (x *execution) asAnother(ctx context.Context, call *takenCall, before keep.Mutation) ([]account.Change, error) {
	if !before.Doubted || len(call.changed) == 0 {
		return nil, nil
	}
	moves, err := x.e.store.History(ctx, before.Key)
	switch {
	case err != nil:
		return nil, &storeError{err}
	case !ledger.Vouched(moves):
		return nil, nil
	}
	return call.changed, nil
}

// lookUpAsOther asks about m with credentials that are perhaps another user's. Only an effect that is
// found counts, and nothing is sent again.
func (a *actor) lookUpAsOther(ctx context.Context, t *tool, m keep.Mutation, changed []account.Change) (keep.Mutation, ledger.Fact) {
	if t.spec.Level == keep.LevelKey { // to ask is to send
		t, _ = t.rebound(m)
	}
	if t != nil {
		m = a.lastSent(t, m)
		fact, _ := a.e.lookUp(ctx, t, m)
		found := fact.Evidence == ledger.Happened && !t.spec.ByTarget
		early := fact.Evidence == ledger.Absent && fact.AskedAt.Before(m.SettlesAt())
		if found || early || fact.Evidence == ledger.Unsure {
			return m, fact
		}
	}
	fact, err := a.e.askForUser(ctx, m, changed)
	if err != nil {
		fact = ledger.Fact{Evidence: ledger.Unsure, By: "reconcile", Detail: err.Error()}
	}
	return m, fact
}

// askForUser returns what is to become of a call whose outcome depends on whether credentials are of
// the same user: it waits for the answer of a person, who is asked if nobody was, or is unknown since the
// answer was no.
func (e *Engine) askForUser(ctx context.Context, m keep.Mutation, changed []account.Change) (ledger.Fact, error) {
	fact := ledger.Fact{Evidence: ledger.Unsure, By: "reconcile"}
	for _, c := range changed {
		fact.Detail = fmt.Sprintf("it was sent with %s; %s", c.Before(), c.After())
		q, n, err := e.users.userQuestion(ctx, c)
		if err == nil && q.ID == "" {
			now := e.Now()
			q = c.Question(m, n, now)
			if err = e.commit(ctx, "", 0, now, keep.OpenEscalation{Escalation: q}); errors.Is(err, keep.ErrStale) {
				err = nil // another host asked
			}
		}
		if err != nil {
			return fact, err
		}
		same, answered := account.Said(q)
		switch {
		case same: // since this lookup began: the next one counts
			continue
		case answered:
			fact.Evidence = ledger.CannotAsk
			fact.Detail += ", as another user's: that the service does not show it now proves nothing"
			fact.Failure = keep.Failf(keep.ClassUnknown, keep.CodeAnotherUser, "%s", fact.Detail)
			return fact, nil
		}
		fact.Failure = keep.Failf(keep.ClassPermission, keep.CodeSameUser, "%s; a person is asked whether that is the same user", fact.Detail)
		fact.Failure.Tool = m.Tool
	}
	return fact, nil
}
