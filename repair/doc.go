// Package repair tries what is proposed for a script that failed, and asks a model for
// proposals. The law of both is package law/repair.
//
// # A proposal is tried, and never believed
//
// A proposal is the text of a whole script. Tried reads it, compares what it declares and may
// call with the version that failed, goes through the run that failed with it, in shadow, and
// has the recorded runs of the version compared. Nothing is sent, and nothing is read from
// outside: there are descriptions of the tools alone.
//
// # What the model sees
//
// The dossier of a failure holds what came from outside between marks that nobody who wrote it
// can know (package internal/framed). Secrets are not in it, since they are not in traces,
// events and errors.
package repair
