// Package sqlite keeps everything in one SQLite file.
//
// # Guarantees
//
//   - When Commit returns nil, every change of the commit is on disk (WAL,
//     synchronous=FULL: the fsync has returned), and every later read sees it.
//   - When Commit returns an error of package keep, nothing of it is stored, and
//     the commits that shared its fsync are not affected.
//   - Reads come from a snapshot. They never wait for a commit, and no commit
//     waits for them.
//   - One host works on a file, by whatever name: Open with Config.Host locks the
//     file, and one beside it, until Close. Other processes may read and commit
//     beside it, by the same name.
//   - Commit returns keep.ErrReplaced if its path no longer names the file that was
//     opened: what was written then will not be found.
//   - A database that is gone is not begun anew unless Config.New says so.
//   - A file of another program or of a newer Keep is refused and not touched.
//
// # How commits are grouped
//
// One goroutine owns the one connection that writes. It takes everything that
// was queued while the last group was syncing, runs it in one transaction, and
// ends it: one fsync for all commits. There is no delay to make groups larger;
// under load they grow by themselves.
//
// Package law/commit decides each commit, on what the commit expects to find, so
// little is read. Each statement compares what it replaces. If one finds something
// else, or a commit is refused, the group is undone and done again: each commit then
// has a savepoint of its own and is decided on what is read from the file, and what is
// refused leaves nothing behind. Refusals are rare, and savepoints cost more than the
// second try.
//
// A commit whose context ends while it is queued, or waits for another process that writes, is dropped. Once it was begun,
// Commit waits for its fate, so that a cancelled context leaves no doubt.
//
// # When things go wrong
//
// A full disk, a read error or a corrupt page fails the group it happens in: the
// transaction is rolled back, and its commits are tried again one by one, so
// that each gets its own answer. Nothing that was acknowledged is lost; with
// space on the disk the next commit works. Kill -9 and power loss leave a file
// that the next Open recovers.
//
// # The schema
//
// See migrations. Every list is newest first: each row has an integer in the
// order of making, which ends every index, so a page is read from an index and
// stops when it is full. Searches use FTS5, to which records are added many at once;
// see migrations/0009_search.sql. Counts (events of a topic, unfinished events of an
// input) are kept in rows, changed once per commit. Check recounts them.
//
// # What it does not do
//
// It decides nothing, and never reads a clock: times come with the commits. What
// keep.Sweep deletes leaves free pages, which Shrink gives back to the file system.
// Network file systems are not supported: WAL needs shared memory.
package sqlite
