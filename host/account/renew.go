package account

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host/account/oauth"
	"github.com/keep-run/keep/host/account/seal"
	"github.com/keep-run/keep/internal/pause"
	law "github.com/keep-run/keep/law/account"
)

// A Client asks the service of an account for tokens; *oauth.Client is one.
type Client interface {
	Refresh(ctx context.Context, refresh string) (oauth.Tokens, error)
	ClientCredentials(ctx context.Context) (oauth.Tokens, error)
	Revoke(ctx context.Context, token, hint string) error
}

// A renewal is under way in this process; those that want the same account wait for it.
type renewal struct {
	d    demand
	done chan struct{}
	a    keep.Account
	err  error
}

// A forced renewal followed a 401: if its tokens are refused too, no other would be taken.
type forced struct {
	generation int64
	at         time.Time
}

// A demand says when tokens are wanted.
type demand int

const (
	whenDue demand = iota
	early          // although those that are there may still be good
	atOnce         // early, and a person says so: the first request waits for no pause
)

// Times of a renewal.
const (
	pollLease  = 100 * time.Millisecond // how often a host that waits looks for the result of another
	recordFor  = time.Minute            // how long it is tried to record an answer
	forcedFor  = 10 * time.Minute
	lookAround = 20 * time.Second // how often accounts are looked through for those that are due
)

// Run renews tokens before they end, until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	tick := time.NewTicker(lookAround)
	defer tick.Stop()
	for {
		m.renewDue(ctx)
		if err := m.Settle(ctx); err != nil && ctx.Err() == nil {
			m.cfg.Logger.WarnContext(ctx, "questions and runs do not fit the accounts", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// renewDue renews every account that is due.
func (m *Manager) renewDue(ctx context.Context) {
	list, err := m.cfg.Store.Accounts(ctx, keep.AccountConnected)
	if err != nil {
		return // calls say what is wrong with the store
	}
	for _, a := range list {
		if due := law.DueAt(a); due.IsZero() || m.now().Before(due) || ctx.Err() != nil {
			continue
		}
		if _, err := m.renew(ctx, a.Name, a.Generation, whenDue); err != nil && ctx.Err() == nil {
			m.cfg.Logger.WarnContext(ctx, "account not renewed", "account", a.Name, "err", err)
		}
	}
}

// fresh returns the account with tokens that may be used, and renews them if that is due.
func (m *Manager) fresh(ctx context.Context, a keep.Account) (keep.Account, error) {
	if !law.Due(a, m.now()) {
		return a, nil
	}
	next, err := m.renew(ctx, a.Name, a.Generation, whenDue)
	if err != nil && law.Usable(a, m.now()) {
		return a, nil // it is tried again, and these tokens are good for now
	}
	return next, err
}

// Renew gets new tokens now.
func (m *Manager) Renew(ctx context.Context, name string) (keep.Account, error) {
	a, err := m.row(ctx, keep.AccountConnected, name)
	if err != nil {
		return a, err
	}
	if a.Status == keep.AccountOK && !a.Renews {
		return a, fmt.Errorf("the account %s cannot be renewed without a person; connect it again: keep connect %s --name %s", name, a.Pack, name)
	}
	return m.renew(ctx, name, a.Generation, atOnce)
}

// Refused says that the service did not accept a credential; see connector.Accounts. A
// generation is renewed once for that, and tokens that came of it are not.
func (m *Manager) Refused(ctx context.Context, name string, c connector.Credential) bool {
	a, err := m.row(ctx, keep.AccountConnected, name)
	switch {
	case err != nil || a.Status != keep.AccountOK:
		return false
	case a.Generation != c.Generation:
		return true // somebody connected or renewed it meanwhile
	case !a.Renews:
		return false
	}
	m.mu.Lock()
	last := m.forced[name]
	m.mu.Unlock()
	if last.generation == a.Generation && m.now().Sub(last.at) < forcedFor {
		return false
	}
	next, err := m.renew(ctx, name, a.Generation, early)
	if err != nil || next.Generation == a.Generation || next.Status != keep.AccountOK {
		return false
	}
	m.mu.Lock()
	m.forced[name] = forced{next.Generation, m.now()}
	m.mu.Unlock()
	return true
}

// renew renews a generation once in this process, however many want it. It isn't given up
// when the call that wants it is: its answer would be lost.
func (m *Manager) renew(ctx context.Context, name string, generation int64, d demand) (keep.Account, error) {
	m.mu.Lock()
	if r := m.flight[name]; r != nil {
		m.mu.Unlock()
		select {
		case <-r.done:
			if r.err == nil && r.d < d && r.a.Status == keep.AccountOK && r.a.Generation == generation {
				return m.renew(ctx, name, generation, d) // it had no need of new tokens
			}
			return r.a, r.err
		case <-ctx.Done():
			return keep.Account{}, keep.Failf(keep.ClassTransient, "account-renewing", "the account %s was being renewed when the time was over", name)
		}
	}
	r := &renewal{d: d, done: make(chan struct{})}
	m.flight[name] = r
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.flight, name)
		m.mu.Unlock()
		close(r.done)
	}()
	r.a, r.err = m.renewAlone(ctx, name, generation, d)
	return r.a, r.err
}

// renewAlone renews a generation, or waits for the host that does.
func (m *Manager) renewAlone(ctx context.Context, name string, generation int64, d demand) (keep.Account, error) {
	if m.cfg.Host == "" || m.cfg.Clients == nil {
		return keep.Account{}, keep.Failf(keep.ClassTransient, "account-not-renewed", "the account %s is renewed by keep serve, keep dev and keep run only", name)
	}
	for {
		begun := time.Now() // of this machine's monotonic clock: the lease ends no earlier than a TTL later
		a, got, err := m.cfg.Store.LeaseAccount(ctx, keep.AccountConnected, name, m.cfg.Host, m.now(), m.cfg.TTL)
		switch {
		case err != nil:
			return a, keep.Failf(keep.ClassTransient, "account-unread", "the account %s could not be read: %v", name, err)
		case !got && (a.Generation != generation || a.Status != keep.AccountOK):
			return a, nil // another host did it
		case !got:
			if pause.For(ctx, pollLease) != nil {
				return a, keep.Failf(keep.ClassTransient, "account-renewing", "the account %s is being renewed by %s", name, a.LeaseHost)
			}
			continue
		case a.Generation != generation || a.Status != keep.AccountOK:
			return a, m.giveBack(ctx, a)
		}
		if d == atOnce {
			a, d = law.WithoutPauses(a), early
		}
		step, until := law.Next(a, d >= early, m.now())
		switch step {
		case law.Ask:
			return m.change(ctx, name, func(a keep.Account) (keep.Account, bool) {
				return law.Release(law.NeedsReconnect(a, "its tokens may have been used up by a request whose answer was lost")), a.Generation == generation
			})
		case law.Wait, law.Rest:
			if err := m.giveBack(ctx, a); err != nil || step == law.Rest || law.Usable(a, m.now()) && d == whenDue {
				return a, err
			}
			if wait := until.Sub(m.now()); wait > 10*time.Second || pause.For(ctx, wait) != nil {
				return a, keep.Failf(keep.ClassTransient, "account-not-renewed", "the account %s is renewed again at %s", name, until.Format(time.RFC3339))
			}
			continue
		}
		next, again, err := m.request(ctx, a, d >= early, begun)
		if !again || err != nil {
			return next, err
		}
	}
}

// giveBack ends the lease.
func (m *Manager) giveBack(ctx context.Context, a keep.Account) error {
	err := m.cfg.Store.PutAccounts(ctx, []keep.Account{law.Release(a)})
	if errors.Is(err, keep.ErrStale) {
		return nil // it is somebody else's
	}
	return err
}

// request makes one request under the lease: recorded, sent, and its answer recorded. It
// reports whether what follows is to be looked at again.
func (m *Manager) request(ctx context.Context, a keep.Account, force bool, begun time.Time) (next keep.Account, again bool, err error) {
	o, err := m.open(a)
	if m.resealed(ctx, a, err) {
		return a, true, m.giveBack(ctx, a)
	}
	if err != nil {
		return a, false, errors.Join(unusable(a, fmt.Sprintf("the account %s %s", a.Name, keyProblem(err))), m.giveBack(ctx, a))
	}
	client, err := m.cfg.Clients(a, o.content)
	if err != nil {
		return a, false, errors.Join(unusable(a, fmt.Sprintf("the account %s cannot be renewed: %v", a.Name, err)), m.giveBack(ctx, a))
	}
	generation := a.Generation
	if a, err = law.Begin(a, m.cfg.Host, force, m.now()); err != nil {
		return a, false, err
	}
	switch err := m.cfg.Store.PutAccounts(ctx, []keep.Account{a}); {
	case errors.Is(err, keep.ErrStale):
		return a, true, nil
	case err != nil:
		return a, false, keep.Failf(keep.ClassTransient, "account-unread", "that the account %s is being renewed was not recorded: %v", a.Name, err)
	}
	m.at(Recorded)
	sending, cancel := m.hold(context.WithoutCancel(ctx), a.Name, begun)
	var tokens oauth.Tokens
	if o.content.Refresh == "" {
		tokens, err = client.ClientCredentials(sending)
	} else {
		tokens, err = client.Refresh(sending, o.content.Refresh)
	}
	cancel()
	m.at(Answered)
	recording, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordFor)
	defer cancel()
	if err != nil {
		return m.failed(recording, a, generation, o.content, err)
	}
	tokens.Refresh = cmp.Or(tokens.Refresh, o.content.Refresh)
	content := ContentOf(tokens)
	content.Client, content.Owner = o.content.Client, o.content.Owner
	content.Identity = cmp.Or(o.content.Identity, content.Identity)
	next, err = m.done(recording, a, generation, tokens, content)
	return next, err == nil && next.Generation == generation, err
}

// hold returns a context that ends with the lease, which is prolonged until the context is canceled: a service may be slower
// than a lease is long. The answer must be known and recorded before another host may think us gone.
func (m *Manager) hold(ctx context.Context, name string, begun time.Time) (context.Context, context.CancelFunc) {
	sending, end := context.WithCancel(ctx)
	enough := m.cfg.TTL * 2 / 3
	timer := time.AfterFunc(enough-time.Since(begun), end)
	var holding sync.WaitGroup
	holding.Go(func() {
		for pause.For(sending, m.cfg.TTL/4) == nil {
			begun := time.Now()
			if _, got, err := m.cfg.Store.LeaseAccount(sending, keep.AccountConnected, name, m.cfg.Host, m.now(), m.cfg.TTL); err == nil && got && sending.Err() == nil {
				timer.Reset(enough - time.Since(begun))
			}
		}
	})
	return sending, func() {
		end()
		timer.Stop()
		holding.Wait()
	}
}

// done records new tokens. They are nowhere else, so it is tried for a while.
func (m *Manager) done(ctx context.Context, a keep.Account, generation int64, tokens oauth.Tokens, content seal.Content) (keep.Account, error) {
	for {
		sealed, err := m.seal(ctx, a.Kind, a.Name, content)
		if err == nil {
			fresh := law.Tokens{ExpiresAt: tokens.Expires, Lifetime: tokens.Lifetime, Scopes: tokens.Scopes, Subject: tokens.Subject, Renews: true, Sealed: sealed}
			var next keep.Account
			counts := false
			next, err = m.change(ctx, a.Name, func(a keep.Account) (_ keep.Account, ok bool) {
				a, counts = law.Done(a, m.cfg.Host, generation, fresh, m.now())
				return a, counts
			})
			switch {
			case err == nil && !counts && next.Status == keep.AccountRevoked:
				m.tellLate(ctx, next, content)
				return next, nil
			case err == nil && !counts:
				return next, nil // another host has begun a request since, and its answer counts, or the account was connected again
			case err == nil:
				if next, err = m.keepOpen(ctx, next, content); err == nil {
					m.cfg.Logger.InfoContext(ctx, "account renewed", "account", a.Name, "generation", next.Generation)
					return next, nil
				}
			}
		}
		if errors.Is(err, keep.ErrNotFound) || pause.For(ctx, pollLease) != nil {
			return a, keep.Failf(keep.ClassTransient, "account-not-recorded", "new tokens of the account %s could not be recorded: %v", a.Name, err)
		}
	}
}

// keepOpen is sealAnew of tokens that are nowhere else: it is tried for a while.
func (m *Manager) keepOpen(ctx context.Context, a keep.Account, c seal.Content) (keep.Account, error) {
	for {
		next, err := m.sealAnew(ctx, a, c)
		if err == nil || pause.For(ctx, pollLease) != nil {
			return next, err
		}
	}
}

// tellLate revokes tokens at the service that came after a person had revoked their account: nobody else knows of them.
func (m *Manager) tellLate(ctx context.Context, a keep.Account, c seal.Content) {
	if err := m.tell(ctx, a, c); err != nil {
		m.cfg.Logger.WarnContext(ctx, "an account was revoked while it was renewed, and whether the service revoked the new tokens is not known: look in its settings", "account", a.Name, "err", err)
	}
}

// failed records what else became of a request. One without a refresh token uses nothing up, however often it is made.
//
// A service that does not know the client has said nothing of the tokens (RFC 6749, 5.2): the client of keep.toml may be mistyped. One that
// was made for the account cannot be mended. One that it knows and refuses (unauthorized_client) is the service's last word, for all that is
// known here: a person is asked, where to try again without end would tell nobody.
func (m *Manager) failed(ctx context.Context, a keep.Account, generation int64, c seal.Content, cause error) (keep.Account, bool, error) {
	state, mistyped := keep.RefreshLost, false
	var refused *oauth.RefusedError
	switch {
	case errors.Is(cause, oauth.ErrNotSent):
		state = keep.RefreshUnsent
	case errors.As(cause, &refused) && refused.Temporary():
		state = keep.RefreshUnsent // it was answered, and nothing was issued
	case errors.As(cause, &refused) && refused.Code == "invalid_client" && c.Client == nil:
		state, mistyped = keep.RefreshUnsent, true
	case errors.As(cause, &refused):
		state = keep.RefreshRefused
	case c.Refresh == "":
		state = keep.RefreshUnsent
	}
	next, err := m.change(ctx, a.Name, func(a keep.Account) (keep.Account, bool) {
		a, ok := law.Failed(a, m.cfg.Host, generation, state, cause.Error(), m.now())
		if ok && mistyped {
			a.Error = fmt.Sprintf("it cannot be renewed, and that is tried again: the service does not accept the client of %s in keep.toml: %v", a.Pack, cause)
		}
		return a, ok
	})
	if err != nil {
		return a, false, err
	}
	if next.Status == keep.AccountNeedsReconnect && next.Generation == generation {
		m.cfg.Logger.WarnContext(ctx, "account must be connected again", "account", a.Name, "pack", a.Pack, "err", cause)
	}
	if state == keep.RefreshUnsent && next.Generation == generation {
		return next, false, keep.Failf(keep.ClassTransient, "account-not-renewed", "the account %s was not renewed: %v", a.Name, cause)
	}
	return next, next.Generation == generation && next.Status == keep.AccountOK, nil
}

// ContentOf returns what is sealed of tokens.
func ContentOf(t oauth.Tokens) seal.Content {
	return seal.Content{Access: t.Access, Refresh: t.Refresh, Type: t.Type, Identity: t.Identity, TokenURL: t.TokenURL, RevokeURL: t.RevokeURL}
}

// Revoke tells the service that the tokens are no longer wanted, and forgets them. They are
// forgotten here even if the error says that the service was not told. Tokens that
// came meanwhile are named to the service, too: those that are forgotten. It is the account that a person connected at of; zero: the
// one that is there. One that somebody connected in its place is left as it is, also meanwhile; the error is keep.ErrStale then. Error of
// the account says why the service takes what was forgotten, or may: it has no way to be told of a key.
func (m *Manager) Revoke(ctx context.Context, name string, of time.Time) (keep.Account, error) {
	var told []byte // what is sealed of it
	var untold []error
	left := "" // what the service still takes
	for {
		a, err := m.row(ctx, keep.AccountConnected, name)
		if err != nil || a.Status == keep.AccountRevoked {
			return a, errors.Join(err, unknown(name, untold))
		}
		if of.IsZero() {
			of = a.ConnectedAt
		}
		if !a.ConnectedAt.Equal(of) {
			return a, errors.Join(append(untold, fmt.Errorf("%s connected the account %s since, and it is not revoked: %w", a.ConnectedBy, name, keep.ErrStale))...)
		}
		if law.Moved(a) {
			left = leftMoved
		} else if !bytes.Equal(told, a.Sealed) {
			o, err := m.open(a)
			if m.resealed(ctx, a, err) {
				continue
			}
			left = leftKey
			if err == nil && o.content.Access != "" && m.cfg.Clients != nil {
				err, left = m.tell(ctx, a, o.content), ""
			}
			told = a.Sealed
			untold = append(untold, err)
		}
		if errors.Join(untold...) != nil {
			left = leftUnknown
		}
		next := law.Revoke(a)
		next.Error = left
		err = m.cfg.Store.PutAccounts(ctx, []keep.Account{next}, m.act(ctx, a, keep.Revoke, cmp.Or(left, "its service was told")))
		if errors.Is(err, keep.ErrStale) {
			continue
		}
		if err != nil {
			return a, errors.Join(append(untold, fmt.Errorf("the account %s is not forgotten here: %w", name, err))...)
		}
		m.settle(ctx)
		next.Rev++
		return next, unknown(name, untold)
	}
}

// What a service still takes of an account that is forgotten here.
const (
	leftKey     = "the service was not told, and takes its key until that is ended in the settings of the service"
	leftMoved   = "the service was not told, since another place may use its tokens"
	leftUnknown = "whether the service revoked it is not known: look in its settings"
)

// unknown says of an account that is forgotten why the service may not know; nil: it was told.
func unknown(name string, why []error) error {
	if err := errors.Join(why...); err != nil {
		return fmt.Errorf("the account %s is forgotten here, and whether the service revoked it is not known: %w; look in its settings", name, err)
	}
	return nil
}

// tell revokes both tokens at the service.
func (m *Manager) tell(ctx context.Context, a keep.Account, c seal.Content) error {
	client, err := m.cfg.Clients(a, c)
	if err != nil {
		return err
	}
	var errs []error
	if c.Refresh != "" {
		errs = append(errs, client.Revoke(ctx, c.Refresh, oauth.HintRefresh))
	}
	return errors.Join(append(errs, client.Revoke(ctx, c.Access, oauth.HintAccess))...)
}

// A Transport sends the requests of a Client, each on a connection of its own, and says of
// those that failed whether anything was sent.
type Transport struct{ Base *http.Transport }

// NewTransport returns a Transport that follows the proxies of the environment.
func NewTransport() Transport {
	return Transport{&http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSHandshakeTimeout: 10 * time.Second}}
}

// RoundTrip implements http.RoundTripper.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	begun := false
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { begun = true }})
	resp, err := t.Base.RoundTrip(r.WithContext(ctx))
	if err != nil && !begun {
		return nil, fmt.Errorf("%w: %w", oauth.ErrNotSent, err)
	}
	return resp, err
}
