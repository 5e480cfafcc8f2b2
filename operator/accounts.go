package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/keep-run/keep"
	law "github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/law/lifecycle"
)

// SettleAccounts makes questions and runs fit the accounts that there are: it asks about
// each account that needs a person, once, closes the questions about what was connected
// since, and lets the runs continue that waited for it. It does what is left to do, so that
// any host may do it at any time, and several may at once. The accounts are all that there
// are, as they are now.
func (o *Operator) SettleAccounts(ctx context.Context, accounts []keep.Account) error {
	now := o.now()
	known := make(map[keep.EscalationID]bool, len(accounts))
	byName := make(map[string]keep.Account, len(accounts))
	for _, a := range accounts {
		known[law.QuestionID(a)], byName[a.Name] = true, a
		if !law.NeedsPerson(a, now) {
			continue
		}
		if err := o.askReconnect(ctx, a); err != nil {
			return err
		}
	}
	return errors.Join(o.closeReconnected(ctx, known), o.continueRuns(ctx, byName))
}

// askReconnect asks about an account, if that was not done before.
func (o *Operator) askReconnect(ctx context.Context, a keep.Account) error {
	now := o.now()
	switch _, err := o.store.Escalation(ctx, law.QuestionID(a)); {
	case err == nil:
		return nil
	case !isNotFound(err):
		return fmt.Errorf("ask about account %s: %w", a.Name, err)
	}
	err := o.commit(ctx, "", 0, now, keep.OpenEscalation{Escalation: law.Question(a, now)})
	if err != nil && !errors.Is(err, keep.ErrStale) { // another host asked
		return fmt.Errorf("ask about account %s: %w", a.Name, err)
	}
	return nil
}

// closeReconnected closes the questions about accounts that are not among the known ones:
// something else was connected in their place, or they are gone.
func (o *Operator) closeReconnected(ctx context.Context, known map[keep.EscalationID]bool) error {
	counts, err := o.store.CountEscalations(ctx, keep.EscalationFilter{Open: true})
	if err != nil || counts[keep.AskReconnect] == 0 {
		return err
	}
	for p := (keep.Page{Limit: 500}); ; {
		list, next, err := o.store.Escalations(ctx, keep.EscalationFilter{Open: true}, p)
		if err != nil {
			return err
		}
		for _, q := range list {
			if q.Kind != keep.AskReconnect || known[q.ID] {
				continue
			}
			err := o.commit(ctx, "", 0, o.now(), keep.CloseEscalation{ID: q.ID})
			if err != nil && !errors.Is(err, keep.ErrDecided) { // another host closed it
				return fmt.Errorf("close question %s: %w", q.ID, err)
			}
		}
		if p.After = next; next == "" {
			return nil
		}
	}
}

// continueRuns plans the next attempt of each run that waits for an account which is
// another one now.
func (o *Operator) continueRuns(ctx context.Context, accounts map[string]keep.Account) error {
	filter := keep.RunFilter{Status: keep.StatusPerson, Open: true}
	for p := (keep.Page{Limit: 500, Bare: true}); ; {
		list, next, err := o.store.Runs(ctx, filter, p)
		if err != nil {
			return err
		}
		for _, r := range list {
			if !r.RetryAt.IsZero() || r.Error == nil || !law.Continues(r.Error, accounts[r.Error.Account]) {
				continue
			}
			if err := o.continueRun(ctx, r.ID); err != nil {
				return fmt.Errorf("continue run %s: %w", r.ID, err)
			}
		}
		if p.After = next; next == "" {
			return nil
		}
	}
}

// continueRun plans the next attempt of a run. That somebody else did is no error.
func (o *Operator) continueRun(ctx context.Context, id keep.RunID) error {
	r, err := o.store.Run(ctx, id) // whole: it is written
	if err != nil || r.Closed || r.Status != keep.StatusPerson || !r.RetryAt.IsZero() {
		return err
	}
	now := o.now()
	err = o.decided(ctx, r.Workflow, now, keep.PutRun{Run: lifecycle.Reconnected(r, now)})
	if errors.Is(err, keep.ErrStale) {
		return nil
	}
	return err
}
