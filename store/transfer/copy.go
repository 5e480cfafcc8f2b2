package transfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
)

// A Place is where a database is, or will be.
type Place interface {
	// Name returns where it is, for people and without a password. Two places of one
	// name are one.
	Name() string

	// Hold keeps everybody else from writing to the database, and from working on it.
	// It fails with keep.ErrLocked while a host does. A database that is not there is
	// an error, and is not made.
	Hold(ctx context.Context) (Held, error)

	// Receive makes a database that is marked m, with the store id of m and the rows
	// that fill adds, or none: after an error there may be one without rows that
	// is marked m. It replaces what is empty, and the rest of a copy of the same store.
	// Anything else is an error, and is not touched.
	Receive(ctx context.Context, m Mark, fill func(Sink) error) error

	// Check yields every record that breaks a law, and why they could not be read.
	Check(ctx context.Context) iter.Seq[error]
}

// Checked yields every record of a database that breaks a law, and why it could not be
// opened, read or closed.
func Checked(ctx context.Context, db interface {
	Open(ctx context.Context) error
	Check(ctx context.Context) iter.Seq[error]
	Close() error
}) iter.Seq[error] {
	return func(yield func(error) bool) {
		err := db.Open(ctx)
		stopped := false
		if err == nil {
			for found := range db.Check(ctx) {
				if stopped = !yield(found); stopped {
					break
				}
			}
			err = db.Close() // not before the check has ended
		}
		if err != nil && !stopped {
			yield(err)
		}
	}
}

// A Reader reads the records of a database at one moment.
type Reader interface {
	// Records calls f with every record: kind by kind in the order of Kinds, and those of
	// a kind in the order in which they were made.
	Records(ctx context.Context, f func(Record) error) error
}

// A Held is a database that no other process can write to. Its methods belong together because
// only who has it alone may read all of it and mark it.
type Held interface {
	Reader

	// OtherTables returns the names of the tables beside Keep's, sorted: programs write to them in
	// the transactions of idempotency.Tx, or have a schema of Postgres in common with Keep. They are not
	// moved, and no fence stands around them.
	OtherTables(ctx context.Context) ([]string, error)

	// Store returns the random name that the database got when it was made.
	Store() string

	// Mark returns what the database says of the moves it took part in.
	Mark() Mark

	// Set marks the database, puts the fence up or takes it down as the mark demands,
	// and releases it. If it fails, the mark may be the old one or the new.
	Set(ctx context.Context, m Mark) error

	// Upgrade brings the schema of a backup by an earlier version to that of this one, unless its pages are damaged. It
	// stays a backup. A database that is none has that schema since Hold.
	Upgrade(ctx context.Context) error

	// Restore pauses every workflow at a time, records who did, and that the tokens of accounts may have been used up (account.Restored), takes
	// the mark and the fence away, and releases the database. If it fails, all of that or nothing may have happened.
	Restore(ctx context.Context, at time.Time, by string) error

	// Release gives the database up as it is. It may be called after Set.
	Release() error
}

// A Sink takes records.
type Sink interface {
	// Add adds records of one kind, in the order in which a Reader reads them.
	Add(ctx context.Context, records []Record) error
}

// A Progress says how far a move has come.
type Progress struct {
	Step  string // "copying" or "verifying"
	Table string
	Rows  int64 // of the table
}

// A Mover moves databases.
type Mover struct {
	// Now is the time that marks carry.
	Now time.Time

	// By is who restores, for the record of the pause.
	By string

	// LeaveTables makes Copy begin where there are tables beside Keep's, which stay in the source.
	LeaveTables bool

	// Anyway makes Restore take a database that breaks a law.
	Anyway bool

	// Tell is called with the progress, often. It may be nil.
	Tell func(Progress)
}

// A Moved says what was moved.
type Moved struct {
	Digest  string   // of both sides
	Rows    int64    // 0 if Resumed
	Resumed bool     // an earlier copy had come so far that only the target had to be opened
	Left    []string // tables of the source that are not Keep's
}

// Errors of a move.
var (
	// ErrSame is returned when both places are one.
	ErrSame = errors.New("both are the same database")

	// ErrOtherTables is returned by Copy when the source has tables that are not Keep's, unless they are to stay.
	ErrOtherTables = errors.New("it has tables that are not Keep's, and a copy does not take them along")

	// ErrUsed is returned by Undo when something happened on the target.
	ErrUsed = errors.New("the copy was used since")
)

// Copy moves the database at from to to, where nothing may be but the rest of
// an earlier copy. When it returns nil, the target is open and the source sealed. After an
// error at most one of them is open, and the same Copy may be tried again.
//
// What a program wrote to tables of its own beside Keep's, with idempotency.Tx, belongs to the keys that
// are moved: a key says that it was done. So a source with such tables is refused, also where a schema of Postgres has
// those of a whole application, until somebody says with LeaveTables that they stay.
func (m Mover) Copy(ctx context.Context, from, to Place) (done Moved, err error) {
	if from.Name() == to.Name() {
		return done, ErrSame
	}
	source, err := from.Hold(ctx)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, source.Release()) }()
	if done.Left, err = source.OtherTables(ctx); err != nil {
		return done, fmt.Errorf("read %s: %w", from.Name(), err)
	}
	switch source.Mark().State {
	case Incoming, Backup:
		return done, fmt.Errorf("read %s: %w", from.Name(), source.Mark().Refuse())
	case Sealed:
		done.Digest, done.Resumed = source.Mark().Digest, true
		return done, m.finish(ctx, from, source.Mark(), to)
	}
	if len(done.Left) > 0 && !m.LeaveTables {
		return done, fmt.Errorf("copy %s: %w: %s", from.Name(), ErrOtherTables, shown(done.Left))
	}
	mark := Mark{State: Incoming, Copy: rand.Text(), Peer: from.Name(), Store: source.Store(), At: m.Now}
	var digest *Digest
	if err := to.Receive(ctx, mark, func(sink Sink) (err error) {
		digest, err = m.fill(ctx, source, sink)
		return err
	}); err != nil {
		return done, err
	}
	done.Digest, done.Rows = digest.String(), digest.Records()
	target, err := to.Hold(ctx)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, target.Release()) }()
	if err := m.verify(ctx, to, target, digest); err != nil {
		return done, err
	}
	sealed := mark
	sealed.State, sealed.Peer, sealed.Digest = Sealed, to.Name(), done.Digest
	if err := source.Set(ctx, sealed); err != nil {
		return done, fmt.Errorf("seal %s: %w", from.Name(), err)
	}
	return done, m.open(ctx, to, target, sealed)
}

// Records of one Add, and about as many bytes.
const (
	batchRecords = 1000
	batchBytes   = 4 << 20
)

// fill adds all records of a source, and returns their digest.
func (m Mover) fill(ctx context.Context, from Reader, to Sink) (*Digest, error) {
	d := newDigest()
	var batch []Record
	kind, size := 0, 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		if err := to.Add(ctx, batch); err != nil {
			return fmt.Errorf("write %s: %w", Kinds[kind].Name, err)
		}
		m.tell("copying", Kinds[kind].Name, d.sums[kind].records)
		batch, size = batch[:0], 0
		return nil
	}
	err := from.Records(ctx, func(r Record) error {
		if next := KindOf(r); next != kind || len(batch) == batchRecords || size >= batchBytes {
			if err := flush(); err != nil {
				return err
			}
			kind = next
		}
		batch, size = append(batch, r), size+d.add(r)
		return nil
	})
	if err == nil {
		err = flush()
	}
	return d, err
}

// verify reads what arrived.
func (m Mover) verify(ctx context.Context, to Place, target Reader, want *Digest) error {
	got, err := digestOf(ctx, target, func(table string, rows int64) {
		if rows%batchRecords == 0 {
			m.tell("verifying", table, rows)
		}
	})
	if err != nil {
		return fmt.Errorf("verify %s: %w", to.Name(), err)
	}
	if diff := want.diff(got); diff != "" {
		return fmt.Errorf("verify %s: it is not what was copied: %s; the source is as it was", to.Name(), diff)
	}
	m.tell("verifying", "laws", 0)
	for err := range to.Check(ctx) {
		return fmt.Errorf("verify %s: %w; the source is as it was: see keep doctor", to.Name(), err)
	}
	return nil
}

func (m Mover) tell(step, table string, rows int64) {
	if m.Tell != nil {
		m.Tell(Progress{step, table, rows})
	}
}

// open opens the target of a source that is sealed.
func (m Mover) open(ctx context.Context, to Place, target Held, sealed Mark) error {
	mark := target.Mark()
	mark.State, mark.Digest = Arrived, sealed.Digest
	if err := target.Set(ctx, mark); err != nil {
		return fmt.Errorf("open %s, which is complete: give the same command again: %w", to.Name(), err)
	}
	return nil
}

// shown names the first of some tables.
func shown(tables []string) string {
	const most = 10
	if more := len(tables) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(tables[:most], ", "), more)
	}
	return strings.Join(tables, ", ")
}

// finish continues after a copy that died when it had sealed its source.
func (m Mover) finish(ctx context.Context, from Place, sealed Mark, to Place) (err error) {
	target, err := to.Hold(ctx)
	if err != nil {
		return fmt.Errorf("%s is sealed: %w", from.Name(), errors.Join(sealed.Refuse(), err))
	}
	defer func() { err = errors.Join(err, target.Release()) }()
	if target.Mark().Copy != sealed.Copy {
		return fmt.Errorf("read %s: %w", from.Name(), sealed.Refuse())
	}
	if target.Mark().State == Arrived {
		return nil
	}
	return m.open(ctx, to, target, sealed)
}

// Undo opens the source of a Copy again, and seals its target, if nothing happened
// there: then it returns ErrUsed, and the way back is another Copy.
func (m Mover) Undo(ctx context.Context, from, to Place) (err error) {
	if from.Name() == to.Name() {
		return ErrSame
	}
	source, err := from.Hold(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Release()) }()
	sealed := source.Mark()
	if sealed.State != Sealed {
		return fmt.Errorf("%s: %w", from.Name(), errNotSealed)
	}
	target, err := to.Hold(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Release()) }()
	mark := target.Mark()
	if mark.Copy != sealed.Copy {
		return fmt.Errorf("%s was moved to %s, and %s is another database", from.Name(), sealed.Peer, to.Name())
	}
	if mark.State == Arrived {
		now, err := DigestOf(ctx, target)
		if err != nil {
			return fmt.Errorf("read %s: %w", to.Name(), err)
		}
		if now.String() != sealed.Digest {
			return fmt.Errorf("%w: %s has other rows than were copied; to go back, copy it to a new database", ErrUsed, to.Name())
		}
		mark.State = Incoming
		if err := target.Set(ctx, mark); err != nil {
			return fmt.Errorf("seal %s: %w", to.Name(), err)
		}
	}
	return source.Set(ctx, Mark{})
}

// errNotSealed is returned when there is nothing to undo.
var errNotSealed = errors.New("it is not sealed")

// Unseal opens a sealed database without a look at where its rows went. If a host works
// there, things are done twice.
func Unseal(ctx context.Context, place Place) (err error) {
	held, err := place.Hold(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Release()) }()
	if held.Mark().State != Sealed {
		return fmt.Errorf("%s: %w", place.Name(), errNotSealed)
	}
	return held.Set(ctx, Mark{})
}

// Restore says that the database at a place, which is as it was at an earlier moment, is
// the one to work on, if it is whole and breaks no law. Its workflows are paused: what was done since is not in it, and would be
// done again.
func (m Mover) Restore(ctx context.Context, place Place) (err error) {
	held, err := place.Hold(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Release()) }()
	switch held.Mark().State {
	case Incoming, Sealed:
		return fmt.Errorf("restore %s: %w", place.Name(), held.Mark().Refuse())
	}
	if err := held.Upgrade(ctx); err != nil {
		return fmt.Errorf("restore %s: %w", place.Name(), err)
	}
	if !m.Anyway {
		for err := range place.Check(ctx) {
			return fmt.Errorf("restore %s: it is damaged, and stays as it is: %w", place.Name(), err)
		}
	}
	return held.Restore(ctx, m.Now, m.By)
}
