// Package httpapi makes any JSON API over HTTP a safe set of tools, from
// configuration alone. In keep.toml it is connector = "http".
//
// # What an answer means
//
// For a mutate tool:
//
//	2xx                                          applied
//	400 404 405 409 410 413 415 422 501          did not happen, logic
//	401 403                                      did not happen, permission
//	429, and the statuses of not_executed        did not happen, transient
//	no connection (DNS, refused, TLS, timeout
//	before the request was begun)                did not happen, transient
//	anything else: other statuses, redirects,
//	timeouts, resets, truncated bodies           unknown
//
// A read is never in doubt: no answer, 408, 429 and 5xx are transient, 401 and
// 403 permission, redirects and other 4xx logic. Statuses in null_on give null.
//
// # What becomes of a body
//
// JSON is the result as it came. An empty body is null. Any other body becomes
// {status, type, text}, or {status, type, base64} if it is not UTF-8. A body
// that claims to be JSON and isn't is a precondition failure of a read; a
// mutate tool is applied nevertheless, with a warning. A mutate answer over
// 1 MiB is applied, with {status, type, text, cut: true} and a warning; a read
// over 1 MiB is a logic failure that says so.
//
// # How a lost answer is found
//
//	deduplicates = true    level A: the same request again, with the same token
//	reconcile by {token}   level C: the service is searched for our mark
//	reconcile with match   level C: the fields must equal what was sent
//	reconcile by params    level C, ByTarget: right only where each target is
//	                       created once
//	nothing                level D
//
// A resend is trusted for as long as the service keeps keys, which is
// deduplicates_for, 24 hours if not given. Later the lookup is asked if there
// is one, otherwise nobody is: a forgotten key would make a second effect. Of
// the answers to a resend only 2xx, 404, 405, 410, 413, 415 and 501 decide.
// 400 and 422 may mean "this key came with another request", so they decide
// only when the service marks them with Idempotent-Replayed: true.
//
// # What is sent
//
// Each mutate call has a connection of its own, and none of the requests can be
// repeated by the transport: net/http repeats a request on a kept-alive
// connection that broke if it has an Idempotency-Key, and so a lost answer
// would become two effects at a service without keys. HTTP/1.1 only, for the
// same reason. Redirects aren't followed, cookies aren't kept, and gzip isn't
// asked for. Params that are in neither path nor query go into a JSON body with
// the bytes that the script's JSON had, so integers aren't rounded.
//
// Configured header values never appear in errors, warnings or details, even
// when the service echoes them.
package httpapi
