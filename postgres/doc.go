// Package postgres keeps records in a Postgres database. So far those of
// idempotency keys.
//
// It decides nothing and never reads a clock: times come with the records. A write
// is one statement, which the server commits before it answers; concurrent ones
// share its fsyncs. Two processes agree by compare-and-set on a record's rev.
package postgres
