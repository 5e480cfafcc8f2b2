package sqlite

import (
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/keep-run/keep/transfer"
)

// seen finds the number of the newest event of t's workflow that was there when t had
// the number in column. What is over needs no more than the event itself, if it is
// still there.
func seen(column, over string) string {
	return strings.NewReplacer("{seq}", column, "{over}", over).Replace(`
		LEFT JOIN event e ON e.workflow = t.workflow AND e.seq = CASE
			WHEN {over} THEN {seq}
			ELSE coalesce((SELECT seq FROM event x WHERE x.seq = {seq} AND x.workflow = t.workflow),
				(SELECT max(x.seq) FROM event x WHERE x.workflow = t.workflow AND +x.seq <= {seq})) END`)
}

// How tables are read that are not read as they are.
var (
	selected = map[string]string{ // table.column
		"handler.seen_topic":        `ifnull(e.topic, '')`,
		"handler.seen_message":      `ifnull(e.message_id, '')`,
		"run.seen_topic":            `ifnull(e.topic, '')`,
		"run.seen_message":          `ifnull(e.message_id, '')`,
		"mutation_history.mutation": `m.key`,
		"notice.escalation":         `e.id`,
	}
	joined = map[string]string{
		"handler":          seen("t.idle_seq", "t.idle_seq = 0"),
		"run":              seen("t.seen_seq", "t.seen_seq = 0 OR t.closed = 1"),
		"mutation_history": ` CROSS JOIN mutation m ON m.n = t.mutation`,
		"notice":           ` CROSS JOIN escalation e ON e.n = t.escalation`,
	}
	orders = map[string]string{
		"event":            `t.seq`,
		"run_log":          `t.run, t.line`,
		"mutation_history": `t.mutation, t.move`,
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
		return query + ` ORDER BY t.n`
	}
	return query
}

// rowOf returns what the driver read as a row.
func rowOf(t transfer.Table, values []driver.Value) transfer.Row {
	row := make(transfer.Row, len(values))
	for i, c := range t.Columns {
		switch v := values[i].(type) {
		case nil:
			row[i] = []byte(nil)
		case int64:
			row[i] = v
			if c.Kind == transfer.Bool {
				row[i] = v != 0
			}
		case string:
			row[i] = v
			if c.Kind != transfer.Text {
				row[i] = []byte(v)
			}
		case []byte:
			if v == nil {
				v = []byte{}
			}
			row[i] = v
		}
	}
	return row
}

// argsOf returns a row as statements take it.
func argsOf(t transfer.Table, row transfer.Row) []any {
	args := make([]any, len(row), len(row)+1)
	for i, c := range t.Columns {
		args[i] = row[i]
		if v, ok := row[i].([]byte); ok {
			switch {
			case v == nil:
				args[i] = nil
			case c.Kind != transfer.Bytes:
				args[i] = string(v) // JSON is text
			}
		}
	}
	return args
}

// insertRow returns the statement that adds a row of a table. The place of a row
// among those of its parent is the argument after the last column.
func insertRow(t transfer.Table) string {
	var names, values []string
	set := func(name, value string) { names, values = append(names, name), append(values, value) }
	for i, c := range t.Columns {
		arg := fmt.Sprint("?", i+1)
		switch {
		case c.Name == "seen_topic":
			name := map[string]string{"run": "seen_seq", "handler": "idle_seq"}[t.Name]
			set(name, fmt.Sprintf(`ifnull((SELECT seq FROM event WHERE workflow = ?%d AND topic = %s AND message_id = ?%d), 0)`,
				t.Index("workflow")+1, arg, t.Index("seen_message")+1))
		case c.Name == "seen_message":
		case t.Name == "mutation_history" && c.Name == "mutation":
			set(c.Name, `(SELECT n FROM mutation WHERE key = `+arg+`)`)
		case t.Name == "notice" && c.Name == "escalation":
			set(c.Name, `(SELECT n FROM escalation WHERE id = `+arg+`)`)
		default:
			set(c.Name, arg)
		}
	}
	place := fmt.Sprint("?", len(t.Columns)+1)
	switch t.Name {
	case "run_log":
		set("line", place)
	case "mutation_history":
		set("move", place)
	}
	return `INSERT INTO ` + t.Name + ` (` + strings.Join(names, ", ") + `) VALUES (` + strings.Join(values, ", ") + `)`
}
