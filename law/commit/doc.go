// Package commit is the law of a commit: what each keep.Change may do to the records.
//
// A store commits in three steps. It reads what [Reads] names into a [Snapshot]. It
// calls [Snapshot.Decide], which returns a [Plan], or the refusal that package keep
// describes at the change. It writes the rows of the plan in one transaction. Nothing
// else decides about a record: constraints in a schema repeat what must hold, and
// hold up what a bug would break.
//
// A store whose writes compare what they replace may read less: [Expect] fills a
// snapshot with what a commit finds that lost no race, and names what it must read
// nevertheless. If a row then turns out to be another, the store undoes the commit
// and decides again on what it reads.
package commit
