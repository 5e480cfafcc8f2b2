package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

var (
	accountColumns = stored.Accounts.Columns("")
	scanAccount    = scanOf(stored.Accounts)
	accounts       = stored.Revise("account", "$", stored.Accounts, []string{"kind", "name"}, "last_used_at")
)

// Accounts returns all of a kind, or those of the names; see store.Accounts.
func (db *DB) Accounts(ctx context.Context, kind keep.AccountKind, names ...string) ([]keep.Account, error) {
	return collect(ctx, db, scanAccount, `SELECT `+accountColumns+` FROM account WHERE kind = $1 AND ($2 OR name = ANY($3)) ORDER BY name`,
		kind, len(names) == 0, texts(names))
}

// PutAccounts writes all of the accounts, or none; see store.Accounts.
func (db *DB) PutAccounts(ctx context.Context, as []keep.Account, acts ...keep.Decided) error {
	return db.change(ctx, func(tx pgx.Tx) error {
		for _, a := range as {
			if err := putAccount(ctx, tx, a); err != nil {
				return fmt.Errorf("account %s: %w", a.Name, err)
			}
		}
		return writeActs(ctx, tx, acts)
	})
}

func putAccount(ctx context.Context, tx pgx.Tx, a keep.Account) error {
	a.Rev++
	return put(ctx, tx, accounts, &a, a.Rev == 1)
}

// LeaseAccount gives a host the right to refresh, by the database's clock; see
// store.Accounts.
func (db *DB) LeaseAccount(ctx context.Context, kind keep.AccountKind, name, host string, _ time.Time, ttl time.Duration) (keep.Account, bool, error) {
	if db.cfg.ReadOnly {
		return keep.Account{}, false, ErrReadOnly
	}
	list, err := collect(ctx, db, scanAccount, `
		UPDATE account SET lease_host = $3, lease_until = `+nowMillis+` + $4, rev = rev + 1
		 WHERE kind = $1 AND name = $2 AND (lease_host = '' OR lease_host = $3 OR lease_until <= `+nowMillis+`)
		RETURNING `+accountColumns, // read later, it might be what the next host has
		kind, name, host, ttl.Milliseconds())
	got := len(list) > 0
	if err == nil && !got {
		list, err = db.Accounts(ctx, kind, name)
	}
	if err == nil && len(list) == 0 {
		err = &keep.NotFoundError{What: "account", ID: name}
	}
	if err != nil {
		return keep.Account{}, false, err
	}
	return list[0], got, nil
}

// nowMillis is the time of the database.
const nowMillis = `(extract(epoch FROM clock_timestamp()) * 1000)::bigint`

// UseAccount sets when an account was used last.
func (db *DB) UseAccount(ctx context.Context, kind keep.AccountKind, name string, at time.Time) error {
	_, err := db.exec(ctx, `UPDATE account SET last_used_at = $3 WHERE kind = $1 AND name = $2`, kind, name, at)
	return err
}

// DropAccount deletes an account.
func (db *DB) DropAccount(ctx context.Context, kind keep.AccountKind, name string, rev int64, acts ...keep.Decided) error {
	var n int64
	err := db.change(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `DELETE FROM account WHERE kind = $1 AND name = $2 AND ($3::bigint = 0 OR rev = $3::bigint)`, values([]any{kind, name, rev})...)
		if n = tag.RowsAffected(); err == nil && n > 0 {
			err = writeActs(ctx, tx, acts)
		}
		return err
	})
	if err != nil || n > 0 {
		return err
	}
	list, err := db.Accounts(ctx, kind, name)
	if err != nil {
		return err
	}
	return stored.NotDropped(list, name)
}
