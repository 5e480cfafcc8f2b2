package access

import (
	"context"
	"time"

	"github.com/keep-run/keep"
)

// A Store keeps credentials. The packages sqlite and memory have one; storetest
// says what it must do.
type Store interface {
	// AddCredential stores a new credential; keep.ErrStale if its id is taken.
	AddCredential(ctx context.Context, c keep.Credential) error

	// Credential returns the credential of an id, or *keep.NotFoundError.
	Credential(ctx context.Context, id string) (keep.Credential, error)

	// Credentials returns all of a kind, newest first, also those that have
	// expired and were not swept yet.
	Credentials(ctx context.Context, kind keep.CredentialKind) ([]keep.Credential, error)

	// UseCredential sets when it was used last. One that is gone is no error.
	UseCredential(ctx context.Context, id string, at time.Time) error

	// DropCredential ends a credential and those that came from it. One that is
	// gone is a *keep.NotFoundError: of two who drop it, one is told that he did.
	DropCredential(ctx context.Context, id string) error

	// SweepCredentials deletes what expired before now, and says how many.
	SweepCredentials(ctx context.Context, now time.Time) (int, error)
}
