package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// AddCredential stores a new credential; see store.Access.
func (s *Store) AddCredential(ctx context.Context, c keep.Credential, acts ...keep.Decided) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, exists := s.credentials[c.ID]; exists {
		return fmt.Errorf("credential %s: %w", c.ID, keep.ErrStale)
	}
	if c.ID == "" || len(c.Hash) != 32 || !slices.Contains(keep.CredentialKinds(), c.Kind) {
		return fmt.Errorf("credential %q: kind %q, hash of %d bytes", c.ID, c.Kind, len(c.Hash))
	}
	if _, exists := s.credentials[c.Parent]; !exists && c.Parent != "" {
		return &keep.NotFoundError{What: "credential", ID: c.Parent}
	}
	if err := validActs(acts); err != nil {
		return err
	}
	s.record(acts)
	s.rows++
	s.credentials[c.ID] = row[keep.Credential]{s.rows, copyCredential(c)}
	return nil
}

// Credential returns the credential of an id, or *keep.NotFoundError.
func (s *Store) Credential(ctx context.Context, id string) (keep.Credential, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c, ok := s.credentials[id]
	if !ok {
		return keep.Credential{}, &keep.NotFoundError{What: "credential", ID: id}
	}
	return copyCredential(c.v), context.Cause(ctx)
}

// Credentials returns all of a kind, newest first.
func (s *Store) Credentials(ctx context.Context, kind keep.CredentialKind) ([]keep.Credential, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var found []row[keep.Credential]
	for _, c := range s.credentials {
		if c.v.Kind == kind {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b row[keep.Credential]) int { return cmp.Compare(b.n, a.n) })
	var list []keep.Credential
	for _, c := range found {
		list = append(list, copyCredential(c.v))
	}
	return list, context.Cause(ctx)
}

// UseCredential sets when a credential was used last.
func (s *Store) UseCredential(ctx context.Context, id string, at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.credentials[id]; ok {
		c.v.UsedAt = clean(at)
		s.credentials[id] = c
	}
	return context.Cause(ctx)
}

// DropCredential ends a credential and those that came from it.
func (s *Store) DropCredential(ctx context.Context, id string, acts ...keep.Decided) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.credentials[id]; !ok {
		return &keep.NotFoundError{What: "credential", ID: id}
	}
	if err := validActs(acts); err != nil {
		return err
	}
	s.record(acts)
	delete(s.credentials, id)
	for other, c := range s.credentials {
		if c.v.Parent == id && id != "" {
			delete(s.credentials, other)
		}
	}
	return nil
}

// SweepCredentials deletes what expired before now, and says how many.
func (s *Store) SweepCredentials(ctx context.Context, now time.Time) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, c := range s.credentials {
		if !c.v.ExpiresAt.IsZero() && c.v.ExpiresAt.Before(clean(now)) {
			delete(s.credentials, id)
			n++
		}
	}
	return n, context.Cause(ctx)
}

// copyCredential returns c as stores keep it.
func copyCredential(c keep.Credential) keep.Credential {
	c.Hash = slices.Clone(c.Hash)
	c.CreatedAt, c.ExpiresAt, c.UsedAt = clean(c.CreatedAt), clean(c.ExpiresAt), clean(c.UsedAt)
	return c
}
