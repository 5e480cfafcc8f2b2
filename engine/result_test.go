package engine_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
)

// A resulting tool says by which tool its result is read.
type resulting struct{ placed }

func (r resulting) Spec() connector.Spec {
	s := r.placed.Spec()
	s.ResultFrom = "get"
	return s
}

// A said store has one answer to every question about a user, and none if it is empty.
type said struct {
	database
	answer keep.Escalation
}

func (s said) Escalation(ctx context.Context, id keep.EscalationID) (keep.Escalation, error) {
	if s.answer.ID != "" {
		return s.answer, nil
	}
	return s.database.Escalation(ctx, id)
}

// What a person says happened has its result read where it was sent, and as the same user: what has its identity elsewhere may be
// something else, and so the answer must say it. Law bound-to-its-world.
func TestResultIsNotReadElsewhere(t *testing.T) {
	for _, how := range []string{"there", "elsewhere", "as another user", "with other credentials", "with another secret of the same user"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, old, now, configure := newMovedWorld(t, keep.LevelWitness, false)
				conns, secret := w.connect, "of ann"
				w.connect = func() []connector.Connection {
					c := conns()
					c[0].Tools[0] = resulting{c[0].Tools[0].(placed)}
					c[0].Sender = func(_ context.Context, mac func(string) string) (map[string]string, error) {
						return map[string]string{keep.SecretRef("bank"): mac(secret)}, nil
					}
					return c
				}
				old.loseTheAnswer()
				reads := 0
				read := func() error { reads++; return nil }
				old.onRead, now.onRead = read, read
				w.deploy()
				w.publish("in", "a")
				w.runUntil(time.Second)
				if how == "elsewhere" {
					configure("new")
				}
				w.run() // a person is asked
				qs := w.questions()
				if len(qs) != 1 {
					t.Fatalf("questions %+v, want one", qs)
				}
				m := w.mutation()
				if how == "as another user" {
					m.Error = &keep.Failure{Class: keep.ClassUnknown, Code: keep.CodeAnotherUser}
				}
				users := said{w.store, keep.Escalation{}}
				switch secret = "of bob"; how {
				case "with other credentials":
				case "with another secret of the same user":
					users.answer = keep.Escalation{ID: "esc_user", ClosedAt: time.Now(), Decision: &keep.Decision{Action: keep.Approve}}
				default:
					secret = "of ann"
				}
				want := how == "there" || users.answer.ID != ""
				result, known, err := engine.NewResults(w.tools, users, nil).ReadResult(t.Context(), m)
				if err != nil || known != want || (reads == 1) != want || string(result) != map[bool]string{true: `{"read":true}`}[want] {
					t.Errorf("it reads %s, known %t, %v, after %d reads", result, known, err, reads)
				}
				need := keep.ResultOptional
				for _, c := range qs[0].Choices {
					if c.Action == keep.Happened {
						need = c.Result
					}
				}
				if (need == keep.ResultRequired) != (how == "elsewhere") {
					t.Errorf("the answer that it happened needs a result: %q", need)
				}
				if err := w.operator().Decide(t.Context(), qs[0].ID, keep.Decision{Action: keep.Happened, By: "ann", From: "test", Result: json.RawMessage(`{"id":7}`)}); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
