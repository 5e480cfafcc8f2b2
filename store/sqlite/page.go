package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/keep-run/keep"
)

// A stream is a query for the numbers of rows that match a filter, in one of three
// forms:
//
//   - newest first, up to the limit;
//   - in any order, where the law keeps them few;
//   - by buckets, if last is set: the query takes a range of buckets as its last
//     two arguments and returns all that match there. Last is the query for the
//     newest row of the table.
type stream struct {
	text string
	args []any
	last string
}

// bucketSize is how many rows share a bucket: an index on n >> 9.
const bucketSize = 512

// maxBuckets is the most that one query looks into.
const maxBuckets = 64

// A listing says how to read one kind of list.
type listing[T any] struct {
	kind string                                              // one letter that marks its cursors
	rows string                                              // query for the rows of a JSON array of numbers
	scan func(scanner) (T, error)                            // reads one of them
	from func(context.Context, *view, cut) ([]stream, error) // where the numbers come from
	text *textSearch                                         // if the filter has a Text

	within func(context.Context, *view, cut) (cut, error) // limits a cut to what the filter can select
}

// numberOf returns the column that numbers the rows of a table.
func numberOf(table string) string {
	if table == "event" {
		return "seq"
	}
	return "n"
}

// A cut is the part of a list that is wanted: numbers from one up to another, and limit of
// them.
type cut struct {
	from, before int64
	limit        int
}

// page reads one page: it merges the streams, newest first, then reads the rows.
//
// No index could serve every filter in order, and none has to: a workflow has a
// few topics and statuses, so the newest rows of each, merged, are the newest of
// all.
func page[T any](ctx context.Context, db *DB, p keep.Page, l listing[T]) (list []T, next string, err error) {
	c, err := parseCursor(l.kind, p)
	if err != nil {
		return nil, "", err
	}
	err = db.snapshot(ctx, func(v *view) error {
		c, err := l.within(ctx, v, c)
		if err != nil {
			return err
		}
		numbers, stopped, err := l.numbers(ctx, v, c)
		if err != nil {
			return err
		}
		if len(numbers) >= c.limit { // more than the page holds
			numbers = numbers[:c.limit-1]
			stopped = numbers[len(numbers)-1]
		}
		if stopped != 0 {
			next = l.kind + strconv.FormatInt(stopped, 10)
		}
		if len(numbers) == 0 {
			return nil
		}
		wanted, err := json.Marshal(numbers)
		if err != nil {
			return err
		}
		list, err = rows(ctx, v, l.scan, l.rows, string(wanted))
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("list: %w", err)
	}
	return list, next, nil
}

// numbers returns the rows of a cut, newest first. If it stops early, stopped is the last
// row that it looked at; zero: there are no more.
func (l *listing[T]) numbers(ctx context.Context, v *view, c cut) (numbers []int64, stopped int64, err error) {
	if l.text != nil {
		return l.text.find(ctx, v, c, v.db.limits)
	}
	streams, err := l.from(ctx, v, c)
	if err != nil {
		return nil, 0, err
	}
	numbers, err = newest(ctx, v, streams, c)
	return numbers, 0, err
}

// newest merges streams: the largest numbers of all, largest first.
func newest(ctx context.Context, v *view, streams []stream, c cut) ([]int64, error) {
	var all []int64
	for _, s := range streams {
		var numbers []int64
		var err error
		switch {
		case s.last != "":
			numbers, err = descend(ctx, v, s, c)
		default:
			numbers, err = rows(ctx, v, scanNumber, s.text, s.args...)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, numbers...)
	}
	slices.SortFunc(all, func(a, b int64) int { return cmp.Compare(b, a) })
	all = slices.Compact(all)
	return all[:min(len(all), c.limit)], nil
}

// descend looks into ever more buckets, from the newest to the oldest, until it
// has enough.
func descend(ctx context.Context, v *view, s stream, c cut) (found []int64, err error) {
	newest, err := one(ctx, v, "row", "", scanNumber, s.last)
	if err != nil {
		return nil, err
	}
	high := min(newest, c.before-1) / bucketSize
	end := max(c.from, 0) / bucketSize
	for span := int64(1); high >= end && len(found) < c.limit; span = min(2*span, maxBuckets) {
		low := max(high-span+1, end)
		numbers, err := rows(ctx, v, scanNumber, s.text, append(slices.Clone(s.args), low, high)...)
		if err != nil {
			return nil, err
		}
		found = append(found, numbers...)
		high = low - 1
	}
	return found, nil
}

// scanNumber reads a row number.
func scanNumber(row scanner) (n int64, err error) {
	err = row.Scan(&n)
	return n, err
}

// scanName reads a text.
func scanName(row scanner) (name string, err error) {
	err = row.Scan(&name)
	return name, err
}

// parseCursor reads the cursor that page made. One row more than the page is
// read, to know whether there is a next one.
func parseCursor(kind string, p keep.Page) (cut, error) {
	c := cut{before: 1<<63 - 1, limit: p.Size() + 1}
	if p.After == "" {
		return c, nil
	}
	digits, ours := strings.CutPrefix(p.After, kind)
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ours || err != nil || n < 1 {
		return c, fmt.Errorf("cursor %q: %w", p.After, keep.ErrBadCursor)
	}
	c.before = n
	return c, nil
}
