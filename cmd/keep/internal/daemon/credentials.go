package daemon

import (
	"context"
	"errors"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store"
)

// credentials are those of a database. Whoever follows a host is notified when one is made
// or ends: a stream ends with the right to see it.
type credentials struct {
	store.Access
	changed func(ctx context.Context)
}

// credentialChange says that it was about a credential.
var credentialChange = feed.Change{Kinds: []feed.Kind{feed.Credential}}

// AddCredential implements store.Access.
func (c credentials) AddCredential(ctx context.Context, v keep.Credential, acts ...keep.Decided) error {
	defer c.changed(ctx)
	return c.Access.AddCredential(ctx, v, acts...)
}

// DropCredential implements store.Access. Also after an error it may be gone.
func (c credentials) DropCredential(ctx context.Context, id string, acts ...keep.Decided) error {
	err := c.Access.DropCredential(ctx, id, acts...)
	if !errors.Is(err, keep.ErrNotFound) {
		c.changed(ctx)
	}
	return err
}

// Announced returns the credentials of a database beside its hosts. Hosts of a file
// see by themselves that it changed.
func (e Env) Announced(s store.Access) store.Access {
	t, ok := s.(store.Broadcaster)
	if !ok {
		return s
	}
	return credentials{s, func(ctx context.Context) {
		if _, err := t.Tell(ctx, " "+feed.Text([]feed.Change{credentialChange}, 1000)); err != nil {
			e.Log.WarnContext(ctx, "hosts were not notified of a change of tokens; streams that are open may continue for half a minute", "err", err)
		}
	}}
}

// decidedKeys are idempotency keys about which people decide on the pages: whoever
// follows a host learns of it.
type decidedKeys struct {
	idempotency.Store
	changed func()
}

// Write implements idempotency.Store.
func (k decidedKeys) Write(ctx context.Context, r key.Record) error {
	defer k.changed()
	return k.Store.Write(ctx, r)
}
