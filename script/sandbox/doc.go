// Package sandbox runs untrusted JavaScript and TypeScript, a handler at a
// time, with nothing in reach but the calls that its host serves.
//
// A script is bundled ([Build]), evaluated once ([Runtime.Load]), and its
// handlers are called any number of times ([Program.Call]):
//
//	Build → Bundle → Load → Program → Call, Call, Call …
//	                  │                 │ each from the same copy of memory
//	                  └ evaluates the top level, keeps the memory it leaves
//
// The engine is QuickJS-NG compiled to WebAssembly, exactly as the npm package
// quickjs-wasi publishes it, run by wazero. When a runtime opens, a counter is
// put into every loop of the engine (internal/fuel), so that whatever it does
// can be stopped. What a script sees of Keep is written in JavaScript
// (prelude); the host's part of that are phase.go and functions.go.
//
// # Phases
//
// One evaluation or call is a phase. It runs in these steps:
//
//	restore the memory ─→ start the handler ─→ run jobs until none is runnable
//	                                             │          ↑
//	        a limit, a failure: the phase ends ←─┤          │ the answer
//	                                             ↓          │
//	                            nothing queued ←─┴─→ serve the first call
//	                                  │                (no JavaScript runs)
//	                      end an item, or return the result
//
// # Guarantees
//
//   - Not catchable: when the host's Call returns an error, the phase is over.
//     No catch, finally or promise of the script runs after it.
//   - In order: host calls are served one after another, as the script issued
//     them, and only when nothing of the script is runnable; so the host sees
//     what else the script has issued ([HostCall.Waiting]).
//   - Fresh: every call starts from the memory that Load left. Nothing of an
//     earlier call, of a concurrent one or of another program can be seen.
//   - Bounded: every phase stops within its [Limits] plus 0.2 s, even in native
//     loops of the engine, and with bounded memory. It says which limit it was,
//     where, and what to do.
//   - No ambient power: no network, files, environment, timers or modules. The
//     clock stands at [Call.Now], in UTC, for the whole phase.
//   - The host cannot be deceived: a script that replaces every global and every
//     method changes its own view of its own results, and nothing else.
//
// # Failures
//
// [*ScriptError], [*LimitError] and [*BuildError] are the script's fault.
// [*HostError] wraps what the host returned. Anything else is the cause of the
// context, [ErrClosed], or trouble of the machine. An instance that trapped,
// whose memory grew or that recursed deeply is not used again.
//
// A handler that throws ends its phase before the next queued call is served.
// So does a promise that is rejected and never handled, at the latest when
// nothing else is left to do, and an item that fails.
//
// # Items
//
// ctx.withItem(id, title, handler) makes the host calls "item.begin", and when
// the handler has settled and nothing that the script started is left,
// "item.end"; or "item.fail" if the handler throws. If the host answers that the
// item isBlocked, its handler does not run and withItem resolves to undefined. Items of the outer ctx that
// are begun at the same time wait for each other. An item begun inside of an
// item is passed to the host at once, as an "item.begin" with a scope, for it
// to refuse. There are three ways to see that it is inside:
//
//   - it is begun with the ctx of an item;
//   - it is begun with the outer ctx before the handler's first await;
//   - it is begun with the outer ctx later, and the open item's handler waits
//     for it: nothing is runnable, no call is queued, and the handler has not
//     settled.
//
// That leaves an item which a handler begins after an await with the outer ctx
// and does not wait for. It cannot be told from a concurrent one, and is served
// like one: after the open item has ended.
//
// # Processors and memory
//
// As many phases compute at once as the machine has processors; a phase that
// waits for its host holds none, and one that computes for long yields to others. The CPU limit counts the time
// between getting a processor and giving it back, or what the process used of processors meanwhile if that is less: on
// a machine with much other work a script is not stopped for what others take. (Windows counts the first alone.)
//
// A loaded program keeps the blocks of memory in which it differs from the
// engine without a script, mostly under 100 KiB. An instance, about 2 MiB, belongs
// to no program: idle ones are pooled and shared by all programs, and freed
// after half a minute. There are as many as there are calls under way.
//
// # Bundling
//
// The bundler's parser recurses with its input, and no Go program survives a stack
// that overflows. So a program that calls [BundlerMain], as the command does,
// bundles in a process of its own, under limits of time and memory; and before the
// parser sees a file, a reader without recursion refuses what is nested too deeply.
//
// # What it does not do
//
// It does not bound how many calls run at once: their sum of memory is the
// caller's affair. It does not judge calls: a script can make a call of any
// name. It does not hide the engine's own properties, such as the exact wording
// of its errors. Where a script was when it was stopped in a loop is known by
// the last call that it made. An engine's syntax error in a regular expression
// has no place at all.
package sandbox
