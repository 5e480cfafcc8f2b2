//go:build !unix

package trust

import "io/fs"

// foreign is not known where files have no owners in the sense of Unix.
func foreign(string, fs.FileInfo) string { return "" }
