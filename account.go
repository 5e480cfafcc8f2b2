package keep

import (
	"slices"
	"strings"
	"time"
)

// An AccountKind says what a sealed row is. Values are stored; do not rename them.
type AccountKind string

const (
	// AccountConnected is a credential of a service that a person connected.
	AccountConnected AccountKind = "account"

	// AccountSecret is a value that a person set, which ${secret:NAME} stands for.
	AccountSecret AccountKind = "secret"
)

// AccountKinds returns every kind.
func AccountKinds() []AccountKind { return []AccountKind{AccountConnected, AccountSecret} }

// An AccountStatus says whether an account can be used. Values are stored; do not
// rename them.
type AccountStatus string

const (
	// AccountOK means that it can be used, as far as is known.
	AccountOK AccountStatus = "ok"

	// AccountNeedsReconnect means that a person must connect it again.
	AccountNeedsReconnect AccountStatus = "needs_reconnect"

	// AccountRevoked means that a person ended it; nothing is sealed.
	AccountRevoked AccountStatus = "revoked"
)

// AccountStatuses returns every status.
func AccountStatuses() []AccountStatus {
	return []AccountStatus{AccountOK, AccountNeedsReconnect, AccountRevoked}
}

// A RefreshState says what became of one request for new tokens. Values are stored; do
// not rename them.
type RefreshState string

const (
	RefreshSent    RefreshState = "sent"    // recorded before it is sent; what became of it is not known
	RefreshDone    RefreshState = "done"    // it brought new tokens
	RefreshLost    RefreshState = "lost"    // its answer was lost: it may have used the old token up
	RefreshRefused RefreshState = "refused" // the service said no
	RefreshUnsent  RefreshState = "unsent"  // no byte of it left this host, or it used nothing up
	RefreshMoved   RefreshState = "moved"   // no request: from then on another place renews these tokens
)

// A Refresh is one request for new tokens: a change outside whose answer may be lost. It
// is recorded before it is sent.
type Refresh struct {
	Generation int64        `json:"generation"` // of the tokens that it spends
	State      RefreshState `json:"state"`
	Host       string       `json:"host"`
	SentAt     time.Time    `json:"sent_at"`
	EndedAt    time.Time    `json:"ended_at"` // zero: not yet

	// NextAt is when the one more request after a lost answer may follow; zero: at once.
	NextAt time.Time `json:"next_at,omitzero"`
}

// MaxRefreshes bounds how many refreshes an account remembers.
const MaxRefreshes = 20

// An Account is a credential that a person connected, or a secret that a person set. What
// it holds is sealed; everything else may be shown.
type Account struct {
	Kind AccountKind
	Name string // unique among those of its kind

	Pack    string // of the service; empty for a secret
	Style   string // how the credential is sent, as packs say it
	Subject string // whom the service says it belongs to; empty: it didn't say
	Scopes  []string

	// Generation counts the credentials that the account had: a connect and each refresh
	// make a new one.
	Generation int64
	Renews     bool // Keep can get a new access token without a person
	Status     AccountStatus
	ExpiresAt  time.Time     // of the access token; zero: it is not known to expire
	Lifetime   time.Duration // of the access token when it was made; zero: not known
	Error      string        // why it needs a person, or since when renewing fails; of one that was revoked, why its service takes it still, or may; empty: none of these

	ConnectedBy   string
	ConnectedAt   time.Time
	LastRefreshAt time.Time
	LastUsedAt    time.Time // when the service accepted it last, to a minute

	Sealed    []byte    // nil: it was revoked
	Refreshes []Refresh // newest last, up to MaxRefreshes

	LeaseHost  string // that may refresh it until LeaseUntil; empty: none
	LeaseUntil time.Time
	Rev        int64 // stored revision; 0: not stored yet
}

// Clone returns a copy that shares nothing with a.
func (a Account) Clone() Account {
	a.Scopes, a.Sealed, a.Refreshes = slices.Clone(a.Scopes), slices.Clone(a.Sealed), slices.Clone(a.Refreshes)
	return a
}

// Expiring reports whether the access token ends within a time after now, and nothing
// but a person can renew it.
func (a Account) Expiring(now time.Time, within time.Duration) bool {
	return a.Status == AccountOK && !a.Renews && !a.ExpiresAt.IsZero() && !now.Add(within).Before(a.ExpiresAt)
}

// AccountRef is what SentAs.As calls an account.
func AccountRef(name string) string { return "account " + name }

// OfAccount returns the account that SentAs.As calls so; empty: it is a secret.
func OfAccount(ref string) string {
	name, _ := strings.CutPrefix(ref, AccountRef(""))
	if name == ref {
		return ""
	}
	return name
}

// SecretRef is what SentAs.As calls a secret.
func SecretRef(name string) string { return "secret " + name }
