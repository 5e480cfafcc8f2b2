// Package account keeps the accounts of services: sealed in the store, opened for each
// call, renewed by one host at a time. What may change is decided by law/account.
package account

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host/account/seal"
	"github.com/keep-run/keep/internal/redact"
	law "github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/store"
)

// Config says what a Manager works with. The zero value of every other field than Store
// and Ring works.
type Config struct {
	Store store.Accounts
	Ring  seal.Ring

	// Host names this process among those that may renew. Empty: nothing is renewed.
	Host string

	// Clients returns what asks the service of an account for new tokens. If nil, nothing
	// is renewed.
	Clients func(a keep.Account, content seal.Content) (Client, error)

	// By says who does something with an account, and where, for its record: "cli", "api" or "web". If nil,
	// it is in no record, but for who connects one.
	By func(ctx context.Context) (who, from string)

	// TTL is how long a host has the right to renew. If zero, DefaultTTL.
	TTL time.Duration

	// Clock is the clock of this machine. If nil, time.Now.
	Clock func() time.Time

	// Logger receives what a person should hear of. If nil, slog.Default().
	Logger *slog.Logger

	// Settle makes questions and runs fit the accounts that there are, which read returns:
	// it is called when one has changed, when a call was refused for one, and every now and
	// then. If nil, nobody is asked.
	Settle func(ctx context.Context, read func(context.Context) ([]keep.Account, error)) error

	// Trace is called between durable steps; tests die there. If nil, nothing is called.
	Trace func(p Point)
}

// DefaultTTL is the lease of an account if nobody says another one.
const DefaultTTL = 30 * time.Second

// A Manager keeps accounts. It is safe for concurrent use.
type Manager struct {
	cfg Config

	mu     sync.Mutex
	opened map[rowKey]opened // by row; protected by mu
	used   map[string]time.Time
	forced map[string]forced   // accounts that were renewed because of a 401
	flight map[string]*renewal // accounts that are being renewed here
}

type rowKey struct {
	kind keep.AccountKind
	name string
}

// An opened is the content of a row at a revision that only content changes.
type opened struct {
	sealed  string
	content seal.Content
	secrets []string // which must not show: its own, and the last ones of generations before
}

// New returns a Manager.
func New(cfg Config) *Manager {
	cfg.TTL = cmp.Or(cfg.TTL, DefaultTTL)
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return &Manager{cfg: cfg, opened: map[rowKey]opened{}, used: map[string]time.Time{}, forced: map[string]forced{}, flight: map[string]*renewal{}}
}

// now returns the time in UTC.
func (m *Manager) now() time.Time { return m.cfg.Clock().UTC() }

// row returns an account or a secret.
func (m *Manager) row(ctx context.Context, kind keep.AccountKind, name string) (keep.Account, error) {
	list, err := m.cfg.Store.Accounts(ctx, kind, name)
	if err == nil && len(list) == 0 {
		err = &keep.NotFoundError{What: string(kind), ID: name}
	}
	if err != nil {
		return keep.Account{}, err
	}
	return list[0], nil
}

// Accounts returns the connected accounts. One whose key is missing says so.
func (m *Manager) Accounts(ctx context.Context) ([]keep.Account, error) {
	list, err := m.cfg.Store.Accounts(ctx, keep.AccountConnected)
	if err != nil {
		return nil, err
	}
	for i, a := range list {
		if a.Status != keep.AccountOK {
			continue
		}
		if _, err := m.open(a); err != nil && !m.resealed(ctx, a, err) {
			list[i] = law.NeedsReconnect(a, keyProblem(err))
		}
	}
	return list, nil
}

// Account returns a connected account.
func (m *Manager) Account(ctx context.Context, name string) (keep.Account, error) {
	return m.row(ctx, keep.AccountConnected, name)
}

// keyProblem says what is wrong with the key, for the error of an account.
func keyProblem(err error) string {
	if errors.Is(err, seal.ErrNoKey) {
		return "cannot be opened: the key is missing (" + err.Error() + ")"
	}
	return err.Error()
}

// open opens what is sealed, once for each content.
func (m *Manager) open(a keep.Account) (opened, error) {
	key := rowKey{a.Kind, a.Name}
	m.mu.Lock()
	o, known := m.opened[key]
	m.mu.Unlock()
	if known && o.sealed == string(a.Sealed) {
		return o, nil
	}
	content, err := m.cfg.Ring.Open(a)
	if err != nil {
		return opened{}, err
	}
	next := opened{sealed: string(a.Sealed), content: content, secrets: redact.Recent(content.Secrets(), o.secrets)}
	m.mu.Lock()
	m.opened[key] = next
	m.mu.Unlock()
	return next, nil
}

// resealed reports whether err says only that a row was read before its key was replaced: the row is to be read again.
func (m *Manager) resealed(ctx context.Context, a keep.Account, err error) bool {
	if !errors.Is(err, seal.ErrOtherKey) {
		return false
	}
	now, err := m.row(ctx, a.Kind, a.Name)
	return errors.Is(err, keep.ErrNotFound) || err == nil && !bytes.Equal(now.Sealed, a.Sealed)
}

// Credential returns what an account holds now; see connector.Accounts.
func (m *Manager) Credential(ctx context.Context, name string) (connector.Credential, error) {
	a, err := m.row(ctx, keep.AccountConnected, name)
	switch {
	case errors.Is(err, keep.ErrNotFound):
		return connector.Credential{}, unusable(keep.Account{Name: name}, fmt.Sprintf("there is no account %s; connect it with: keep connect PACK --name %[1]s", name))
	case err != nil:
		return connector.Credential{}, keep.Failf(keep.ClassTransient, "account-unread", "the account %s could not be read: %v", name, err)
	}
	if a.Renews && !law.Stuck(a, m.now()) {
		if a, err = m.fresh(ctx, a); err != nil {
			return connector.Credential{}, err
		}
	}
	switch {
	case law.Stuck(a, m.now()):
		return connector.Credential{}, m.refusal(ctx, a, "ended at "+a.ExpiresAt.Format(time.RFC3339)+", and "+a.Error)
	case a.Status == keep.AccountRevoked:
		return connector.Credential{}, unusable(a, fmt.Sprintf("the account %s was revoked; connect it with: keep connect %s --name %[1]s", name, a.Pack))
	case a.Status != keep.AccountOK:
		return connector.Credential{}, m.refusal(ctx, a, "must be connected again: "+a.Error)
	case !law.Usable(a, m.now()):
		return connector.Credential{}, m.refusal(ctx, a, "ended at "+a.ExpiresAt.Format(time.RFC3339))
	}
	o, err := m.open(a)
	if m.resealed(ctx, a, err) {
		return m.Credential(ctx, name)
	}
	if err != nil {
		return connector.Credential{}, unusable(a, fmt.Sprintf("the account %s %s", name, keyProblem(err)))
	}
	if err := given(ctx, name, ownerOf(a, o.content)); err != nil {
		return connector.Credential{}, err
	}
	c := connector.Credential{Value: cmp.Or(o.content.Value, o.content.Access), OAuth: o.content.Access != "", Subject: a.Subject, Pack: a.Pack, Generation: a.Generation}
	c.Secrets = slices.Clone(o.secrets)
	if o.content.Client != nil {
		c.Resource = o.content.Client.Resource
	}
	return c, nil
}

// refusal is the failure of a call under an account that a person is asked to connect again.
// The question is on disk before the failure is returned: the run that fails asks none.
func (m *Manager) refusal(ctx context.Context, a keep.Account, why string) error {
	if m.cfg.Settle == nil || !law.NeedsPerson(a, m.now()) {
		return unusable(a, fmt.Sprintf("the account %s %s; connect it with: keep connect %s --name %[1]s", a.Name, why, a.Pack))
	}
	if err := m.Settle(context.WithoutCancel(ctx)); err != nil {
		return keep.Failf(keep.ClassTransient, "account-not-asked", "the account %s %s, and the question about it was not recorded: %v", a.Name, why, err)
	}
	f := unusable(a, fmt.Sprintf("the account %s %s; connect it with: keep connect %s --name %[1]s", a.Name, why, a.Pack))
	f.Code = keep.CodeReconnect
	return f
}

// unusable is the failure of a call under an account about which the run asks a person.
func unusable(a keep.Account, why string) *keep.Failure {
	f := keep.Failf(keep.ClassPermission, keep.CodeAccount, "%s", why)
	f.Account, f.Generation = a.Name, a.Generation
	return f
}

// Settle makes questions and runs fit the accounts that there are now.
func (m *Manager) Settle(ctx context.Context) error {
	if m.cfg.Settle == nil {
		return nil
	}
	return m.cfg.Settle(ctx, func(ctx context.Context) ([]keep.Account, error) {
		return m.cfg.Store.Accounts(ctx, keep.AccountConnected)
	})
}

// settle is Settle after a change, which stands whatever becomes of it: it is done again
// every now and then.
func (m *Manager) settle(ctx context.Context) {
	if err := m.Settle(context.WithoutCancel(ctx)); err != nil {
		m.cfg.Logger.WarnContext(ctx, "questions and runs do not fit the accounts yet; it is tried again", "err", err)
	}
}

// SettleNow is Settle after something else than an account changed, which stands.
func (m *Manager) SettleNow(ctx context.Context) { m.settle(ctx) }

// Accepted writes that a service accepted an account, once a minute at most: it is for
// people.
func (m *Manager) Accepted(ctx context.Context, name string) {
	now := m.now()
	m.mu.Lock()
	due := now.Sub(m.used[name]) >= time.Minute
	if due {
		m.used[name] = now
	}
	m.mu.Unlock()
	if !due {
		return
	}
	if err := m.cfg.Store.UseAccount(ctx, keep.AccountConnected, name, now); err != nil && ctx.Err() == nil {
		m.cfg.Logger.WarnContext(ctx, "the time at which an account was used was not written", "account", name, "err", err)
	}
}

// key returns the key that seals. It is made at first need: where nothing is sealed yet.
func (m *Manager) key(ctx context.Context) (seal.Key, error) {
	keys, err := m.cfg.Ring.Keys()
	if errors.Is(err, seal.ErrNoKey) {
		if err := m.nothingSealed(ctx); err != nil {
			return seal.Key{}, err
		}
		return m.cfg.Ring.Make()
	}
	if err != nil {
		return seal.Key{}, err
	}
	return keys[0], nil
}

// Ready returns an error that says what to do if nothing can be sealed. A key that would be
// made at first need is fine.
func (m *Manager) Ready(ctx context.Context) error {
	_, err := m.cfg.Ring.Keys()
	if errors.Is(err, seal.ErrNoKey) {
		return m.nothingSealed(ctx)
	}
	return err
}

// seal seals a content with the key.
func (m *Manager) seal(ctx context.Context, kind keep.AccountKind, name string, c seal.Content) ([]byte, error) {
	k, err := m.key(ctx)
	if err != nil {
		return nil, err
	}
	return k.Seal(kind, name, c)
}

// nothingSealed returns an error if there are rows that a key which is gone has sealed.
func (m *Manager) nothingSealed(ctx context.Context) error {
	for _, kind := range keep.AccountKinds() {
		list, err := m.cfg.Store.Accounts(ctx, kind)
		if err != nil {
			return err
		}
		for _, a := range list {
			if a.Sealed != nil {
				return &LostKeyError{Where: m.cfg.Ring.Where(), Kind: kind, Name: a.Name}
			}
		}
	}
	return nil
}

// A LostKeyError is returned when the key is gone and rows are sealed with it.
type LostKeyError struct {
	Where string
	Kind  keep.AccountKind
	Name  string // of a row that it sealed
}

// Error says what to do.
func (e *LostKeyError) Error() string {
	return fmt.Sprintf("the key %s is missing, and the %s %s is sealed with it: put it back, or give up what it sealed with: keep accounts rekey --discard", e.Where, e.Kind, e.Name)
}

// Connect stores an account that a person connected: a new one, or the next generation of
// the one of that name.
func (m *Manager) Connect(ctx context.Context, fresh keep.Account, c seal.Content) (keep.Account, error) {
	return m.connect(ctx, fresh, c, func(keep.Account) error { return nil })
}

// ConnectOver is Connect in the place of what a person connected at a time, zero: of nothing, else keep.ErrStale.
func (m *Manager) ConnectOver(ctx context.Context, fresh keep.Account, c seal.Content, at time.Time) (keep.Account, error) {
	return m.connect(ctx, fresh, c, func(old keep.Account) error {
		if old.ConnectedAt.Equal(at) {
			return nil
		}
		return fmt.Errorf("%s was connected by %s since: %w", fresh.Name, old.ConnectedBy, keep.ErrStale)
	})
}

func (m *Manager) connect(ctx context.Context, fresh keep.Account, c seal.Content, check func(old keep.Account) error) (keep.Account, error) {
	fresh.Kind = cmp.Or(fresh.Kind, keep.AccountConnected)
	for {
		old, err := m.row(ctx, fresh.Kind, fresh.Name)
		if err != nil && !errors.Is(err, keep.ErrNotFound) {
			return keep.Account{}, err
		}
		if err := check(old); err != nil {
			return keep.Account{}, err
		}
		a := law.Connect(old, fresh, m.now())
		content := c
		if a.Kind == keep.AccountConnected {
			content = m.owned(old, a, c)
		}
		if a.Sealed, err = m.seal(ctx, a.Kind, a.Name, content); err != nil {
			return keep.Account{}, err
		}
		err = m.cfg.Store.PutAccounts(ctx, []keep.Account{a}, m.act(ctx, a, connects[a.Kind], a.Pack))
		if err == nil {
			a.Rev++
			if a, err = m.sealAnew(ctx, a, content); err != nil {
				return keep.Account{}, err
			}
			m.settle(ctx)
			return a, nil
		}
		if !errors.Is(err, keep.ErrStale) {
			return keep.Account{}, err
		}
	}
}

// sealAnew seals a row that was just written once more if the key with which it was sealed was replaced before it was written:
// whoever replaces a key seals what is there then. If the key is still there, whoever replaces it now finds the row.
func (m *Manager) sealAnew(ctx context.Context, a keep.Account, c seal.Content) (keep.Account, error) {
	for {
		k, err := m.key(ctx)
		if err != nil {
			return a, err
		}
		if _, err := k.Open(a.Kind, a.Name, a.Sealed); err == nil {
			return a, nil
		}
		now, err := m.row(ctx, a.Kind, a.Name)
		if errors.Is(err, keep.ErrNotFound) || err == nil && !bytes.Equal(now.Sealed, a.Sealed) {
			return a, nil // it was replaced, or sealed with another key already
		}
		if err != nil {
			return a, err
		}
		old := a.Sealed
		if now.Sealed, err = k.Seal(a.Kind, a.Name, c); err != nil {
			return a, err
		}
		err = m.cfg.Store.PutAccounts(ctx, []keep.Account{now})
		if a = now; err == nil {
			a.Rev++
			continue
		}
		if !errors.Is(err, keep.ErrStale) {
			return a, err
		}
		a.Sealed = old
	}
}

// change reads an account, changes it and writes it, until nobody came in between.
func (m *Manager) change(ctx context.Context, name string, f func(keep.Account) (keep.Account, bool)) (keep.Account, error) {
	for {
		a, err := m.row(ctx, keep.AccountConnected, name)
		if err != nil {
			return a, err
		}
		next, ok := f(a)
		if !ok {
			return a, nil
		}
		err = m.cfg.Store.PutAccounts(ctx, []keep.Account{next})
		if err == nil {
			m.settle(ctx)
			next.Rev++
			return next, nil
		}
		if !errors.Is(err, keep.ErrStale) {
			return a, err
		}
	}
}
