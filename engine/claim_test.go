package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
)

// A drafting tool makes a draft before each call and sends it: level B.
type drafting struct {
	asker
	d *drafts
}

// drafts are what a service knows of drafts: which there are, and which were sent.
type drafts struct {
	made int
	sent map[string]int

	onClaim func(n int) error // nil: each draft is made and told
	onSend  func(n int) error // after the draft is sent; nil: the answer comes
	sends   int
	hidden  bool // lookups find no draft, and cannot tell
}

func (t drafting) Claim(_ context.Context, m keep.Mutation) (string, error) {
	if m.Token == "" || len(m.Payload) == 0 {
		return "", keep.Failf(keep.ClassLogic, "empty", "Claim of a call without token or payload")
	}
	t.d.made++
	if t.d.onClaim != nil {
		if err := t.d.onClaim(t.d.made); err != nil {
			return "", err
		}
	}
	return fmt.Sprint("draft-", t.d.made), nil
}

func (t drafting) Mutate(_ context.Context, m keep.Mutation) (connector.Receipt, error) {
	id := m.SentAs().Claim
	t.d.sends++
	if t.d.sent[id] > 0 {
		return connector.Receipt{}, keep.Failf(keep.ClassUnknown, "gone", "there is no draft %s", id)
	}
	var err error
	if t.d.onSend != nil {
		err = t.d.onSend(t.d.sends)
	}
	if !errors.Is(err, errNothing) {
		t.d.sent[id]++
	}
	return connector.Receipt{}, err
}

// errNothing is an answer that is lost, of a call that did nothing.
var errNothing = errors.New("connection reset, and nothing happened")

func (t drafting) Reconcile(_ context.Context, m keep.Mutation) (connector.Answer, error) {
	switch {
	case t.d.hidden:
		return connector.Answer{Verdict: connector.Unwitnessed}, nil
	case t.d.sent[m.SentAs().Claim] > 0:
		return connector.Answer{Verdict: connector.Happened}, nil
	}
	return connector.Answer{Verdict: connector.Absent}, nil
}

// What a call uses up is on disk before the call, and is used once, wherever the host dies
// and whatever gets lost. Law: once.
func TestClaimIsUsedOnce(t *testing.T) {
	lost := errors.New("connection reset")
	for name, c := range map[string]struct {
		claim, send func(n int) error
		drafts      int // made, if nobody dies
	}{
		"no trouble":    {drafts: 1},
		"a lost draft":  {claim: func(n int) error { return map[bool]error{true: lost}[n == 1] }, drafts: 2},
		"a lost answer": {send: func(int) error { return lost }, drafts: 1},
		"a lost call":   {send: func(n int) error { return map[bool]error{true: errNothing}[n == 1] }, drafts: 1},
		"a refusal at first": {send: func(n int) error {
			if n > 1 {
				return nil
			}
			return errors.Join(errNothing, keep.Failf(keep.ClassTransient, "busy", "busy"))
		}, drafts: 1},
	} {
		for _, p := range append(engine.Points(), "") {
			t.Run(fmt.Sprintf("%s/%s", name, p), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.service.level = keep.LevelClaim
					d := &drafts{sent: map[string]int{}, onClaim: c.claim, onSend: c.send}
					w.connect = func() []connector.Connection {
						conn := w.service.connection()
						conn.Pack = &keep.Pack{Name: "svc", Version: "1", Hash: "sha256:00"}
						conn.Tools[0] = drafting{conn.Tools[0].(asker), d}
						return []connector.Connection{conn}
					}
					w.deploy()
					w.publish("in", "a")
					if w.dieAt = p; p != "" {
						_ = w.runFor(60e9)
						w.dieAt = ""
					}
					w.run()
					total := 0
					for _, n := range d.sent {
						total += n
					}
					list, _, err := w.store.Mutations(t.Context(), keep.MutationFilter{}, keep.Page{})
					if err != nil || len(list) != 1 {
						t.Fatalf("%d records, %v", len(list), err)
					}
					m := list[0]
					if total != 1 || w.lastRun().Status != keep.StatusCommitted || m.State != keep.Applied || d.sent[m.SentAs().Claim] != 1 {
						t.Errorf("sent %v, run %s, record %s of %q", d.sent, w.lastRun().Status, m.State, m.SentAs().Claim)
					}
					if p == "" && d.made != c.drafts {
						t.Errorf("%d drafts, want %d", d.made, c.drafts)
					}
					if m.SentAs().Pack == nil || m.SentAs().Pack.Name != "svc" {
						t.Errorf("the record says pack %v", m.SentAs().Pack)
					}
				})
			})
		}
	}
}

// Law: once. A draft is used up once whoever made it: after an upgrade, and after credentials were replaced by
// others of the same user, too. Another user has no such draft, and gets one that a person agreed to.
func TestClaimOfTheSameUser(t *testing.T) {
	for name, c := range map[string]struct {
		changes   bool        // the secret does, after the doubt
		older     bool        // the record does not say whose credentials it had
		answer    keep.Action // whether they are of the same user; empty: it is not asked
		approve   bool        // what then would be sent
		made, out int
	}{
		"of the same credentials":    {made: 1, out: 1},
		"of a version before":        {changes: true, older: true, made: 1, out: 1},
		"of the same user":           {changes: true, answer: keep.Approve, made: 1, out: 1},
		"of another user":            {changes: true, answer: keep.Reject, made: 1, out: 1},
		"of another user, once more": {changes: true, answer: keep.Reject, approve: true, made: 2, out: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, secret := newWorld(t), "of ann"
				w.service.level = keep.LevelClaim
				d := &drafts{sent: map[string]int{}, onSend: func(n int) error { return map[bool]error{true: errReset}[n == 1] }, hidden: true}
				sendAs(w, &secret)
				connect := w.connect
				w.connect = func() []connector.Connection {
					conns := connect()
					conns[0].Tools[0] = drafting{conns[0].Tools[0].(asker), d}
					return conns
				}
				w.deploy()
				w.publish("in", "a")
				w.runUntil(time.Second)
				if m := w.mutation(); m.State != keep.NeedsReconcile {
					t.Fatalf("the record is %s", m.State)
				}
				if c.older {
					w.forgetSender()
				}
				if c.changes {
					secret = "of ann, or bob"
				}
				w.runUntil(time.Hour)
				if c.answer != "" {
					if err := w.decide(c.answer); err != nil {
						t.Fatal(err)
					}
					w.run()
				}
				if err := w.decide(keep.DidNotHappen); err != nil {
					t.Fatal(err)
				}
				if w.run(); c.approve {
					if err := w.decide(keep.Approve); err != nil {
						t.Fatal(err)
					}
					w.run()
				}
				out := 0
				for _, n := range d.sent {
					out += n
				}
				if d.made != c.made || out != c.out {
					t.Errorf("%d drafts were made, and sent %v; want %d and %d, questions %+v", d.made, d.sent, c.made, c.out, w.questions())
				}
			})
		})
	}
}

// forgetSender makes the only record one of a version that did not say whose credentials were used.
func (w *world) forgetSender() {
	w.t.Helper()
	m := w.mutation()
	p := m.SentAs()
	p.As = nil
	pin, err := json.Marshal(p)
	if err != nil {
		w.t.Fatal(err)
	}
	m.Pin = pin
	if err := w.store.Commit(w.t.Context(), keep.Commit{Workflow: m.Workflow, At: time.Now(), Changes: []keep.Change{keep.PutMutation{Mutation: m}}}); err != nil {
		w.t.Fatal(err)
	}
}
