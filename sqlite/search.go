package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/keep-run/keep"
)

// A search is a filter with a Text.
type search struct {
	table          string
	text           string
	workflow, name string // what the filter wants of them; empty: anything

	where string // the filter without the text, of the rows of table
	args  []any  // the arguments of where

	// rare lists the rows that the filter selects without the text, if they are
	// few beside all rows: then they are gone through, and not those with the
	// words. Nil: they are not few.
	rare func(cut) ([]stream, error)
}

// stream returns where the rows of a cut come from.
func (s search) stream(c cut) stream {
	return stream{find: func(ctx context.Context, v *view) ([]int64, error) {
		f, err := newFinder(ctx, v, s.table, s.text, s.workflow, s.name)
		switch {
		case err != nil:
			return nil, err
		case s.rare != nil:
			return s.ofRare(ctx, v, f, c)
		}
		return s.ofFound(ctx, v, f, c)
	}}
}

// A search reads so many rows at once: of those that have the words, and of the
// rare ones.
const (
	foundChunk = 512
	rareChunk  = 256
)

// ofFound returns, of the rows that have the words, the newest that the filter
// selects.
func (s search) ofFound(ctx context.Context, v *view, f *finder, c cut) (found []int64, err error) {
	for numbers, err := range f.descend(ctx, c.before) {
		if err != nil {
			return nil, err
		}
		for part := range slices.Chunk(numbers, foundChunk) {
			kept, err := s.selected(ctx, v, part)
			if err != nil {
				return nil, err
			}
			if found = append(found, kept...); len(found) >= c.limit {
				return found, nil
			}
		}
	}
	return found, nil
}

// selected returns those of the rows that the rest of the filter selects.
func (s search) selected(ctx context.Context, v *view, numbers []int64) ([]int64, error) {
	wanted, err := json.Marshal(numbers)
	if err != nil {
		return nil, err
	}
	return rows(ctx, v, scanNumber, `
		SELECT n FROM (SELECT value FROM json_each(?`+strconv.Itoa(len(s.args)+1)+`)) CROSS JOIN `+s.table+` ON n = value WHERE `+s.where,
		append(slices.Clone(s.args), string(wanted))...)
}

// ofRare returns, of the rows that the filter selects, the newest that have the
// words.
func (s search) ofRare(ctx context.Context, v *view, f *finder, c cut) (found []int64, err error) {
	for part := (cut{before: c.before, limit: rareChunk}); len(found) < c.limit; {
		streams, err := s.rare(part)
		if err != nil {
			return nil, err
		}
		numbers, err := newest(ctx, v, streams, part)
		if err != nil {
			return nil, err
		}
		kept, err := f.have(ctx, numbers)
		if err != nil {
			return nil, err
		}
		if found = append(found, kept...); len(numbers) < part.limit {
			break
		}
		part.before = numbers[len(numbers)-1]
	}
	return found, nil
}

// A finder knows, bucket by bucket, which rows have the words of a search.
type finder struct {
	v      *view
	number int             // of the noun, in the index
	terms  []term          // a row must have one word of each
	top    int64           // the newest bucket
	fresh  map[int64][]row // rows that are not in the index as they are now, by bucket
	sets   map[int64]*rowSet
}

// A term is a range of words.
type term struct{ low, high string }

// A row is one that was looked at.
type row struct {
	n    int64
	have bool // it has the words
}

// newFinder begins a search in the titles of a table, of one workflow and name or
// of all.
func newFinder(ctx context.Context, v *view, table, text, workflow, name string) (*finder, error) {
	words := keep.SearchWords(text)
	number, column := nounOf(table)
	f := &finder{v: v, number: number, fresh: make(map[int64][]row), sets: make(map[int64]*rowSet)}
	for _, w := range words {
		f.terms = append(f.terms, term{w, w + "\U0010ffff"}) // which is no letter
	}
	// The longest words are likely to be the rarest: what they have not needs no
	// look for the others.
	slices.SortStableFunc(f.terms, func(a, b term) int { return cmp.Compare(len(b.low), len(a.low)) })
	if workflow != "" {
		f.terms = append(f.terms, term{markWorkflow(workflow), markWorkflow(workflow)})
	}
	if name != "" {
		f.terms = append(f.terms, term{markName(name), markName(name)})
	}
	newest, err := one(ctx, v, "row", "", scanNumber, `SELECT ifnull(max(n), 0) FROM `+table)
	if err != nil {
		return nil, err
	}
	f.top = newest >> wordBits
	_, err = rows(ctx, v, func(r *sql.Rows) (struct{}, error) {
		var t title
		err := r.Scan(&t.n, &t.text, &t.workflow, &t.name)
		have := (workflow == "" || workflow == t.workflow) && (name == "" || name == t.name) && t.text != "" && keep.HasWords(t.text, words)
		f.fresh[t.n>>wordBits] = append(f.fresh[t.n>>wordBits], row{t.n, have})
		return struct{}{}, err
	}, `SELECT n, title, workflow, `+column+` FROM `+table+` WHERE n > (SELECT upto FROM title_index WHERE noun = ?1)
		UNION ALL
		SELECT c.n, ifnull(t.title, ''), c.workflow, c.name FROM title_changed c LEFT JOIN `+table+` t ON t.n = c.n WHERE c.noun = ?1`, table)
	return f, err
}

// descend yields the rows before a number that have the words, newest first, some
// buckets at a time, ever more.
func (f *finder) descend(ctx context.Context, before int64) func(yield func([]int64, error) bool) {
	return func(yield func([]int64, error) bool) {
		high := min(f.top, (before-1)>>wordBits)
		for span := int64(1); high >= 0; span = min(2*span, maxBuckets) {
			low := max(high-span+1, 0)
			if err := f.load(ctx, low, high); err != nil {
				yield(nil, err)
				return
			}
			var numbers []int64
			for b := high; b >= low; b-- {
				numbers = append(numbers, f.sets[b].numbers(b)...)
			}
			for len(numbers) > 0 && numbers[0] >= before {
				numbers = numbers[1:]
			}
			if len(numbers) > 0 && !yield(numbers, nil) {
				return
			}
			high = low - 1
		}
	}
}

// have returns those of the rows that have the words. Rows come newest first.
func (f *finder) have(ctx context.Context, numbers []int64) (kept []int64, err error) {
	for _, n := range numbers {
		b := n >> wordBits
		if f.sets[b] == nil {
			if err := f.load(ctx, max(b-maxBuckets/4, 0), b); err != nil {
				return nil, err
			}
		}
		if f.sets[b].has(n) {
			kept = append(kept, n)
		}
	}
	return kept, nil
}

// count returns how many rows have the words.
func (f *finder) count(ctx context.Context) (n int, err error) {
	for low := int64(0); low <= f.top; low += maxBuckets {
		high := min(low+maxBuckets-1, f.top)
		if err := f.load(ctx, low, high); err != nil {
			return 0, err
		}
		for b := low; b <= high; b++ {
			n += f.sets[b].count()
		}
	}
	return n, nil
}

// load reads the sets of buckets that are not known yet.
func (f *finder) load(ctx context.Context, low, high int64) error {
	var open []int64
	for b := low; b <= high; b++ {
		if f.sets[b] == nil {
			open = append(open, b)
			f.sets[b] = new(rowSet)
		}
	}
	loaded := open
	for i, t := range f.terms {
		sets, err := f.term(ctx, t, open)
		if err != nil {
			return err
		}
		var left []int64
		for _, b := range open {
			switch set := sets[b]; {
			case set == nil:
				*f.sets[b] = rowSet{}
				continue
			case i == 0:
				f.sets[b] = set
			default:
				f.sets[b].and(set)
			}
			left = append(left, b)
		}
		open = left
	}
	for _, b := range loaded {
		for _, r := range f.fresh[b] {
			if f.sets[b].drop(r.n); r.have {
				f.sets[b].add(r.n)
			}
		}
	}
	return nil
}

// term reads, for buckets, which rows have a word of a range.
func (f *finder) term(ctx context.Context, t term, buckets []int64) (map[int64]*rowSet, error) {
	sets := make(map[int64]*rowSet)
	if len(buckets) == 0 {
		return sets, nil
	}
	wanted, err := json.Marshal(buckets)
	if err != nil {
		return nil, err
	}
	_, err = rows(ctx, f.v, func(r *sql.Rows) (struct{}, error) {
		var bucket int64
		var stored sql.RawBytes
		if err := r.Scan(&bucket, &stored); err != nil {
			return struct{}{}, err
		}
		if sets[bucket] == nil {
			sets[bucket] = new(rowSet)
		}
		return struct{}{}, sets[bucket].join(stored)
	}, `SELECT bucket, rows FROM (SELECT value FROM json_each(?1)) CROSS JOIN title_word
		    ON noun = ?2 AND bucket = value AND word BETWEEN ?3 AND ?4`, string(wanted), f.number, t.low, t.high)
	return sets, err
}
