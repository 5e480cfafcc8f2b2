package sqlite

import (
	"context"
	"fmt"
	"io"
	"sort"
	"strings"
	"syscall"
	"time"
)

// LimitPages makes the file full at a number of pages; 0 lifts the limit.
func (db *DB) LimitPages(ctx context.Context, n int) error {
	if n == 0 {
		n = 1 << 30
	}
	return db.write.do(ctx, func(c *conn) error {
		_, err := c.row(fmt.Sprintf(`PRAGMA max_page_count = %d`, n))
		return err
	})
}

// Pages returns the size of the file in pages.
func (db *DB) Pages(ctx context.Context) (n int, err error) {
	err = db.row(ctx, `PRAGMA page_count`, nil, &n)
	return n, err
}

// Do runs statements in the writer, as no commit would.
func (db *DB) Do(ctx context.Context, script string) error {
	return db.write.do(ctx, func(c *conn) error { return c.script(script) })
}

// Plans returns the query plan of every statement that the database has used,
// by its text.
func (db *DB) Plans(ctx context.Context) (map[string]string, error) {
	var texts []string
	db.stmts.Range(func(text, _ any) bool {
		texts = append(texts, text.(string))
		return true
	})
	plans := make(map[string]string)
	err := db.write.do(ctx, func(c *conn) error {
		for text := range c.stmts {
			texts = append(texts, text)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	sort.Strings(texts)
	for _, text := range texts {
		if first, _, _ := strings.Cut(strings.TrimSpace(text), " "); strings.Contains("PRAGMA BEGIN COMMIT ROLLBACK SAVEPOINT RELEASE", first) {
			continue
		}
		plan, err := db.plan(ctx, text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		plans[text] = plan
	}
	return plans, nil
}

// CheckPlans returns the query plan of every statement of Check, by its text.
func (db *DB) CheckPlans(ctx context.Context) (map[string]string, error) {
	plans := make(map[string]string)
	for _, c := range checks {
		plan, err := db.plan(ctx, c.text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.text, err)
		}
		plans[c.text] = plan
	}
	return plans, nil
}

func (db *DB) plan(ctx context.Context, text string) (string, error) {
	args := make([]any, 40) // more than any statement takes
	rows, err := db.read.QueryContext(ctx, "EXPLAIN QUERY PLAN "+text, args...)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			return "", err
		}
		lines = append(lines, detail)
	}
	return strings.Join(lines, "\n"), rows.Err()
}

// Index adds all records to the index of searches.
func (db *DB) Index(ctx context.Context) error { return db.index(ctx) }

// Scan reads the first row of a query.
func (db *DB) Scan(ctx context.Context, query string, dest ...any) error {
	return db.row(ctx, query, nil, dest...)
}

// LimitSearch sets what bounds searches, before the database is opened.
func (db *DB) LimitSearch(unindexed, walk, candidates int) {
	db.limits = searchLimits{unindexed, walk, candidates}
}

// CountAlways has a host count each transaction. The database is not open yet.
func (db *DB) CountAlways() {
	always := make(chan time.Time)
	close(always)
	db.seconds = always
}

// MarkBackup makes a file a backup.
func MarkBackup(ctx context.Context, path string) error {
	return New(path, Config{}).markBackup(ctx, path, time.UnixMilli(1))
}

// OnCommitted has f called between a commit of Restore and what follows.
func (p *Place) OnCommitted(f func()) { p.committed = f }

// Named is named, for tests.
var Named = named

// Occupy has the writer begin a transaction as soon as it can, which ends when until is closed.
func (db *DB) Occupy(until <-chan struct{}) {
	w := db.write
	r := &request{ready: make(chan struct{}), do: func(*conn) error {
		<-until
		return nil
	}}
	w.mu.Lock()
	w.queue = append(w.queue, r)
	w.mu.Unlock()
	w.signal()
}

// BreakReads has no read of the file succeed by which the writer looks whether it was replaced, until mend is called.
func (db *DB) BreakReads() (mend func()) {
	i := db.write.identity
	was := i.raw
	i.raw = brokenReader{}
	return func() { i.raw = was }
}

type brokenReader struct{}

func (brokenReader) ReadAt([]byte, int64) (int, error) { return 0, syscall.EIO }

// SetLink has backups link by f, until back is called.
func SetLink(f func(from, to string) error) (back func()) {
	was := link
	link = f
	return func() { link = was }
}

// LockHost takes the lock of the host of a file, as a host of another version does.
func LockHost(path string) (io.Closer, error) { return lockHost(path) }
