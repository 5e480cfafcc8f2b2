package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/keep-run/keep"
)

// Titles are searched in two places: those that were added to the index, and the
// few that were not yet. The schema says why.

// nouns are the tables whose titles can be searched.
var nouns = []string{"run", "mutation", "input", "item"}

// maxUnindexed is how many new titles wait until they are added to the index. It
// bounds what a search has to look through.
const maxUnindexed = 500

// indexChunk is the most titles that are added in one transaction.
const indexChunk = 2000

// A search is a filter with a Text.
type search struct {
	noun  string
	text  string
	where string // what else the filter wants, of the noun's table and before the cut

	// The arguments of where. Before and limit say which of them, from 1, are
	// those of the cut.
	args          []any
	before, limit int
}

// streams returns where the rows come from that the search finds.
func (s search) streams(ctx context.Context, v *view) ([]stream, error) {
	words := keep.SearchWords(s.text)
	fresh, err := unindexed(ctx, v, s.noun, words)
	if err != nil {
		return nil, err
	}
	numbers, err := json.Marshal(fresh)
	if err != nil {
		return nil, err
	}
	text := strings.NewReplacer("{noun}", s.noun, "{where}", s.where, "{own}", fmt.Sprint("?", len(s.args)+1),
		"{before}", fmt.Sprint("?", s.before), "{limit}", fmt.Sprint("?", s.limit))
	return []stream{{
		text: text.Replace(`
			SELECT n FROM {noun}_words CROSS JOIN {noun} ON n = {noun}_words.rowid
			 WHERE {noun}_words MATCH {own} AND {noun}_words.rowid < {before}
			   AND {noun}_words.rowid NOT IN (SELECT n FROM title_changed WHERE noun = '{noun}')
			   AND {where}
			 ORDER BY {noun}_words.rowid DESC LIMIT {limit}`),
		args: append(slices.Clone(s.args), match(words)),
	}, {
		text: text.Replace(`
			SELECT n FROM (SELECT value FROM json_each({own})) CROSS JOIN {noun} ON n = value
			 WHERE n < {before} AND {limit} > 0 AND {where}`),
		args: append(slices.Clone(s.args), string(numbers)),
	}}, nil
}

// match writes words as FTS5 reads them: each as the beginning of a token. They
// hold nothing that would have to be escaped.
func match(words []string) string {
	var b strings.Builder
	for _, w := range words {
		fmt.Fprintf(&b, `"%s"* `, w)
	}
	return b.String()
}

// unindexed returns the rows whose titles are not in the index as they are now,
// and have the words.
func unindexed(ctx context.Context, v *view, noun string, words []string) ([]int64, error) {
	titles, err := rows(ctx, v, scanTitle, `
		SELECT n, title FROM `+noun+` WHERE n > (SELECT upto FROM title_index WHERE noun = '`+noun+`') AND title <> ''`)
	if err != nil {
		return nil, err
	}
	changed, err := rows(ctx, v, scanTitle, `
		SELECT `+noun+`.n, title FROM title_changed CROSS JOIN `+noun+` USING (n) WHERE noun = '`+noun+`'`)
	numbers := []int64{}
	for _, t := range append(titles, changed...) {
		if keep.HasWords(t.title, words) {
			numbers = append(numbers, t.n)
		}
	}
	return numbers, err
}

// A title is that of row n.
type title struct {
	n     int64
	title string
}

// scanTitle reads a row's number and title.
func scanTitle(row *sql.Rows) (t title, err error) {
	err = row.Scan(&t.n, &t.title)
	return t, err
}

// indexTitles adds all titles to the index that are not there. It takes a while
// once, when a database of an older version is opened.
func (db *DB) indexTitles(ctx context.Context) error {
	for more := true; more; {
		err := db.write.do(ctx, func(c *conn) (err error) {
			more, err = c.indexTitles(indexChunk)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// indexTitles adds up to limit titles of each noun to the index. It reports
// whether there may be more.
func (c *conn) indexTitles(limit int) (more bool, err error) {
	for _, noun := range nouns {
		n, err := c.indexNoun(noun, limit)
		if err != nil {
			return false, fmt.Errorf("index titles of %ss: %w", noun, err)
		}
		more = more || n == limit
	}
	return more, nil
}

// indexNoun adds the titles that changed, and then the next ones.
func (c *conn) indexNoun(noun string, limit int) (n int, err error) {
	changed, err := c.titles(`SELECT `+noun+`.n, title FROM title_changed CROSS JOIN `+noun+` USING (n)
		 WHERE noun = '`+noun+`' LIMIT ?`, limit)
	if err != nil {
		return 0, err
	}
	for _, t := range changed {
		if err := c.indexTitle(noun, t); err != nil {
			return 0, err
		}
		if _, err := c.exec(`DELETE FROM title_changed WHERE noun = ? AND n = ?`, noun, t.n); err != nil {
			return 0, err
		}
	}
	fresh, err := c.titles(`SELECT n, title FROM `+noun+`
		 WHERE n > (SELECT upto FROM title_index WHERE noun = '`+noun+`') ORDER BY n LIMIT ?`, limit)
	if err != nil || len(fresh) == 0 {
		return len(changed), err
	}
	for _, t := range fresh {
		if err := c.indexTitle(noun, t); err != nil {
			return 0, err
		}
	}
	_, err = c.exec(`UPDATE title_index SET upto = ? WHERE noun = ?`, fresh[len(fresh)-1].n, noun)
	return max(len(changed), len(fresh)), err
}

// indexTitle puts one title into the index, or takes an empty one out of it.
func (c *conn) indexTitle(noun string, t title) error {
	words := strings.Join(keep.Words(t.title), " ")
	if words == "" {
		_, err := c.exec(`DELETE FROM `+noun+`_words WHERE rowid = ?`, t.n)
		return err
	}
	_, err := c.exec(`INSERT OR REPLACE INTO `+noun+`_words (rowid, words) VALUES (?, ?)`, t.n, words)
	return err
}

// titles returns what a query of numbers and titles finds.
func (c *conn) titles(text string, args ...any) (list []title, err error) {
	err = c.rows(text, args, func(row []driver.Value) {
		list = append(list, title{row[0].(int64), row[1].(string)})
	})
	return list, err
}
