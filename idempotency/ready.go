package idempotency

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/keep-run/keep/law/key"
)

// Ready returns nil if the store takes a record, and why not otherwise: a disk that is full, a database that was
// replaced. It writes one that is over since 1970, and deletes it; if the process dies in between, the next sweep
// does. So it costs two durable writes.
func (g *Guard) Ready(ctx context.Context) error {
	if err := g.lost(); err != nil {
		return err
	}
	rec, err := trial()
	if err != nil {
		return err
	}
	if err = g.store.Write(ctx, rec); err == nil {
		_, err = g.store.Sweep(ctx, rec.ExpiresAt, 1) // of those that are over since then, which are others' trials
	}
	g.notice(ctx, err)
	if err != nil {
		return fmt.Errorf("write a record on trial: %w", err)
	}
	return nil
}

// trial returns a record of no request, which is as long as most and was over long ago.
func trial() (key.Record, error) {
	long := time.UnixMilli(1)
	claim := key.Claim{Key: "trial", Method: "NONE", Path: "/" + rand.Text() + rand.Text() + rand.Text(), TTL: time.Millisecond}
	_, _ = rand.Read(claim.ID[:]) // it never fails
	_, _ = rand.Read(claim.Fingerprint[:])
	rec, err := key.Apply(key.Record{}, key.Fact{Evidence: key.Begun, Fence: newFence(), Claim: claim, Lease: time.Millisecond}, long)
	if err == nil {
		rec, err = key.Apply(rec, key.Fact{Evidence: key.Nothing, Fence: rec.Fence, By: "owner"}, long)
	}
	return rec, err
}
