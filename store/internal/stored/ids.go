package stored

import (
	"fmt"

	"github.com/keep-run/keep"
)

// IDsWith returns the statement that finds the ids of a noun with a part, and its arguments:
// see store.ShortIDs. Both SQL stores have functions of those names.
func IDsWith(n keep.Noun, part string, limit int) (text string, args []any, err error) {
	column, table := "id", string(n)
	switch n {
	case keep.NounMutation:
		column = "key"
	case keep.NounQuestion:
		table = "escalation"
	case keep.NounRun, keep.NounInput:
	default:
		return "", nil, fmt.Errorf("no noun %q has ids", n)
	}
	from := len(n.Prefix()) + 1
	text = fmt.Sprintf(`-- by a part of an id
		SELECT %[1]s FROM %[2]s
		 WHERE substr(%[1]s, $1, $2) = $3 OR length(%[1]s) >= $1 + $2 - 1 AND substr(%[1]s, length(%[1]s) - $2 + 1) = $3
		 ORDER BY %[1]s DESC LIMIT $4`, column, table)
	return text, []any{from, len(part), part, limit}, nil
}
