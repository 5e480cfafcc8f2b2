// Package httpapi makes any JSON API over HTTP a safe set of tools, from
// configuration alone. In keep.toml it is connector = "http".
//
// # What an answer means
//
// For a mutate tool, unless refused_if, applied_if or statuses say otherwise:
//
//	2xx with one JSON value; 200, 201, 202,
//	204 without a body; 2xx with text          applied
//	2xx with an HTML page, broken JSON, or cut
//	off; other 2xx without a body; text where
//	a result schema is given; a JSON object
//	that says that it failed (success or ok is
//	false, error or errors is not empty)        unknown
//	400 404 405 409 410 413 415 422 501          did not happen, logic
//	401 403                                      did not happen, permission (unauthenticated, forbidden)
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
// A result in another charset that Content-Type names becomes UTF-8. JSON is the result as it came. An empty body is null. Any other body becomes
// {status, type, text}, or {status, type, base64} if it is not UTF-8. A body
// that claims to be JSON and isn't, or isn't UTF-8, is a precondition failure of a read. A mutate
// answer over 1 MiB is applied, with {status, type, text, cut: true} and a
// warning; a read over 1 MiB is a logic failure that says so. A number of more
// than 1,000 digits or with an exponent beyond ±400 is treated as no JSON.
//
// # Lists in pages
//
// A list tool with pages takes limit (1,000 if not given, 10,000 at most) and
// cursor, and returns {$list, truncated, next}, which scripts see as an array
// with two more properties. It ends at the limit, or at 768 KiB; next is then
// where to continue, and loses nothing. A page that fails, has no list, does not say in a
// form that can be read whether and where there is another (page-without-next), names the same
// next page twice (pages_loop) or links to another origin (pages_elsewhere) fails
// the whole call: a shorter list would look like all there is.
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
// A lookup by params asks by them in its path, query or body, and a record must hold each of
// them. One that asks by a time alone, or compares records with fixed texts alone, is refused:
// records of others would do.
//
// A lookup is believed by what its answer holds and not by its status (law:
// witnessed, docs/GUARANTEES.md): see evidence.go for what shows an effect, and
// lookup.judge for what shows that there is none. A complete list of several pages
// is read twice: an entry that is deleted between two pages may shift ours onto one
// that was read already, also where a cursor is made of a number of entries.
//
// What a cache answers for the service is of before the question, and shows no absence: see cached.go.
//
// A resend is trusted for as long as the service keeps keys, which is key_lasts,
// 24 hours if not given. Later the lookup is asked if there is one, otherwise
// nobody is: a forgotten key would make a second effect. Only a success, or a
// status of on_resend, settles the first request. A refusal settles the one that
// was refused: a gateway may have sent it, or a service that checks a request
// before it looks at the key. The lookup is then asked if there is one.
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
// Configured header values and other secrets never appear in errors, warnings,
// details and results, even when the service echoes them; see package redact for
// the forms in which they are recognised. Details name a lookup by its templates.
package httpapi
