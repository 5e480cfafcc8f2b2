package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"
	"fmt"
	"maps"
	"slices"

	"github.com/keep-run/keep"
)

// nouns are the tables whose titles can be searched, with the number and the name
// that they have in the index.
var nouns = []struct {
	table  string
	number int
	name   string // column of what a mark names beside the workflow; '': none
}{
	{"run", 1, "handler"},
	{"mutation", 2, "tool"},
	{"input", 3, "''"},
	{"item", 4, "''"},
}

// nounOf returns the place of a table in nouns.
func nounOf(table string) (number int, name string) {
	for _, n := range nouns {
		if n.table == table {
			return n.number, n.name
		}
	}
	panic("no titles in table " + table)
}

// maxUnindexed is how many new titles wait until they are added to the index. It
// bounds what a search has to look through.
const maxUnindexed = 500

// indexChunk is the most titles that are added in one transaction.
const indexChunk = 2000

// markWorkflow and markName are what a row has in the index beside the words of
// its title. No word begins with a space.
func markWorkflow(name string) string { return " w" + name }
func markName(name string) string     { return " n" + name }

// A title is that of row n, with what is marked of it.
type title struct {
	n              int64
	text           string
	workflow, name string
}

// words returns what the index has of a title: each word once.
func (t title) words() []string {
	words := keep.Words(t.text)
	if len(words) == 0 {
		return nil // nothing finds it
	}
	words = append(words, markWorkflow(t.workflow))
	if t.name != "" {
		words = append(words, markName(t.name))
	}
	slices.Sort(words)
	return slices.Compact(words)
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
		n, err := c.indexNoun(noun.table, limit)
		if err != nil {
			return false, fmt.Errorf("index titles of %ss: %w", noun.table, err)
		}
		more = more || n == limit
	}
	return more, nil
}

// indexNoun takes the titles that changed out of the index and puts them in as
// they are now, and then the next ones.
func (c *conn) indexNoun(table string, limit int) (n int, err error) {
	number, name := nounOf(table)
	x := make(indexChange)
	known, err := c.titles(`SELECT n, title, workflow, name FROM title_changed WHERE noun = ? LIMIT ?`, table, limit)
	if err != nil {
		return 0, err
	}
	for _, t := range known {
		x.drop(t)
		now, err := c.titles(`SELECT n, title, workflow, `+name+` FROM `+table+` WHERE n = ?`, t.n)
		if err != nil {
			return 0, err
		}
		for _, t := range now { // none: the row is gone
			x.add(t)
		}
		if _, err := c.exec(`DELETE FROM title_changed WHERE noun = ? AND n = ?`, table, t.n); err != nil {
			return 0, err
		}
	}
	fresh, err := c.titles(`SELECT n, title, workflow, `+name+` FROM `+table+`
		 WHERE n > (SELECT upto FROM title_index WHERE noun = ?1) ORDER BY n LIMIT ?2`, table, limit)
	if err != nil {
		return 0, err
	}
	for _, t := range fresh {
		x.add(t)
	}
	if err := c.writeIndex(number, x); err != nil || len(fresh) == 0 {
		return len(known), err
	}
	_, err = c.exec(`UPDATE title_index SET upto = ? WHERE noun = ?`, fresh[len(fresh)-1].n, table)
	return max(len(known), len(fresh)), err
}

// titles returns what a query of titles finds.
func (c *conn) titles(text string, args ...any) (list []title, err error) {
	err = c.rows(text, args, func(row []driver.Value) {
		list = append(list, title{row[0].(int64), row[1].(string), row[2].(string), row[3].(string)})
	})
	return list, err
}

// An indexChange says, for words of buckets, which rows get them and which lose
// them. What is lost is lost before anything is got.
type indexChange map[posting]*[2][]int64

// A posting is a word of a bucket.
type posting struct {
	bucket int64
	word   string
}

func (x indexChange) add(t title)  { x.put(t, 1) }
func (x indexChange) drop(t title) { x.put(t, 0) }

func (x indexChange) put(t title, which int) {
	for _, w := range t.words() {
		p := posting{t.n >> wordBits, w}
		if x[p] == nil {
			x[p] = new([2][]int64)
		}
		x[p][which] = append(x[p][which], t.n)
	}
}

// writeIndex makes a change, in the order of the index.
func (c *conn) writeIndex(number int, x indexChange) error {
	places := slices.SortedFunc(maps.Keys(x), func(a, b posting) int {
		return cmp.Or(cmp.Compare(a.bucket, b.bucket), cmp.Compare(a.word, b.word))
	})
	for _, p := range places {
		if err := c.writePosting(number, p, x[p][0], x[p][1]); err != nil {
			return err
		}
	}
	return nil
}

// writePosting changes the set of one word. Most words are new to their bucket.
func (c *conn) writePosting(number int, p posting, drop, add []int64) error {
	var set rowSet
	for _, n := range add {
		set.add(n)
	}
	if len(drop) == 0 {
		made, err := c.exec(`INSERT INTO title_word (noun, bucket, word, rows) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			number, p.bucket, p.word, set.encode())
		if err != nil || made == 1 {
			return err
		}
	}
	set = rowSet{}
	row, err := c.row(`SELECT rows FROM title_word WHERE noun = ? AND bucket = ? AND word = ?`, number, p.bucket, p.word)
	if err == nil && row != nil {
		err = set.join(row[0].([]byte))
	}
	if err != nil {
		return err
	}
	for _, n := range drop {
		set.drop(n)
	}
	for _, n := range add {
		set.add(n)
	}
	if stored := set.encode(); stored != nil {
		_, err = c.exec(`INSERT OR REPLACE INTO title_word (noun, bucket, word, rows) VALUES (?, ?, ?, ?)`, number, p.bucket, p.word, stored)
	} else {
		_, err = c.exec(`DELETE FROM title_word WHERE noun = ? AND bucket = ? AND word = ?`, number, p.bucket, p.word)
	}
	return err
}
