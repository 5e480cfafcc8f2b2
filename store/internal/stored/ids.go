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

// A Part is a part of an id that a script made, in which any character may be, as a store compares it.
type Part struct {
	Text  string
	Size  int                                    // in what Is counts
	Is    func(column, text, size string) string // the condition that a column begins or ends with it
	Order func(column string) string             // what ids are sorted by
}

// EventsWith is IDsWith for the places of events, of which scripts make the ids.
func EventsWith(w keep.WorkflowName, t keep.TopicName, part Part, limit int) (text string, args []any) {
	text = `-- by a part of an id
		SELECT workflow, topic, message_id FROM event
		 WHERE ($1 = '' OR workflow = $1) AND ($2 = '' OR topic = $2)
		   AND ` + part.Is("message_id", "$4", "$3") + `
		 ORDER BY workflow, topic, ` + part.Order("message_id") + ` LIMIT $5`
	return text, []any{string(w), string(t), part.Size, part.Text, limit}
}

// ItemsWith is EventsWith for items.
func ItemsWith(w keep.WorkflowName, part Part, limit int) (text string, args []any) {
	text = `-- by a part of an id
		SELECT workflow, '', id FROM item
		 WHERE ($1 = '' OR workflow = $1)
		   AND ` + part.Is("id", "$3", "$2") + `
		 ORDER BY workflow, ` + part.Order("id") + ` LIMIT $4`
	return text, []any{string(w), part.Size, part.Text, limit}
}
