// Package postgres keeps records in a Postgres database. So far those of
// idempotency keys.
//
// It decides nothing and never reads a clock: times come with the records. Writes
// that arrive together are one transaction, which the server commits before it
// answers; each learns its own fate. Two processes agree by compare-and-set on a
// record's rev.
//
// What a sweep deletes is used again after the server's autovacuum, and what is
// at the end of the table then goes back to the file system. Its indexes keep
// their size and reuse their pages.
package postgres
