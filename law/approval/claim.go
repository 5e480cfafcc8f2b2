package approval

import (
	"encoding/json"
	"maps"
	"slices"
)

// A Claim is what a script says of its call. Nobody checked it.
type Claim struct {
	Title  string            `json:"title"`
	Fields map[string]string `json:"fields" nullable:"true"`
	Table  *Table            `json:"table"`
	Text   string            `json:"text"`
}

// A Table is rows of texts under the names of their columns.
type Table struct {
	Columns []string `json:"columns"`
	Rows    [][]any  `json:"rows"`
}

// ClaimOf reads the ui of a script; nil: it says nothing that can be shown. Members of
// another type are left out.
func ClaimOf(ui json.RawMessage) *Claim {
	var members map[string]json.RawMessage
	if json.Unmarshal(ui, &members) != nil || len(members) == 0 {
		return nil
	}
	var c Claim
	_ = json.Unmarshal(members["title"], &c.Title)
	_ = json.Unmarshal(members["text"], &c.Text)
	var fields map[string]any
	if json.Unmarshal(members["fields"], &fields) == nil && len(fields) > 0 {
		c.Fields = make(map[string]string, len(fields))
		for name, v := range fields {
			c.Fields[name] = plain(v)
		}
	}
	var table Table
	if json.Unmarshal(members["table"], &table) == nil && len(table.Columns) > 0 {
		c.Table = &table
	}
	if c.Title == "" && c.Text == "" && c.Fields == nil && c.Table == nil {
		return nil
	}
	return &c
}

// Lines returns the claim in lines, made visible as the call is.
func (c *Claim) Lines() []Line {
	if c == nil {
		return nil
	}
	var lines []Line
	if c.Title != "" {
		lines = append(lines, line("Title", c.Title))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Fields)) {
		lines = append(lines, line(name, c.Fields[name]))
	}
	if c.Table != nil {
		lines = append(lines, line("Table", c.Table.text()))
	}
	if c.Text != "" {
		lines = append(lines, line("Text", c.Text))
	}
	return lines
}

// texts is the claim as JSON, of what is shown of it alone.
func (c *Claim) texts() json.RawMessage {
	if c == nil {
		return nil
	}
	b, err := json.Marshal(c)
	if err != nil { // it was read from JSON
		return nil
	}
	return b
}

// text is the table with its columns separated.
func (t *Table) text() string {
	text := ""
	for i, name := range t.Columns {
		if i > 0 {
			text += " | "
		}
		text += name
	}
	for _, row := range t.Rows {
		text += "\n"
		for i, v := range row {
			if i > 0 {
				text += " | "
			}
			text += plain(v)
		}
	}
	return text
}
