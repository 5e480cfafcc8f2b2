package engine_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
)

// An approval that does not cover what would be sent sends nothing, and says why: in the
// answer to whoever approves too late, or in the question that is asked instead.
func TestApprovalIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name  string
		do    func(a *approvals) error // its error is the refusal; nil: the next question is
		words string
		sent  int
		asks  bool // a question is open afterwards
	}{
		{"a payload that changed by one byte", func(a *approvals) error {
			a.text = "pay 11"
			a.approve(a.first)
			a.w.run()
			return nil
		}, `what ann approved at 2000-01-01 00:00:00 UTC is not what would be sent now: text: "pay 10" → "pay 11"`, 0, true},
		{"used twice", func(a *approvals) error {
			a.approve(a.first)
			a.w.run()
			return a.decide(a.first, "bob")
		}, "already decided: ann decided approve at 2000-01-01 00:00:00 UTC, from the test", 1, false},
		{"used twice before the run continues", func(a *approvals) error {
			a.approve(a.first)
			err := a.decide(a.first, "bob")
			a.w.run()
			return err
		}, "already decided: ann decided approve", 1, false},
		{"by two people at once", func(a *approvals) error {
			var wg sync.WaitGroup
			errs := make([]error, 2)
			for i, by := range []string{"ann", "bob"} {
				person := a.w.engine()
				wg.Go(func() {
					errs[i] = person.Decide(a.w.t.Context(), a.first, keep.Decision{Action: keep.Approve, By: by, From: "test"})
				})
			}
			wg.Wait()
			a.w.run()
			if errs[0] != nil && errs[1] != nil {
				a.w.t.Errorf("both were refused: %v, %v", errs[0], errs[1])
			}
			return errors.Join(errs...)
		}, "already decided: ", 1, false},
		{"answered after its end", func(a *approvals) error {
			time.Sleep(time.Hour)
			return a.decide(a.first, "ann")
		}, "it ended at 2000-01-01 01:00:00 UTC, and nobody had answered", 0, true},
		{"answered after it was asked again", func(a *approvals) error {
			time.Sleep(time.Hour)
			a.w.run()
			return a.decide(a.first, "ann")
		}, "it ended at 2000-01-01 01:00:00 UTC, and nobody had answered", 0, true},
		{"used after its end", func(a *approvals) error {
			a.approve(a.first)
			time.Sleep(time.Hour) // no host was at work
			a.w.run()
			return nil
		}, "ann approved it at 2000-01-01 00:00:00 UTC, and that ended at 2000-01-01 01:00:00 UTC before it was used", 0, true},
		{"answered after a deploy", func(a *approvals) error {
			a.w.deploy()
			return a.decide(a.first, "ann")
		}, "it was asked for version 1.0 of workflow w, and version 2.0 is current", 0, false},
		{"used after a deploy", func(a *approvals) error {
			a.approve(a.first)
			a.w.deploy()
			a.w.run()
			return nil
		}, "ann approved it at 2000-01-01 00:00:00 UTC for version 1.0, and version 2.0 is current", 0, true},
		{"of another run", func(a *approvals) error {
			a.approve(a.first)
			a.w.run()
			a.w.publish("in", "b") // with the same params
			a.w.run()
			return nil
		}, "its connection asks for a person's approval before each call", 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newApprovals(t)
				err := tt.do(a)
				open := a.w.questions()
				switch {
				case err != nil:
					if !errors.Is(err, keep.ErrDecided) || !strings.Contains(err.Error(), tt.words) {
						t.Errorf("refused with %v, want %q", err, tt.words)
					}
				case len(open) != 1 || open[0].ID == a.first || !strings.Contains(open[0].Why, tt.words):
					t.Errorf("the questions are %+v, want a new one that says %q", open, tt.words)
				}
				if a.w.service.calls != tt.sent || (len(open) == 1) != tt.asks {
					t.Errorf("%d calls, %d questions; want %d, and that one is open: %t (law: once)", a.w.service.calls, len(open), tt.sent, tt.asks)
				}
				a.w.run()
				if a.w.service.calls != tt.sent {
					t.Errorf("%d calls in the end, want %d (law: once)", a.w.service.calls, tt.sent)
				}
				if qs := a.w.questions(); len(qs) > 1 {
					t.Errorf("%d questions are open", len(qs))
				}
			})
		})
	}
}

// approvals is a world with a call that waits for an approval.
type approvals struct {
	w     *world
	first keep.EscalationID
	text  string
}

func newApprovals(t *testing.T) *approvals {
	a := &approvals{w: newWorld(t), text: "pay 10"}
	a.w.service.approve = "always"
	a.w.policy.Approval.Expires = time.Hour
	a.w.script["consumers.act.mutate"] = func(c *call) any {
		c.do("svc.create", map[string]any{"id": "x", "text": a.text})
		return nil
	}
	a.w.deploy()
	a.w.publish("in", "a")
	a.w.run()
	a.first = a.w.questions()[0].ID
	return a
}

func (a *approvals) decide(id keep.EscalationID, by string) error {
	return a.w.engine().Decide(a.w.t.Context(), id, keep.Decision{Action: keep.Approve, By: by, From: "test"})
}

func (a *approvals) approve(id keep.EscalationID) {
	a.w.t.Helper()
	if err := a.decide(id, "ann"); err != nil {
		a.w.t.Fatal(err)
	}
}

// A question that nobody answers is asked again at its end, as often as that takes, while
// the run waits as before.
func TestApprovalIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newApprovals(t)
		seen := map[keep.EscalationID]bool{a.first: true}
		for range 3 {
			time.Sleep(time.Hour)
			a.w.run()
			qs := a.w.questions()
			if r := a.w.lastRun(); len(qs) != 1 || seen[qs[0].ID] || r.Status != keep.StatusApproval || !r.RetryAt.Equal(qs[0].ExpiresAt) ||
				a.w.event("in", "a").ReservedBy != r.Chain {
				t.Fatalf("questions %+v of run %s until %s; want a new one, and its run waiting until the end of it", qs, r.Status, r.RetryAt)
			}
			seen[qs[0].ID] = true
		}
		if err := a.w.decide(keep.Approve); err != nil {
			t.Fatal(err)
		}
		a.w.run()
		if r := a.w.lastRun(); r.Status != keep.StatusCommitted || a.w.service.total() != 1 {
			t.Errorf("run %s, %d effects; want committed and 1", r.Status, a.w.service.total())
		}
	})
}

// A deploy between the decision about an approved call and its record keeps the call from
// being recorded, and so from being sent.
func TestDeployAtTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newApprovals(t)
		a.approve(a.first)
		deployed := false
		a.w.onCommit = func(c keep.Commit, do func() error) error {
			for _, ch := range c.Changes {
				if _, records := ch.(keep.PutMutation); records && !deployed {
					deployed = true
					a.w.deploy()
				}
			}
			return do()
		}
		a.w.run()
		if qs := a.w.questions(); !deployed || a.w.service.calls != 0 || len(qs) != 1 || !strings.Contains(qs[0].Why, "version 2.0 is current") {
			t.Errorf("%d calls, questions %+v; want none, and a new question for version 2.0", a.w.service.calls, qs)
		}
	})
}
