// Package chaos is tests that treat the real command as the world does: they stop
// it, kill it, cut its connections at a byte and fill its disk, and compare what a
// service did with what the ledger says.
//
// Every test runs the built keep on a project of its own, against a service that
// keeps a log of the truth. After it:
//
//   - no effect happened twice, whatever was done (law: once);
//   - every event ended, and had its effect exactly once unless a person was asked
//     (laws: all-or-nothing, nothing-lost);
//   - ledger and truth agree, and keep doctor finds no broken law;
//   - no unique index had to prevent a duplicate: the law decided before.
package chaos
