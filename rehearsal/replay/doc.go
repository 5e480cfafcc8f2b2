// Package replay goes through a run again, phase by phase, with the answers that it got, and
// says where a script does something else: its own version, or another one.
//
// # What is equal
//
// A run on its own version is equal, byte for byte: a phase that is given the same arguments,
// answers, clock and chance returns the same, makes the same call and publishes the same. What
// came of each phase is recorded as a digest (package law/trace), so that this can be said even
// if the records themselves have changed since.
//
// # What is not known
//
// A replay invents nothing. It ends where a script asks for what the run did not ask, where an
// answer was not kept, and where a call differs whose answer the next step would get.
// Missing says where, and why.
//
// # What a replay changes
//
// Nothing: the database is read, and of the connections a replay holds descriptions alone
// (rehearsal.Describe). There is no path from it to a service.
package replay
