package postgres

// URL returns what the database was opened with.
func (db *DB) URL() string { return db.url }
