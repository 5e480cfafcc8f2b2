package account_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/account"
	"github.com/keep-run/keep/host/account/oauth"
	"github.com/keep-run/keep/host/account/seal"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/memory"
)

var worldSeeds = flag.Uint64("account-seeds", 6, "how many seeds TestAccountWorlds simulates")

// simTTL is the lease of the account, and simLasts how long its access tokens last.
const (
	simTTL   = 30 * time.Second
	simLasts = time.Hour
)

var (
	errDead = errors.New("the process is dead")
	errDisk = errors.New("no answer from the database")
)

// An accountSim is an account, the hosts that renew it, the service that gives its tokens,
// and a person. Hosts die at any step and are frozen for longer than their lease; the
// database and the service lose requests and answers. All in virtual time.
type accountSim struct {
	*testing.T
	seed  uint64
	store *memory.Store
	ring  seal.Ring
	grace bool // the service takes the token before the current one once more

	mu        sync.Mutex // protects the fields below
	calm      bool       // nothing goes wrong any more
	family, n int
	parent    int
	dead      bool
	uses      map[string]*simUse // by token
	asked     int
	refreshed int
	killed    int
}

// A simUse is what became of the requests with one token.
type simUse struct {
	arrived int
	flying  *simHost // whose request is being answered
	moments int      // answers that said no for a moment
	last    time.Time
}

// A simHost is a process. Dead, it touches nothing any more.
type simHost struct {
	w      *accountSim
	name   string
	cancel context.CancelFunc

	mu   sync.Mutex // protects the fields below
	rng  *rand.Rand
	gone bool
}

// chance reports true with a probability, while things go wrong.
func (h *simHost) chance(p float64) bool {
	h.w.mu.Lock()
	calm := h.w.calm
	h.w.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	return !calm && h.rng.Float64() < p
}

func (h *simHost) span(d time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Duration(h.rng.Int64N(int64(d)) + 1)
}

func (h *simHost) isGone() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gone
}

// step is a moment of the process's life: it may die there, or be frozen.
func (h *simHost) step() error {
	time.Sleep(h.span(3 * time.Millisecond))
	if h.chance(0.01) {
		time.Sleep(h.span(4 * simTTL))
	}
	if h.chance(0.005) {
		h.mu.Lock()
		h.gone = true
		h.mu.Unlock()
		h.cancel()
		h.w.mu.Lock()
		h.w.killed++
		h.w.mu.Unlock()
	}
	if h.isGone() {
		return errDead
	}
	return nil
}

// A simStore is the database as one process sees it.
type simStore struct {
	all
	h *simHost
}

type all = store.Accounts

// do makes a request of the database, which may be lost, or its answer.
func (s simStore) do(f func() error) error {
	if err := s.h.step(); err != nil {
		return err
	}
	if s.h.chance(0.03) {
		return errDisk
	}
	err := f()
	if lost := s.h.step(); lost != nil {
		return lost
	}
	if s.h.chance(0.03) {
		return errDisk
	}
	return err
}

func (s simStore) Accounts(ctx context.Context, kind keep.AccountKind, names ...string) (list []keep.Account, err error) {
	err = s.do(func() error { list, err = s.h.w.store.Accounts(ctx, kind, names...); return err })
	return list, err
}

func (s simStore) PutAccounts(ctx context.Context, as []keep.Account, acts ...keep.Decided) error {
	return s.do(func() error { return s.h.w.store.PutAccounts(ctx, as, acts...) })
}

func (s simStore) LeaseAccount(ctx context.Context, kind keep.AccountKind, name, host string, _ time.Time, ttl time.Duration) (a keep.Account, ok bool, err error) {
	err = s.do(func() error {
		a, ok, err = s.h.w.store.LeaseAccount(ctx, kind, name, host, time.Now(), ttl) // the clock of the database
		return err
	})
	return a, ok && err == nil, err
}

// Refresh implements account.Client: the service.
func (h *simHost) Refresh(ctx context.Context, token string) (oauth.Tokens, error) {
	w := h.w
	if err := h.step(); err != nil {
		return oauth.Tokens{}, err
	}
	if h.chance(0.05) {
		return oauth.Tokens{}, fmt.Errorf("%w: connection refused", oauth.ErrNotSent)
	}
	if ctx.Err() != nil { // it was frozen for longer than its lease: nothing is sent
		return oauth.Tokens{}, fmt.Errorf("%w: %w", oauth.ErrNotSent, ctx.Err())
	}
	use := w.arrives(h, token)
	perform, moment, refused := !h.chance(0.05), h.chance(0.05), false
	var tokens oauth.Tokens
	var err error = &oauth.LostError{Err: errors.New("502")}
	if moment {
		perform, err = false, &oauth.RefusedError{Code: "invalid_grant", Status: 400}
	}
	if perform {
		tokens, err = w.rotate(token)
		refused = err != nil
	}
	slow := h.span(time.Second)
	if h.chance(0.05) {
		slow = simTTL
	}
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		err = &oauth.LostError{Err: ctx.Err()}
	}
	if h.step() != nil || h.chance(0.05) {
		err = &oauth.LostError{Err: errors.New("connection reset")}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if use.flying == h {
		use.flying = nil
	}
	if moment && !refused {
		use.moments++
	}
	return tokens, err
}

func (h *simHost) ClientCredentials(context.Context) (oauth.Tokens, error) {
	return oauth.Tokens{}, errors.ErrUnsupported
}
func (h *simHost) Revoke(context.Context, string, string) error { return nil }

// arrives is a request with a token. It was recorded; no other one is on its way from a
// process that lives; and if it is not the first one or the second, it does not follow the one before at once.
func (w *accountSim) arrives(h *simHost, token string) *simUse {
	list, err := w.store.Accounts(context.Background(), keep.AccountConnected, "mail")
	if err != nil {
		w.Fatal(err)
	}
	recorded := false
	for _, r := range list[0].Refreshes {
		recorded = recorded || r.Host == h.name && r.State == keep.RefreshSent
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	use := w.uses[token]
	if use == nil {
		use = new(simUse)
		w.uses[token] = use
	}
	if use.arrived++; use.arrived > 2 && time.Since(use.last) < 10*time.Second {
		w.Errorf("seed %d: token %s came %d times, the last time after %s", w.seed, token, use.arrived, time.Since(use.last))
	}
	use.last = time.Now()
	if f := use.flying; f != nil && !f.isGone() && f != h && !f.late() {
		w.Errorf("seed %d: token %s came from %s and %s at once", w.seed, token, f.name, h.name)
	}
	if !recorded && !h.late() {
		w.Errorf("seed %d: %s sent what is not recorded: %+v", w.seed, h.name, list[0].Refreshes)
	}
	use.flying = h
	return use
}

// late reports whether the lease of a process may have ended while it was frozen.
func (h *simHost) late() bool {
	list, err := h.w.store.Accounts(context.Background(), keep.AccountConnected, "mail")
	return err != nil || list[0].LeaseHost != h.name || !list[0].LeaseUntil.After(time.Now())
}

// rotate gives new tokens, or revokes all.
func (w *accountSim) rotate(token string) (oauth.Tokens, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var family, n int
	if _, err := fmt.Sscanf(token, "refresh-%d-%d", &family, &n); err != nil || family != w.family || w.dead ||
		n != w.n && !(w.grace && n == w.parent) {
		w.dead = true
		return oauth.Tokens{}, &oauth.RefusedError{Code: "invalid_grant", Status: 400}
	}
	w.parent, w.n = n, w.n+1
	for w.uses[fmt.Sprintf("refresh-%d-%d", w.family, w.n)] != nil { // a number is given once
		w.n++
	}
	w.refreshed++
	return w.tokens(), nil
}

// tokens returns the current ones. The caller holds mu.
func (w *accountSim) tokens() oauth.Tokens {
	return oauth.Tokens{Access: fmt.Sprintf("access-%d-%d", w.family, w.n), Refresh: fmt.Sprintf("refresh-%d-%d", w.family, w.n), Type: "Bearer",
		Expires: time.Now().Add(simLasts), Lifetime: simLasts}
}

// manager returns the accounts of a process.
func (w *accountSim) manager(s store.Accounts, name string, c account.Client) *account.Manager {
	return account.New(account.Config{Store: s, Ring: w.ring, Host: name, TTL: simTTL, Logger: slog.New(slog.DiscardHandler),
		Clients: func(keep.Account, seal.Content) (account.Client, error) { return c, nil }})
}

// connect is a person who allows access: a new family of tokens.
func (w *accountSim) connect(m *account.Manager) {
	w.mu.Lock()
	w.family, w.n, w.parent, w.dead = w.family+1, 0, -1, false
	t := w.tokens()
	w.mu.Unlock()
	_, err := m.Connect(context.Background(), keep.Account{Name: "mail", Pack: "gmail", Style: "oauth2", Renews: true, ExpiresAt: t.Expires, Lifetime: t.Lifetime}, account.ContentOf(t))
	if err != nil {
		w.Fatal(err)
	}
}

// look is a person who finds that the account must be connected again, and why.
func (w *accountSim) look(m *account.Manager) {
	list, err := w.store.Accounts(context.Background(), keep.AccountConnected, "mail")
	if err != nil {
		w.Fatal(err)
	}
	a := list[0]
	if a.Status != keep.AccountNeedsReconnect {
		return
	}
	requests, harmed := 0, 0
	for _, r := range a.Refreshes {
		if r.Generation == a.Generation && r.State != keep.RefreshUnsent {
			requests++
			if r.State != keep.RefreshRefused { // its answer was lost on the way, or with its process
				harmed++
			}
		}
	}
	c, err := w.ring.Open(a)
	if err != nil {
		w.Fatal(err)
	}
	w.mu.Lock()
	w.asked++
	if use := w.uses[c.Refresh]; use != nil {
		harmed += use.moments
	}
	w.mu.Unlock()
	need := 1 // without grace the answer to the first request was lost
	if w.grace {
		need = 2
	}
	if requests < 2 || harmed < need {
		w.Errorf("seed %d: a person is asked after %d requests, of which %d were harmed: %+v", w.seed, requests, harmed, a.Refreshes)
	}
	w.connect(m)
}

// live is one life of a process: it renews, and calls are made under the account.
func (w *accountSim) live(name string, rng *rand.Rand, life time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), life)
	defer cancel()
	h := &simHost{w: w, name: name, cancel: cancel, rng: rng}
	m := w.manager(simStore{w.store, h}, name, h)
	var wg sync.WaitGroup
	wg.Go(func() { m.Run(ctx) })
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if c, err := m.Credential(ctx, "mail"); err == nil && h.chance(0.1) {
					m.Refused(ctx, "mail", c)
				}
				select {
				case <-time.After(h.span(20 * time.Minute)):
				case <-ctx.Done():
				}
			}
		})
	}
	wg.Wait()
}

// run lives through a day, and then through hours without anything that goes wrong.
func (w *accountSim) run() {
	person := w.manager(w.store, "person", nil)
	w.connect(person)
	end := time.Now().Add(24 * time.Hour)
	var hosts sync.WaitGroup
	for n := range 2 + int(w.seed%2) {
		hosts.Go(func() {
			for life := 0; time.Now().Before(end); life++ {
				rng := rand.New(rand.NewPCG(w.seed, uint64(n*1000+life)))
				w.live(fmt.Sprintf("h%d.%d", n, life), rng, time.Duration(rng.Int64N(int64(12*time.Hour)))+time.Minute)
			}
		})
	}
	hosts.Go(func() {
		for time.Now().Before(end) {
			time.Sleep(7*time.Minute + 13*time.Millisecond)
			w.look(person)
		}
	})
	hosts.Wait()
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	w.look(person)
	before := w.asked
	w.live("last", rand.New(rand.NewPCG(w.seed, 1)), 4*time.Hour)
	w.look(person)
	if w.asked > before+1 {
		w.Errorf("seed %d: a person is asked although nothing goes wrong", w.seed)
	}
	if w.grace {
		w.lostSilently()
	}
}

// lostSilently looks whether the account is one of which nobody knows that it is lost.
func (w *accountSim) lostSilently() {
	list, err := w.store.Accounts(context.Background(), keep.AccountConnected, "mail")
	if err != nil || list[0].Status != keep.AccountOK || time.Now().After(list[0].ExpiresAt) {
		w.Errorf("seed %d: at the end the account is %+v, %v", w.seed, list, err)
	}
}

// Law once, nothing-lost: in no world a token is sent twice by design or again and again, none
// is sent unrecorded, and a person is asked exactly where nobody else can help.
func TestAccountWorlds(t *testing.T) {
	ring := seal.Ring{Path: filepath.Join(t.TempDir(), "keep.key")}
	var refreshed, killed, asked [2]int
	for seed := range *worldSeeds {
		synctest.Test(t, func(t *testing.T) {
			w := &accountSim{T: t, seed: seed, store: memory.New(), ring: ring, grace: seed%4 < 2, uses: map[string]*simUse{}}
			w.run()
			of := int(seed % 4 / 2)
			refreshed[of], killed[of], asked[of] = refreshed[of]+w.refreshed, killed[of]+w.killed, asked[of]+w.asked
		})
		if t.Failed() {
			break
		}
	}
	t.Logf("with grace: %d refreshes, %d processes died, %d questions; without: %d, %d, %d", refreshed[0], killed[0], asked[0], refreshed[1], killed[1], asked[1])
}
