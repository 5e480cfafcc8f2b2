// Package postgres keeps everything in a Postgres database.
//
// # Guarantees
//
//   - When Commit returns nil, every change of the commit is as durable as the
//     server makes it (synchronous_commit), and every later read sees it.
//   - When Commit returns an error of package keep, nothing of it is stored, and
//     the commits that shared its transaction are not affected.
//   - After any other error, such as a connection that broke while the server
//     committed, the outcome is unknown: read before you act.
//   - A read is one statement, and so one snapshot. It never waits for a commit, and
//     no commit waits for it.
//   - Several hosts may work on a database: a workflow has a lease, and a commit under
//     another epoch is refused in its own transaction. The server's clock decides.
//   - A schema of another program or of a newer Keep is refused and not touched, also if a newer one has made it
//     that since it was opened.
//   - Text and JSON come back to the byte, also what Postgres has no text for.
//
// # How commits are grouped
//
// A caller that commits while no group is under way, or fewer than Config.Writers and
// many commits wait, takes all that wait, one of each workflow, and makes them in one
// transaction of two round trips. The first locks a row of each workflow, in the order
// of their names, and reads what the commits must know. Then package law/commit decides
// each: one that is refused is left out. The second round trip writes the plans, with
// one statement for each table whatever the size of the group, and commits. So a
// refusal costs the others nothing, and a group has one fsync, one plan for each
// statement, and no lock that is held while this side computes.
//
// What the server refuses, a CHECK or a unique index, is a bug of the caller. It
// undoes the transaction, and the commits of the group are tried one by one.
//
// # Idempotency keys
//
// Keys writes records in transactions of their own: those that arrive together share
// one, and each learns its own fate. Two processes agree by compare-and-set on a
// record's rev. What a sweep deletes is used again after the server's autovacuum, and
// what is at the end of the table then goes back to the file system. Its indexes keep
// their size and reuse their pages.
//
// # The schema
//
// See migrations. All state is keyed by workflow. No two workflows write one row, and
// there is no sequence: numbers that order rows come from the workflow's own row of
// lease, and from the time of the commit. So a list over workflows is in the order of
// time, and within a millisecond in that of their names.
//
// # What it does not do
//
// It decides nothing that is not a precondition of a change, and never reads a
// clock: times come with the commits. What keep.Sweep deletes is used again after the
// server's autovacuum.
package postgres
