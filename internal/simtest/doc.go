// Package simtest runs the real engine in a simulated world, and compares
// at the end what the services did with what the ledger says.
//
// One seed decides everything: the workflows and their scripts, when events
// arrive, which commits and reads fail, where the process dies, what services do
// to callers, what people decide, what is deployed, and what the clock says. The
// same seed gives the same history, to the hash of its trace. A seed that breaks
// a law is replayed with
//
//	go test ./internal/simtest -run TestSeed -seed N -v
//
// # The world
//
// The engine, the law and the store (package memory) are the real ones. Around
// them everything is simulated: a store wrapper loses commits, loses the answers
// of commits and makes them slow; services of the levels A to D have a log of
// the truth, and lose, delay, refuse and doubt; people look at the inbox and
// decide well, badly, twice, or what was never offered. A process dies at any of
// these points, and all its goroutines with it. What it wrote stays.
//
// In every third world people edit the configuration between any two steps: endpoint, header of the
// key, level, identity and the names of connection, tools and jobs change under running hosts, and the
// hosts of a group differ for a while. What was sent one way is unknown on another, so what
// is sent or asked about in a wrong way is an effect too many, or one that is not found.
// The clock of a host is set back under it, and the file of its database is taken away, until
// it has ended. A workflow keeps its name, which is a matter of the command.
//
// In every third world calls count in budgets, and what is spent is added up here a second time, from
// the commits that recorded the calls.
//
// In every third world whose configuration stays calls of a tool that fail alike stop it for all
// workflows. Failures are counted here a second time, from the commits that say so: then calls are
// stopped, and none is recorded until a person lets calls through.
//
// In every third world whose configuration stays people give and take grants between any two steps.
// What is recorded to be sent must be permitted by the grant that holds at that moment, and what is
// read, or sent again, by one that held since the host looked. Reads of a group are left out.
//
// In every third world an identity is applied once: no call is recorded beside
// one of its identity, of whatever workflow, that may have had its effect, unless a person said so
// of that one. Worlds whose configuration is edited are left out of that.
//
// In a third of the worlds of large seeds whose configuration is not edited the connection has a secret, which people replace between
// any two steps, by one of the same user of the service or of another one, who sees nothing of what the first did and does not know
// their keys. No call that was in doubt is sent again as another user without a word.
//
// In worlds of which none of this is true, one in six of those of large seeds, calls of a tool say what is to be: none is sent again
// over a later one of its identity that may have happened, unless a person said so, and none is recorded while
// another one is being sent again.
//
// In every third world people skip items and have them done again, between any two steps: no call
// is recorded, or in doubt, for an item that is over or at another attempt.
//
// In every third world services of level A forget keys after a time, so a call must not be
// sent again after it, whatever the clocks say.
//
// # Time and order
//
// Time is that of a testing/synctest bubble, so a week of backoff costs nothing.
// Within an instant goroutines take turns (see turns): each stops before it
// touches the world, and when all have stopped the seed says who goes next. So
// the order of events is part of the seed, too.
//
// A world lives through several bubbles, one after another. A bubble begins in
// the year 2000, so the clock of the host can be set back between two of them;
// the time of the services continues. The clock of the host never gains on the
// time of the services: a host whose clock leaps ahead believes an absence too
// early, and no simulation of ours can change that (docs/GUARANTEES.md says so).
//
// # Several hosts
//
// A group (RunGroup) is two or three hosts at once, on a store with leases. Their
// clocks are wrong by an hour. They die, are frozen for longer than their leases
// and continue in the middle of whatever they did, and are cut off from the database.
// Beside the laws that hold for one, no commit under an old epoch is accepted, no
// absence is believed before its time by the database's clock, and no workflow is
// without a host for long while one could take it.
//
// # The end
//
// When the chaos is over the world settles: no more faults, a corrected script,
// people who look before they answer. Then nothing may be left, and verify
// compares every event, item and record with the truth; what a producer published has the input
// that caused it. Each committed run is gone through again
// on its own version, and must be equal.
//
// # Outside of tests
//
// A bubble needs a *testing.T. Torture, which internal/torture calls,
// gets one from testing.Main: the one entrance of package testing that is
// covered by the promise of Go 1.
package simtest
