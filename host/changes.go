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
	changes   *feed.Feed
	notifier  *notify.Notifier
	committed func(keep.Commit) // nil: nobody is told
}

// Commit tells the feed also after an error: the commit may be durable, and to
// look once too often costs little.
func (s told) Commit(ctx context.Context, c keep.Commit) error {
	err := s.Store.Commit(ctx, c)
	s.changes.Publish(feed.Of(c))
	if asks(c) {
		s.notifier.Wake()
	}
	if err == nil && s.committed != nil {
		s.committed(c)
	}
	return err
}

// Changes tells what the host commits, and when another process changed the
// store. It may be read from Open on.
func (h *Host) Changes() *feed.Feed { return h.changes }

// Reload makes everything be read again: by the engine, and by those who follow
// the feed. The host calls it when another process changed the store.
func (h *Host) Reload() {
	h.Engine.Reload()
	h.changes.Reset()
	h.notifier.Wake()
}
