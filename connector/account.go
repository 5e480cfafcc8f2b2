package connector

import "context"

// Accounts gives connections the credentials of accounts, as they are at each call.
type Accounts interface {
	// Credential returns what the account holds now. An error has a *keep.Failure: of
	// class permission if only a person can help, and else transient.
	Credential(ctx context.Context, account string) (Credential, error)

	// Owner says whose credentials an account holds now, to compare: it is another text once the
	// account was connected again, unless it is known to be of the same user. Empty: it holds none.
	Owner(ctx context.Context, account string) (string, error)

	// Refused says that the service did not accept a credential (401). It reports whether
	// there is another one now.
	Refused(ctx context.Context, account string, c Credential) bool

	// Accepted says that the service accepted a credential, for people to see.
	Accepted(ctx context.Context, account string)
}

// A Credential is what an account holds at one moment.
type Credential struct {
	Value      string // a token, an API key, or user:password
	OAuth      bool   // Value is an access token
	Subject    string // whom it belongs to, as the service says; empty: not known
	Pack       string // of the service that it is a credential of; empty: not known
	Generation int64
	Secrets    []string // texts that must never show
	Resource   string   // address to which it may be sent, with what is below; empty: it is for whoever names the account
}

// String says nothing: a credential that is printed by mistake shows nothing.
func (Credential) String() string { return "[credential]" }

// GoString says nothing.
func (Credential) GoString() string { return "[credential]" }
