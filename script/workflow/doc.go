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
// # How a line is found
//
// The engine knows where functions stand and where Keep.workflow and
// Keep.consumer were called, and nothing of the keys between. So the author's
// text is cut into tokens (internal/javascript), which is enough to skip strings, comments,
// templates and regular expressions; from the call the way of the value, such as
// consumers.addRow.subscribe[0], is walked through the object literals
// (source.go, place.go). A name on the way is looked up among the file's
// declarations. Where the text is not a literal (a spread, a computed key, the
// result of a function) the walk ends, and the last key that was found is what
// the problem points at.
//
// # How effects are found
//
// Each handler's tokens are read once from start to end (walk.go). ctx is the
// first parameter; const, let, var and parameters in braces give parts of it
// other names; a function of the file that is given ctx is read as if it stood
// there; the third argument of withItem is in an item. What follows an awaited
// mutate call in its own block is found by shape (flow.go). Arguments are read where they are
// literals (checks.go). Doubtful cases say
// nothing: a false warning costs more trust than a missing one, and the host
// refuses the call anyway.
//
// # Reading order
//
// problem.go, value.go and parse.go for declarations; token.go, source.go and
// place.go for places; report.go, effects.go, code.go, walk.go, flow.go and checks.go for
// effects; types.go and schema.go for types.
//
// # What it does not do
//
// It does not understand JavaScript. Effects reads tokens, not a program: it sees
// ctx.crm.create and simple aliases of it, and says nothing about a call that is
// computed. The host checks each call when it is made; Effects reports early.
package workflow
