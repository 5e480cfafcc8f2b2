package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/search"
)

// indexChunk is how many records of a noun are added in one transaction.
const indexChunk = 4000

// A searched noun is a table whose records a text finds.
type searchedNoun struct {
	table   string
	number  string                                            // column of the row number
	columns string                                            // what the document is made of
	doc     func(row []driver.Value) (search.Document, error) // of columns
}

var searchedNouns = []*searchedNoun{&searchedRuns, &searchedMutations, &searchedInputs, &searchedItems, &searchedEvents}

var searchedRuns = searchedNoun{"run", "n", "workflow, handler, title, trigger_message, reservations",
	func(row []driver.Value) (search.Document, error) {
		r := keep.Run{Workflow: textOf[keep.WorkflowName](row[0]), Handler: textOf[keep.HandlerName](row[1]), Title: textOf[string](row[2]),
			Trigger: keep.EventRef{MessageID: textOf[keep.MessageID](row[3])}}
		var err error
		if row[4] != nil {
			err = json.Unmarshal([]byte(textOf[string](row[4])), &r.Reservations)
		}
		return search.OfRun(r), err
	}}

var searchedMutations = searchedNoun{"mutation", "n", "workflow, tool, title, target, key, identity",
	func(row []driver.Value) (search.Document, error) {
		return search.OfMutation(keep.Mutation{Workflow: textOf[keep.WorkflowName](row[0]), Tool: textOf[keep.ToolName](row[1]),
			Title: textOf[string](row[2]), Target: textOf[string](row[3]), Key: textOf[keep.MutationKey](row[4]),
			Identity: json.RawMessage(textOf[string](row[5]))}), nil
	}}

var searchedInputs = searchedNoun{"input", "n", "workflow, title, external_id",
	func(row []driver.Value) (search.Document, error) {
		return search.OfInput(keep.Input{Workflow: textOf[keep.WorkflowName](row[0]), Title: textOf[string](row[1]), ExternalID: textOf[string](row[2])}), nil
	}}

var searchedItems = searchedNoun{"item", "n", "workflow, title, id",
	func(row []driver.Value) (search.Document, error) {
		return search.OfItem(keep.Item{Workflow: textOf[keep.WorkflowName](row[0]), Title: textOf[string](row[1]), ID: textOf[string](row[2])}), nil
	}}

var searchedEvents = searchedNoun{"event", "seq", "workflow, topic, message_id",
	func(row []driver.Value) (search.Document, error) {
		return search.OfEvent(keep.Event{Workflow: textOf[keep.WorkflowName](row[0]), Topic: textOf[keep.TopicName](row[1]), MessageID: textOf[keep.MessageID](row[2])}), nil
	}}

// textOf returns a text column; NULL is empty.
func textOf[T ~string](v driver.Value) T {
	s, _ := v.(string)
	return T(s)
}

// A document is that of one row.
type document struct {
	n int64
	search.Document
}

// index adds all records to the index that are not in it. It takes a while once, when a
// database of an older version is opened: some seconds for a million records. Each part
// is committed, so that it neither grows in memory nor begins again after a crash.
func (db *DB) index(ctx context.Context) error {
	for more := true; more; {
		err := db.write.do(ctx, func(c *conn) (err error) {
			more, err = c.index(indexChunk)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// catchUp indexes what others left, or a migration: of a host all, else if it is much.
func (db *DB) catchUp(ctx context.Context) error {
	for _, noun := range searchedNouns {
		var left int64
		err := db.row(ctx, `SELECT ifnull(max(`+noun.number+`), 0) - (SELECT upto FROM search_index WHERE noun = '`+noun.table+`') FROM `+noun.table, nil, &left)
		if err != nil {
			return err
		}
		if left > maxUnindexed || db.cfg.Host {
			return db.index(ctx)
		}
	}
	return nil
}

// index adds up to limit records of each noun. It reports whether there may be more.
func (c *conn) index(limit int) (more bool, err error) {
	for _, noun := range searchedNouns {
		n, err := c.indexNoun(noun, limit)
		if err != nil {
			return false, fmt.Errorf("index %ss: %w", noun.table, err)
		}
		more = more || n >= limit
	}
	return more, nil
}

// indexNoun adds the records that changed, and then the next new ones.
func (c *conn) indexNoun(noun *searchedNoun, limit int) (int, error) {
	from := `SELECT ` + noun.number + `, ` + noun.columns + ` FROM ` + noun.table
	changed, err := c.documents(noun, from+` WHERE `+noun.number+` IN (SELECT n FROM search_changed WHERE noun = ?1 LIMIT ?2)`, noun.table, limit)
	if err != nil {
		return 0, err
	}
	for _, d := range changed {
		_, err := c.exec(`INSERT OR REPLACE INTO `+noun.table+`_search (rowid, words) VALUES (?, ?)`, d.n, strings.Join(d.Indexed(), " "))
		if err == nil {
			_, err = c.exec(`DELETE FROM search_changed WHERE noun = ? AND n = ?`, noun.table, d.n)
		}
		if err != nil {
			return 0, err
		}
	}
	added, err := c.documents(noun, from+` WHERE `+noun.number+` > (SELECT upto FROM search_index WHERE noun = ?1) ORDER BY `+noun.number+` LIMIT ?2`,
		noun.table, limit)
	if err != nil {
		return 0, err
	}
	for _, d := range added {
		if _, err := c.exec(`INSERT INTO `+noun.table+`_search (rowid, words) VALUES (?, ?)`, d.n, strings.Join(d.Indexed(), " ")); err != nil {
			return 0, err
		}
	}
	if len(added) > 0 {
		_, err = c.exec(`UPDATE search_index SET upto = ? WHERE noun = ?`, added[len(added)-1].n, noun.table)
	}
	return max(len(changed), len(added)), err
}

// documents reads the documents of a query's rows.
func (c *conn) documents(noun *searchedNoun, text string, args ...any) (list []document, err error) {
	err = c.each(text, args, func(row []driver.Value) error {
		d, err := noun.doc(row[1:])
		list = append(list, document{row[0].(int64), d})
		return err
	})
	return list, err
}

// scan reads a document from a query whose first column is the row's number.
func (noun *searchedNoun) scan(from scanner) (document, error) {
	row := make([]any, 1+strings.Count(noun.columns, ",")+1)
	into := make([]any, len(row))
	for i := range row {
		into[i] = &row[i]
	}
	if err := from.Scan(into...); err != nil {
		return document{}, err
	}
	values := make([]driver.Value, len(row)-1)
	for i, v := range row[1:] {
		values[i] = v
	}
	d, err := noun.doc(values)
	return document{row[0].(int64), d}, err
}
