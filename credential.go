package keep

import "time"

// A CredentialKind says what a credential is for. Values are stored; do not
// rename them.
type CredentialKind string

const (
	// CredentialToken is sent with each request of a program.
	CredentialToken CredentialKind = "token"

	// CredentialSession is the cookie of a browser that was logged in.
	CredentialSession CredentialKind = "session"

	// CredentialLogin logs one browser in, once.
	CredentialLogin CredentialKind = "login"
)

// CredentialKinds returns every kind.
func CredentialKinds() []CredentialKind {
	return []CredentialKind{CredentialToken, CredentialSession, CredentialLogin}
}

// A Credential lets somebody in. The secret itself is kept by nobody but its
// owner.
type Credential struct {
	ID        string // public
	Kind      CredentialKind
	Hash      []byte // SHA-256 of the secret
	Name      string // of whom it lets in
	Role      string // see package access
	Parent    string // credential that it came from and ends with; empty: none
	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
	UsedAt    time.Time // last time; zero: never
}
