package simtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/law/ledger"
)

// In some worlds the connection has a secret, which people replace between any two steps: by another one of the same user of the
// service, by one of another user, or by one of before. A service shows a user nothing of what another one did, and does not know that
// user's keys. People who are asked whether two secrets are of the same user know it.

// serviceUsers is how many users the service has.
const serviceUsers = 2

// theSecret is what records call the secret.
var theSecret = keep.SecretRef("svc")

// hasUsers decides whether a world is one of these. The draw is its own, so that the other worlds are those of before; it leaves out
// those that have a test of their own, those whose configuration is edited otherwise, and those in which calls say what is to be.
func (w *world) hasUsers() bool {
	return w.seed >= firstOrdered && !w.edits() && !w.setting && rand.New(rand.NewPCG(w.seed, 287)).IntN(3) == 0
}

// replaceSecret is a person who does it. The process takes it at once; other hosts of a group take it when they start again.
func (p *process) replaceSecret() string {
	w := p.w
	if n := len(w.userOf); n > 1 && w.chance(0.5) {
		w.settings.secret = w.below(n)
	} else {
		w.userOf = append(w.userOf, w.below(serviceUsers))
		w.settings.secret = n
	}
	w.fault("the secret was replaced")
	if p.engine != nil {
		p.settings = w.settings
		p.tools.Replace(w.newTools(0, w.settings), func() {})
		p.engine.Reload()
	}
	return fmt.Sprintf("replace the secret: it is that of user %d now", w.userOf[w.settings.secret])
}

// sender says whose credentials the connection sends with; nil: it has none.
func (w *world) sender(secret int) connector.Sender {
	if !w.users {
		return nil
	}
	return func(_ context.Context, mac func(string) string) (map[string]string, error) {
		m := mac(fmt.Sprint("secret ", secret))
		w.mu.Lock()
		defer w.mu.Unlock()
		w.macs[m] = secret
		return map[string]string{theSecret: m}, nil
	}
}

// user returns as whom a tool sends and asks.
func (t tool) user() int { return t.w.userOf[t.secret] }

// watchUser looks whether a call that was in doubt is sent again as the user as whom it was sent.
func (w *world) watchUser(t tool, m keep.Mutation) {
	w.mu.Lock()
	was, known := w.macs[m.SentAs().As[theSecret]]
	w.mu.Unlock()
	switch {
	case !w.users:
	case !known:
		w.broken("bound-to-its-world", "%s was sent with no secret that there is", m.Key)
	case w.userOf[was] != t.user():
		w.broken("bound-to-its-world", "%s was sent as user %d, and is sent again as user %d", m.Key, w.userOf[was], t.user())
	case was != t.secret:
		w.saw("user: the same, with another secret")
	}
}

// watchSender looks at a move of a call: one of which a person said that it did not happen is not sent as another user unless a
// person agreed to that.
func (w *world) watchSender(m keep.Mutation, move keep.Move) {
	if !w.users {
		return
	}
	if move.To != keep.InFlight {
		w.onWord[m.Key] = move.To == keep.Failed && move.Evidence == string(ledger.DidNotHappen)
		return
	}
	as := m.SentAs().As
	w.mu.Lock()
	was, before := w.macs[w.sentAs[m.Key]]
	now := w.macs[as[theSecret]]
	w.mu.Unlock()
	if before && w.onWord[m.Key] && w.userOf[was] != w.userOf[now] {
		w.saw("user: sent as another one")
		if !w.agreed(m, agreement(m, asUser(m))) {
			w.broken("bound-to-its-world", "%s was in doubt as user %d, and is recorded to be sent as user %d without a word", m.Key, w.userOf[was], w.userOf[now])
		}
	}
	w.onWord[m.Key], w.sentAs[m.Key] = false, as[theSecret]
}

// asUser is what a question about sending as another user adds to what it is about.
func asUser(m keep.Mutation) string {
	text, _ := json.Marshal(m.SentAs().As) // texts always encode
	return ":" + string(text)
}

// sameUser reports what the truth about a question is: whether two secrets are of the same user.
func (w *world) sameUser(q keep.Escalation) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for was, a := range w.macs {
		for now, b := range w.macs {
			for _, c := range account.Changes(map[string]string{theSecret: was}, map[string]string{theSecret: now}) {
				for n := range 20 { // times that it was withdrawn
					if c.QuestionID(n) == q.ID {
						return w.userOf[a] == w.userOf[b]
					}
				}
			}
		}
	}
	panic("a question about secrets that nobody had")
}
