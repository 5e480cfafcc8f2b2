package host

import (
	"context"
	"sync/atomic"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/host/notify"
)

// remembered is how many changes the feed keeps for those who come back.
const remembered = 4096

// An observedStore announces its commits to a feed, and wakes who notifies people of questions.
type observedStore struct {
	Store
	announce  func(feed.Change)
	notifier  *notify.Notifier
	mender    *mender
	committed func(keep.Commit) // may be nil
	worked    *atomic.Uint64    // commits that were not a sweep's
	refusals  *refusals
}

// Commit announces also after an error: the commit may be durable, and to
// look once too often costs little.
func (s observedStore) Commit(ctx context.Context, c keep.Commit) error {
	err := s.Store.Commit(ctx, c)
	s.refusals.note(err)
	if !sweeps(c) {
		s.worked.Add(1)
	}
	s.announce(feed.Of(c))
	if asks(c) {
		s.notifier.Wake()
	}
	s.mender.committed(c) // also after an error: it may be durable
	if err == nil && s.committed != nil {
		s.committed(c)
	}
	return err
}

// sweeps reports whether c is of a sweep.
func sweeps(c keep.Commit) bool {
	if len(c.Changes) == 0 {
		return false
	}
	_, sweep := c.Changes[0].(keep.Sweep)
	return sweep
}

// Changes tells what the host commits, and what others did to the store. It may be
// read from Open on.
func (h *Host) Changes() *feed.Feed { return h.changes }

// Announce publishes to those who follow the feed, of this host and of the others on the
// store, what was changed other than by a commit of the host.
func (h *Host) Announce(c feed.Change) {
	h.changes.Publish(c)
	if h.peers != nil {
		h.peers.outgoing.Publish(c)
	}
}

// Reload makes everything be read again: by the engine, and by those who follow
// the feed. The host calls it when another process changed the store.
func (h *Host) Reload() {
	h.Engine.Reload()
	h.changes.Reset()
	h.notifier.Wake()
}
