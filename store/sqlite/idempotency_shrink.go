package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"
)

const (
	// shrinkPages are given back at once: about a millisecond of the writer, which
	// all others wait for.
	shrinkPages = 64

	// shrinkPause is the time between two steps. With it a file shrinks by some
	// 5 MB a second.
	shrinkPause = 50 * time.Millisecond

	// reservePages stay free, or an eighth of what is in use if that is more: they
	// are needed again soon, and a file that shrinks only to grow wears the disk.
	reservePages = 256
)

// Shrink gives free pages back to the file system, beyond a reserve of an eighth,
// and truncates the log. It works in steps of 64 pages, and waits between them. A
// file that was made by a version which did not prepare for it does not shrink;
// Compact prepares it.
func (k *Keys) Shrink(ctx context.Context) (bytes int64, err error) {
	if k.db.write == nil {
		return 0, ErrReadOnly
	}
	pause := time.NewTimer(shrinkPause)
	defer pause.Stop()
	for {
		var step int64
		err := k.db.write.do(ctx, func(c *conn) (err error) {
			step, err = shrinkStep(c)
			return err
		})
		if err != nil {
			return bytes, fmt.Errorf("shrink: %w", err)
		}
		if bytes += step; step == 0 {
			break
		}
		pause.Reset(shrinkPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return bytes, context.Cause(ctx)
		}
	}
	if bytes == 0 {
		return 0, nil
	}
	return bytes, k.db.truncateLog(ctx)
}

// shrinkStep gives back some pages, and returns their bytes: 0 if there are none
// to spare.
func shrinkStep(c *conn) (int64, error) {
	var n [4]int64
	for i, pragma := range []string{`PRAGMA auto_vacuum`, `PRAGMA freelist_count`, `PRAGMA page_count`, `PRAGMA page_size`} {
		row, err := c.row(pragma)
		if err != nil {
			return 0, err
		}
		n[i] = row[0].(int64)
	}
	mode, free, pages, size := n[0], n[1], n[2], n[3]
	spare := free - max(reservePages, (pages-free)/8)
	if mode != incremental || spare <= 0 {
		return 0, nil
	}
	spare = min(spare, shrinkPages)
	// It gives a row for each page, and stops where one stops reading.
	err := c.rows(fmt.Sprintf(`PRAGMA incremental_vacuum(%d)`, spare), nil, func([]driver.Value) {})
	return spare * size, err
}

// incremental is the auto_vacuum mode in which free pages are given back on demand.
const incremental = 2

// truncateLog moves the log into the file, which only then gets shorter, and the
// log becomes empty. It gives up where it would have to wait for a reader: the
// writer's next checkpoint does the same, except for the log's length.
func (db *DB) truncateLog(ctx context.Context) (err error) {
	c, err := openConn(ctx, db.dsn(false))
	if err != nil {
		return fmt.Errorf("truncate log: %w", err)
	}
	defer func() { err = errors.Join(err, c.close()) }()
	// Passive first: it does the work without keeping a writer out.
	for _, pragma := range []string{`PRAGMA busy_timeout = 0`, `PRAGMA wal_checkpoint(PASSIVE)`, `PRAGMA wal_checkpoint(TRUNCATE)`} {
		if _, err := c.row(pragma); err != nil {
			return fmt.Errorf("truncate log: %w", err)
		}
	}
	return nil
}

// Compact writes the whole file anew, without its free pages, and prepares it for
// [Keys.Shrink]. It needs as much disk again while it works, and everybody else
// who writes waits, so it is for a person to ask for. It takes the role of the
// host.
func (db *DB) Compact(ctx context.Context) (err error) {
	if db.cfg.ReadOnly {
		return ErrReadOnly
	}
	if db.lock == nil {
		lock, err := lockHost(db.path)
		if err != nil {
			return fmt.Errorf("compact %s: %w", db.path, err)
		}
		defer lock.Close()
	}
	c, err := openConn(ctx, db.dsn(false))
	if err != nil {
		return fmt.Errorf("compact %s: %w", db.path, err)
	}
	for _, command := range []string{`PRAGMA auto_vacuum = INCREMENTAL`, `VACUUM`} {
		err = cmp.Or(err, c.script(command))
	}
	if err = errors.Join(err, c.close()); err != nil {
		return fmt.Errorf("compact %s: %w", db.path, err)
	}
	return db.truncateLog(ctx)
}
