// Package handlertest runs a handler that is written in Go in a test: without a service, a database of its own or a
// host that runs. [Bench.Run] executes all its phases once, by the same engine and laws as a host, on a store in memory, against
// tools that the test plays. So what a host would refuse (an event that cannot be reserved, params that do not fit the
// schema of a tool, a call that its phase does not have, an id that is not UTF-8, a limit) is the error of the test.
package handlertest
