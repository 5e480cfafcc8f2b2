package postgres

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/key"
)

// Keys keeps the records of idempotency keys. It is an idempotency.Store, and an
// idempotency.TxStore whose transactions are pgx.Tx.
//
// Concurrent reads share round trips, and so do concurrent writes, which share a
// transaction as well. Each takes one of the pool's connections, and a second one
// under load.
type Keys struct {
	pool          *pgxpool.Pool
	reads, writes combiner[*keyRequest]
	lately        lately
	memory        memory
}

// A keyRequest is one read or write of one record.
type keyRequest struct {
	ctx context.Context // the caller's: a request is a call
	id  key.ID
	r   key.Record // what was read, or is to be written
}

const (
	// keyGroup is the most that share a round trip. It bounds how long the first
	// waits, and how much is done again when one of them is refused.
	keyGroup = 64

	// keysWorth is how many wait before a second group leaves beside the first. A
	// transaction of one record costs the server as much as twenty more in it do:
	// two small groups at once take longer than one after the other.
	keysWorth = 32

	// keysPatience is how long a group may take before those who wait leave all the
	// same: a commit that waits for the other end of a line is no work for the
	// server.
	keysPatience = 2 * time.Millisecond
)

// NewKeys returns the records in the pool's database. It touches nothing; Migrate
// makes the table.
func NewKeys(pool *pgxpool.Pool) *Keys {
	k := &Keys{pool: pool}
	k.reads = combiner[*keyRequest]{serve: whileAwaited(k.readGroup), width: 2, limit: keyGroup, gathers: true}
	// Two writes of one record must not meet in a transaction, where the second
	// would not be stale yet.
	k.writes = combiner[*keyRequest]{serve: whileAwaited(k.writeGroup), width: 2, limit: keyGroup, worth: keysWorth, after: keysPatience, gathers: true,
		key: func(q *keyRequest) string { return string(q.id[:]) }}
	return k
}

// roundTrip is the most time for one: a server that is gone must not hold
// everybody up.
const roundTrip = 10 * time.Second

// whileAwaited returns serve with a context that ends when everybody in the group
// would have stopped waiting, and at the latest after roundTrip.
func whileAwaited(serve func(context.Context, []*request[*keyRequest])) func(context.Context, []*request[*keyRequest]) {
	return func(ctx context.Context, group []*request[*keyRequest]) {
		ctx, cancel := context.WithTimeout(ctx, roundTrip)
		defer cancel()
		var last time.Time
		for _, r := range group {
			until, ok := r.what.ctx.Deadline()
			if !ok {
				serve(ctx, group)
				return
			}
			if until.After(last) {
				last = until
			}
		}
		ctx, cancel = context.WithDeadline(ctx, last)
		defer cancel()
		serve(ctx, group)
	}
}

// keyMigrations are those about keys, which may stand in a database of their own.
var keyMigrations = [...]string{"migrations/0002_idempotency.sql", "migrations/0010_key_host.sql", "migrations/0042_lost_keys.sql"}

// besideNewer refuses the database of a Keep that asks for more than this program knows. A table of another program by one of our
// names is not in the way: the one of the keys is all that is needed.
func (k *Keys) besideNewer(ctx context.Context) error {
	files, err := migrationFiles()
	if err != nil {
		return err
	}
	version, err := schemaVersion(ctx, k.pool)
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "42501" { // who works on the database of a Keep may read it
		return nil
	}
	if errors.Is(err, keep.ErrForeignDatabase) || err == nil && version <= len(files) {
		return nil
	}
	if err != nil {
		return err
	}
	return besideNewer(ctx, k.pool, len(files))
}

// Migrate makes the table if it is missing, or brings it up to date. Several processes may call it at once. Its error is
// keep.ErrNewerDatabase where the table is in the database of a newer Keep beside which this program must not work.
func (k *Keys) Migrate(ctx context.Context) error {
	if err := k.besideNewer(ctx); err != nil {
		return err
	}
	err := pgx.BeginTxFunc(ctx, k.pool, readCommitted, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrationLock)); err != nil {
			return err
		}
		made, err := tablesOfKeys(ctx, tx)
		if err != nil {
			return err
		}
		for i, done := range made {
			if done {
				continue
			}
			schema, err := migrations.ReadFile(keyMigrations[i])
			if err == nil {
				_, err = tx.Exec(ctx, string(schema))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("migrate idempotency keys: %w", err)
	}
	return k.besideNewer(ctx) // which may have come while this one waited
}

// Check returns nil if the table is there and up to date, keep.ErrNoDatabase if it is missing, and what to do if it is
// that of an earlier version or, as Migrate does, in the database of a newer Keep. It makes nothing.
func (k *Keys) Check(ctx context.Context) error {
	if err := k.besideNewer(ctx); err != nil {
		return err
	}
	switch made, err := tablesOfKeys(ctx, k.pool); {
	case err != nil:
		return err
	case !made[0]:
		return keep.ErrNoDatabase
	case slices.Contains(made[:], false):
		return errors.New("the table of idempotency keys is that of an earlier version: start keep proxy once")
	}
	return nil
}

// tablesOfKeys reports which of keyMigrations were made.
func tablesOfKeys(ctx context.Context, from interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}) (made [len(keyMigrations)]bool, err error) {
	err = from.QueryRow(ctx, `SELECT to_regclass('idempotency_key') IS NOT NULL, EXISTS (SELECT 1 FROM pg_attribute
		WHERE attrelid = to_regclass('idempotency_key') AND attname = 'host'), to_regclass('idempotency_lost') IS NOT NULL `+asOfNow).Scan(&made[0], &made[1], &made[2])
	return made, err
}

const keyColumns = `id, version, alias, host, key, caller, method, path, fingerprint, state, atomic, token, doubts,
	lease_until, doubt_at, status, resolved_by, created_at, updated_at, expires_at, rev`

// Read returns the record of an id, or the zero Record.
func (k *Keys) Read(ctx context.Context, id key.ID) (key.Record, error) {
	q := &keyRequest{ctx: ctx, id: id}
	if err := k.reads.do(ctx, q); err != nil {
		return key.Record{}, fmt.Errorf("read %s: %w", id, err)
	}
	return q.r, nil
}

// readGroup reads the records of a group, in one round trip.
func (k *Keys) readGroup(ctx context.Context, group []*request[*keyRequest]) {
	batch := new(pgx.Batch)
	for _, r := range group {
		batch.Queue(`SELECT `+keyColumns+`, header, body FROM idempotency_key WHERE id = $1`, r.what.id[:])
	}
	results := k.pool.SendBatch(ctx, batch)
	for _, r := range group {
		got := &r.what.r
		r.err = scanKey(results.QueryRow(), got, &got.Answer.Header, &got.Answer.Body)
		if errors.Is(r.err, pgx.ErrNoRows) {
			*got, r.err = key.Record{}, nil
		}
	}
	_ = results.Close() // an error that matters is a request's, too
}

// scanKey reads the columns of keyColumns into r, and those after them into more.
func scanKey(row pgx.Row, r *key.Record, more ...any) error {
	var id, alias, fingerprint []byte
	var lease, doubt, created, updated, expires int64
	if err := row.Scan(append([]any{&id, &r.Version, &alias, &r.Host, &r.Key, &r.Caller, &r.Method, &r.Path, &fingerprint, &r.State, &r.Atomic, &r.Fence,
		&r.Doubts, &lease, &doubt, &r.Answer.Status, &r.ResolvedBy, &created, &updated, &expires, &r.Rev}, more...)...); err != nil {
		return err
	}
	copy(r.ID[:], id)
	copy(r.Alias[:], alias)
	copy(r.Fingerprint[:], fingerprint)
	r.LeaseUntil, r.DoubtAt = moment(lease), moment(doubt)
	r.CreatedAt, r.UpdatedAt, r.ExpiresAt = moment(created), moment(updated), moment(expires)
	return nil
}

// ReadAlias returns the live record of an alias at now, or the zero Record.
func (k *Keys) ReadAlias(ctx context.Context, alias key.ID, now time.Time) (r key.Record, err error) {
	err = scanKey(k.pool.QueryRow(ctx, `SELECT `+keyColumns+` FROM idempotency_key
		WHERE alias = $1 AND (state IN ('in_progress', 'unknown') OR expires_at > $2)`, alias[:], millis(now)), &r)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return key.Record{}, nil
	case err != nil:
		return key.Record{}, fmt.Errorf("read the key of alias %s: %w", alias, err)
	}
	return r, nil
}

// Take stores r and returns the zero Record, or returns the record that is there. It
// looks first if it has seen the key lately, and otherwise after it was refused.
func (k *Keys) Take(ctx context.Context, r key.Record) (there key.Record, err error) {
	if r.Rev != 0 {
		return key.Record{}, fmt.Errorf("take %s: it has rev %d: want a new one", r.ID, r.Rev)
	}
	if k.lately.has(r.ID) {
		if there, err := k.Read(ctx, r.ID); err != nil || there.Rev > 0 {
			return there, err
		}
	}
	k.lately.add(r.ID)
	err = k.Write(ctx, r)
	if !errors.Is(err, keep.ErrStale) {
		return key.Record{}, err
	}
	if there, readErr := k.Read(ctx, r.ID); readErr == nil && there.Rev > 0 {
		return there, nil
	}
	return key.Record{}, err // it was swept since; or it cannot be read, and is somebody's all the same
}

// Write stores r in place of the record with its Rev, or returns keep.ErrStale.
func (k *Keys) Write(ctx context.Context, r key.Record) error {
	err := r.Validate()
	if err == nil {
		err = movedAway(k.writes.do(ctx, &keyRequest{ctx, r.ID, r}))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", r.ID, err)
	}
	return nil
}

// movedAway returns err as keep.ErrReplaced, too, if the fence of a database that was moved refused a key: what is executed all the
// same would be executed again by who works on the other one.
func movedAway(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "P0001" && strings.Contains(e.Where, "keep_fence()") {
		return fmt.Errorf("%w: %w", keep.ErrReplaced, err)
	}
	return err
}

// writeGroup stores the records of a group in one transaction. If the server
// refuses one, nothing is stored, and each is tried again alone.
func (k *Keys) writeGroup(ctx context.Context, group []*request[*keyRequest]) {
	// Two transactions lock records in one order, so neither waits for the other
	// without end.
	slices.SortFunc(group, func(a, b *request[*keyRequest]) int { return bytes.Compare(a.what.id[:], b.what.id[:]) })
	err := k.writeOnce(ctx, group)
	if undone(err) && len(group) > 1 {
		for i := range group {
			group[i].err = cmp.Or(k.writeOnce(ctx, group[i:i+1]), group[i].err)
		}
		return
	}
	for _, r := range group {
		r.err = cmp.Or(err, r.err)
	}
}

// writeOnce stores a group in one transaction and one round trip. Who was stale is
// in its request; an error is about all.
func (k *Keys) writeOnce(ctx context.Context, group []*request[*keyRequest]) error {
	added, changed := make([]*key.Record, 0, len(group)), make([]*key.Record, 0, len(group))
	for _, r := range group {
		if r.err = keep.ErrStale; r.what.r.Rev == 0 {
			added = append(added, &r.what.r)
		} else {
			changed = append(changed, &r.what.r)
		}
	}
	batch := new(pgx.Batch) // without BEGIN it is a transaction of its own
	stored := func(rows pgx.Rows) error { return markStored(rows, group) }
	batch.Queue(byIndex)
	takenAt := takesKeys(group)
	if !takenAt.IsZero() {
		if err := k.memory.failed(); err != nil {
			return err
		}
		ids, revs := k.memory.all(takenAt)
		batch.Queue(compareKeys, ids, revs)
	}
	if aliases, at := takenAliases(group); len(aliases) > 0 {
		batch.Queue(freeAliases, aliases, at)
	}
	if len(added) > 0 {
		batch.Queue(insertKeys+` RETURNING id`, columnsOf(added).args()...).Query(stored)
	}
	if len(changed) > 0 {
		batch.Queue(updateKeys+` RETURNING k.id`, columnsOf(changed).args()...).Query(stored)
	}
	err := k.pool.SendBatch(ctx, batch).Close() // with the commit
	switch {
	case isCode(err, divisionByZero): // only the comparison divides
		return k.wentBack(ctx, takenAt)
	case len(group) == 1 && isCode(err, uniqueViolation):
		return keep.ErrStale // another one has its alias
	case err == nil:
		k.remember(group)
	}
	return err
}

// remember remembers one of the records that a group stored.
func (k *Keys) remember(group []*request[*keyRequest]) {
	for _, q := range group {
		if q.err == nil {
			k.memory.add(q.what.r)
			return
		}
	}
}

// takenAliases returns the aliases of the records that a group begins, and the earliest
// time at which one of them does.
func takenAliases(group []*request[*keyRequest]) (aliases blobs, at int64) {
	for _, q := range group {
		r := &q.what.r
		if r.State != key.InProgress || r.Alias == (key.ID{}) {
			continue
		}
		if updated := millis(r.UpdatedAt); len(aliases) == 0 || updated < at {
			at = updated
		}
		aliases = append(aliases, r.Alias[:])
	}
	return aliases, at
}

// freeAliases takes aliases from records that are over: an index makes sure that
// one record has it.
const freeAliases = `UPDATE idempotency_key SET alias = NULL
	WHERE alias = ANY ($1::bytea[]) AND state IN ('done', 'done_without_body') AND expires_at <= $2`

const uniqueViolation = "23505"

func isCode(err error, code string) bool {
	refused := new(pgconn.PgError)
	return errors.As(err, &refused) && refused.Code == code
}

// find returns the place of the request of an id in a group, which is sorted.
func find(group []*request[*keyRequest], id []byte) (int, bool) {
	return slices.BinarySearchFunc(group, id, func(r *request[*keyRequest], id []byte) int { return bytes.Compare(r.what.id[:], id) })
}

// markStored takes the error from each request whose id a statement returned.
func markStored(rows pgx.Rows, group []*request[*keyRequest]) error {
	var id []byte
	_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
		if i, ok := find(group, id); ok {
			group[i].err = nil
		}
		return nil
	})
	return err
}

// byIndex makes the next statements of the transaction find rows by their index,
// also while the server still believes that the table is empty. Statements are
// planned once, and a plan that reads the whole table would stay when it has
// grown.
const byIndex = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
	set_config('enable_mergejoin', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)`

// undone reports whether err says that the server rolled the transaction back and
// works on. After any other the outcome is unknown.
func undone(err error) bool {
	refused := new(pgconn.PgError)
	return errors.As(err, &refused) && refused.SeverityUnlocalized == "ERROR"
}

// Now returns the server's time.
func (k *Keys) Now(ctx context.Context) (time.Time, error) {
	at := int64(0)
	err := k.pool.QueryRow(ctx, `SELECT `+now).Scan(&at)
	return moment(at), err
}

// Sweep deletes at most limit records that are over at now. Two sweepers do not
// wait for each other.
func (k *Keys) Sweep(ctx context.Context, now time.Time, limit int) (int, error) {
	tag, err := k.pool.Exec(ctx, `DELETE FROM idempotency_key WHERE n IN (
		SELECT n FROM idempotency_key
		WHERE state IN ('done', 'done_without_body', 'released') AND expires_at <= $1
		ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)`, millis(now), limit)
	k.memory.swept(now) // after an error, too: it may have been committed
	return int(tag.RowsAffected()), movedAway(err)
}

// List returns a page of the records that f selects, newest first, without their
// headers and bodies.
func (k *Keys) List(ctx context.Context, f key.Filter, p keep.Page) ([]key.Record, string, error) {
	before := int64(1<<63 - 1)
	if p.After != "" {
		n, err := strconv.ParseInt(p.After, 10, 64)
		if err != nil || n < 1 {
			return nil, "", fmt.Errorf("list idempotency keys after %q: %w", p.After, keep.ErrBadCursor)
		}
		before = n
	}
	where := `n < $1 AND ($2 = '' OR state = $2) AND ($3 = '' OR key = $3) AND ($4 = '' OR caller = $4)`
	if f.State == key.InProgress || f.State == key.Unknown {
		where += ` AND state IN ('in_progress', 'unknown')` // as the index has it
	}
	rows, err := k.pool.Query(ctx, `SELECT `+keyColumns+`, n FROM idempotency_key WHERE `+where+` ORDER BY n DESC LIMIT $5`,
		before, string(f.State), text(f.Key), text(f.Caller), p.Size()+1) // one that Postgres cannot hold finds nothing
	if err != nil {
		return nil, "", fmt.Errorf("list idempotency keys: %w", err)
	}
	var list []key.Record
	var last int64
	next := ""
	for rows.Next() && next == "" {
		if len(list) == p.Size() {
			next = strconv.FormatInt(last, 10)
			break
		}
		var r key.Record
		if err := scanKey(rows, &r, &last); err != nil {
			rows.Close()
			return nil, "", fmt.Errorf("list idempotency keys: %w", err)
		}
		list = append(list, r)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return nil, "", fmt.Errorf("list idempotency keys: %w", err)
	}
	return list, next, nil
}

// Begin starts the transaction in which a handler works and its key completes. Its
// handle is a pgx.Tx. It takes a connection of the pool until its end: give the
// pool more than there are such handlers at once, or nobody else gets one.
func (k *Keys) Begin(ctx context.Context) (key.Tx, error) {
	tx, err := k.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginMarked})
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	return &keyTx{k: k, tx: tx}, nil
}

// A handler may end its transaction by a statement, of which pgx does not know, and begin another one: what is set for this one alone
// shows in it, and in no other.
const (
	beginMarked = `BEGIN; SET LOCAL keep.key_transaction = 'begun'`
	isMarked    = `SELECT current_setting('keep.key_transaction', true) IS NOT DISTINCT FROM 'begun'`
)

type keyTx struct {
	k     *Keys
	tx    pgx.Tx
	wrote key.Record
}

// Handle returns the pgx.Tx.
func (t *keyTx) Handle() any { return t.tx }

// open returns nil if the transaction is still the one that was begun, and key.ErrTxEnded if its handler ended that.
func (t *keyTx) open(ctx context.Context) error {
	marked := false
	err := t.tx.QueryRow(ctx, isMarked).Scan(&marked)
	switch {
	case err == nil && marked:
		return nil
	case err == nil, errors.Is(err, pgx.ErrTxClosed), t.tx.Conn().PgConn().TxStatus() == 'I': // as the server said before the connection was lost
		return key.ErrTxEnded
	}
	return err
}

// Write puts the record into the transaction.
func (t *keyTx) Write(ctx context.Context, r key.Record) error {
	err := r.Validate()
	if err == nil {
		err = t.open(ctx)
	}
	if err == nil {
		text := updateKeys
		if r.Rev == 0 {
			text = insertKeys
		}
		var tag pgconn.CommandTag
		if tag, err = t.tx.Exec(ctx, text, columnsOf([]*key.Record{&r}).args()...); err == nil && tag.RowsAffected() == 0 {
			err = keep.ErrStale
		}
	}
	if errors.Is(err, pgx.ErrTxClosed) {
		err = key.ErrTxEnded
	}
	if err = movedAway(err); err != nil {
		return fmt.Errorf("write %s: %w", r.ID, err)
	}
	t.wrote = r
	return nil
}

// Commit makes the record durable with everything that the handler wrote.
func (t *keyTx) Commit(ctx context.Context) error {
	err := t.tx.Commit(ctx)
	if err == nil && t.wrote.ID != (key.ID{}) {
		t.k.memory.add(t.wrote)
	}
	return err
}

// Rollback has no context: it must also work after the request's ended.
func (t *keyTx) Rollback() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := t.tx.Rollback(ctx); !errors.Is(err, pgx.ErrTxClosed) {
		return err
	}
	return nil
}

// lately are keys that came not long ago: most of the last 65,536, and never one that
// did not come. A second look at a key mostly comes soon after the first.
type lately [65536]atomic.Uint64

func (l *lately) place(id key.ID) (at *atomic.Uint64, mark uint64) {
	n := binary.BigEndian.Uint64(id[:])
	return &l[n%uint64(len(l))], n | 1 // never 0, which is empty
}

func (l *lately) add(id key.ID) {
	at, mark := l.place(id)
	at.Store(mark)
}

func (l *lately) has(id key.ID) bool {
	at, mark := l.place(id)
	return at.Load() == mark
}

// orNull returns b, or NULL for no bytes.
func orNull(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
