package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/store/internal/stored"
	"github.com/keep-run/keep/store/transfer"
)

// A Place is a file that is, or will be, a database that is moved; see
// transfer.Place.
type Place struct {
	path      string
	committed func() // of tests: called between a commit of Restore and what follows; nil: nothing is
}

// At returns the place of a file. It touches nothing.
func At(path string) *Place { return &Place{path: path} }

// Name returns where the file is.
func (p *Place) Name() string {
	if path, err := realPath(p.path); err == nil {
		return path
	}
	return p.path
}

// Check yields what DB.Check does.
func (p *Place) Check(ctx context.Context) iter.Seq[error] {
	return transfer.Checked(ctx, New(p.path, Config{ReadOnly: true}))
}

// Hold takes the role of the host, and the lock of who writes, until the end; see
// transfer.Place.
func (p *Place) Hold(ctx context.Context) (_ transfer.Held, err error) {
	h := &held{committed: p.committed}
	defer func() {
		if err != nil {
			what := "lock"
			if errors.Is(err, fs.ErrNotExist) {
				what = "there is no database"
			}
			err = fmt.Errorf("%s %s: %w", what, p.path, errors.Join(named(err, p.path), h.Release()))
		}
	}()
	db := New(p.path, Config{})
	db.moved, h.db = true, db
	if db.path, err = realPath(p.path); err != nil {
		return nil, err
	}
	fresh, err := inspectFile(db.path)
	if err == nil && fresh {
		err = fmt.Errorf("it is empty: %w", fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	if h.lock, err = lockHost(db.path); err != nil {
		return nil, err
	}
	db.lock = h.lock
	if err := db.prepareFile(ctx); err != nil {
		return nil, err
	}
	if h.conn, err = openConn(ctx, db.dsn(false)); err != nil {
		return nil, err
	}
	if err := toWAL(h.conn); err != nil {
		return nil, err
	}
	if err := h.conn.script(`BEGIN IMMEDIATE`); err != nil {
		return nil, err
	}
	if err := db.openReaders(ctx); err != nil { // while no other connection can write, they read one moment
		return nil, err
	}
	if h.mark, err = readMark(h.conn); err != nil {
		return nil, err
	}
	said, err := signatureOf(h.conn)
	if err != nil {
		return nil, err
	}
	h.older = said.olderThan(readSignature(db.path))
	row, err := h.conn.row(`SELECT value FROM meta WHERE name = 'id'`)
	if err != nil || row == nil {
		return nil, fmt.Errorf("read its id: %w", err)
	}
	h.store = row[0].(string)
	return h, nil
}

// A held is a file in which this process has begun the one transaction that may write.
type held struct {
	db    *DB
	conn  *conn
	lock  *hostLock
	store string
	mark  transfer.Mark
	older error // it is a copy from before, as its lock says; nil: it is not

	committed func()
}

func (h *held) Store() string       { return h.store }
func (h *held) Mark() transfer.Mark { return h.mark }

// Set ends the transaction with a mark; see transfer.Held.
func (h *held) Set(_ context.Context, m transfer.Mark) error {
	if m.State == transfer.Sealed && h.older != nil { // who moves it would do elsewhere what was done since
		return h.older
	}
	err := setMark(h.conn, m)
	if err == nil {
		err = h.conn.script(`COMMIT`)
	}
	if err == nil {
		h.mark = m
	}
	return err
}

// Upgrade brings a backup by an earlier version up to date; see transfer.Held. Its pages are read first: to write to damaged
// ones can lose more. It is marked before, as Restore does, so that the log beside it is its own, and is at no time without its fence.
func (h *held) Upgrade(context.Context) error {
	files, err := migrationFiles()
	if err != nil {
		return err
	}
	row, err := h.conn.row(`PRAGMA user_version`)
	if err != nil {
		return fmt.Errorf("read version: %w", err)
	}
	version := int(row[0].(int64))
	if version == len(files) {
		return nil
	}
	if row, err = h.conn.row(`SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'`); err == nil && row != nil {
		err = fmt.Errorf("%v", row[0])
	}
	if err != nil {
		return fmt.Errorf("it is damaged, and stays as it is: %w", err)
	}
	if !h.mark.Restoring {
		if err := h.begin(); err != nil {
			return err
		}
	}
	err = fence(h.conn, false)
	for i := version; i < len(files) && err == nil; i++ {
		var script []byte
		if script, err = migrations.ReadFile(files[i]); err == nil {
			err = h.conn.script(string(script))
		}
	}
	if err == nil {
		err = fence(h.conn, true)
	}
	if err == nil {
		err = h.conn.script(`PRAGMA user_version = ` + strconv.Itoa(len(files)) + `; COMMIT`)
	}
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if h.committed != nil {
		h.committed()
	}
	return h.conn.script(`BEGIN IMMEDIATE`)
}

// Restore pauses every workflow, says why in its note, records who did, doubts the tokens of accounts, and ends the transaction; see transfer.Held.
//
// The mark comes first, in a commit of its own that is in the file before the next: it is one page, so that the file is
// whole whoever dies. From then on a log beside the file is its own, and is played back; see foreignLog.
func (h *held) Restore(ctx context.Context, at time.Time, by string) error {
	if h.mark.State == transfer.Backup && !h.mark.Restoring {
		if err := h.begin(); err != nil {
			return err
		}
	}
	if err := fence(h.conn, false); err != nil {
		return err
	}
	if _, err := h.conn.exec(`INSERT INTO decision (workflow, kind, topic, id, at, action, who, source, note)
		SELECT name, 'workflow', '', name, ?1, 'pause', ?2, 'cli', ?3 FROM workflow WHERE pause_note NOT LIKE ?4 ORDER BY name`,
		at, by, transfer.RestoredNote(at), transfer.RestoredNotes); err != nil {
		return err
	}
	if _, err := h.conn.exec(`UPDATE workflow SET paused = 1, updated_at = ?2, pause_note = ?1 || CASE pause_note WHEN '' THEN '' ELSE '; paused before: ' || pause_note END
		WHERE pause_note NOT LIKE ?3`, transfer.RestoredNote(at), at, transfer.RestoredNotes); err != nil {
		return err
	}
	if err := h.doubtAccounts(ctx, at); err != nil {
		return err
	}
	if err := countAnew(h.conn, h.db.path, at); err != nil {
		return err
	}
	if err := h.Set(ctx, transfer.Mark{}); err != nil {
		return err
	}
	if h.committed != nil {
		h.committed()
	}
	_, err := h.conn.row(`PRAGMA wal_checkpoint(TRUNCATE)`) // or later: a reader of the backup does no harm any more
	return err
}

// doubtAccounts records that the tokens of accounts may have been used up since the backup.
func (h *held) doubtAccounts(ctx context.Context, at time.Time) error {
	list, err := h.db.Accounts(ctx, keep.AccountConnected) // which this transaction has not written to
	for _, a := range list {
		if next, ok := account.Restored(a, at); ok && err == nil {
			err = putAccount(h.conn, next)
		}
	}
	if err != nil {
		return fmt.Errorf("accounts: %w", err)
	}
	return nil
}

// begin marks a backup whose restore begins.
func (h *held) begin() error {
	m := h.mark
	m.Restoring = true
	_, err := h.conn.exec(`UPDATE meta SET value = ? WHERE name = '`+transfer.MarkName+`'`, m.Encode())
	if err == nil {
		err = h.conn.script(`COMMIT`)
	}
	if err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	if h.committed != nil {
		h.committed()
	}
	row, err := h.conn.row(`PRAGMA wal_checkpoint(TRUNCATE)`)
	if err == nil && row[0] != int64(0) {
		err = errors.New("another process reads it; let that end, and give the command again")
	}
	if err != nil {
		return err
	}
	h.mark = m
	return h.conn.script(`BEGIN IMMEDIATE`)
}

// Release closes the file. A transaction that was not committed never was.
func (h *held) Release() error {
	var errs []error
	if h.db != nil && h.db.read != nil {
		errs = append(errs, h.db.read.Close())
		h.db.read = nil
	}
	if h.conn != nil {
		errs = append(errs, h.conn.close())
		h.conn = nil
	}
	if h.db != nil {
		errs = append(errs, openFiles.done(h.db.open))
		h.db.open = nil
	}
	if h.lock != nil {
		errs = append(errs, h.lock.Close())
		h.lock = nil
	}
	return errors.Join(errs...)
}

// readMark returns what the database says of its moves.
func readMark(c *conn) (transfer.Mark, error) {
	row, err := c.row(`SELECT value FROM meta WHERE name = '` + transfer.MarkName + `'`)
	if err != nil || row == nil {
		return transfer.Mark{}, err
	}
	return transfer.DecodeMark(row[0].(string))
}

// setMark marks the database, and puts the fence up or takes it down. It is a part of
// the caller's transaction.
func setMark(c *conn, m transfer.Mark) error {
	var err error
	if m.State == transfer.Plain {
		_, err = c.exec(`DELETE FROM meta WHERE name = '` + transfer.MarkName + `'`)
	} else {
		_, err = c.exec(`INSERT INTO meta (name, value) VALUES ('`+transfer.MarkName+`', ?1)
			ON CONFLICT (name) DO UPDATE SET value = ?1`, m.Encode())
	}
	if err == nil { // what it asked may have been answered elsewhere
		_, err = c.exec(`DELETE FROM meta WHERE name = '` + stored.LinkKeyName + `'`)
	}
	if err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	if err := fence(c, m.Fenced()); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	return nil
}

// fence makes or drops triggers that refuse every change of every table of Keep but meta: also
// one by a process that opened the file before, or by an older version of Keep. That one
// fenced tables of others, too; those triggers are dropped.
func fence(c *conn, up bool) error {
	changes := []string{"insert", "update", "delete"}
	var script string
	err := c.rows(`SELECT name, tbl_name FROM sqlite_schema WHERE type = 'trigger'`, nil, func(row []driver.Value) {
		name, table := row[0].(string), row[1].(string)
		if change, ok := strings.CutPrefix(name, "fence_"+table+"_"); ok && slices.Contains(changes, change) {
			script += `DROP TRIGGER ` + quoted(name) + `;`
		}
	})
	if err != nil {
		return err
	}
	if up {
		err = c.rows(`SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name <> 'meta'`, nil, func(row []driver.Value) {
			table := row[0].(string)
			if !ours()[table] {
				return
			}
			for _, change := range changes {
				script += `CREATE TRIGGER ` + quoted("fence_"+table+"_"+change) + ` BEFORE ` + change + ` ON ` + quoted(table) + `
					BEGIN SELECT RAISE(ABORT, 'this database was moved, or is being moved to: nobody may work on it'); END;`
			}
		})
	}
	if err != nil || script == "" {
		return err
	}
	return c.script(script)
}
