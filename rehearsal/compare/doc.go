// Package compare says what another version of a workflow would have done otherwise: it goes
// through the recorded runs of a version once more, in shadow, with another script.
//
// # What is compared
//
// The runs of the last days, the newest first, up to a number and a time: those that committed,
// and those that are not closed. An attempt that another one took over is gone through with the
// one that ended the chain, since each attempt has only the phases that it executed itself.
// Each run is gone through twice: a script that does not do the same twice proves nothing.
//
// # What is judged
//
// Of a run, what comes out of it: reservations, calls with their identities and payloads, events
// with their ids, items, checkpoints, errors. What prepare hands on besides, and titles, is not
// judged: what is made of it is. Ids that Keep makes for events are not compared. An Impact is
// made of the runs whose work is done or may be: what became of the others is shown.
//
// # What it changes
//
// Nothing. A replay has descriptions of the tools alone (package rehearsal/replay).
package compare
