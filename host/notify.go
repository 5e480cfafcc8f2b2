package host

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/notify"
)

// newNotifier returns what notifies people of questions by a clock; nil if cfg has no targets.
func newNotifier(store Store, cfg Config, now func() time.Time) (*notify.Notifier, error) {
	if len(cfg.Notify.Targets) == 0 {
		return nil, nil
	}
	if cfg.Notify.Store == nil {
		s, ok := store.(notify.Store)
		if !ok {
			return nil, fmt.Errorf("%T cannot record who was notified of questions", store)
		}
		cfg.Notify.Store = s
	}
	cfg.Notify.Logger = cmp.Or(cfg.Notify.Logger, cfg.Logger)
	if cfg.Notify.Now == nil {
		cfg.Notify.Now = now
	}
	return notify.New(cfg.Notify)
}

// asks reports whether a commit may have opened a question.
func asks(c keep.Commit) bool {
	return slices.ContainsFunc(c.Changes, func(change keep.Change) bool {
		_, opens := change.(keep.OpenEscalation)
		return opens
	})
}

// FlushNotices tells people of what is due now: it tries each target once with
// each question, and returns when that is done or ctx ends. It is for a program
// that ends; call it after Run returned. What it does not come to is told after
// the next start.
func (h *Host) FlushNotices(ctx context.Context) { h.notifier.Flush(ctx) }
