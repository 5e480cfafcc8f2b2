package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
)

// channel is what hosts of a database listen to. Its name must be short enough
// for an identifier of Postgres.
func channel(id string) string { return "keep_" + id }

// alerts listens for what others commit to the workflows of this process's hosts.
// Nothing depends on it but time: while the connection is gone, and behind a pooler
// that has no sessions, hosts learn of everything by their next poll.
type alerts struct {
	sound chan struct{}
	news  chan keep.News
	stop  context.CancelFunc
	wg    sync.WaitGroup

	mu    sync.Mutex
	hosts map[string]bool // of this process; protected by mu
}

// listen starts to listen on a connection of its own; close ends it.
func listen(cfg *pgx.ConnConfig, channel string) *alerts {
	ctx, stop := context.WithCancel(context.Background())
	a := &alerts{sound: make(chan struct{}, 1), news: make(chan keep.News, 256), stop: stop, hosts: make(map[string]bool)}
	a.wg.Go(func() {
		const first, most = 100 * time.Millisecond, 10 * time.Second
		wait := first
		for ctx.Err() == nil {
			if listened := a.listen(ctx, cfg, channel); listened {
				wait = first
			}
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
			wait = min(2*wait, most)
		}
	})
	return a
}

// listen passes notifications on until the connection breaks. It reports whether
// there was one at all.
func (a *alerts) listen(ctx context.Context, cfg *pgx.ConnConfig, channel string) bool {
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return false
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return false
	}
	a.ring() // for what was said before
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return true
		}
		if news, ok := readNews(n.Payload); ok {
			a.pass(news)
		} else if a.concerns(n.Payload) {
			a.ring()
		}
	}
}

// pass hands news on. Those for which there is no room are lost; the next ones show
// by their number that they are.
func (a *alerts) pass(news keep.News) {
	select {
	case a.news <- news:
	default:
	}
}

// ring wakes the receiver, now or when it next waits.
func (a *alerts) ring() {
	select {
	case a.sound <- struct{}{}:
	default: // they know
	}
}

// of adds a host whose alerts these are.
func (a *alerts) of(host string) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hosts[host] = true
}

// concerns reports whether a notification is for a host of this process, or all.
func (a *alerts) concerns(host string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return host == "" || a.hosts[host]
}

// close ends the goroutine and its connection.
func (a *alerts) close() {
	a.stop()
	a.wg.Wait()
}

// Alerts returns a channel that receives when it is worth to look; see
// store.Alerter. Without Config.Host, and behind a pooler, it never does.
func (db *DB) Alerts() <-chan struct{} {
	if db.alerts == nil {
		return nil
	}
	return db.alerts.sound
}
