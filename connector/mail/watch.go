package mail

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/pause"
)

// noWatch is the name of no folder: of Config.Idle, it says that none is watched.
const noWatch = "none"

// A position is how far the mails of a folder go.
type position struct {
	validity uint32
	next     imap.UID
}

// saw notes how far the watched folder went when a search read it.
func (a *account) saw(folder string, data *imap.SelectData) {
	if folder == a.watched {
		a.seen.Store(&position{data.UIDValidity, data.UIDNext})
	}
}

// newsGap is how long mails are gathered before anybody hears of them: a box that gets many at
// once is read once.
const newsGap = time.Second

// watch implements connector.Connection.Watch with IDLE (RFC 2177): one session beside that
// of reads, which the server tells of new mails. What came since the last search until the
// session was there is news, too. A session has the bound of one answer, and then another follows.
func (a *account) watch(ctx context.Context, changed func()) error {
	seen := a.seen.Load()
	arrived := make(chan struct{}, 1)
	b, err := a.watchingBox(ctx, arrived)
	if err != nil {
		return errors.New(a.clean(err.Error()))
	}
	var wg sync.WaitGroup
	defer wg.Wait() // after the end of the session
	defer b.end()
	defer b.during(ctx)()
	data, err := b.open(a.watched, false)
	if err != nil {
		return errors.New(a.clean(err.Error()))
	}
	if !b.Caps().Has(imap.CapIdle) {
		return errors.ErrUnsupported
	}
	if seen != nil && *seen != (position{data.UIDValidity, data.UIDNext}) {
		changed()
	}
	idle, err := b.Idle()
	if err != nil {
		return fmt.Errorf("IDLE: %s", a.clean(b.cause(err).Error()))
	}
	over := make(chan error, 1)
	wg.Go(func() { over <- idle.Wait() })
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-over:
			return fmt.Errorf("the session that waits for mails ended: %v", b.cause(err))
		case <-arrived:
		}
		changed()
		if pause.For(ctx, newsGap) != nil {
			return nil
		}
	}
}

// watchingBox opens a session that notes in arrived that the folder has other mails.
func (a *account) watchingBox(ctx context.Context, arrived chan<- struct{}) (*box, error) {
	timeout := a.timeout
	timeout = cmp.Or(timeout, connector.DefaultTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return a.openBoxWith(ctx, &imapclient.UnilateralDataHandler{Mailbox: func(data *imapclient.UnilateralDataMailbox) {
		if data.NumMessages == nil {
			return // flags
		}
		select {
		case arrived <- struct{}{}:
		default:
		}
	}})
}
