package host

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/feed"
	"github.com/keep-run/keep/notify"
)

// remembered is how many changes the feed keeps for those who come back.
const remembered = 4096

// told is a store whose commits are told to a feed, and its questions to people.
type told struct {
	Store
	announce  func(feed.Change)
	notifier  *notify.Notifier
	committed func(keep.Commit) // nil: nobody is told
}

// Commit tells the feed also after an error: the commit may be durable, and to
// look once too often costs little.
func (s told) Commit(ctx context.Context, c keep.Commit) error {
	err := s.Store.Commit(ctx, c)
	s.announce(feed.Of(c))
	if asks(c) {
		s.notifier.Wake()
	}
	if err == nil && s.committed != nil {
		s.committed(c)
	}
	return err
}

// Changes tells what the host commits, and what others did to the store. It may be
// read from Open on.
func (h *Host) Changes() *feed.Feed { return h.changes }

// Announce tells those who follow the feed, of this host and of the others on the
// store, what was changed other than by a commit of the host.
func (h *Host) Announce(c feed.Change) {
	h.changes.Publish(c)
	if h.others != nil {
		h.others.outgoing.Publish(c)
	}
}

// Reload makes everything be read again: by the engine, and by those who follow
// the feed. The host calls it when another process changed the store.
func (h *Host) Reload() {
	h.Engine.Reload()
	h.changes.Reset()
	h.notifier.Wake()
}
