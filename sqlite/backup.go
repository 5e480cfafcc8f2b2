package sqlite

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
)

// Backup writes the database as it is at one moment to a new file, which only its
// owner may read. A host may go on meanwhile. The file is there when it is complete
// and on disk, or not at all; one that exists is an error.
func (db *DB) Backup(ctx context.Context, to string) error {
	dir, err := os.MkdirTemp(filepath.Dir(to), ".keep-backup-")
	if err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	defer os.RemoveAll(dir)
	part := filepath.Join(dir, "part")
	if err := createFile(part); err != nil { // VACUUM INTO takes an empty file, and its mode
		return fmt.Errorf("back up: %w", err)
	}
	// The other connections that read are query_only, which refuses to write another
	// file as well.
	source := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(db.path), RawQuery: "mode=ro"}
	c, err := openConn(ctx, source.String())
	if err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	_, err = c.exec(`VACUUM INTO ?`, part)
	if closeErr := c.close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = syncFile(part)
	}
	if err == nil {
		// A link fails where a rename would replace what came meanwhile.
		err = os.Link(part, to)
	}
	if err == nil && runtime.GOOS != "windows" { // which has no such thing
		err = syncFile(filepath.Dir(to))
	}
	if err != nil {
		return fmt.Errorf("back up to %s: %w", to, err)
	}
	return nil
}

// syncFile waits until a file, or the entries of a directory, are on disk.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
