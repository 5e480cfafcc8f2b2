// Package proxy puts idempotency keys in front of any HTTP backend.
//
// # What it knows of a request
//
//	it could not connect (DNS, refused, TLS handshake)   nothing was sent: the
//	                                                     key is free, 502 not-sent
//	a whole answer                                       it is recorded, then shown
//	anything else (cut off, timed out, reset)            nobody knows: 502 or 504
//	                                                     outcome-unknown
//
// A request is sent once. Go's transport would repeat one that carries an
// idempotency key when a kept-alive connection breaks; here it can't. Answers are
// passed on as they come: nothing is unpacked, no redirect is followed.
//
// # What else it does
//
// Run listens, sweeps, serves the admin API on an address of its own, and drains
// when its context ends: /readyz says no, new connections are refused, requests
// under way are finished and recorded.
//
// The admin API (see Proxy.Admin) decides about records, so it only listens on
// the loopback and only answers programs on this machine.
package proxy
