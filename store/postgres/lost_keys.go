package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/key"
)

// A standby that takes the place of a server may lack the last keys, as it may lack the last commits: see
// record. A retry of a request whose key is lost would be executed again. So a process remembers some of the
// records that it was told are stored last, and each transaction that takes keys compares. If the server
// lacks one of them, a row of idempotency_lost keeps every process from taking keys, until a person accepts
// the loss. What is known already can be answered, and decided, as ever.
//
// What a server lost are its last transactions, so the last one that was acknowledged is enough. A few more are
// remembered, since of two at once the one that is acknowledged first may be the later one.

// remembered is how many transactions are remembered: more than mostly are under way at once.
const remembered = 8

// A memory remembers what was stored.
type memory struct {
	mu   sync.Mutex
	last [remembered]key.Record // protected by mu; a record of each transaction, without its answer
	next int                    // protected by mu; the place of the next one
	lost error                  // protected by mu; the server lacks some of it
}

// add remembers a record as it is stored now.
func (m *memory) add(r key.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last[m.next] = key.Record{ID: r.ID, ExpiresAt: r.ExpiresAt, Rev: r.Rev + 1}
	m.next = (m.next + 1) % len(m.last)
}

// sweptEarly is by how much the clock of a process that sweeps may be ahead.
const sweptEarly = time.Minute

// all returns the ids and revs of what the server must have at now.
func (m *memory) all(now time.Time) (ids blobs, revs ints) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.last {
		if now.Add(sweptEarly).Before(r.ExpiresAt) {
			ids, revs = append(ids, r.ID[:]), append(revs, r.Rev)
		}
	}
	return ids, revs
}

// swept forgets what is over at now, and so was swept, or will be: the clock may be set back.
func (m *memory) swept(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, r := range m.last {
		if !now.Before(r.ExpiresAt) {
			m.last[i] = key.Record{}
		}
	}
}

// failed returns keep.ErrReplaced, with what to do, once the server was found to lack something.
func (m *memory) failed() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lost
}

// lacksKeys is true if the server lacks one of these records, or a process found that it did.
const lacksKeys = `EXISTS (SELECT FROM idempotency_lost WHERE at > 0) OR EXISTS (SELECT FROM unnest($1::bytea[], $2::bigint[]) AS known (id, rev)
	WHERE NOT EXISTS (SELECT FROM idempotency_key k WHERE k.id = known.id AND k.rev >= known.rev))`

// compareKeys ends a transaction with divisionByZero if the server lacks something: those who take keys need no round trip
// more.
const (
	compareKeys    = `SELECT 1 / (NOT (` + lacksKeys + `))::int`
	divisionByZero = "22012"
)

// takesKeys returns when a group takes keys, whose requests are executed once they are stored; zero: it takes none.
func takesKeys(group []*request[*keyRequest]) (at time.Time) {
	for _, q := range group {
		if r := &q.what.r; r.State == key.InProgress && r.UpdatedAt.After(at) {
			at = r.UpdatedAt
		}
	}
	return at
}

// wentBack returns why a transaction that compared was ended. It looks again, since a pooler may have had a server
// answer that was behind: one that takes the mark is the one that counts.
func (k *Keys) wentBack(ctx context.Context, at time.Time) error {
	ids, revs := k.memory.all(at)
	lacks := false
	err := pgx.BeginTxFunc(ctx, k.pool, readCommitted, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `SELECT `+lacksKeys, ids, revs).Scan(&lacks); err != nil || !lacks {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO idempotency_lost SELECT `+now+` WHERE NOT EXISTS (SELECT FROM idempotency_lost)`)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("say that the server lacks keys: %v", err) // no error of the group's own transaction
	case !lacks:
		return errors.New("the server lacked keys that it said are stored, and has them now")
	}
	k.memory.mu.Lock()
	defer k.memory.mu.Unlock()
	k.memory.lost = errLostKeys
	return errLostKeys
}

// errLostKeys says what happened and what a person can do.
var errLostKeys = fmt.Errorf("%w: the server lacks idempotency keys that it said are stored, as after a failover to a standby that was behind; "+
	"a retry of what was executed under them would be executed again, so no request with a key is executed by any process: if the server that has them can be brought back, "+
	"use that one; else keep proxy --new continues without them", keep.ErrReplaced)

// Lost returns keep.ErrReplaced, with what to do, if a process found that the server lacks keys, and no person has
// accepted that since. Until then Take and Write take no keys.
func (k *Keys) Lost(ctx context.Context) error { return keysLost(ctx, k.pool) }

func keysLost(ctx context.Context, q querier) error {
	lost := false
	if err := q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM idempotency_lost)`).Scan(&lost); err != nil {
		return fmt.Errorf("look whether keys were lost: %w", err)
	}
	if lost {
		return errLostKeys
	}
	return nil
}

// AcceptLoss says that a person knows of lost keys: requests of which nobody knows are executed as new ones, by processes
// that are started from now on. Those that found the loss do not.
func (k *Keys) AcceptLoss(ctx context.Context) error {
	if _, err := k.pool.Exec(ctx, acceptLoss); err != nil {
		return fmt.Errorf("accept that keys were lost: %w", err)
	}
	return nil
}

const acceptLoss = `DELETE FROM idempotency_lost`
