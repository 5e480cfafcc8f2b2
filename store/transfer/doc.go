// Package transfer moves a database of Keep to another one: from a file of SQLite
// to Postgres, back, or between two of a kind.
//
// A ledger that is worked on twice does things twice. So a move is not only a copy:
// it ends with the source sealed and the target open, and at no moment, whatever
// dies, may hosts work on both.
//
// # Steps
//
//  1. hold the source          nobody else can write to it, until the end or a crash
//  2. mark the target incoming nobody can work on it
//  3. copy all records         in one transaction or one file, which is there or not
//  4. check                    the target's Check, and the digest of both sides
//  5. seal the source          one commit: from here on the target is the database
//  6. open the target
//
// A crash before step 5 leaves the source as it was, and a target that can only be
// copied to again. A crash between 5 and 6 leaves two databases on which nobody can
// work. In both cases the same Copy continues: it begins again, or opens the target.
//
// # Marks and fences
//
// What a database is, is kept in it as a Mark. Who opens it to work is refused with
// keep.ErrSealed and the way out. Behind that stands a fence of triggers, which the
// database itself enforces against whoever is late: a host that was suspended, a proxy, an
// older version of Keep.
//
// # Records
//
// Kinds lists what is moved: the nouns of Keep, which stores read and write as they always
// do. Records have no numbers: their order is what numbers say, and what refers to a record
// names it. So a digest of them is the same wherever they are kept, and a target numbers
// them in its own way. What is derived from them, such as counts of lists, causes by input
// and words of titles, is derived anew. Leases and hosts stay behind.
//
// # What it does not do
//
// It does not copy while hosts work. A host that was killed is waited for until its
// leases end. Both clocks must agree to within the time that calls need to settle: the
// target's decides from then on when an absence is believed.
package transfer
