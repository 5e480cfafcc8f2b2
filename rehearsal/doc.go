// Package rehearsal executes scripts without touching anything outside: the real
// engine, the real sandbox and the real laws, on a store in memory, against services
// that somebody plays.
//
// It is the one mechanism behind everything that asks "what would this script do?":
// tests of scripts play the services from a file.
//
// # Nothing is sent
//
// The tools of a rehearsal are made of the description of real tools, and of what the
// caller's Services answer. A Mutator of a connector is used as a Describer only, which
// has no method that makes a call: there is no path from a rehearsal to the Mutate
// method of a connector.
//
// # Time
//
// A rehearsal has a clock of its own, which starts where the caller says and stands, so
// that the same script does the same at the same time, however busy the machine is. Nothing waits for an
// outcome: backoff is a millisecond, at whose end the clock is set, and when a service says that a call had no effect, to
// the moment from which that counts. Schedules are not hurried: what is due at the start is
// executed, later ticks are not waited for.
package rehearsal
