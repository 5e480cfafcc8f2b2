// Package connectortest checks that a connector keeps its promises, and has the
// services that lie which such a check needs.
//
// [Run] is the conformance suite: a connector's test describes a [Bench], and
// reads each failure as a sentence about a promise that was broken. [Oracle] is
// an HTTP service that knows the truth about its effects and can lose answers,
// delay effects, and hide them from its search. [Proxy] sits before any TCP
// service and cuts connections at a byte.
package connectortest
