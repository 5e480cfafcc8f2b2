package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/keep-run/keep"
	law "github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/store"
)

// SettleAccounts makes questions and runs fit the accounts that there are: it asks about
// each account that needs a person, once, closes the questions about what was connected
// since, and lets the runs continue that waited for it. It does what is left to do, so that
// any host may do it at any time, and several may at once. What read returns are all accounts that there
// are. It is called after the questions were read: what was asked about is there as it was then, or later.
func (o *Operator) SettleAccounts(ctx context.Context, read func(context.Context) ([]keep.Account, error)) error {
	asked, err := o.askedReconnect(ctx)
	if err != nil {
		return err
	}
	byName, err := accountsByName(ctx, read)
	if err != nil {
		return err
	}
	now := o.now()
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		a := byName[name]
		if !law.NeedsPerson(a, now) {
			continue
		}
		if err := o.askReconnect(ctx, a); err != nil {
			return err
		}
	}
	return errors.Join(o.closeReconnected(ctx, asked, byName), o.continueRuns(ctx, byName, read), o.continueLookups(ctx, byName, read))
}

// accountsByName returns the accounts that read returns, by name.
func accountsByName(ctx context.Context, read func(context.Context) ([]keep.Account, error)) (map[string]keep.Account, error) {
	list, err := read(ctx)
	accounts := make(map[string]keep.Account, len(list))
	for _, a := range list {
		accounts[a.Name] = a
	}
	return accounts, err
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

// askedReconnect returns the open questions about accounts.
func (o *Operator) askedReconnect(ctx context.Context) (ids []keep.EscalationID, err error) {
	counts, err := o.store.CountEscalations(ctx, keep.EscalationFilter{Open: true})
	if err != nil || counts[keep.AskReconnect] == 0 {
		return nil, err
	}
	for q, err := range store.All(ctx, o.store.Escalations, keep.EscalationFilter{Open: true}, keep.Page{Limit: 500}) {
		if err != nil {
			return nil, err
		}
		if q.Kind == keep.AskReconnect {
			ids = append(ids, q.ID)
		}
	}
	return ids, nil
}

// closeReconnected closes the questions about what the accounts do not hold any more: something else was connected or
// renewed in its place, or they are gone.
func (o *Operator) closeReconnected(ctx context.Context, asked []keep.EscalationID, accounts map[string]keep.Account) error {
	for _, id := range asked {
		if a, is := accounts[law.Asked(id)]; is && id == law.QuestionID(a) {
			continue
		}
		err := o.commit(ctx, "", 0, o.now(), keep.CloseEscalation{ID: id})
		if err != nil && !errors.Is(err, keep.ErrDecided) { // another host closed it
			return fmt.Errorf("close question %s: %w", id, err)
		}
	}
	return nil
}

// continueRuns plans the next attempt of each run that waits for an account, or for secrets
// of the configuration, which are others now. The accounts were read before the runs, and one of those may have failed since with what
// its account holds now: so they are read once more after a run that is about to continue.
func (o *Operator) continueRuns(ctx context.Context, accounts map[string]keep.Account, read func(context.Context) ([]keep.Account, error)) error {
	filter := keep.RunFilter{Status: keep.StatusPerson, Open: true}
	for r, err := range store.All(ctx, o.store.Runs, filter, keep.Page{Limit: 500, Bare: true}) {
		if err != nil {
			return err
		}
		if !o.reconnects(r, accounts) {
			continue
		}
		still := func(r keep.Run) (bool, error) {
			now, err := accountsByName(ctx, read)
			return err == nil && o.reconnects(r, now), err
		}
		if err := o.continueRun(ctx, r.ID, still); err != nil {
			return fmt.Errorf("continue run %s: %w", r.ID, err)
		}
	}
	return nil
}

// replaced reports whether secrets that were refused are others now. The host that has the
// workflow knows: another one may have other files.
func (o *Operator) replaced(w keep.WorkflowName, f *keep.Failure) bool {
	if f.Secrets == "" || o.cfg.Secrets == nil {
		return false
	}
	_, ours := o.cfg.Executor.Epoch(w)
	mark, known := o.cfg.Secrets(f.Tool)
	return ours && known && law.Replaced(f, mark)
}

// reconnects reports whether a run waits for nothing but an account, or for secrets, which are others now.
func (o *Operator) reconnects(r keep.Run, accounts map[string]keep.Account) bool {
	return r.RetryAt.IsZero() && r.Error != nil &&
		(law.Continues(r.Error, accounts[r.Error.Account]) || o.replaced(r.Workflow, r.Error))
}

// continueRun plans the next attempt of a run if it still waits for what there is now. That somebody else did, or that it waits for
// something else, is no error.
func (o *Operator) continueRun(ctx context.Context, id keep.RunID, still func(keep.Run) (bool, error)) error {
	r, err := o.store.Run(ctx, id) // whole: it is written
	if err != nil || r.Closed || r.Status != keep.StatusPerson || !r.RetryAt.IsZero() {
		return err
	}
	if ok, err := still(r); err != nil || !ok {
		return err
	}
	now := o.now()
	err = o.decided(ctx, r.Workflow, now, keep.PutRun{Run: lifecycle.Reconnected(r, now)})
	if errors.Is(err, keep.ErrStale) {
		return nil
	}
	return err
}

// continueLookups has the services asked at once about those calls in doubt about which they
// could not be asked, or refused to be, under an account which is another one now. As of runs, the accounts are read once more.
func (o *Operator) continueLookups(ctx context.Context, accounts map[string]keep.Account, read func(context.Context) ([]keep.Account, error)) error {
	another := func(m keep.Mutation, accounts map[string]keep.Account) bool {
		return law.Continues(m.Error, accounts[m.Error.Account]) || o.replaced(m.Workflow, m.Error)
	}
	still := func(m keep.Mutation) (bool, error) {
		now, err := accountsByName(ctx, read)
		return err == nil && another(m, now), err
	}
	for _, state := range lifecycle.Doubts() {
		for m, err := range store.All(ctx, o.store.Mutations, keep.MutationFilter{State: state}, keep.Page{Limit: 500}) {
			if err != nil {
				return err
			}
			if !ledger.Refused(m.Error) || !another(m, accounts) {
				continue
			}
			if err := o.continueLookup(ctx, m.Key, still); err != nil {
				return fmt.Errorf("ask about %s: %w", m.Key, err)
			}
		}
	}
	return nil
}

// decideUser records whether an account or a secret is of the same user as when calls in doubt were
// sent, and has these asked about at once.
func (o *Operator) decideUser(ctx context.Context, q keep.Escalation, d keep.Decision) error {
	d.At = o.now()
	if err := o.commit(ctx, "", 0, d.At, keep.CloseEscalation{ID: q.ID, Decision: &d}); err != nil {
		return err
	}
	for m, err := range store.All(ctx, o.store.Mutations, keep.MutationFilter{State: keep.NeedsReconcile}, keep.Page{Limit: 500}) {
		if err != nil {
			return err
		}
		if !ledger.AsksForUser(m.Error) {
			continue
		}
		if err := o.continueLookup(ctx, m.Key, func(keep.Mutation) (bool, error) { return true, nil }); err != nil {
			return fmt.Errorf("ask about %s: %w", m.Key, err)
		}
	}
	return nil
}

// SettleUsers withdraws the questions whether an account or a secret is of the same user for whose answer no call in doubt
// waits any more. Any host may do it at any time: a call that begins to wait meanwhile finds at its next lookup that the
// question was withdrawn, and asks anew.
func (o *Operator) SettleUsers(ctx context.Context) error {
	var asked []keep.Escalation
	counts, err := o.store.CountEscalations(ctx, keep.EscalationFilter{Open: true})
	if err != nil || counts[keep.AskPermission] == 0 {
		return err
	}
	for q, err := range store.All(ctx, o.store.Escalations, keep.EscalationFilter{Open: true}, keep.Page{Limit: 500}) {
		if err != nil {
			return err
		}
		if law.IsUserQuestion(q) {
			asked = append(asked, q)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	for m, err := range store.All(ctx, o.store.Mutations, keep.MutationFilter{State: keep.NeedsReconcile}, keep.Page{Limit: 500}) {
		if err != nil {
			return err
		}
		asked = slices.DeleteFunc(asked, func(q keep.Escalation) bool { return law.Awaits(m, q) })
	}
	for _, q := range asked {
		err := o.commit(ctx, "", 0, o.now(), keep.CloseEscalation{ID: q.ID})
		if err != nil && !errors.Is(err, keep.ErrDecided) { // answered, or another host withdrew it
			return fmt.Errorf("withdraw question %s: %w", q.ID, err)
		}
	}
	return nil
}

// continueLookup plans a lookup for now if the call still waits for what there is now. That somebody else did is no error.
func (o *Operator) continueLookup(ctx context.Context, key keep.MutationKey, still func(keep.Mutation) (bool, error)) error {
	now := o.now()
	m, err := o.store.Mutation(ctx, key) // whole: it is written
	if err != nil || !ledger.Refused(m.Error) {
		return err
	}
	if ok, err := still(m); err != nil || !ok {
		return err
	}
	var changes []keep.Change
	switch {
	case m.State == keep.NeedsReconcile:
		sooner, is := ledger.AskSooner(m, now)
		if !is {
			return nil
		}
		changes = append(changes, keep.PutMutation{Mutation: sooner})
	case m.State == keep.Indeterminate && m.CanReconcile:
		after, move, err := ledger.Apply(m, ledger.Fact{Evidence: ledger.CheckAgain, By: "account", Detail: "the credential is another one now"}, now)
		if err != nil {
			return err
		}
		changes = append(changes, keep.PutMutation{Mutation: after, Moves: []keep.Move{move}})
		asked, _, err := o.store.Escalations(ctx, keep.EscalationFilter{Workflow: m.Workflow, Run: m.Run, Open: true}, keep.Page{})
		if err != nil {
			return err
		}
		for _, q := range asked {
			if q.Mutation == m.Key && q.AboutDoubt() {
				changes = append(changes, keep.CloseEscalation{ID: q.ID})
			}
		}
	default:
		return nil
	}
	err = o.decided(ctx, m.Workflow, now, changes...)
	if errors.Is(err, keep.ErrStale) || errors.Is(err, keep.ErrDecided) {
		return nil
	}
	return err
}
