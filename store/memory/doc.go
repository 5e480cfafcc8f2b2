// Package memory is a store that forgets: for tests, and for a first try
// without a file. It keeps every promise of a store but durability.
//
// It is written to be obviously right rather than fast, and shares no code with
// the stores that have a disk, so that storetest can compare them. Reads may
// look at every row there is; a few ten thousand rows are fine.
//
// Nothing that a caller holds is shared with the store: values are copied on the
// way in and on the way out, and times are cut to milliseconds UTC as any store
// does it.
package memory
