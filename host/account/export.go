package account

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/account/seal"
	law "github.com/keep-run/keep/law/account"
)

// An exported is an account with what it holds, as it is in a file.
type exported struct {
	Version   int           `json:"version"`
	Name      string        `json:"name"`
	Pack      string        `json:"pack"`
	Style     string        `json:"style"`
	Subject   string        `json:"subject"`
	Scopes    []string      `json:"scopes"`
	Renews    bool          `json:"renews"`
	ExpiresAt time.Time     `json:"expires_at"`
	Lifetime  time.Duration `json:"lifetime"`
	Content   seal.Content  `json:"content"`
}

// exportVersion is the version of files that this Keep writes and reads.
const exportVersion = 1

// ErrWouldShare is returned for a copy of an account whose tokens are renewed: two
// databases that renew the same tokens end the account.
var ErrWouldShare = errors.New("its tokens are renewed, and a service may end an account whose tokens two places renew")

// A Sink is where an exported account goes.
type Sink struct {
	Wrap  func(plain []byte) ([]byte, error) // encrypts it; may be called again
	Store func(text []byte) error            // returns when it is on disk
}

// Export gives an account with what it holds to a sink. With move it is used here until it is
// recorded that it moves, then stored, and then forgotten here; without, an account whose
// tokens are renewed is refused with ErrWouldShare. A move that was interrupted is completed
// by another one. What a person connects under that name meanwhile stays, and the error is keep.ErrStale.
func (m *Manager) Export(ctx context.Context, name string, move bool, to Sink) error {
	var of *time.Time // when the account was connected that was asked for
	for {
		a, err := m.row(ctx, keep.AccountConnected, name)
		if of == nil {
			of = &a.ConnectedAt
		}
		switch {
		case err != nil:
			return err
		case !a.ConnectedAt.Equal(*of):
			return fmt.Errorf("%s connected the account %s since, and nothing of it was written: %w", a.ConnectedBy, name, keep.ErrStale)
		case a.Status != keep.AccountOK && !law.Moved(a):
			return fmt.Errorf("the account %s is %s and cannot be exported", name, a.Status)
		case (a.Renews || law.Moved(a)) && !move:
			return fmt.Errorf("the account %s: %w", name, ErrWouldShare)
		}
		o, err := m.open(a)
		if m.resealed(ctx, a, err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("the account %s %s", name, keyProblem(err))
		}
		plain, err := json.Marshal(exported{exportVersion, a.Name, a.Pack, a.Style, a.Subject, a.Scopes, a.Renews, a.ExpiresAt, a.Lifetime, o.content})
		if err != nil {
			return err
		}
		text, err := to.Wrap(plain)
		if err != nil {
			return err
		}
		if !move {
			if err := m.cfg.Store.PutAccounts(ctx, nil, m.act(ctx, a, keep.Export, "")); err != nil {
				return err
			}
			return to.Store(text)
		}
		if err = m.move(ctx, a, text, to.Store); !errors.Is(err, keep.ErrStale) {
			return err
		}
	}
}

// move records that an account moves, stores the text that it moves as, and forgets it here.
// It returns keep.ErrStale if the account is another one than the text holds.
func (m *Manager) move(ctx context.Context, a keep.Account, text []byte, store func([]byte) error) error {
	moved, ok := law.Move(a, m.cfg.Host, m.now())
	if !ok {
		return fmt.Errorf("a request for new tokens of the account %s has no answer yet; renew it first: keep accounts renew %[1]s", a.Name)
	}
	if err := m.cfg.Store.PutAccounts(ctx, []keep.Account{moved}, m.act(ctx, a, keep.MoveAway, "")); err != nil {
		return err
	}
	moved.Rev++
	m.at(MoveRecorded)
	ctx = context.WithoutCancel(ctx) // what is begun is completed
	if err := store(text); err != nil {
		return fmt.Errorf("the account %s was not written, and is not used here any more; give the command again with a file that can be written: %w", a.Name, err)
	}
	m.at(MoveStored)
	err := m.cfg.Store.PutAccounts(ctx, []keep.Account{law.Revoke(moved)})
	m.settle(ctx)
	if errors.Is(err, keep.ErrStale) {
		return fmt.Errorf("the account %s is written as it was, and is another one here: it was changed meanwhile", a.Name)
	}
	if err != nil {
		return fmt.Errorf("the account %s is written, and not used here any more; forget it here with keep accounts revoke %[1]s --yes, which does not tell the service: %w", a.Name, err)
	}
	return nil
}

// Import stores what Export gave. An account of that name that is there is replaced only if
// replace is set.
func (m *Manager) Import(ctx context.Context, plain []byte, by string, replace bool) (keep.Account, error) {
	var e exported
	if err := json.Unmarshal(plain, &e); err != nil || e.Name == "" {
		return keep.Account{}, errors.New("it holds no account")
	}
	if !law.IsName(e.Name) {
		return keep.Account{}, fmt.Errorf("it holds an account of the name %q, which no keep.toml can say", e.Name)
	}
	if e.Version != exportVersion {
		return keep.Account{}, fmt.Errorf("it is of version %d, and this Keep reads version %d", e.Version, exportVersion)
	}
	fresh := keep.Account{Name: e.Name, Pack: e.Pack, Style: e.Style, Subject: e.Subject, Scopes: e.Scopes, Renews: e.Renews,
		ExpiresAt: e.ExpiresAt, Lifetime: e.Lifetime, ConnectedBy: by}
	return m.connect(ctx, fresh, e.Content, func(old keep.Account) error {
		if old.Status == keep.AccountOK && !replace {
			return fmt.Errorf("there is an account %s already, which the one of the file would replace: add --replace", e.Name)
		}
		return nil
	})
}

// Recipient returns the public part of the key, for which others can seal what is imported
// here. The key is made if nothing was sealed yet.
func (m *Manager) Recipient(ctx context.Context) (string, error) {
	k, err := m.key(ctx)
	if err != nil {
		return "", err
	}
	return k.Recipient(), nil
}
