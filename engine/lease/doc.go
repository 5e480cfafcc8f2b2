// Package lease decides which workflows this host executes, and until when, on a
// database that several hosts share (docs/design/0005-leases.md).
//
// # What a lease is
//
// Every workflow has a lease in the database, which at most one host has. A lease has
// no time of its own: the host has one row with the time until which all of its leases
// hold, so that the cost of renewing does not grow with the workflows. Every claim
// gives the lease a new epoch. Each commit of the host carries the epoch, and the
// store refuses a commit of an earlier one: whatever a host does too late, it cannot
// write over its successor.
//
// # What a Manager does
//
//	elect      It polls once a second, and claims workflows that no host has, or whose
//	           host is gone, up to its share: all workflows divided by all hosts.
//	           What stays free for several polls it claims beyond its share.
//	heartbeat  Every eighth of the TTL it renews its row, and so all of its leases.
//	           The answer, a keep.LeaseStatus, also names the workflows to which
//	           others committed: their workers reload.
//	release    What it has beyond its share it releases: their workers yield after the
//	           step that they are at. A host that drains releases everything; one that stops
//	           drains (Drain), and releases each workflow as soon as it has no worker.
//	expire     If the row cannot be renewed, all workers are stopped a margin before
//	           the leases end: calls in flight are cancelled, nothing new begins. It
//	           keeps trying. When the database answers again it reconciles: those
//	           leases that no other host claimed hold again.
//	bury      Leases of a host whose process has provably ended on this machine are given
//	          back for it (Presence), so that nobody waits for them.
//	resign     When Run ends, the final heartbeat is over, and the row and all leases
//	           are deleted, so that others take over at once.
//
// # Time
//
// Only the database's clock decides whether a lease holds. A Clock follows it: the
// time of the last answer, plus what has passed since by the monotonic clock of this
// machine. It may be behind by as long as that answer took, and is never ahead. The end
// of the leases is counted from before the heartbeat was sent; both the monotonic and
// the wall clock must say that they hold, since one of them does not move while a
// machine sleeps. A call gets no more time than its lease has (Manager.CallTime).
//
// # Who uses it
//
// The engine starts a worker for each lease of Manager.Held, binds it, and says when it
// has ended. The Manager calls its workers while it holds its own lock; so the engine
// must not call the Manager while it holds a lock that a worker takes.
package lease
