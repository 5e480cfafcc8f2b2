// Package acceptance asks an API over HTTP whether it keeps the promises of
// idempotency keys. It is the engine of `keep idempotency test URL`, and our own
// guard and proxy pass it in their tests.
//
// Some questions need an endpoint that does as it is told: answers with a given
// status, body or header, or slowly. Backend is one; put it behind what is to be
// tested and set Target.Programmable. Without it those cases are skipped, and the
// rest works with any endpoint that is described by a method, a path and a body.
// Cases about crashes need a command that kills and restarts the server, those
// about outages commands that take its store away, and those about operations the
// admin address of a keep proxy.
package acceptance
