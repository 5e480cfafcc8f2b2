package operator_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/keep-run/keep"
	law "github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

// An accountWorld is a store with runs that wait for accounts, and the hosts on it.
type accountWorld struct {
	*testing.T
	*memory.Store
}

// waits puts a run that waits for a generation of an account.
func (w *accountWorld) waits(name keep.WorkflowName, code, account string, generation int64) {
	w.Helper()
	f := keep.Failf(keep.ClassPermission, code, "no credential")
	f.Account, f.Generation = account, generation
	run := keep.Run{ID: "run_" + keep.RunID(name), Chain: "run_" + keep.RunID(name), Workflow: name, Handler: "p", Kind: keep.Producer, Phase: keep.Running,
		Status: keep.StatusPerson, Error: f, CreatedAt: noon, UpdatedAt: noon}
	changes := []keep.Change{keep.PutRun{Run: run}}
	if code != keep.CodeReconnect {
		changes = append(changes, keep.OpenEscalation{Escalation: keep.Escalation{ID: "esc_" + keep.EscalationID(name), Kind: keep.AskPermission, Workflow: name, Run: run.ID}})
	}
	if err := w.Commit(w.Context(), keep.Commit{Workflow: name, At: noon, Changes: changes}); err != nil {
		w.Fatal(err)
	}
}

// having returns what reads accounts.
func having(accounts ...keep.Account) func(context.Context) ([]keep.Account, error) {
	return func(context.Context) ([]keep.Account, error) { return accounts, nil }
}

// settleBy has a host settle the accounts that read returns.
func (w *accountWorld) settleBy(read func(context.Context) ([]keep.Account, error)) {
	w.Helper()
	if err := newOperator(w.T, w.Store).SettleAccounts(w.Context(), read); err != nil {
		w.Fatal(err)
	}
}

// settle has two hosts settle accounts, and returns the open questions about accounts and
// the runs that continue.
func (w *accountWorld) settle(accounts ...keep.Account) (questions []keep.Escalation, runs map[keep.WorkflowName]bool) {
	w.Helper()
	for range 2 {
		w.settleBy(having(accounts...))
	}
	all, _, err := w.Escalations(w.Context(), keep.EscalationFilter{Open: true}, keep.Page{})
	if err != nil {
		w.Fatal(err)
	}
	for _, q := range all {
		if q.Kind == keep.AskReconnect {
			questions = append(questions, q)
		}
	}
	open, _, err := w.Runs(w.Context(), keep.RunFilter{Open: true}, keep.Page{})
	if err != nil {
		w.Fatal(err)
	}
	runs = map[keep.WorkflowName]bool{}
	for _, r := range open {
		if !r.RetryAt.IsZero() {
			runs[r.Workflow] = true
		}
	}
	for err := range w.Check(w.Context()) {
		w.Error(err)
	}
	return questions, runs
}

func TestSettleAccounts(t *testing.T) {
	w := &accountWorld{t, memory.New()}
	w.waits("a", keep.CodeReconnect, "mail", 1)
	w.waits("b", keep.CodeReconnect, "mail", 1)
	w.waits("c", keep.CodeUnauthenticated, "shop", 4)
	w.waits("d", keep.CodeAccount, "new", 0)
	w.waits("e", keep.CodeForbidden, "", 0)
	lost := law.NeedsReconnect(keep.Account{Kind: keep.AccountConnected, Name: "mail", Pack: "gmail", Generation: 1}, "used up")
	shop := keep.Account{Kind: keep.AccountConnected, Name: "shop", Generation: 4, Status: keep.AccountOK}

	// One question for both runs, which wait.
	questions, runs := w.settle(lost, shop)
	if len(questions) != 1 || questions[0].ID != law.QuestionID(lost) || len(runs) != 0 {
		t.Errorf("asked %+v, and %v continue", questions, runs)
	}
	// What another host renewed, and what was connected: their runs continue, by themselves.
	shop.Generation++
	fresh := law.Connect(lost, keep.Account{Kind: keep.AccountConnected, Name: "mail", Pack: "gmail"}, noon)
	questions, runs = w.settle(fresh, shop, keep.Account{Kind: keep.AccountConnected, Name: "new", Generation: 1, Status: keep.AccountOK})
	if len(questions) != 0 || len(runs) != 4 || runs["e"] {
		t.Errorf("asked %+v, and %v continue", questions, runs)
	}
	// The next loss is another question; it ends when the account is gone.
	if questions, _ = w.settle(law.NeedsReconnect(fresh, "used up")); len(questions) != 1 {
		t.Errorf("asked %+v", questions)
	}
	if questions, _ = w.settle(); len(questions) != 0 {
		t.Errorf("about an account that is gone: %+v", questions)
	}
}

// readingLate is a store in which something happens before a run is read by its id.
type readingLate struct {
	*memory.Store
	before func()
}

func (s readingLate) Run(ctx context.Context, id keep.RunID) (keep.Run, error) {
	s.before()
	return s.Store.Run(ctx, id)
}

// A run that waited for an account, and waits for a person's answer by the time that a host comes to it, is not tried again: another
// host was faster.
func TestSettleAccountsLeavesWhatWaitsForSomethingElse(t *testing.T) {
	w := &accountWorld{t, memory.New()}
	w.waits("a", keep.CodeReconnect, "mail", 1)
	before := func() {
		r, err := w.Store.Run(t.Context(), "run_a")
		if err != nil {
			t.Fatal(err)
		}
		r.Error = keep.Failf(keep.ClassPrecondition, "already-done", "the same was done before")
		if err := w.Commit(t.Context(), keep.Commit{Workflow: "a", At: noon, Changes: []keep.Change{keep.PutRun{Run: r}}}); err != nil {
			t.Fatal(err)
		}
	}
	o := newOperator(t, readingLate{w.Store, before})
	if err := o.SettleAccounts(t.Context(), having(keep.Account{Kind: keep.AccountConnected, Name: "mail", Generation: 2, Status: keep.AccountOK})); err != nil {
		t.Fatal(err)
	}
	if r, err := w.Store.Run(t.Context(), "run_a"); err != nil || !r.RetryAt.IsZero() {
		t.Errorf("it is tried again at %s, %v", r.RetryAt, err)
	}
}

// A host that read the accounts before one of them was renewed or connected, and acts after, leaves the question alone that was
// asked about it since: nobody would ask it a second time.
func TestSettleOldAccounts(t *testing.T) {
	w := &accountWorld{t, memory.New()}
	before := keep.Account{Kind: keep.AccountConnected, Name: "my_mail", Pack: "gmail", Generation: 3, Status: keep.AccountOK, Renews: true, ConnectedAt: noon}
	renewed := before
	renewed.Generation++
	again := law.Connect(before, keep.Account{Kind: keep.AccountConnected, Name: "my_mail", Pack: "gmail"}, noon.Add(time.Hour))
	first := before
	first.Name = "shop"
	for name, lost := range map[string]keep.Account{
		"renewed": law.NeedsReconnect(renewed, "used up"), "connected": law.NeedsReconnect(again, "used up"), "connected for the first time": law.NeedsReconnect(first, "used up"),
	} {
		w.settleBy(func(ctx context.Context) ([]keep.Account, error) {
			if questions, _ := w.settle(lost); len(questions) != 1 || questions[0].ID != law.QuestionID(lost) { // another host, after this one read the accounts
				t.Errorf("%s: asked %+v", name, questions)
			}
			return []keep.Account{before}, nil
		})
		if questions, _ := w.settle(before, lost); len(questions) != 1 || questions[0].ID != law.QuestionID(lost) {
			t.Errorf("%s: a host that is late leaves %+v (law: nothing-lost)", name, questions)
		}
		lost.Generation++
		lost.Status = keep.AccountOK
		if questions, _ := w.settle(lost); len(questions) != 0 {
			t.Errorf("%s: when it works again %+v is open", name, questions)
		}
	}
	// One of that name that was made anew, after a key was lost, begins with the first generation.
	w.settle(law.NeedsReconnect(again, "used up"))
	anew := keep.Account{Kind: keep.AccountConnected, Name: "my_mail", Pack: "gmail", Generation: 1, Status: keep.AccountOK, ConnectedAt: noon.Add(2 * time.Hour)}
	if questions, _ := w.settle(anew); len(questions) != 0 {
		t.Errorf("about the account that was discarded %+v is open", questions)
	}
}

// A person who revokes an account gives the runs that wait for it up: each then asks what
// is to become of it.
func TestSettleRevokedAccount(t *testing.T) {
	w := &accountWorld{t, memory.New()}
	w.waits("a", keep.CodeReconnect, "mail", 1)
	lost := law.NeedsReconnect(keep.Account{Kind: keep.AccountConnected, Name: "mail", Generation: 1}, "used up")
	w.settle(lost)
	if questions, runs := w.settle(law.Revoke(lost)); len(questions) != 0 || !runs["a"] {
		t.Errorf("asked %+v, and %v continue", questions, runs)
	}
}

// A run that was refused with secrets of the configuration continues when they are others,
// where the host has them that has the workflow.
func TestSettleSecrets(t *testing.T) {
	for _, c := range []struct {
		mark string
		ours bool
		want bool
	}{{"first", true, false}, {"second", true, true}, {"second", false, false}} {
		w := &accountWorld{t, memory.New()}
		w.waits("a", keep.CodeUnauthenticated, "", 0)
		runs, _, err := w.Runs(w.Context(), keep.RunFilter{Open: true}, keep.Page{})
		if err != nil {
			t.Fatal(err)
		}
		r := runs[0]
		r.Error.Secrets, r.Error.Tool = "first", "crm.list"
		if err := w.Commit(w.Context(), keep.Commit{Workflow: "a", At: noon, Changes: []keep.Change{keep.PutRun{Run: r}}}); err != nil {
			t.Fatal(err)
		}
		o, err := operator.New(w.Store, operator.Config{Logger: slog.New(slog.DiscardHandler), Executor: executor(c.ours),
			Secrets: func(keep.ToolName) (string, bool) { return c.mark, true }})
		if err != nil {
			t.Fatal(err)
		}
		if err := o.SettleAccounts(w.Context(), having()); err != nil {
			t.Fatal(err)
		}
		if r, err = w.Store.Run(w.Context(), r.ID); err != nil || r.RetryAt.IsZero() == c.want {
			t.Errorf("%+v: the run is tried again at %s, %v", c, r.RetryAt, err)
		}
	}
}

// An executor has all workflows, or none.
type executor bool

func (executor) Wake(keep.WorkflowName)                  {}
func (executor) Executing(keep.WorkflowName) bool        { return false }
func (e executor) Epoch(keep.WorkflowName) (int64, bool) { return 0, bool(e) }
func (executor) ReloadLimits(context.Context)            {}

// A host that read the accounts before one of them was renewed, or connected for the first time, has no call made again that failed
// since, with what the account holds now.
func TestSettleWithOldAccountsTriesNothingAgain(t *testing.T) {
	w := &accountWorld{t, memory.New()}
	before := keep.Account{Kind: keep.AccountConnected, Name: "mail", Generation: 3, Status: keep.AccountOK}
	now := law.NeedsReconnect(before, "used up")
	now.Generation = 4
	first := law.NeedsReconnect(keep.Account{Kind: keep.AccountConnected, Name: "shop", Generation: 1}, "used up")
	w.waits("a", keep.CodeReconnect, "mail", now.Generation)
	w.waits("b", keep.CodeReconnect, "shop", first.Generation)
	f := keep.Failf(keep.ClassPermission, keep.CodeUnauthenticated, "no credential")
	f.Account, f.Generation = "mail", now.Generation
	due := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Millisecond)
	m := keep.Mutation{Key: "mut_1", Workflow: "a", Run: "run_a", Tool: "x.y", Level: keep.LevelWitness, Token: "token", Pin: []byte(`{}`), PinHash: "00",
		State: keep.NeedsReconcile, CanReconcile: true, Error: f, Doubted: true, Attempts: 1, NextReconcileAt: due, CallDeadline: noon, CreatedAt: noon, UpdatedAt: noon}
	moves := []keep.Move{{At: noon, By: "host", To: keep.InFlight, Evidence: "new-attempt"}, {At: noon, By: "call", From: keep.InFlight, To: keep.NeedsReconcile, Evidence: "unsure"}}
	if err := w.Commit(t.Context(), keep.Commit{Workflow: "a", At: noon, Changes: []keep.Change{keep.PutMutation{Mutation: m, Moves: moves}}}); err != nil {
		t.Fatal(err)
	}
	old := true
	w.settleBy(func(context.Context) ([]keep.Account, error) {
		if old {
			old = false
			return []keep.Account{before}, nil
		}
		return []keep.Account{now, first}, nil
	})
	if _, runs := w.settle(now, first); len(runs) != 0 {
		t.Errorf("%v are tried again with what they failed with", runs)
	}
	if m, err := w.Mutation(t.Context(), "mut_1"); err != nil || !m.NextReconcileAt.Equal(due) {
		t.Errorf("it is looked up at %s with what was refused, %v, want %s", m.NextReconcileAt, err, due)
	}
	now.Generation, now.Status = 5, keep.AccountOK
	if _, runs := w.settle(now, first); !runs["a"] || runs["b"] {
		t.Errorf("%v are tried again, want the one whose account was connected", runs)
	}
}
