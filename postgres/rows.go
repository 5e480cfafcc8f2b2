package postgres

import (
	"encoding/json"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/transfer"
)

// seen finds the number of the newest event of t's workflow that was there when t had
// the number in column. What is over needs no more than the event itself, if it is
// still there.
func seen(column, over string) string {
	return strings.NewReplacer("{n}", column, "{over}", over).Replace(`
		LEFT JOIN event e ON e.workflow = t.workflow AND e.n = CASE
			WHEN {over} THEN {n}
			ELSE coalesce((SELECT x.n FROM event x WHERE x.n = {n} AND x.workflow = t.workflow),
				(SELECT max(x.n) FROM event x WHERE x.workflow = t.workflow AND x.n <= {n})) END`)
}

// How tables are read that are not read as they are.
var (
	selected = map[string]string{ // table.column
		"handler.seen_topic":        `coalesce(e.topic, '')`,
		"handler.seen_message":      `coalesce(e.message_id, '')`,
		"run.seen_topic":            `coalesce(e.topic, '')`,
		"run.seen_message":          `coalesce(e.message_id, '')`,
		"mutation_history.mutation": `m.key`,
		"notice.escalation":         `e.id`,
	}
	joined = map[string]string{
		"handler":          seen("t.idle_seq", "t.idle_seq = 0"),
		"run":              seen("t.seen_seq", "t.seen_seq = 0 OR t.closed"),
		"mutation_history": ` JOIN mutation m ON m.workflow = t.workflow AND m.n = t.mutation`,
		"notice":           ` JOIN escalation e ON e.workflow = t.workflow AND e.n = t.escalation`,
	}
	orders = map[string]string{
		"run_log":          `t.workflow, t.run, t.n`,
		"mutation_history": `t.workflow, t.mutation, t.n`,
		"idempotency_key":  `t.n`,
		"credential":       `t.n`,
	}
)

// selectRows returns the query for the rows of a table, in their order.
func selectRows(t transfer.Table) string {
	var list []string
	for _, c := range t.Columns {
		expr := selected[t.Name+"."+c.Name]
		if expr == "" {
			expr = "t." + c.Name
		}
		list = append(list, expr)
	}
	query := `SELECT ` + strings.Join(list, ", ") + ` FROM ` + t.Name + ` t` + joined[t.Name]
	if order := orders[t.Name]; order != "" {
		return query + ` ORDER BY ` + order
	}
	if t.Ordered {
		return query + ` ORDER BY t.n, t.workflow`
	}
	return query
}

// readRow reads what selectRows selects.
func readRow(t transfer.Table, rows pgx.Rows) (transfer.Row, error) {
	row := make(transfer.Row, len(t.Columns))
	dest := make([]any, len(row))
	for i, c := range t.Columns {
		switch c.Kind {
		case transfer.Text, transfer.Maybe:
			dest[i] = new(pgtype.Text)
		case transfer.Bytes, transfer.JSON:
			dest[i] = new([]byte)
		case transfer.Number:
			dest[i] = new(int64)
		case transfer.Bool:
			dest[i] = new(bool)
		}
	}
	if err := rows.Scan(dest...); err != nil {
		return nil, err
	}
	for i, c := range t.Columns {
		switch v := dest[i].(type) {
		case *pgtype.Text:
			s, err := renamed(c, plain(v.String), escapedEscape, plain)
			if err != nil {
				return nil, err
			}
			row[i] = s
			if c.Kind == transfer.Maybe {
				row[i] = []byte(nil)
				if v.Valid {
					row[i] = []byte(s)
				}
			}
		case *[]byte:
			row[i] = *v
		case *int64:
			row[i] = *v
		case *bool:
			row[i] = *v
		}
	}
	return row, nil
}

const (
	// escapedEscape is what JSON makes of escape.
	escapedEscape = `\u001a`

	// oddName is how JSON begins what text changes, and some other characters.
	oddName = `\u00`
)

// renamed changes the names in a JSON text that holds some: here they are as columns
// have them, elsewhere as they are. A text without the sign of a name that differs
// stays as it is.
func renamed(c transfer.Column, stored, sign string, change func(string) string) (string, error) {
	if c.Name != "caused_by" && c.Name != "reservations" || stored == "" || !strings.Contains(stored, sign) {
		return stored, nil
	}
	if c.Name == "caused_by" {
		return rewrite(stored, func(list []string) {
			for i := range list {
				list[i] = change(list[i])
			}
		})
	}
	return rewrite(stored, func(list []keep.Reservation) {
		for i := range list {
			list[i].Topic = keep.TopicName(change(string(list[i].Topic)))
			for j, id := range list[i].IDs {
				list[i].IDs[j] = keep.MessageID(change(string(id)))
			}
		}
	})
}

// rewrite changes a list in JSON.
func rewrite[T any](stored string, change func([]T)) (string, error) {
	var list []T
	if err := json.Unmarshal([]byte(stored), &list); err != nil {
		return "", err
	}
	change(list)
	out, err := json.Marshal(list)
	return string(out), err
}

// A load is how rows of a table are added, many at once.
type load struct {
	sql   string
	types []string // those of the columns, and of what is added to each row
	extra []string // n, place, words
}

// arrays are the types of the columns' arrays.
var arrays = map[transfer.Kind]string{
	transfer.Text: "text", transfer.Maybe: "text?", transfer.Bytes: "bytea", transfer.JSON: "bytea",
	transfer.Number: "bigint", transfer.Bool: "boolean",
}

// loadOf returns how a table's rows are added.
func loadOf(t transfer.Table) (l load) {
	var given, names, values []string
	give := func(name, typ string) { given, l.types = append(given, name), append(l.types, typ) }
	set := func(name, value string) { names, values = append(names, name), append(values, value) }
	from := ""
	for _, c := range t.Columns {
		give(c.Name, arrays[c.Kind])
		switch {
		case c.Name == "seen_topic":
			from = ` LEFT JOIN event e ON e.workflow = v.workflow AND e.topic = v.seen_topic AND e.message_id = v.seen_message`
			set(map[string]string{"run": "seen_seq", "handler": "idle_seq"}[t.Name], `coalesce(e.n, 0)`)
		case c.Name == "seen_message":
		case t.Name == "mutation_history" && c.Name == "mutation":
			from = ` JOIN mutation m ON m.key = v.mutation`
			set("workflow", "m.workflow")
			set("mutation", "m.n")
		case t.Name == "run_log" && c.Name == "run":
			from = ` JOIN run r ON r.id = v.run`
			set("workflow", "r.workflow")
			set("run", "v.run")
		case t.Name == "notice" && c.Name == "escalation":
			from = ` JOIN escalation e ON e.id = v.escalation`
			set("workflow", "e.workflow")
			set("escalation", "e.n")
		default:
			set(c.Name, "v."+c.Name)
		}
	}
	switch {
	case t.Parent != "":
		l.extra = append(l.extra, "place")
		give("n", "bigint")
		set("n", "v.n")
	case t.Ordered && t.Index("workflow") >= 0:
		l.extra = append(l.extra, "n")
		give("n", "bigint")
		set("n", "v.n")
	}
	switch t.Name {
	case "run", "mutation", "input", "item":
		l.extra = append(l.extra, "words")
		give("words", "words?")
		set("words", valueOf("v.words", "words?"))
	}
	l.sql = `INSERT INTO ` + t.Name + ` (` + strings.Join(names, ", ") + `) SELECT ` + strings.Join(values, ", ") + ` FROM ` + rowsOf(given, l.types) + from
	return l
}
