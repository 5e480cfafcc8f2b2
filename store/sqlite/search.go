package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/search"
)

// searchLimits bound what a search reads. Tests make them small.
type searchLimits struct{ unindexed, walk, candidates int }

var usualLimits = searchLimits{maxUnindexed, firstWalk, maxCandidates}

const (
	// maxUnindexed is how many changes of records wait until they are added to the
	// index. It bounds what a search reads beside the index.
	maxUnindexed = 4000

	// firstWalk is how many rows of the list a search reads before it asks the index. Words
	// that many records have are found by then, in the time of a list.
	firstWalk = 256

	// maxCandidates is how many rows that have the words a page looks at. Then it ends as
	// it is, with a cursor to continue from.
	maxCandidates = 10_000

	// maxLonger is how many longer words a word of a text may begin. FTS5 goes through the
	// records of each word, newest first, until a page has enough; of the beginning of
	// more words it first reads all records that have one of them.
	maxLonger = 8

	// walkChunk and candidateChunk are how many rows are read at first; each time twice as
	// many.
	walkChunk, candidateChunk = 128, 512
)

// A textSearch is a filter with a Text, which has words.
type textSearch struct {
	noun     *searchedNoun
	terms    []string
	workflow keep.WorkflowName
	name     string // what the filter wants of the marks of a document; empty: any

	list  func(context.Context, *view, cut) ([]stream, error) // the rows that the rest of the filter selects
	few   bool                                                // these are few: the index is not asked
	where string                                              // the rest of the filter, of rows of the table
	args  []any                                               // the arguments of where
}

// find returns the newest rows that have the words and that the filter selects: first of
// those of the list, then by the index.
//
// If it stops early, stopped is the last row that it looked at. Zero: there are no more.
func (s *textSearch) find(ctx context.Context, v *view, c cut, limits searchLimits) (found []int64, stopped int64, err error) {
	indexed, err := one(ctx, v, "index", s.noun.table, scanNumber, `SELECT upto FROM search_index WHERE noun = ?`, s.noun.table)
	if err != nil {
		return nil, 0, err
	}
	rest := c
	walked := 0
	for chunk := min(walkChunk, limits.walk); ; chunk = min(2*chunk, 4096) {
		part := cut{from: c.from, before: rest.before, limit: chunk}
		numbers, err := s.listed(ctx, v, part)
		if err != nil {
			return nil, 0, err
		}
		having, err := s.having(ctx, v, numbers)
		if err != nil {
			return nil, 0, err
		}
		found = append(found, having...)
		if len(found) >= c.limit || len(numbers) < chunk {
			return found, 0, nil
		}
		rest.before = numbers[len(numbers)-1]
		// Rows that are not in the index yet are all walked. Of a list in which every other
		// row has the words, the rest is found soonest by continuing.
		walked += len(numbers)
		if many := 2*len(found) >= walked && limits.walk > 1; walked >= limits.walk && rest.before <= indexed+1 && !s.few && !many {
			break
		}
	}
	rest.limit = c.limit - len(found)
	more, stopped, err := s.indexed(ctx, v, rest, limits.candidates)
	slices.SortFunc(more, func(a, b int64) int { return cmp.Compare(b, a) })
	return append(found, more...), stopped, err
}

// listed returns the numbers of a part of the list.
func (s *textSearch) listed(ctx context.Context, v *view, part cut) ([]int64, error) {
	streams, err := s.list(ctx, v, part)
	if err != nil {
		return nil, err
	}
	return newest(ctx, v, streams, part)
}

// having returns those of the rows that have the words, as they are now.
func (s *textSearch) having(ctx context.Context, v *view, numbers []int64) (kept []int64, err error) {
	wanted, err := json.Marshal(numbers)
	if err != nil || len(numbers) == 0 {
		return nil, err
	}
	docs, err := rows(ctx, v, s.noun.scan, `
		SELECT `+s.noun.number+`, `+s.noun.columns+` FROM (SELECT value FROM json_each(?)) CROSS JOIN `+s.noun.table+` ON `+s.noun.number+` = value`,
		string(wanted))
	for _, d := range docs {
		if d.Has(s.terms) {
			kept = append(kept, d.n)
		}
	}
	return kept, err
}

// indexed returns the newest rows of a cut by the index. Of rows that changed since they
// were added, it knows old words: these are looked at by themselves.
func (s *textSearch) indexed(ctx context.Context, v *view, c cut, candidates int) (found []int64, stopped int64, err error) {
	changed, err := rows(ctx, v, scanNumber, `SELECT n FROM search_changed WHERE noun = ? AND n < ? ORDER BY n DESC`, s.noun.table, c.before)
	if err != nil {
		return nil, 0, err
	}
	fresh, err := s.having(ctx, v, changed)
	if err != nil {
		return nil, 0, err
	}
	match, err := s.match(ctx, v)
	if err != nil {
		return nil, 0, err
	}
	before, seen := c.before, 0
	for chunk := min(max(candidateChunk, c.limit), candidates, maxCandidates); len(found) < c.limit; chunk = min(8*chunk, maxCandidates) {
		numbers, err := rows(ctx, v, scanNumber, `
			SELECT rowid FROM `+s.noun.table+`_search WHERE `+s.noun.table+`_search MATCH ? AND rowid < ? AND rowid >= ? ORDER BY rowid DESC LIMIT ?`,
			match, before, c.from, chunk)
		if err != nil {
			return nil, 0, err
		}
		last := len(numbers) < chunk
		if !last {
			before = numbers[len(numbers)-1]
		}
		seen += len(numbers)
		numbers = slices.DeleteFunc(numbers, func(n int64) bool { return slices.Contains(changed, n) })
		for len(fresh) > 0 && (last || fresh[0] >= before) {
			numbers, fresh = append(numbers, fresh[0]), fresh[1:]
		}
		kept, err := s.selected(ctx, v, numbers)
		if err != nil {
			return nil, 0, err
		}
		if found = append(found, kept...); last {
			return found, 0, nil
		}
		if seen >= candidates {
			return found, before, nil
		}
	}
	return found, 0, nil
}

// match returns the query of the index. Words and marks consist of letters and digits;
// the quotes keep one such as "and" from being an operator.
func (s *textSearch) match(ctx context.Context, v *view) (string, error) {
	var parts []string
	for _, term := range s.terms {
		longer, err := s.longer(ctx, v, term)
		if err != nil {
			return "", err
		}
		if len(longer) > maxLonger {
			parts = append(parts, `"`+term+`"*`)
			continue
		}
		parts = append(parts, `("`+strings.Join(append(longer, term), `" OR "`)+`")`)
	}
	if s.workflow != "" {
		parts = append(parts, `"`+search.MarkWorkflow(s.workflow)+`"`)
	}
	if s.name != "" {
		parts = append(parts, `"`+search.MarkName(s.name)+`"`)
	}
	return strings.Join(parts, " AND "), nil
}

// longer returns the words of the index that begin with a term and are longer, up to
// maxLonger+1 of them. It goes from each to the next.
func (s *textSearch) longer(ctx context.Context, v *view, term string) ([]string, error) {
	words := s.noun.table + `_words`
	return rows(ctx, v, scanName, `
		WITH RECURSIVE next (word) AS (
			SELECT (SELECT term FROM `+words+` WHERE term >= ?1 || '0' AND term < ?2 LIMIT 1)
			UNION ALL
			SELECT (SELECT term FROM `+words+` WHERE term >= word || '0' AND term < ?2 LIMIT 1) FROM next WHERE word IS NOT NULL)
		SELECT word FROM next WHERE word IS NOT NULL LIMIT ?3`, term, term+"\U0010ffff", maxLonger+1)
}

// selected returns those of the rows that the rest of the filter selects.
func (s *textSearch) selected(ctx context.Context, v *view, numbers []int64) ([]int64, error) {
	wanted, err := json.Marshal(numbers)
	if err != nil || len(numbers) == 0 {
		return nil, err
	}
	return rows(ctx, v, scanNumber, `
		SELECT `+s.noun.number+` FROM (SELECT value FROM json_each(?`+strconv.Itoa(len(s.args)+1)+`)) CROSS JOIN `+s.noun.table+`
		    ON `+s.noun.number+` = value WHERE `+s.where, append(slices.Clone(s.args), string(wanted))...)
}
