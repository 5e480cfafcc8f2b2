package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/search"
)

// words returns the words of a record, with spaces between, as the statements take
// them to make a tsvector; nil: it has none.
func words(d search.Document) *string {
	list := d.Words()
	if len(list) == 0 {
		return nil
	}
	stored := text(strings.Join(list, " "))
	return &stored
}

// A searchedNoun is a table whose records a text finds.
type searchedNoun struct {
	table   string
	columns []string                       // what a document is made of, beside the workflow
	doc     func([]string) search.Document // of columns; NULL is empty
}

var searchedNouns = []searchedNoun{
	{"run", []string{"title", "trigger_message", "reservations"}, func(v []string) search.Document {
		r := keep.Run{Title: v[0], Trigger: keep.EventRef{MessageID: keep.MessageID(v[1])}}
		_ = json.Unmarshal([]byte(v[2]), &r.Reservations) // those of a damaged row are not found
		return search.OfRun(r)
	}},
	{"mutation", []string{"title", "target", "key", "identity"}, func(v []string) search.Document {
		return search.OfMutation(keep.Mutation{Title: v[0], Target: v[1], Key: keep.MutationKey(v[2]), Identity: json.RawMessage(v[3])})
	}},
	{"input", []string{"title", "external_id"}, func(v []string) search.Document {
		return search.OfInput(keep.Input{Title: v[0], ExternalID: v[1]})
	}},
	{"item", []string{"title", "id"}, func(v []string) search.Document {
		return search.OfItem(keep.Item{Title: v[0], ID: v[1]})
	}},
	{"event", []string{"message_id"}, func(v []string) search.Document {
		return search.OfEvent(keep.Event{MessageID: keep.MessageID(v[0])})
	}},
}

// addWords gives every record the words that it is found by, and makes the indexes. It
// reads a thousand rows at a time. An index is made after the rows: so it is sorted once.
func addWords(ctx context.Context, tx pgx.Tx) error {
	for _, noun := range searchedNouns {
		if err := noun.addWords(ctx, tx); err != nil {
			return fmt.Errorf("words of %ss: %w", noun.table, err)
		}
		if _, err := tx.Exec(ctx, `CREATE INDEX `+noun.table+`_words ON `+noun.table+` USING gin (words)`); err != nil {
			return err
		}
	}
	return nil
}

// addWords fills the words of one table.
func (noun searchedNoun) addWords(ctx context.Context, tx pgx.Tx) error {
	columns := make([]string, len(noun.columns))
	for i, c := range noun.columns {
		if columns[i] = "coalesce(" + c + ", '')"; c == "identity" {
			columns[i] = "coalesce(convert_from(identity, 'UTF8'), '')"
		}
	}
	var n int64
	var workflow string
	values := make([]string, len(columns))
	into := []any{&n, &workflow}
	for i := range values {
		into = append(into, &values[i])
	}
	for {
		rows, err := tx.Query(ctx, `SELECT n, workflow, `+strings.Join(columns, ", ")+` FROM `+noun.table+` WHERE (n, workflow) > ($1, $2)
			ORDER BY n, workflow LIMIT 1000`, n, workflow)
		if err != nil {
			return err
		}
		var ns []int64
		var workflows []string
		var lists []*string
		_, err = pgx.ForEachRow(rows, into, func() error {
			for i, v := range values {
				if noun.columns[i] != "identity" {
					values[i] = plain(v)
				}
			}
			ns, workflows, lists = append(ns, n), append(workflows, workflow), append(lists, words(noun.doc(values)))
			return nil
		})
		if err != nil || len(ns) == 0 {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE `+noun.table+` AS t SET words = array_to_tsvector(string_to_array(v.words, ' '))
			  FROM unnest($1::bigint[], $2::text[], $3::text[]) AS v (n, workflow, words)
			 WHERE t.n = v.n AND t.workflow = v.workflow`, ns, workflows, lists)
		if err != nil {
			return err
		}
	}
}
