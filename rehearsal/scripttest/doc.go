// Package scripttest reads and runs tests of scripts: files named NAME.test.toml beside
// NAME.js or NAME.ts, which say what happens, what the services answer, and what the
// script must do then.
//
//	script = "invoices.js"                # by default NAME.js or NAME.ts
//
//	[[test]]
//	name    = "adds a row for each mail"
//	handler = "addRow"                    # by default all, as keep run would
//	now     = 2026-11-22T09:00:00Z        # by default the current time; it passes only where something is waited for
//	runs    = 1                           # ends after one run; by default when nothing is left to do
//	kv      = { polls = 3 }               # what ctx.kv of the handler has
//	items   = [{ id = "invoice:6" }]      # items of a job that are done
//	approved = true                       # a person agreed to each call that needs it
//	events  = [{ topic = "email.received", messageId = "m1", payload = { from = "a@example.com" } }]
//
//	[[test.read]]                         # what reads return, for each tool in this order
//	tool   = "mail.search"
//	params = { folder = "INBOX" }         # optional: these params, whatever the others
//	result = [{ id = "m1" }]              # or json = '[null]', or error = { class = "transient", message = "…" }
//
//	[[test.answer]]                       # what happens to calls and lookups, likewise
//	tool   = "db.insert"
//	says   = "applied"                    # applied, refused or lost; found, absent or lost
//	result = { id = 7 }                   # of applied and found
//
//	[test.expect]
//	reservations = [{ topic = "email.received", ids = ["m1"] }]
//	calls        = [{ tool = "db.insert", params = { table = "invoices" } }]
//	publishes    = [{ topic = "row.created", messageId = "row:m1" }]
//	items        = [{ id = "invoice:7", status = "done" }]
//	questions    = [{ kind = "unknown_outcome" }]
//	kv           = { polls = 4 }          # what was written to the checkpoint
//	error        = { class = "logic", message = "a part of it" }
//
// # What is compared
//
// Lists compare whole and in order; tables compare by the keys that are given. What
// isn't expected isn't checked: `calls = []` means that there must be none. A test
// fails if a run fails, unless it expects the error or a question; and if the script
// reads what no [[test.read]] answers, or looks up what no [[test.answer]] answers. A
// call that nothing answers is applied, with null as its result. A test that finds something to
// do after 1,000 runs fails; runs = N ends it before.
//
// A table whose only key is $json stands for that value of JSON, wherever a value may be: TOML has
// no null. calls = [{ tool = "db.insert", params = { note = { "$json" = "null" } } }]
//
// # From life
//
// [Record] makes a test of a run: of what it read, and what came of it.
//
// Nothing is sent, nothing is read from a service, and no database is opened (package
// rehearsal).
package scripttest
