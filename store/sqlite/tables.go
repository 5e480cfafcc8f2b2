package sqlite

import (
	"context"
	"database/sql/driver"
	"regexp"
	"strings"
	"sync"
)

var madeTable = regexp.MustCompile(`(?m)^CREATE (?:VIRTUAL )?TABLE "?(\w+)`)

// ours returns the names of the tables that schema.sql makes. All others in the file are of somebody else.
var ours = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for _, m := range madeTable.FindAllStringSubmatch(schema, -1) {
		names[m[1]] = true
	}
	return names
})

// otherTables returns the names of the tables that are not Keep's, sorted.
func otherTables(c *conn) (names []string, err error) {
	err = c.rows(`SELECT name FROM pragma_table_list WHERE schema = 'main' AND type IN ('table', 'virtual') AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name`,
		nil, func(row []driver.Value) {
			if name := row[0].(string); !ours()[name] {
				names = append(names, name)
			}
		})
	return names, err
}

// OtherTables implements transfer.Held.
func (h *held) OtherTables(context.Context) ([]string, error) { return otherTables(h.conn) }

// quoted returns a name as it stands in a statement.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
