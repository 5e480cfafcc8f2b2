// Package idempotency puts idempotency keys in front of HTTP handlers, so that a
// client may retry and nothing happens twice. It needs nothing else of Keep but a
// store; package proxy does the same for backends in any language.
//
//	guard, err := idempotency.New(db.Keys(), idempotency.Config{})
//	http.ListenAndServe(addr, guard.Handler(mux))
//
// A request with an Idempotency-Key (or X-Idempotency-Key) header is executed
// once; each retry gets the first answer, byte for byte. See package key for the
// law, and docs/design/0001-http-idempotency.md for why it is so.
//
// # Guarantees
//
//   - The record is on disk before the handler runs, and the answer before its
//     first byte is shown. What a client saw is what its retries get.
//   - Of any number of simultaneous duplicates, in any number of processes on one
//     store, one is executed. A handler may take longer than its lease: it is
//     renewed. Where machines share a store, its clock counts; see Clock.
//   - After a crash or a cut-off call the outcome is unknown, which is an answer
//     of its own (409 outcome-unknown, with a reference): neither executed again
//     nor stuck. A probe, a person, or Rule.AfterCrash resolves it.
//   - Two callers never see each other's answers. A client that renewed its
//     credential is neither executed again nor shown the answer.
//   - The host that was asked is part of the key.
//   - Set-Cookie, credentials and hop-by-hop fields are never kept. Keys, callers
//     and bodies are never logged.
//
// # What a client sees
//
//	no key                         untouched; 400 key-missing with Rule.Require
//	first request                  its answer, with Idempotency-Expires
//	retry                          the same, with Idempotent-Replayed: true
//	retry while it runs            409 in-progress with Retry-After; see Rule.Wait
//	another request, same key      422 key-reused
//	same request and key, other    409 caller-changed
//	credential
//	retry of a stream, or of an    409 body-not-stored with original_status
//	answer over ResponseLimit
//	nobody knows                   409 outcome-unknown; 502, 503 or 504 for the
//	                               first caller
//	GET of a problem's instance    what became of the request; see Status
//	the store is down              503 store-unavailable, not executed; see
//	                               Rule.FailOpen
//	its database was replaced      503 store-unavailable; Run ends with
//	                               keep.ErrReplaced
//
// Problems are RFC 9457, with one type for each Kind.
//
// # What a handler may do
//
// Nothing special. It may say more: Release, that nothing was done; Doubt, that it
// can't tell; and Tx gives it the transaction in which its key completes, so that
// its writes to that database and its answer commit together.
//
// # What it does not do
//
// It can not stop a handler whose process was frozen for longer than its lease and
// then continues: its answer is refused, its effect is not. Where that matters, leave
// AfterCrash as it is. It has one goroutine's worth of background work, sweeping,
// which happens in Run.
package idempotency
