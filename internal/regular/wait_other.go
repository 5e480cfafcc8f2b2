//go:build !unix

package regular

// noWait is not needed where no name in a directory can be a pipe.
const noWait = 0
