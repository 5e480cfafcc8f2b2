package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/keep-run/keep"
)

// maxNews is the longest text that hosts tell one another: that of a notification
// of Postgres, less its mark and its number.
const maxNews = 7900

// newsMark begins notifications that are news. Other ones name hosts.
const newsMark = "+"

// tell counts news and notifies of them. The lock of the row gives notifications the
// order of their numbers. Notifying ones wait for each other, so they do not wait
// for the disk as well: what is lost with the server is no loss to those who look.
const tell = `
	WITH told AS (
		INSERT INTO meta AS m (name, value) VALUES ('news', '1')
		ON CONFLICT (name) DO UPDATE SET value = (m.value::bigint + 1)::text
		RETURNING value)
	SELECT value::bigint, pg_notify($1, '` + newsMark + `' || value || ' ' || $2)::text || set_config('synchronous_commit', 'off', true) FROM told`

// Tell sends a text to the hosts of the database, this one included, and returns the number
// of the news; see store.Broadcaster.
func (db *DB) Tell(ctx context.Context, text string) (n uint64, err error) {
	switch {
	case db.cfg.ReadOnly:
		return 0, ErrReadOnly
	case db.pool == nil || db.over.Load():
		return 0, ErrClosed
	case len(text) > maxNews:
		return 0, fmt.Errorf("tell the other hosts: news of %d bytes: at most %d", len(text), maxNews)
	}
	var ignored *string
	if err := db.pool.QueryRow(ctx, tell, channel(db.id), text).Scan(&n, &ignored); err != nil {
		return 0, fmt.Errorf("tell the other hosts: %w", err)
	}
	return n, nil
}

// News returns the channel of what hosts tell, or nil if nothing listens: without
// Config.Host, and behind a pooler.
func (db *DB) News() <-chan keep.News {
	if db.alerts == nil {
		return nil
	}
	return db.alerts.news
}

// readNews reads a notification of tell.
func readNews(payload string) (keep.News, bool) {
	rest, ok := strings.CutPrefix(payload, newsMark)
	number, text, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseUint(number, 10, 64)
	return keep.News{N: n, Text: text}, ok && err == nil
}
