package account

import (
	"context"
	"errors"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host/account/seal"
)

// An account that is connected again may be another user's of the same service: what it finds, and what
// it does not, is then about that user. So each connecting is an owner of its own, which renewals keep, and
// records of calls name it. It is known to be the same one if the id tokens of both name one user, or if
// the very same key was given again; else a person is asked, by a call that needs to know.

// Owner says whose credentials an account holds; see connector.Accounts.
func (m *Manager) Owner(ctx context.Context, name string) (string, error) {
	a, err := m.row(ctx, keep.AccountConnected, name)
	if errors.Is(err, keep.ErrNotFound) || err == nil && a.Sealed == nil {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read account %s: %w", name, err)
	}
	o, err := m.open(a)
	if m.resealed(ctx, a, err) {
		return m.Owner(ctx, name)
	}
	if err != nil {
		return "", fmt.Errorf("the account %s %s", name, keyProblem(err))
	}
	return ownerOf(a, o.content), nil
}

// ownerOf returns the owner of an account. An older Keep wrote none; then the time tells one connecting
// from another.
func ownerOf(a keep.Account, c seal.Content) string {
	if c.Owner != "" {
		return c.Owner
	}
	return "connected " + a.ConnectedAt.UTC().Format(timeOfOwner)
}

const timeOfOwner = "2006-01-02 15:04:05.000 UTC"

// owned returns a content with its owner, which is that of old if both are known to be of one user.
func (m *Manager) owned(old, next keep.Account, c seal.Content) seal.Content {
	if c.Owner = ""; old.Sealed != nil {
		o, err := m.open(old)
		same := c.Identity != "" && c.Identity == o.content.Identity || c.Value != "" && c.Value == o.content.Value
		if err == nil && same && old.Pack == next.Pack {
			c.Owner = ownerOf(old, o.content)
			return c
		}
	}
	c.Owner = fmt.Sprintf("connected %s (no. %d)", next.ConnectedAt.UTC().Format(timeOfOwner), next.Generation)
	if next.Subject != "" {
		c.Owner = next.Subject + ", " + c.Owner
	}
	return c
}

// given returns a failure if a request that is for another owner would get the credential of an account:
// nothing is sent then.
func given(ctx context.Context, name, owner string) error {
	if connector.MayGive(ctx, name, owner) {
		return nil
	}
	return keep.Failf(keep.ClassTransient, "account-changed", "the account %s was connected again meanwhile; nothing was sent", name)
}
