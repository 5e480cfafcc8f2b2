package postgres

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/store/internal/stored"
	"github.com/keep-run/keep/store/transfer"
)

// A Place is a schema that is, or will be, a database that is moved; see
// transfer.Place.
type Place struct{ url string }

// At returns the place of a URL. It touches nothing.
func At(url string) *Place { return &Place{url} }

// Name returns where the database is: the URL without its password and options, but
// for the schema.
func (p *Place) Name() string {
	name := Redact(p.url)
	if u, err := url.Parse(p.url); err == nil && u.Query().Has("search_path") {
		name += "?search_path=" + u.Query().Get("search_path")
	}
	return name
}

// Check yields what DB.Check does.
func (p *Place) Check(ctx context.Context) iter.Seq[error] {
	return transfer.Checked(ctx, New(p.url, Config{ReadOnly: true}))
}

// derivedTables are not moved: what is derived from records, who works on them, and what a server lost.
var derivedTables = []string{"lease", "host", "tally", "event_cause", "spent_sum", "idempotency_lost"}

// ours lists all tables but meta, with lease first: that is where every commit begins.
func ours() string {
	return strings.Join(slices.Concat(derivedTables, kindTables()), ", ")
}

// kindTables returns the tables of the records, in the order of transfer.Kinds.
func kindTables() []string {
	list := make([]string, len(transfer.Kinds))
	for i, k := range transfer.Kinds {
		list[i] = k.Name
	}
	return list
}

// unhurried lets a transaction take its time, also where it waits for another database,
// but not for a lock.
const unhurried = `SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL lock_timeout = '10s'`

// Hold locks all tables against writers, in one transaction that sees one moment; see
// transfer.Place.
func (p *Place) Hold(ctx context.Context) (_ transfer.Held, err error) {
	h := new(held)
	defer func() {
		if err != nil {
			err = fmt.Errorf("lock %s: %w", p.Name(), errors.Join(err, h.Release()))
		}
	}()
	db := New(p.url, Config{})
	if h.pool, err = db.connect(ctx); err != nil {
		return nil, err
	}
	if err := prepareMoved(ctx, h.pool, false); err != nil {
		return nil, err
	}
	if h.tx, err = h.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}); err != nil {
		return nil, err
	}
	// None of the first statements takes the snapshot: it is that of the time when all
	// tables are locked.
	if err := script(ctx, h.tx, unhurried+`; LOCK TABLE `+ours()+` IN EXCLUSIVE MODE`); err != nil {
		return nil, waited(err)
	}
	if err := script(ctx, h.tx, freePlans); err != nil {
		return nil, err
	}
	if err := noHosts(ctx, h.tx); err != nil {
		return nil, err
	}
	if h.mark, err = readMark(ctx, h.tx); err != nil {
		return nil, err
	}
	return h, h.tx.QueryRow(ctx, `SELECT value FROM meta WHERE name = 'id'`).Scan(&h.store)
}

// freePlans takes back what sessionSettings say of plans: whole tables are read.
const freePlans = `SET LOCAL seq_page_cost TO DEFAULT; SET LOCAL random_page_cost TO DEFAULT; SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on; SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on`

// script runs statements without arguments in a transaction.
func script(ctx context.Context, tx pgx.Tx, text string) error {
	_, err := tx.Conn().PgConn().Exec(ctx, text).ReadAll()
	return err
}

// waited says what a lock that did not come means.
func waited(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "55P03" { // lock_not_available
		return fmt.Errorf("%w: somebody writes to it, or copies it, all the time", keep.ErrLocked)
	}
	return err
}

// noHosts refuses a database on which a host works, or one worked until a moment ago.
func noHosts(ctx context.Context, tx pgx.Tx) error {
	var name string
	var left int64
	err := tx.QueryRow(ctx, `SELECT name, until - `+now+` FROM host WHERE until > `+now+` ORDER BY until DESC LIMIT 1`).Scan(&name, &left)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s; stop it. If it is dead, or this is the copy of a dump, which shows the hosts of its original (they may continue), wait: its leases end in %s", keep.ErrLocked, plain(name),
		(time.Duration(left) * time.Millisecond).Round(time.Second))
}

// A held is a database in which this process has begun a transaction that keeps all
// others from writing.
type held struct {
	pool  *pgxpool.Pool
	tx    pgx.Tx
	store string
	mark  transfer.Mark
}

func (h *held) Store() string       { return h.store }
func (h *held) Mark() transfer.Mark { return h.mark }

// OtherTables returns those in the schema of Keep's tables that are neither Keep's nor an extension's. An
// application that has its own in another schema is none of Keep's business; see transfer.Held.
func (h *held) OtherTables(ctx context.Context) ([]string, error) {
	rows, err := h.tx.Query(ctx, `SELECT relname::text FROM pg_class c
		WHERE relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'meta'::regclass) AND relkind IN ('r', 'p') AND NOT relispartition
			AND relname <> 'meta' AND relname <> ALL ($1)
			AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
		ORDER BY relname`, slices.Concat(derivedTables, kindTables()))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// Set ends the transaction with a mark; see transfer.Held.
func (h *held) Set(ctx context.Context, m transfer.Mark) error {
	err := setMark(ctx, h.tx, m)
	if err == nil {
		err = h.tx.Commit(ctx)
	}
	if err == nil {
		h.mark = m
	}
	return waited(err)
}

// Upgrade does nothing: no schema is marked as a backup, and Hold brings all others up to date; see transfer.Held.
func (h *held) Upgrade(context.Context) error { return nil }

// Restore pauses every workflow, says why in its note, records who did, doubts the tokens of accounts, and ends the transaction; see transfer.Held.
func (h *held) Restore(ctx context.Context, at time.Time, by string) error {
	if err := fence(ctx, h.tx, false); err != nil {
		return waited(err)
	}
	if err := pauseAll(ctx, h.tx, keep.Decision{By: by, From: "cli", Note: transfer.RestoredNote(at), At: at}, transfer.RestoredNotes); err != nil {
		return err
	}
	if err := h.doubtAccounts(ctx, at); err != nil {
		return err
	}
	if _, err := h.tx.Exec(ctx, acceptLoss); err != nil {
		return err
	}
	return h.Set(ctx, transfer.Mark{})
}

// doubtAccounts records that the tokens of accounts may have been used up since the backup.
func (h *held) doubtAccounts(ctx context.Context, at time.Time) error {
	rows, err := h.tx.Query(ctx, `SELECT `+accountColumns+` FROM account WHERE kind = $1`, values([]any{keep.AccountConnected})...)
	if err != nil {
		return err
	}
	list, err := pgx.CollectRows(rows, scanAccount)
	for _, a := range list {
		if next, ok := account.Restored(a, at); ok && err == nil {
			err = putAccount(ctx, h.tx, next)
		}
	}
	if err != nil {
		return fmt.Errorf("accounts: %w", err)
	}
	return nil
}

// pauseAll pauses every workflow, and says why in its note if that is not like what was said before. It records who did.
func pauseAll(ctx context.Context, tx pgx.Tx, d keep.Decision, like string) error {
	_, err := tx.Exec(ctx, `WITH stopped AS (
		UPDATE workflow SET paused = TRUE, updated_at = $1, pause_note = $2 || CASE pause_note WHEN '' THEN '' ELSE '; paused before: ' || pause_note END
		WHERE pause_note NOT LIKE $3 RETURNING name
	), numbered AS (
		UPDATE lease SET n = `+fmt.Sprintf(`greatest(n + 1, least($1::bigint, %d) << %d)`, maxClock, clockBits)+` FROM stopped WHERE workflow = name RETURNING workflow, n
	) INSERT INTO decision (workflow, n, kind, topic, id, at, action, who, source, note)
		SELECT workflow, n, 'workflow', '', workflow, $1, 'pause', $4, $5, $2 FROM numbered`,
		millis(d.At), d.Note, like, text(d.By), d.From)
	return err
}

// Release ends the connection. A transaction that was not committed never was.
func (h *held) Release() error {
	if h.tx != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // the caller's may be over
		defer cancel()
		_ = h.tx.Rollback(ctx) // the end of the connection does the same
		h.tx = nil
	}
	if h.pool != nil {
		h.pool.Close()
		h.pool = nil
	}
	return nil
}

// prepareMoved makes sure that the schema is the one that this version of Keep makes: of
// another it does not know what there is to move. One that is fenced stays as it is. Make
// says to make one if there is none.
func prepareMoved(ctx context.Context, pool *pgxpool.Pool, make bool) error {
	files, err := migrationFiles()
	if err == nil {
		err = writable(ctx, pool)
	}
	if err != nil {
		return err
	}
	version, err := schemaVersion(ctx, pool)
	switch {
	case err != nil:
		return err
	case version > len(files):
		return fmt.Errorf("%w (its schema is %d, this one knows %d); install that version", keep.ErrNewerDatabase, version, len(files))
	case version == len(files):
		return nil
	case version == 0 && !make:
		return errors.New("there is nothing of Keep in it")
	}
	err = (&DB{pool: pool}).prepareSchema(ctx)
	if errors.Is(err, keep.ErrSealed) {
		return nil
	}
	return err
}

// readMark returns what the database says of its moves.
func readMark(ctx context.Context, q querier) (transfer.Mark, error) {
	var text string
	err := q.QueryRow(ctx, `SELECT value FROM meta WHERE name = '`+transfer.MarkName+`'`).Scan(&text)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return transfer.Mark{}, err
	}
	return transfer.DecodeMark(plain(text))
}

// setMark marks the database, and puts the fence up or takes it down. It is a part of
// the caller's transaction.
func setMark(ctx context.Context, tx pgx.Tx, m transfer.Mark) error {
	var err error
	if m.State == transfer.Plain {
		_, err = tx.Exec(ctx, `DELETE FROM meta WHERE name = '`+transfer.MarkName+`'`)
	} else {
		_, err = tx.Exec(ctx, `INSERT INTO meta (name, value) VALUES ('`+transfer.MarkName+`', $1)
			ON CONFLICT (name) DO UPDATE SET value = excluded.value`, text(m.Encode()))
	}
	if err == nil { // what it asked may have been answered elsewhere
		_, err = tx.Exec(ctx, `DELETE FROM meta WHERE name = '`+stored.LinkKeyName+`'`)
	}
	if err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	if err := fence(ctx, tx, m.Fenced()); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	return nil
}

// fence makes or drops triggers that refuse every change of every table but meta: also
// one by a host that was suspended, or by an older version of Keep.
func fence(ctx context.Context, tx pgx.Tx, up bool) error {
	down := `DO $$ BEGIN IF to_regproc('keep_fence') IS NOT NULL THEN DROP FUNCTION keep_fence CASCADE; END IF; END $$;`
	if !up {
		return script(ctx, tx, `SET LOCAL client_min_messages = warning; `+down)
	}
	text := `SET LOCAL client_min_messages = warning; ` + down + `
		CREATE FUNCTION keep_fence() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			RAISE EXCEPTION 'this database was moved, or is being moved to: nobody may work on it'; END $$;`
	for _, table := range strings.Split(ours(), ", ") {
		text += `CREATE TRIGGER keep_fence BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON ` + table + ` EXECUTE FUNCTION keep_fence();`
	}
	return script(ctx, tx, text)
}
