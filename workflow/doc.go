// Package workflow reads what a script declares: the object that it gave to
// Keep.workflow, as the sandbox describes it. It checks the shape and returns a
// [keep.Definition], or every problem at once with its line ([Parse]); it lists
// the calls that the script seems to make ([Effects]); and it writes the types
// that editors and language models complete from ([Types]).
//
// It runs nothing. The declaration arrives as JSON in which
//
//   - a function is {"$function": {"at": {file, line, column}, "params": n, "source": "…"}},
//   - any other value that JSON does not have is {"$type": "Date"},
//   - what passed through Keep.workflow or Keep.consumer carries "$keep" and,
//     as "$at", the place of that call.
//
// # Guarantees
//
//   - A Definition that Parse returns is valid: names are well formed and unique,
//     each topic that is named is declared and has at most one consumer, and
//     package schedule accepts each schedule.
//   - Parse reports all problems, sorted by their place. A problem points at the
//     line of the key that is wrong if the author's text has that key in a plain
//     object literal, and otherwise at what encloses it.
//   - Nothing here panics, whatever the script declares or looks like.
//
// # What it does not do
//
// It does not understand JavaScript. Effects reads tokens, not a program: it sees
// ctx.crm.create and simple aliases of it, and says nothing about a call that is
// computed. The host checks each call when it is made; Effects only tells early.
package workflow
