// Package handler is for workflows whose handlers are Go functions. They have the phases, the
// ledger and the laws of workflows that are scripts:
//
//	invoices := &handler.Workflow{
//		Name:   "invoices",
//		Topics: []keep.TopicName{"mail"},
//		Handlers: []handler.Handler{
//			handler.Producer{Name: "newMail", Run: newMail},
//			handler.Consumer[Invoice, handler.NoResult]{
//				Name: "book", Subscribe: []keep.TopicName{"mail"}, Prepare: prepare, Mutate: mutate,
//			},
//		},
//	}
//	w, err := h.LoadGo(invoices) // h is a *host.Host
//	…
//	_, err = h.Deploy(ctx, w)
//
// # What the types hold to
//
// Each phase is given a value that has the calls of this phase and no other. Prepare gets a
// Reader, which reads. Mutate gets a Getter and returns the one call that is to be made, as a
// value; Keep makes it after the function has returned, when its record is on disk. Next gets a
// Publisher, which reads nothing. Only an Item of a Job changes something while the function
// runs, and Keep answers what was done before from the ledger.
//
// # What Keep holds to while they run
//
//   - When a call fails, the phase is over, whatever the function does with the error: later
//     calls return the same one, the context ends, and what the function returns counts for
//     nothing (law: not-catchable).
//   - An error that the function returns, and a panic, is a failure of class logic with the file
//     and the line. Nothing outside has changed then, except by earlier items of a job.
//   - The phase ends at its limit of time. A function that does not return within a second of
//     the end of its context is abandoned: its goroutine remains until it returns, and none of its
//     calls reaches Keep any more.
//   - Calls, results, log lines and items have the limits that they have in scripts.
//
// # What is the author's duty
//
// A Go function cannot be sandboxed (law: no-ambient-power). It must not change anything
// outside but by the call of Mutate or of an Item, must read services by its phase's Read and the
// time by Now, and must not keep state in variables between calls: an attempt may run in another
// process. It must return when its context ends, and must not start goroutines that outlive it.
// Its memory and the processor time that it takes are the program's.
//
// # Tests
//
// Package testkit/handlertest runs a handler in a test, with fakes of its tools.
//
// # Versions
//
// The version of a workflow is its declaration and the program that has it: the host stores the
// hash of both, so that a program that was built again deploys a new version. What is pinned, and
// the keys of calls, belong to the runs and survive that, as they survive a corrected script.
// A host never runs a version with the code of another build.
package handler
