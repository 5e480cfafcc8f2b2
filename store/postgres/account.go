package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

const accountColumns = `kind, name, pack, style, subject, scopes, generation, renews, status, expires_at, lifetime, error,
	connected_by, connected_at, last_refresh_at, last_used_at, sealed, refreshes, lease_host, lease_until, rev`

const insertAccount = `
	INSERT INTO account (` + accountColumns + `) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
	ON CONFLICT DO NOTHING`

const updateAccount = `
	UPDATE account SET pack = $3, style = $4, subject = $5, scopes = $6, generation = $7, renews = $8, status = $9,
		expires_at = $10, lifetime = $11, error = $12, connected_by = $13, connected_at = $14, last_refresh_at = $15,
		sealed = $17, refreshes = $18, lease_host = $19, lease_until = $20, rev = $21
	 WHERE kind = $1 AND name = $2 AND rev = $21 - 1 AND $16::bigint IS NOT NULL`

// Accounts returns all of a kind, or those of the names; see store.Accounts.
func (db *DB) Accounts(ctx context.Context, kind keep.AccountKind, names ...string) ([]keep.Account, error) {
	return collect(ctx, db, scanAccount, `SELECT `+accountColumns+` FROM account WHERE kind = $1 AND ($2 OR name = ANY($3)) ORDER BY name`,
		kind, len(names) == 0, texts(names))
}

// PutAccounts writes all of the accounts, or none; see store.Accounts.
func (db *DB) PutAccounts(ctx context.Context, as ...keep.Account) error {
	if db.cfg.ReadOnly {
		return ErrReadOnly
	}
	return db.change(ctx, func(tx pgx.Tx) error {
		for _, a := range as {
			if err := putAccount(ctx, tx, a); err != nil {
				return fmt.Errorf("account %s: %w", a.Name, err)
			}
		}
		return nil
	})
}

func putAccount(ctx context.Context, tx pgx.Tx, a keep.Account) error {
	a.Rev++
	query := updateAccount
	if a.Rev == 1 {
		query = insertAccount
	}
	tag, err := tx.Exec(ctx, query, values(accountArgs(a))...)
	if err == nil && tag.RowsAffected() == 0 {
		err = keep.ErrStale
	}
	return err
}

// accountArgs returns accountColumns of an account.
func accountArgs(a keep.Account) []any {
	scopes, _ := stored.JSONList(a.Scopes) // texts, times and numbers always encode
	refreshes, _ := stored.JSONList(stored.Refreshes(a.Refreshes))
	return []any{a.Kind, a.Name, a.Pack, a.Style, a.Subject, jsonText(scopes), a.Generation, a.Renews, a.Status, a.ExpiresAt, a.Lifetime.Milliseconds(), a.Error,
		a.ConnectedBy, a.ConnectedAt, a.LastRefreshAt, a.LastUsedAt, a.Sealed, jsonText(refreshes), a.LeaseHost, a.LeaseUntil, a.Rev}
}

// jsonText returns JSON as a column of texts takes it; nil is NULL.
func jsonText(raw []byte) any {
	if raw == nil {
		return nil
	}
	return string(raw)
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
func (db *DB) DropAccount(ctx context.Context, kind keep.AccountKind, name string, rev int64) error {
	n, err := db.exec(ctx, `DELETE FROM account WHERE kind = $1 AND name = $2 AND ($3::bigint = 0 OR rev = $3::bigint)`, kind, name, rev)
	if err != nil || n > 0 {
		return err
	}
	list, err := db.Accounts(ctx, kind, name)
	if err != nil {
		return err
	}
	return stored.NotDropped(list, name)
}

// scanAccount reads accountColumns.
func scanAccount(row pgx.CollectableRow) (a keep.Account, err error) {
	var expires, lifetime, connected, refreshed, used, lease int64
	var scopes, refreshes []byte
	if err := row.Scan(into(&a.Kind), into(&a.Name), into(&a.Pack), into(&a.Style), into(&a.Subject), &scopes, &a.Generation, &a.Renews, into(&a.Status),
		&expires, &lifetime, into(&a.Error), into(&a.ConnectedBy), &connected, &refreshed, &used, &a.Sealed, &refreshes, into(&a.LeaseHost), &lease, &a.Rev); err != nil {
		return a, err
	}
	a.ExpiresAt, a.Lifetime, a.ConnectedAt = moment(expires), time.Duration(lifetime)*time.Millisecond, moment(connected)
	a.LastRefreshAt, a.LastUsedAt, a.LeaseUntil = moment(refreshed), moment(used), moment(lease)
	var errA, errB error
	a.Scopes, errA = stored.ParseList[string](scopes)
	a.Refreshes, errB = stored.ParseList[keep.Refresh](refreshes)
	return a, errors.Join(errA, errB)
}
