package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

// AddCredential stores a new credential; see store.Access.
func (db *DB) AddCredential(ctx context.Context, c keep.Credential, acts ...keep.Decided) error {
	return db.change(ctx, func(conn *conn) error {
		if c.Parent != "" {
			if row, err := conn.row(`SELECT 1 FROM credential WHERE id = ?`, c.Parent); err != nil || row == nil {
				return cmp.Or(err, error(&keep.NotFoundError{What: "credential", ID: c.Parent}))
			}
		}
		return cmp.Or(addCredential(conn, c), writeActs(conn, acts))
	})
}

func addCredential(conn *conn, c keep.Credential) error {
	_, _, err := write(conn, insertCredential, stored.Credentials, &c)
	if isUnique(err) {
		err = keep.ErrStale
	}
	if err != nil {
		return fmt.Errorf("credential %s: %w", c.ID, err)
	}
	return nil
}

// Credential returns the credential of an id, or *keep.NotFoundError.
func (db *DB) Credential(ctx context.Context, id string) (keep.Credential, error) {
	return one(ctx, db, "credential", id, scanCredential, `SELECT `+credentialColumns+` FROM credential WHERE id = ?`, id)
}

// Credentials returns all of a kind, newest first.
func (db *DB) Credentials(ctx context.Context, kind keep.CredentialKind) ([]keep.Credential, error) {
	return rows(ctx, db, scanCredential, `SELECT `+credentialColumns+` FROM credential WHERE kind = ? ORDER BY n DESC`, string(kind))
}

// UseCredential sets when a credential was used last.
func (db *DB) UseCredential(ctx context.Context, id string, at time.Time) error {
	return db.change(ctx, func(conn *conn) error {
		_, err := conn.exec(`UPDATE credential SET used_at = ? WHERE id = ?`, at, id)
		return err
	})
}

// DropCredential ends a credential and those that came from it.
func (db *DB) DropCredential(ctx context.Context, id string, acts ...keep.Decided) error {
	return db.change(ctx, func(conn *conn) error {
		n, err := conn.exec(`DELETE FROM credential WHERE id = ?`, id)
		if err == nil && n == 0 {
			return &keep.NotFoundError{What: "credential", ID: id}
		}
		if err == nil {
			_, err = conn.exec(`DELETE FROM credential WHERE parent = ? AND parent <> ''`, id)
		}
		if err == nil {
			err = writeActs(conn, acts)
		}
		return err
	})
}

// SweepCredentials deletes what expired before now, and says how many.
func (db *DB) SweepCredentials(ctx context.Context, now time.Time) (n int, err error) {
	err = db.change(ctx, func(conn *conn) error {
		deleted, err := conn.exec(`DELETE FROM credential WHERE expires_at <> 0 AND expires_at < ?`, now)
		n = int(deleted)
		return err
	})
	return n, err
}

// change runs f in the writer.
func (db *DB) change(ctx context.Context, f func(*conn) error) error {
	switch {
	case db.cfg.ReadOnly:
		return ErrReadOnly
	case db.write == nil:
		return ErrClosed
	}
	return db.write.do(ctx, f)
}

var (
	insertCredential  = stored.Credentials.Insert("credential", "?")
	credentialColumns = stored.Credentials.Columns("")
	scanCredential    = scanOf(stored.Credentials)
)
