package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"syscall"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/keep-run/keep"
)

// A conn is one connection with its prepared statements, used by one goroutine.
// It talks to the driver directly: database/sql adds a fifth to the cost of a
// statement, and the writer needs none of what it does.
type conn struct {
	raw   driver.Conn
	stmts map[string]stmt
	args  []driver.NamedValue // reused by every statement

	readAll   bool // commits are decided on all that they must know, and nothing is expected
	unindexed int  // changes of records since they were last added to the search
}

// A stmt is what the driver's prepared statements can do.
type stmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// openConn opens a connection by the driver itself, without a pool.
func openConn(ctx context.Context, dsn string) (*conn, error) {
	connector, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	raw, err := connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{raw: raw, stmts: make(map[string]stmt)}, nil
}

// close finalizes every statement, then the connection.
func (c *conn) close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, c.raw.Close())...)
}

// script runs statements without arguments, and does not keep them.
func (c *conn) script(sql string) error {
	_, err := c.raw.(driver.ExecerContext).ExecContext(context.Background(), sql, nil)
	return err
}

// exec runs one statement and returns how many rows it changed.
func (c *conn) exec(sql string, args ...any) (int64, error) {
	changed, _, err := c.insert(sql, args...)
	return changed, err
}

// insert is exec for a statement that adds at most one row; it returns the
// integer key of that row, too.
//
// It has no context on purpose: the driver interrupts a statement when its
// context ends, and what is done for a group must not end with one of them.
func (c *conn) insert(sql string, args ...any) (changed, key int64, err error) {
	s, err := c.prepare(sql, args)
	if err != nil {
		return 0, 0, err
	}
	result, err := s.ExecContext(context.Background(), c.args)
	if err != nil {
		return 0, 0, err
	}
	if changed, err = result.RowsAffected(); err != nil {
		return 0, 0, err
	}
	key, err = result.LastInsertId()
	return changed, key, err
}

// row returns the first row of a query, or nil if there is none.
func (c *conn) row(sql string, args ...any) (row []driver.Value, err error) {
	err = c.rows(sql, args, func(values []driver.Value) {
		if row == nil {
			row = values
		}
	})
	return row, err
}

// rows calls f with each row of a query. The values are f's to keep.
func (c *conn) rows(sql string, args []any, f func([]driver.Value)) (err error) {
	return c.each(sql, args, func(values []driver.Value) error { f(values); return nil })
}

// each is rows for an f that may fail, which ends it.
func (c *conn) each(sql string, args []any, f func([]driver.Value) error) (err error) {
	s, err := c.prepare(sql, args)
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(context.Background(), c.args)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for {
		values := make([]driver.Value, len(rows.Columns()))
		switch err := rows.Next(values); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := f(values); err != nil {
			return err
		}
	}
}

// changes returns how many rows the connection has changed since it was opened, those that were rolled back among them.
func (c *conn) changes() (int64, error) {
	row, err := c.row(`SELECT total_changes()`)
	if err != nil {
		return 0, err
	}
	return row[0].(int64), nil
}

// prepare returns the statement of a text and puts its arguments in c.args.
func (c *conn) prepare(sql string, args []any) (stmt, error) {
	s, ok := c.stmts[sql]
	if !ok {
		prepared, err := c.raw.Prepare(sql)
		if err != nil {
			return nil, fmt.Errorf("prepare: %w", err)
		}
		s = prepared.(stmt)
		c.stmts[sql] = s
	}
	c.args = c.args[:0]
	for i, arg := range args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: value(arg)})
	}
	return s, nil
}

// value returns v as the driver takes it.
func value(v any) driver.Value {
	switch v := v.(type) {
	case nil, int64, string, []byte, bool:
		return v
	case int:
		return int64(v)
	case time.Time:
		return millis(v)
	case json.RawMessage:
		if v == nil {
			return nil
		}
		return string(v) // JSON is text
	}
	return reflect.ValueOf(v).String() // the names and states of keep are strings
}

// millis returns t as it is stored; 0 means not set.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// moment is the opposite of millis.
func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// isUnique reports whether err says that a row would repeat a unique value.
func isUnique(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && (e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE ||
		e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
}

// isBusy reports whether err says that another process writes, or another one of this process, and did so for as long as was waited.
func isBusy(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_BUSY
}

// isUnfinished reports whether a reader finds a change that is half written, which it cannot undo.
func isUnfinished(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code() == sqlite3.SQLITE_READONLY_ROLLBACK
}

// isFull reports whether err says that the disk is full.
func isFull(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && noRoom(e) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// noRoom reports whether SQLite could not make a file longer. Of the file that the processes share, which it makes when the
// database is opened, it has another word than of the database.
func noRoom(e *sqlite.Error) bool {
	return e.Code()&0xff == sqlite3.SQLITE_FULL || e.Code() == sqlite3.SQLITE_IOERR_SHMSIZE
}

// A namedError says what to do about an error of SQLite.
type namedError struct{ error }

func (e namedError) Unwrap() error { return e.error }

// named returns err with what to do, if the disk is full (then it is keep.ErrDiskFull) or fails, or the file is
// damaged, read-only or cannot be opened. Path is the database.
func named(err error, path string) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return err
	}
	if _, is := errors.AsType[namedError](err); is {
		return err
	}
	switch code := e.Code() & 0xff; {
	case noRoom(e):
		err = fmt.Errorf("%w; what is recorded is safe; make space where %s is: a host then continues by itself, any other command is given again (%w)", keep.ErrDiskFull, path, err)
	case code == sqlite3.SQLITE_CORRUPT:
		err = fmt.Errorf("%s is damaged; keep a copy of it, and restore a backup as keep db restored --help says (%w)", path, err)
	case code == sqlite3.SQLITE_IOERR:
		err = fmt.Errorf("the disk of %s does not read or write; look at it, and at what its system says of it (%w)", path, err)
	case code == sqlite3.SQLITE_READONLY && !isUnfinished(err):
		err = fmt.Errorf("%s or its folder may not be written by this user; who only reads it writes beside it, too (%w)", path, err)
	case code == sqlite3.SQLITE_CANTOPEN:
		err = fmt.Errorf("%s or a file beside it cannot be opened; look at the rights of its folder, and at how many files a process may open, ulimit -n (%w)", path, err)
	default:
		return err
	}
	return namedError{err}
}

// ofDatabase reports whether err came from SQLite and is about the state of the
// database rather than about one statement: after it the transaction may be gone.
func ofDatabase(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return false
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH:
		return false
	}
	return true
}
