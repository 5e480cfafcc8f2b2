package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
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

// LeaseAccount gives a host the right to refresh; see store.Accounts.
func (db *DB) LeaseAccount(ctx context.Context, kind keep.AccountKind, name, host string, now time.Time, ttl time.Duration) (a keep.Account, got bool, err error) {
	err = db.change(ctx, func(conn *conn) error {
		n, err := conn.exec(`
			UPDATE account SET lease_host = ?3, lease_until = ?5, rev = rev + 1
			 WHERE kind = ?1 AND name = ?2 AND (lease_host = '' OR lease_host = ?3 OR lease_until <= ?4)`,
			kind, name, host, now, now.Add(ttl))
		if err != nil {
			return err
		}
		row, err := conn.row(`SELECT `+accountColumns+` FROM account WHERE kind = ? AND name = ?`, kind, name) // read later, it might be what the next host has
		if err == nil && row == nil {
			err = &keep.NotFoundError{What: "account", ID: name}
		}
		if err != nil {
			return err
		}
		a, err = scanAccount(values(row))
		got = n > 0
		return err
	})
	if err != nil {
		return keep.Account{}, false, err
	}
	return a, got, nil
}

// values are a row that the writer read, as scan functions take it.
type values []driver.Value

// Scan reads the row into pointers to texts, numbers, booleans and bytes.
func (v values) Scan(dest ...any) error {
	for i, d := range dest {
		into, from := reflect.ValueOf(d).Elem(), v[i]
		switch text, number := reflect.ValueOf(from), into.CanInt(); {
		case from == nil:
			into.SetZero()
		case number && text.CanInt():
			into.SetInt(text.Int())
		case into.Kind() == reflect.Bool && text.CanInt():
			into.SetBool(text.Int() != 0)
		case text.CanConvert(into.Type()) && !text.CanInt():
			into.Set(text.Convert(into.Type()))
		default:
			return fmt.Errorf("column %d is a %T, and a %s was wanted", i+1, from, into.Type())
		}
	}
	return nil
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
