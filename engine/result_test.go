package engine_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// A resulting tool says by which tool its result is read.
type resulting struct{ placed }

func (r resulting) Spec() connector.Spec {
	s := r.placed.Spec()
	s.ResultFrom = "get"
	return s
}

// What a person says happened has its result read where it was sent, and as the same user: what has its identity elsewhere may be
// something else, and so the answer must say it. Law bound-to-its-world.
func TestResultIsNotReadElsewhere(t *testing.T) {
	for _, how := range []string{"there", "elsewhere", "as another user"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, old, now, configure := newMovedWorld(t, keep.LevelWitness, false)
				conns := w.connect
				w.connect = func() []connector.Connection {
					c := conns()
					c[0].Tools[0] = resulting{c[0].Tools[0].(placed)}
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
				want := how == "there"
				result, known, err := w.tools.ReadResult(t.Context(), m)
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
