package main

import (
	"context"
	"errors"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/access"
	"github.com/keep-run/keep/feed"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/idempotency/key"
)

// credentials are those of a database. Whoever follows a host hears when one is made
// or ends: a stream ends with the right to see it.
type credentials struct {
	access.Store
	changed func(ctx context.Context)
}

// credentialChange says that it was about a credential.
var credentialChange = feed.Change{Kinds: []feed.Kind{feed.Credential}}

// AddCredential implements access.Store.
func (c credentials) AddCredential(ctx context.Context, v keep.Credential) error {
	defer c.changed(ctx)
	return c.Store.AddCredential(ctx, v)
}

// DropCredential implements access.Store. Also after an error it may be gone.
func (c credentials) DropCredential(ctx context.Context, id string) error {
	err := c.Store.DropCredential(ctx, id)
	if !errors.Is(err, keep.ErrNotFound) {
		c.changed(ctx)
	}
	return err
}

// announced returns the credentials of a database beside its hosts. Hosts of a file
// see by themselves that it changed.
func (a *app) announced(s access.Store) access.Store {
	t, ok := s.(host.Teller)
	if !ok {
		return s
	}
	return credentials{s, func(ctx context.Context) {
		if _, err := t.Tell(ctx, " "+feed.Text([]feed.Change{credentialChange}, 1000)); err != nil {
			a.log.WarnContext(ctx, "hosts were not told of a change of tokens; streams that are open may go on for half a minute", "err", err)
		}
	}}
}

// decidedKeys are idempotency keys about which people decide on the pages: whoever
// follows a host hears of it.
type decidedKeys struct {
	idempotency.Store
	changed func()
}

// Write implements idempotency.Store.
func (k decidedKeys) Write(ctx context.Context, r key.Record) error {
	defer k.changed()
	return k.Store.Write(ctx, r)
}
