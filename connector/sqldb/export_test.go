package sqldb

// RefusedCommit reports whether an error is that of a server which refused a COMMIT.
func RefusedCommit(err error) bool { return refusedCommit(err) }
