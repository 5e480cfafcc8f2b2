package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keep-run/keep"
)

// Words are found in one of two ways. Those that many records have are found by
// reading the list, newest first: it has a page of them soon. Those that few have are
// found by the index, whose cost is in the number of records that have them. The
// beginning of the list tells which is which.
const (
	firstWalk = 1 << 11 // rows that are looked through before the index is asked
	lastWalk  = 1 << 14 // rows that are looked through at once, at most

	// maxWalk is how many rows a search of one page looks through. Then the page
	// ends as it is, and its cursor leads on from there (law: bounded).
	maxWalk = 1 << 14

	// seldom is how many rows of the walk have a word, at most one of so many, that
	// the index is asked for.
	seldom = 64

	// indexTime is how long the index is asked for words that seemed to be rare, in
	// milliseconds.
	indexTime = 100
)

// tsquery writes words that must all begin one of a record. They hold nothing that
// would have to be escaped.
func tsquery(words []string) string { return "'" + strings.Join(words, "':* & '") + "':*" }

// searchTerms are words that a record must have: rare ones are looked for by the index, the others in each row that it finds.
type searchTerms struct{ rare, often []string }

// has limits q to rows with words, if it has terms.
func (q *query) has(table string) {
	if !q.looksUp() {
		return
	}
	q.where = append(q.where, table+".words @@ "+q.arg(tsquery(q.terms.rare))+"::tsquery")
	if len(q.terms.often) > 0 { // the operator's function, which no index is asked about
		q.where = append(q.where, "ts_match_vq("+table+".words, "+q.arg(tsquery(q.terms.often))+"::tsquery)")
	}
}

// A place is where a row stands in lists.
type place struct {
	n        int64
	workflow keep.WorkflowName
}

// A searcher finds the rows of a list that have words.
type searcher struct {
	db    *DB
	table string
	sql   func(q *query, c cut, columns string) string
	words []string

	walked int         // rows that were looked through
	hits   map[int]int // how many of them had a word, by its index
	ended  bool        // there are no more
	last   place       // the last of them
	asked  bool        // the index was
}

// find returns the places of the first rows of a cut that have the words. Next is
// where to continue if there may be more.
func (s *searcher) find(ctx context.Context, c cut) (found []place, next *place, err error) {
	s.hits = make(map[int]int)
	for chunk, rest := s.db.walk, c; ; chunk = min(2*chunk, lastWalk) {
		part := rest
		part.limit = chunk
		more, err := s.walk(ctx, part)
		if err != nil {
			return nil, nil, err
		}
		found = append(found, more...)
		switch {
		case len(found) >= c.limit:
			return found[:c.limit-1], &found[c.limit-2], nil
		case s.ended:
			return found, nil, nil
		case s.walked >= maxWalk:
			return found, &s.last, nil
		}
		rest.first, rest.n, rest.workflow = false, s.last.n, s.last.workflow
		if terms := s.terms(); len(terms.rare) > 0 && !s.asked {
			s.asked = true
			rest.limit = c.limit - len(found)
			more, err := s.index(ctx, rest, terms)
			if tookLong(err) {
				continue
			}
			if found = append(found, more...); err == nil && len(found) == c.limit {
				return found[:c.limit-1], &found[c.limit-2], nil
			}
			return found, nil, err
		}
	}
}

// walk looks through a part of the list and returns the places with the words.
func (s *searcher) walk(ctx context.Context, c cut) (found []place, err error) {
	q := new(query)
	inner := s.sql(q, c, s.table+".n, "+s.table+".workflow, "+s.table+".words")
	bits := make([]string, len(s.words))
	for i, w := range s.words {
		bits[i] = "CASE WHEN words @@ " + q.arg(tsquery([]string{w})) + "::tsquery THEN " + strconv.Itoa(1<<i) + "::bigint ELSE 0 END"
	}
	walked, all := 0, int64(1)<<len(s.words)-1
	_, err = collect(ctx, s.db, func(row pgx.CollectableRow) (struct{}, error) {
		var p place
		var has int64
		err := row.Scan(&p.n, into(&p.workflow), &has)
		for i := range s.words {
			if has&(1<<i) != 0 {
				s.hits[i]++
			}
		}
		if has == all {
			found = append(found, p)
		}
		walked++
		s.last = p
		return struct{}{}, err
	}, `SELECT n, workflow, `+strings.Join(bits, " + ")+` FROM (`+inner+`) AS walked ORDER BY n DESC, workflow DESC`, q.args...)
	s.walked += walked
	s.ended = walked < c.limit
	return found, err
}

// terms tells the words that were seldom in what was looked through from the others.
func (s *searcher) terms() (w searchTerms) {
	for i, word := range s.words {
		if s.hits[i]*seldom <= s.walked {
			w.rare = append(w.rare, word)
		} else {
			w.often = append(w.often, word)
		}
	}
	return w
}

// index asks the index for a part of the list.
func (s *searcher) index(ctx context.Context, c cut, terms searchTerms) ([]place, error) {
	q := &query{terms: terms}
	sql := s.sql(q, c, s.table+".n, "+s.table+".workflow")
	return look(ctx, s.db, q, func(row pgx.CollectableRow) (p place, err error) {
		err = row.Scan(&p.n, into(&p.workflow))
		return p, err
	}, sql, indexTime)
}

// tookLong reports whether the server gave a statement up. It says so in the language of its messages: what it is known by is the code, which a
// statement has, too, that somebody else cancelled.
func tookLong(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "57014"
}

// searched reads one page of the rows that have words.
func searched[T any](ctx context.Context, s searcher, c cut, columns string, scan func(pgx.CollectableRow) (placed[T], error)) (list []placed[T], next *place, err error) {
	found, next, err := s.find(ctx, c)
	if err != nil || len(found) == 0 {
		return nil, next, err
	}
	var ns []int64
	var workflows []string
	for _, p := range found {
		ns, workflows = append(ns, p.n), append(workflows, text(string(p.workflow)))
	}
	list, err = collect(ctx, s.db, scan, fmt.Sprintf(`SELECT %[2]s FROM unnest($1::bigint[], $2::text[]) AS v (n, workflow)
		  JOIN %[1]s ON %[1]s.n = v.n AND %[1]s.workflow = v.workflow`, s.table, columns), ns, workflows)
	slices.SortFunc(list, func(a, b placed[T]) int { return -a.compare(b) })
	return list, next, err
}

// look runs a list's statement. The words of titles are found by an index that only
// knows how to look for all of them at once, which other lists must not do. Limit is
// how long it may take, in milliseconds; 0: as long as any statement.
func look[T any](ctx context.Context, db *DB, q *query, scan func(pgx.CollectableRow) (T, error), sql string, limit int) (list []T, err error) {
	if !q.looksUp() {
		return collect(ctx, db, scan, sql, q.args...)
	}
	if db.pool == nil || db.over.Load() {
		return nil, ErrClosed
	}
	b := new(pgx.Batch)
	b.Queue(`SELECT set_config('enable_bitmapscan', 'on', true), set_config('enable_indexscan', 'off', true),
		set_config('statement_timeout', CASE $1::bigint WHEN 0 THEN current_setting('statement_timeout') ELSE $1::text END, true)`, limit)
	b.Queue(sql, values(q.args)...).Query(func(rows pgx.Rows) error {
		list, err = pgx.CollectRows(rows, scan)
		return err
	})
	if err := send(ctx, db.pool, b); err != nil {
		return nil, err
	}
	return list, nil
}
