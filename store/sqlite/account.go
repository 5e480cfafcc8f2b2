package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

const accountColumns = `kind, name, pack, style, subject, scopes, generation, renews, status, expires_at, lifetime, error,
	connected_by, connected_at, last_refresh_at, last_used_at, sealed, refreshes, lease_host, lease_until, rev`

// Accounts returns all of a kind, or those of the names; see store.Accounts.
func (db *DB) Accounts(ctx context.Context, kind keep.AccountKind, names ...string) ([]keep.Account, error) {
	query, args := `SELECT `+accountColumns+` FROM account WHERE kind = ?`, []any{string(kind)}
	if len(names) > 0 {
		query += ` AND name IN (?` + strings.Repeat(`, ?`, len(names)-1) + `)`
		for _, name := range names {
			args = append(args, name)
		}
	}
	return rows(ctx, db, scanAccount, query+` ORDER BY name`, args...)
}

// PutAccounts writes all of the accounts, or none; see store.Accounts.
func (db *DB) PutAccounts(ctx context.Context, as ...keep.Account) error {
	return db.change(ctx, func(conn *conn) error {
		for _, a := range as {
			if err := putAccount(conn, a); err != nil {
				return fmt.Errorf("account %s: %w", a.Name, err)
			}
		}
		return nil
	})
}

func putAccount(conn *conn, a keep.Account) error {
	a.Rev++
	if a.Rev == 1 {
		err := insertAccount(conn, a)
		if isUnique(err) {
			err = keep.ErrStale
		}
		return err
	}
	args, err := accountArgs(a)
	if err != nil {
		return err
	}
	n, err := conn.exec(`
		UPDATE account SET pack = ?3, style = ?4, subject = ?5, scopes = ?6, generation = ?7, renews = ?8, status = ?9,
			expires_at = ?10, lifetime = ?11, error = ?12, connected_by = ?13, connected_at = ?14, last_refresh_at = ?15,
			sealed = ?17, refreshes = ?18, lease_host = ?19, lease_until = ?20, rev = ?21
		 WHERE kind = ?1 AND name = ?2 AND rev = ?21 - 1 AND ?16 IS NOT NULL`, args...)
	if err == nil && n == 0 {
		err = keep.ErrStale
	}
	return err
}

func insertAccount(conn *conn, a keep.Account) error {
	args, err := accountArgs(a)
	if err == nil {
		_, err = conn.exec(`INSERT INTO account (`+accountColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, args...)
	}
	return err
}

// accountArgs returns accountColumns of an account.
func accountArgs(a keep.Account) ([]any, error) {
	scopes, errA := stored.JSONList(a.Scopes)
	refreshes, errB := stored.JSONList(stored.Refreshes(a.Refreshes))
	var sealed any
	if a.Sealed != nil {
		sealed = a.Sealed
	}
	return []any{a.Kind, a.Name, a.Pack, a.Style, a.Subject, scopes, a.Generation, a.Renews, a.Status, a.ExpiresAt, a.Lifetime.Milliseconds(), a.Error,
		a.ConnectedBy, a.ConnectedAt, a.LastRefreshAt, a.LastUsedAt, sealed, refreshes, a.LeaseHost, a.LeaseUntil, a.Rev}, errors.Join(errA, errB)
}

// LeaseAccount gives a host the right to refresh; see store.Accounts. It takes the account as it was read: read later, it might be what the
// next host has.
func (db *DB) LeaseAccount(ctx context.Context, kind keep.AccountKind, name, host string, now time.Time, ttl time.Duration) (keep.Account, bool, error) {
	now, until := moment(millis(now)), moment(millis(now.Add(ttl)))
	for {
		list, err := db.Accounts(ctx, kind, name)
		if err == nil && len(list) == 0 {
			err = &keep.NotFoundError{What: "account", ID: name}
		}
		if err != nil {
			return keep.Account{}, false, err
		}
		a := list[0]
		if a.LeaseHost != "" && a.LeaseHost != host && a.LeaseUntil.After(now) {
			return a, false, nil
		}
		var n int64
		err = db.change(ctx, func(conn *conn) error {
			n, err = conn.exec(`UPDATE account SET lease_host = ?, lease_until = ?, rev = rev + 1 WHERE kind = ? AND name = ? AND rev = ?`, host, until, kind, name, a.Rev)
			return err
		})
		if err != nil {
			return keep.Account{}, false, err
		}
		if n > 0 {
			a.LeaseHost, a.LeaseUntil, a.Rev = host, until, a.Rev+1
			return a, true, nil
		}
	}
}

// UseAccount sets when an account was used last.
func (db *DB) UseAccount(ctx context.Context, kind keep.AccountKind, name string, at time.Time) error {
	return db.change(ctx, func(conn *conn) error {
		_, err := conn.exec(`UPDATE account SET last_used_at = ? WHERE kind = ? AND name = ?`, at, kind, name)
		return err
	})
}

// DropAccount deletes an account.
func (db *DB) DropAccount(ctx context.Context, kind keep.AccountKind, name string, rev int64) error {
	var n int64
	err := db.change(ctx, func(conn *conn) (err error) {
		n, err = conn.exec(`DELETE FROM account WHERE kind = ?1 AND name = ?2 AND (?3 = 0 OR rev = ?3)`, kind, name, rev)
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

// scanAccount reads accountColumns.
func scanAccount(row scanner) (a keep.Account, err error) {
	var expires, lifetime, connected, refreshed, used, lease int64
	var scopes, refreshes []byte
	if err := row.Scan(&a.Kind, &a.Name, &a.Pack, &a.Style, &a.Subject, &scopes, &a.Generation, &a.Renews, &a.Status, &expires, &lifetime, &a.Error,
		&a.ConnectedBy, &connected, &refreshed, &used, &a.Sealed, &refreshes, &a.LeaseHost, &lease, &a.Rev); err != nil {
		return a, err
	}
	a.ExpiresAt, a.Lifetime, a.ConnectedAt = moment(expires), time.Duration(lifetime)*time.Millisecond, moment(connected)
	a.LastRefreshAt, a.LastUsedAt, a.LeaseUntil = moment(refreshed), moment(used), moment(lease)
	var errA, errB error
	a.Scopes, errA = stored.ParseList[string](scopes)
	a.Refreshes, errB = stored.ParseList[keep.Refresh](refreshes)
	return a, errors.Join(errA, errB)
}
