package sqlite

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

var (
	accountColumns = stored.Accounts.Columns("")
	scanAccount    = scanOf(stored.Accounts)
	accounts       = stored.Revise("account", "?", stored.Accounts, []string{"kind", "name"}, "last_used_at")
)

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
func (db *DB) PutAccounts(ctx context.Context, as []keep.Account, acts ...keep.Decided) error {
	return db.change(ctx, func(conn *conn) error {
		for _, a := range as {
			if err := putAccount(conn, a); err != nil {
				return fmt.Errorf("account %s: %w", a.Name, err)
			}
		}
		return writeActs(conn, acts)
	})
}

func putAccount(conn *conn, a keep.Account) error {
	a.Rev++
	return put(conn, accounts, &a, a.Rev == 1)
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
func (db *DB) DropAccount(ctx context.Context, kind keep.AccountKind, name string, rev int64, acts ...keep.Decided) error {
	var n int64
	err := db.change(ctx, func(conn *conn) (err error) {
		n, err = conn.exec(`DELETE FROM account WHERE kind = ?1 AND name = ?2 AND (?3 = 0 OR rev = ?3)`, kind, name, rev)
		if err == nil && n > 0 {
			err = writeActs(conn, acts)
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
