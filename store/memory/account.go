package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
)

// Accounts returns all of a kind, or those of the names; see store.Accounts.
func (s *Store) Accounts(ctx context.Context, kind keep.AccountKind, names ...string) ([]keep.Account, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []keep.Account
	for key, a := range s.accounts {
		if key.kind == kind && (len(names) == 0 || slices.Contains(names, key.name)) {
			list = append(list, a.Clone())
		}
	}
	slices.SortFunc(list, func(a, b keep.Account) int { return strings.Compare(a.Name, b.Name) })
	return list, context.Cause(ctx)
}

// PutAccounts writes all of the accounts, or none; see store.Accounts.
func (s *Store) PutAccounts(ctx context.Context, as []keep.Account, acts ...keep.Decided) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range as {
		twice := slices.ContainsFunc(as[:i], func(b keep.Account) bool { return b.Kind == a.Kind && b.Name == a.Name })
		switch old := s.accounts[accountKey{a.Kind, a.Name}]; {
		case a.Name == "" || !slices.Contains(keep.AccountKinds(), a.Kind) || !slices.Contains(keep.AccountStatuses(), a.Status) || a.Generation < 1:
			return fmt.Errorf("account %q: kind %q, status %q, generation %d", a.Name, a.Kind, a.Status, a.Generation)
		case (a.Status == keep.AccountRevoked) != (len(a.Sealed) == 0):
			return errors.New("account " + a.Name + ": what is sealed does not fit its status")
		case old.Rev != a.Rev, twice:
			return fmt.Errorf("account %s: %w", a.Name, keep.ErrStale)
		}
	}
	if err := validActs(acts); err != nil {
		return err
	}
	s.record(acts)
	for _, a := range as {
		key := accountKey{a.Kind, a.Name}
		a = copyAccount(a)
		if old, there := s.accounts[key]; there {
			a.LastUsedAt = old.LastUsedAt
		}
		a.Rev++
		s.accounts[key] = a
	}
	return nil
}

// LeaseAccount gives a host the right to refresh; see store.Accounts.
func (s *Store) LeaseAccount(ctx context.Context, kind keep.AccountKind, name, host string, now time.Time, ttl time.Duration) (keep.Account, bool, error) {
	if err := context.Cause(ctx); err != nil {
		return keep.Account{}, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := accountKey{kind, name}
	a, there := s.accounts[key]
	switch {
	case !there:
		return a, false, &keep.NotFoundError{What: "account", ID: name}
	case a.LeaseHost != "" && a.LeaseHost != host && a.LeaseUntil.After(now):
		return a.Clone(), false, nil
	}
	a.LeaseHost, a.LeaseUntil, a.Rev = host, clean(now.Add(ttl)), a.Rev+1
	s.accounts[key] = a
	return a.Clone(), true, nil
}

// UseAccount sets when an account was used last.
func (s *Store) UseAccount(ctx context.Context, kind keep.AccountKind, name string, at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := accountKey{kind, name}
	if a, ok := s.accounts[key]; ok {
		a.LastUsedAt = clean(at)
		s.accounts[key] = a
	}
	return context.Cause(ctx)
}

// DropAccount deletes an account.
func (s *Store) DropAccount(ctx context.Context, kind keep.AccountKind, name string, rev int64, acts ...keep.Decided) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := accountKey{kind, name}
	switch a, ok := s.accounts[key]; {
	case !ok:
		return &keep.NotFoundError{What: "account", ID: name}
	case rev != 0 && a.Rev != rev:
		return keep.ErrStale
	}
	if err := validActs(acts); err != nil {
		return err
	}
	s.record(acts)
	delete(s.accounts, key)
	return nil
}

// copyAccount returns a as stores keep it.
func copyAccount(a keep.Account) keep.Account {
	a = a.Clone()
	a.ExpiresAt, a.LeaseUntil, a.Lifetime = clean(a.ExpiresAt), clean(a.LeaseUntil), a.Lifetime.Truncate(time.Millisecond)
	a.ConnectedAt, a.LastRefreshAt, a.LastUsedAt = clean(a.ConnectedAt), clean(a.LastRefreshAt), clean(a.LastUsedAt)
	for i, r := range a.Refreshes {
		a.Refreshes[i].SentAt, a.Refreshes[i].EndedAt = clean(r.SentAt), clean(r.EndedAt)
	}
	return a
}
