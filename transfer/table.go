package transfer

import (
	"slices"
	"strings"
)

// A Kind is what a column holds, and of which Go type its values are.
type Kind string

const (
	Text   Kind = "text"   // string: any bytes
	Maybe  Kind = "maybe"  // []byte: a text that Keep makes; nil for none
	Bytes  Kind = "bytes"  // []byte: any bytes; nil for none
	JSON   Kind = "json"   // []byte: what scripts and services made, to the byte; nil for none
	Number Kind = "number" // int64; times are milliseconds
	Bool   Kind = "bool"   // bool
)

// A Column is one value of each row.
type Column struct {
	Name string
	Kind Kind
}

// A Row has a value for each column of its table.
type Row []any

// A Table is a kind of rows.
//
// A column that has the name of another table holds what identifies a row there: the
// key of a mutation, the id of a run or an escalation. The columns
// seen_topic and seen_message name the newest event of the workflow that was there when
// the row was made, for what stores keep as its number; both are empty for none.
type Table struct {
	Name    string
	Columns []Column

	// Ordered rows have an order, in which they are read and must be kept.
	Ordered bool

	// Parent is the column whose value consecutive rows share; empty: none. Rows of
	// one parent are ordered, and their parents come in any order.
	Parent string
}

// Tables are all that is moved. A row comes after those that it refers to, but for runs
// and what they do, which refer to each other.
var Tables = []Table{
	{Name: "workflow", Columns: columns(`name text, major number, minor number, paused bool, created_at number, updated_at number`)},
	{Name: "deployment", Ordered: true, Columns: columns(`workflow text, major number, minor number, hash text, entry text, definition text,
		created_at number, code bytes, map bytes`)},
	{Name: "topic", Columns: columns(`workflow text, name text, pending number, consumed number, skipped number`)},
	{Name: "kv", Columns: columns(`workflow text, producer text, key text, value json`)},
	{Name: "input", Ordered: true, Columns: columns(`workflow text, source text, type text, external_id text, id text, title text, status text,
		unfinished number, created_at number`)},
	{Name: "event", Ordered: true, Columns: columns(`workflow text, topic text, message_id text, status text, reserved_by text, created_by text,
		created_at number, updated_at number, caused_by text, payload json`)},
	{Name: "handler", Columns: columns(`workflow text, name text, kind text, seen_topic text, seen_message text, wake_at number, next_at number,
		requested_at number, last_run text, last_at number`)},
	{Name: "run", Ordered: true, Columns: columns(`workflow text, id text, chain text, retry_of text, major number, minor number, handler text,
		kind text, phase text, status text, closed bool, rev number, trigger_topic text, trigger_message text, mutation text, title text,
		wake_at number, seen_topic text, seen_message text, retry_at number, retries number, crashes number, created_at number,
		updated_at number, error maybe, reservations maybe, prepared json`)},
	{Name: "run_log", Parent: "run", Columns: columns(`run text, at number, level text, text text, place text`)},
	{Name: "item", Ordered: true, Columns: columns(`workflow text, id text, title text, status text, attempt number, rev number,
		created_at number, updated_at number`)},
	{Name: "mutation", Ordered: true, Columns: columns(`workflow text, key text, run text, item text, attempt number, tool text, connector text,
		level text, target text, subkey text, payload_hash text, token text, title text, state text, warning text, attempts number,
		reconcile_attempts number, next_reconcile_at number, call_deadline number, settle_after number, can_reconcile bool,
		resolved_by text, rev number, created_at number, updated_at number, error maybe, identity json, payload json, result json`)},
	{Name: "mutation_history", Parent: "mutation", Columns: columns(`mutation text, at number, who text, from_state text, to_state text,
		evidence text, detail text`)},
	{Name: "escalation", Ordered: true, Columns: columns(`workflow text, id text, kind text, run text, mutation text, item text, title text,
		question text, attempted text, why text, can_verify bool, verify_by_hand text, choices maybe, payload_hash text,
		created_at number, closed_at number, decision text, decided_by text, decided_from text, decision_note text, decided_at number`)},
	{Name: "notice", Columns: columns(`escalation text, sink text, status text, attempts number, next_at number,
		error text, updated_at number, rev number`)},
	{Name: "idempotency_key", Ordered: true, Columns: columns(`id bytes, key text, caller text, method text, path text, fingerprint bytes,
		state text, atomic bool, token number, doubts number, lease_until number, doubt_at number, status number, resolved_by text,
		created_at number, updated_at number, expires_at number, rev number, header bytes, body bytes`)},
	{Name: "credential", Ordered: true, Columns: columns(`id text, kind text, hash bytes, name text, role text, parent text,
		created_at number, expires_at number, used_at number`)},
}

// columns reads "name kind, name kind, …".
func columns(spec string) (list []Column) {
	for _, column := range strings.Split(spec, ",") {
		words := strings.Fields(column)
		list = append(list, Column{words[0], Kind(words[1])})
	}
	return list
}

// Index returns the place of a column, or -1.
func (t Table) Index(column string) int {
	return slices.IndexFunc(t.Columns, func(c Column) bool { return c.Name == column })
}

// String returns the value of a text column.
func (t Table) String(r Row, column string) string { return r[t.Index(column)].(string) }

// Size returns about how many bytes a row takes.
func (r Row) Size() (n int) {
	for _, v := range r {
		switch v := v.(type) {
		case string:
			n += len(v)
		case []byte:
			n += len(v)
		}
		n += 16
	}
	return n
}
