// Package sqldb gives scripts tools to read and change tables of an SQLite or Postgres
// database. In keep.toml it is connector = "sql".
//
//	[connections.db]
//	connector = "sql"
//	url       = "postgres://keep:${secret:pg}@db.internal/crm"   # or "sqlite:crm.db"
//	tables    = ["invoices", "customers"]                        # empty: all
//
// Scripts pass no SQL. Names of tables and columns are looked up in the catalog
// and quoted; values are bound. A table is "name", or "schema.name" in Postgres where
// "name" is another table, or none: conditions of grants and approvals compare names, so a
// table has one. What tables lists has the name that it has there.
//
//	list({table, where, columns, order_by, limit, offset})  rows
//	getById({table, id})                                     row or null
//	getByUniqueKey({table, key: {column: value}})            row or null
//	insert({table, key?, row})                               the row
//	update({table, key, set})                                the row
//	upsert({table, key, row})                                the row
//	createTable({table, columns: {name: type}, primary_key}) {created}
//
// key must hold the columns of a primary key or unique index. It is identity,
// together with table; row and set are payload. A key of several rows, as of a table that others inherit from, is a logic failure. In where a value means equality
// (null: is null), and an object means operators: {gt, gte, lt, lte, ne, in, like}.
//
// list gives rows that order_by has alike in the order of the primary key, so that pages of them hold together.
//
// An SQLite file that is replaced or removed is noticed: the one that has the name is read and changed.
//
// createTable is there with create = true, which also makes an SQLite file that is
// missing. Its types are text, integer, number, decimal, boolean, time, json and bytes.
// It makes a table that is missing; one that is there must have those columns, of those
// types, and that primary key.
//
// # How a change is made once
//
// Each change and a row with the host's token are written in one transaction.
// The row is in the table keep_mutations, which is made when it is missing and
// may be made by hand instead:
//
//	create table keep_mutations (token text primary key, tool text not null,
//	    result text, at timestamptz not null default now())
//
// So the tools are level A: a token that is there has happened, and sending it
// again returns the stored result. A lookup inserts the token and rolls back;
// it thereby waits for a transaction that is still open with it, and its answer
// is exact. Rows older than the retention of the host's ledger may be deleted, and
// no others: a token that is not there has not happened. A table that the tools made
// has a row horizon: of calls that were recorded before it, since the table was
// dropped or the database is another one, only a person can tell.
//
// With ledger_table = "" the tools are level C by their key, ByTarget: a row
// that equals what was sent counts as ours. A row that is not there may have been
// deleted since, so a person is asked, unless complete = true says that nobody
// deletes any. key is then required. With
// keyless_insert = true insert takes rows without a key and is level D.
//
// Everything before COMMIT is definite, since the database rolls back what isn't
// committed. An error of COMMIT itself is unknown, unless the database said no.
// Constraint violations and bad values are logic failures, as is an update of a
// row that isn't there; missing tables are precondition; refused credentials and
// privileges permission; locks, serialization, lost and refused connections
// before COMMIT transient.
//
// # Values
//
//	script            Postgres                        SQLite
//	null              NULL                            NULL
//	boolean           text input, so boolean columns  1, 0
//	number            text input of the column type,  integer if it is one,
//	                  exact                           else real
//	string            text input of the column type   text
//	{base64: "…"}     bytea                           blob
//	array             array column, json              text (JSON)
//	object            json, jsonb                     text (JSON)
//
// And back: integers beyond 2^53 come as strings, since a script would round
// them; bytes, and text of SQLite that is not UTF-8, as {base64}; times as RFC 3339 or what the column holds; json
// columns as what they hold. SQLite's BOOL… columns come as true and false if
// they hold 1 or 0, JSON columns parsed if they hold JSON.
package sqldb
