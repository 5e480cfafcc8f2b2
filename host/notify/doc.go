// Package notify tells people of the questions that Keep asks: by a webhook, and
// by a command.
//
// # What is promised
//
//   - Every question that stays open is told to every sink at least once, also
//     when the host dies in between. That a sink was not told is derived from the
//     question itself, which is on disk, so nothing can be forgotten.
//   - Each attempt is recorded before it begins, and what became of it after it
//     ended. A host that dies in between leaves an attempt that is made again.
//     The sink then learns of the question twice, with the same id: the id is that
//     of the question, and whoever needs each one once compares it.
//   - A sink that fails is tried again with growing pauses, which are on disk, for
//     as often as Config.Retry says. Then it is given up, which is logged as an
//     error, recorded, and shown by keep status.
//   - A question that is closed is told to nobody any more. A sink that is just
//     being told may hear of it a moment after.
//
// # What is not
//
// The order of questions, that a person read what was delivered, and that it is
// told once.
//
// # What a sink gets
//
// A JSON object: {"type": "question.opened", "timestamp": …, "data": …}, where
// data is the question: for the command keep, as keep inbox show --json prints it, or
// keep inbox --json if that is too large. What connections have as secrets is in no
// question.
package notify
