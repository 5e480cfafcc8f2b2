package account

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/account/seal"
)

// Secrets returns the secrets that people set, without their values.
func (m *Manager) Secrets(ctx context.Context) ([]keep.Account, error) {
	return m.cfg.Store.Accounts(ctx, keep.AccountSecret)
}

// SetSecret stores a secret, in the place of the one of that name.
func (m *Manager) SetSecret(ctx context.Context, name, value, by string) (keep.Account, error) {
	return m.Connect(ctx, keep.Account{Kind: keep.AccountSecret, Name: name, Style: "secret", ConnectedBy: by}, seal.Content{Value: value})
}

// SetSecretOver is SetSecret in the place of what a person set at a time, zero: of nothing, else keep.ErrStale.
func (m *Manager) SetSecretOver(ctx context.Context, name, value, by string, at time.Time) (keep.Account, error) {
	fresh := keep.Account{Kind: keep.AccountSecret, Name: name, Style: "secret", ConnectedBy: by}
	return m.connect(ctx, fresh, seal.Content{Value: value}, func(old keep.Account) error { return wasSetAt(old, name, at) })
}

// wasSetAt refuses a secret that is not the one which was set at a time; zero: there was none.
func wasSetAt(old keep.Account, name string, at time.Time) error {
	switch {
	case old.ConnectedAt.Equal(at):
		return nil
	case old.Name == "":
		return fmt.Errorf("the secret %s was removed since: %w", name, keep.ErrStale)
	}
	return fmt.Errorf("%s set the secret %s since: %w", old.ConnectedBy, name, keep.ErrStale)
}

// RemoveSecret deletes a secret.
func (m *Manager) RemoveSecret(ctx context.Context, name string) error {
	return m.cfg.Store.DropAccount(ctx, keep.AccountSecret, name, 0, m.act(ctx, keep.Account{Kind: keep.AccountSecret, Name: name}, keep.Remove, ""))
}

// RemoveSecretOf is RemoveSecret of what a person set at a time; of another one the error is keep.ErrStale.
func (m *Manager) RemoveSecretOf(ctx context.Context, name string, at time.Time) error {
	for {
		a, err := m.row(ctx, keep.AccountSecret, name)
		if err == nil {
			err = wasSetAt(a, name, at)
		}
		if err != nil {
			return err
		}
		if err := m.cfg.Store.DropAccount(ctx, keep.AccountSecret, name, a.Rev, m.act(ctx, a, keep.Remove, "")); !errors.Is(err, keep.ErrStale) {
			return err
		}
	}
}

// Secret returns the value of a secret; a *keep.NotFoundError if there is none.
func (m *Manager) Secret(ctx context.Context, name string) (string, error) {
	a, err := m.row(ctx, keep.AccountSecret, name)
	if err != nil {
		return "", err
	}
	o, err := m.open(a)
	if m.resealed(ctx, a, err) {
		return m.Secret(ctx, name)
	}
	if err != nil {
		return "", fmt.Errorf("the secret %s %s", name, keyProblem(err))
	}
	return o.content.Value, nil
}

// Rekey seals everything with a new key. If it is killed, the keys that are there then
// open everything, and another Rekey finishes it. With discard what no key opens is
// deleted, so that a lost key can be replaced. Several processes may do it at the same time.
func (m *Manager) Rekey(ctx context.Context, discard bool) (rows int, err error) {
	next, err := m.cfg.Ring.Next()
	if err != nil {
		return 0, err
	}
	m.at(NewKeyWritten)
	var before []seal.Key // with which this process sealed rows
	for {
		keys, err := m.cfg.Ring.Keys()
		if err != nil {
			return 0, err
		}
		if !slices.ContainsFunc(keys, next.Is) {
			// Another process replaced it since. What is sealed with it now, nobody else could open.
			before, next = append(before, next), keys[0]
		}
		changed, n, err := m.reseal(ctx, next, before, discard)
		if errors.Is(err, keep.ErrStale) {
			continue // somebody connected or renewed meanwhile
		}
		if err != nil {
			return 0, err
		}
		m.at(Resealed)
		if changed {
			continue
		}
		if err := m.cfg.Ring.Replace(next, m.now()); !errors.Is(err, seal.ErrReplaced) {
			return n, err
		}
	}
}

// reseal seals with a key, in one transaction, what is not sealed with it. It reports
// whether there was anything. The keys before open rows that those of the ring do not.
func (m *Manager) reseal(ctx context.Context, next seal.Key, before []seal.Key, discard bool) (changed bool, rows int, err error) {
	var put []keep.Account
	for _, kind := range keep.AccountKinds() {
		list, err := m.cfg.Store.Accounts(ctx, kind)
		if err != nil {
			return false, 0, err
		}
		for _, a := range list {
			if a.Sealed == nil {
				continue
			}
			rows++
			if _, err := next.Open(a.Kind, a.Name, a.Sealed); err == nil {
				continue
			}
			c, err := m.cfg.Ring.Open(a)
			for i := 0; errors.Is(err, seal.ErrOtherKey) && i < len(before); i++ {
				c, err = before[i].Open(a.Kind, a.Name, a.Sealed)
			}
			switch {
			case err == nil:
			case m.resealed(ctx, a, err):
				return false, 0, keep.ErrStale
			case discard && errors.Is(err, seal.ErrOtherKey):
				err := m.cfg.Store.DropAccount(ctx, a.Kind, a.Name, a.Rev, m.act(ctx, a, keep.Remove, "its key is lost"))
				if err != nil && !errors.Is(err, keep.ErrNotFound) {
					return false, 0, err
				}
				rows--
				continue
			default:
				return false, 0, fmt.Errorf("the %s %s %w; nothing was changed", a.Kind, a.Name, err)
			}
			if a.Sealed, err = next.Seal(a.Kind, a.Name, c); err != nil {
				return false, 0, err
			}
			put = append(put, a)
		}
	}
	if len(put) == 0 {
		return false, rows, nil
	}
	return true, rows, m.cfg.Store.PutAccounts(ctx, put)
}

// A Point is a place between two durable steps.
type Point string

// The places at which tests kill a process.
const (
	NewKeyWritten Point = "new key written"
	Resealed      Point = "resealed"
	Recorded      Point = "refresh recorded" // and not sent
	Answered      Point = "refresh answered" // and the answer not recorded
	MoveRecorded  Point = "move recorded"    // and nothing stored
	MoveStored    Point = "move stored"      // and not forgotten here
)

// at calls Trace.
func (m *Manager) at(p Point) {
	if m.cfg.Trace != nil {
		m.cfg.Trace(p)
	}
}
