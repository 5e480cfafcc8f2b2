package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

// AddCredential stores a new credential; see store.Access.
func (db *DB) AddCredential(ctx context.Context, c keep.Credential, acts ...keep.Decided) error {
	err := db.change(ctx, func(tx pgx.Tx) error {
		if c.Parent != "" { // its row is held until the end, so that it can only end afterwards
			held, err := tx.Exec(ctx, `SELECT 1 FROM credential WHERE id = $1 FOR KEY SHARE`, text(c.Parent))
			if err == nil && held.RowsAffected() == 0 {
				err = &keep.NotFoundError{What: "credential", ID: c.Parent}
			}
			if err != nil {
				return err
			}
		}
		added, err := writeOne(ctx, tx, insertCredential, stored.Credentials, &c)
		if err == nil && added == 0 {
			err = keep.ErrStale
		}
		if err == nil {
			err = writeActs(ctx, tx, acts)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("credential %s: %w", c.ID, err)
	}
	return nil
}

// Credential returns the credential of an id, or *keep.NotFoundError.
func (db *DB) Credential(ctx context.Context, id string) (keep.Credential, error) {
	return one(ctx, db, "credential", id, scanCredential, `SELECT `+credentialColumns+` FROM credential WHERE id = $1`, id)
}

// Credentials returns all of a kind, newest first.
func (db *DB) Credentials(ctx context.Context, kind keep.CredentialKind) ([]keep.Credential, error) {
	return collect(ctx, db, scanCredential, `SELECT `+credentialColumns+` FROM credential WHERE kind = $1 ORDER BY n DESC`, kind)
}

// UseCredential sets when a credential was used last.
func (db *DB) UseCredential(ctx context.Context, id string, at time.Time) error {
	_, err := db.exec(ctx, `UPDATE credential SET used_at = $2 WHERE id = $1`, id, at)
	return err
}

// DropCredential ends a credential and those that came from it.
func (db *DB) DropCredential(ctx context.Context, id string, acts ...keep.Decided) error {
	return db.change(ctx, func(tx pgx.Tx) error {
		ended, err := tx.Exec(ctx, `DELETE FROM credential WHERE id = $1`, text(id))
		if err == nil && ended.RowsAffected() == 0 {
			err = &keep.NotFoundError{What: "credential", ID: id}
		}
		if err == nil { // a statement of its own, which sees what was added until the first one could begin
			_, err = tx.Exec(ctx, `DELETE FROM credential WHERE parent = $1 AND parent <> ''`, text(id))
		}
		if err == nil {
			err = writeActs(ctx, tx, acts)
		}
		return err
	})
}

// SweepCredentials deletes what expired before now, and says how many.
func (db *DB) SweepCredentials(ctx context.Context, now time.Time) (int, error) {
	n, err := db.exec(ctx, `DELETE FROM credential WHERE expires_at <> 0 AND expires_at < $1`, now)
	return int(n), err
}

// exec runs one statement that is no commit of a workflow.
func (db *DB) exec(ctx context.Context, sql string, args ...any) (int64, error) {
	if err := db.writable(); err != nil {
		return 0, err
	}
	tag, err := db.pool.Exec(ctx, sql, values(args)...)
	return tag.RowsAffected(), err
}

var (
	insertCredential  = stored.Credentials.Insert("credential", "$") + ` ON CONFLICT DO NOTHING`
	credentialColumns = stored.Credentials.Columns("")
	scanCredential    = scanOf(stored.Credentials)
)
